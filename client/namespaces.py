"""Namespaces: names of one tenant, kept apart by a prefix that applications do not see (`NamespaceUtil`).

On the wire a topic or group of namespace `ns` is `ns%name`; the marks of retry and dead-letter topics stay in front
(`%RETRY%ns%group`). What the system owns has one name for everybody.
"""

from __future__ import annotations

import re

from ringmq.remoting.message_queue import MessageQueue
from ringmq.remoting.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic

SEPARATOR = "%"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
NAMESPACE_CHARS_MAX = 100
_LEGAL = re.compile(r"[a-zA-Z0-9_-]+")


def check_namespace(namespace: str) -> None:
    """Raise ValueError for text that cannot be told from the name behind it; "" is no namespace."""
    if namespace and not _LEGAL.fullmatch(namespace):
        raise ValueError(f"namespace {namespace!r} may hold letters, digits, _ and - only")
    if len(namespace) > NAMESPACE_CHARS_MAX:
        raise ValueError(f"namespace of {len(namespace)} characters is over the limit of {NAMESPACE_CHARS_MAX}")


def with_namespace(namespace: str, name: str) -> str:
    """The topic or group as servers know it. A name that carries the namespace already stays as it is."""
    if not namespace or not name or _is_system(name):
        return name
    mark, rest = _split_mark(name)
    return name if rest.startswith(namespace + SEPARATOR) else f"{mark}{namespace}{SEPARATOR}{rest}"


def without_namespace(namespace: str, name: str) -> str:
    """The topic or group as the application knows it. A name of another namespace stays whole."""
    mark, rest = _split_mark(name)
    prefix = namespace + SEPARATOR
    return mark + rest[len(prefix) :] if namespace and rest.startswith(prefix) else name


def queue_with_namespace(namespace: str, queue: MessageQueue) -> MessageQueue:
    """The queue under its topic's name on the wire."""
    return queue._replace(topic=with_namespace(namespace, queue.topic)) if namespace else queue


def queue_without_namespace(namespace: str, queue: MessageQueue) -> MessageQueue:
    """The queue under the name that the application gave its topic."""
    return queue._replace(topic=without_namespace(namespace, queue.topic)) if namespace else queue


def _is_system(name: str) -> bool:
    return is_system_topic(name) or name.startswith(SYSTEM_GROUP_PREFIX)


def _split_mark(name: str) -> tuple[str, str]:
    for mark in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(mark):
            return mark, name[len(mark) :]
    return "", name
