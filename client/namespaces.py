"""Namespaces: names of one tenant, with a prefix that applications do not see (`NamespaceUtil`).

On the wire a topic or group of namespace `ns` is `ns%name`. The prefixes of retry and dead-letter topics stay in
front (`%RETRY%ns%group`). The system's names have no namespace.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.json_text import dump_json, load_json
from ringmq.remoting.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic

SEPARATOR = "%"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
NAMESPACE_CHARS_MAX = 100
_LEGAL = re.compile(r"[a-zA-Z0-9_-]+")


def check_namespace(namespace: str) -> None:
    """Raise ValueError for a namespace that cannot be separated from the following name. "" is no namespace."""
    if namespace and not _LEGAL.fullmatch(namespace):
        raise ValueError(f"namespace {namespace!r} may hold letters, digits, _ and - only")
    if len(namespace) > NAMESPACE_CHARS_MAX:
        raise ValueError(f"namespace of {len(namespace)} characters is over the limit of {NAMESPACE_CHARS_MAX}")


def with_namespace(namespace: str, name: str) -> str:
    """Return the topic or group as servers know it. A name with the namespace stays as it is."""
    if not namespace or not name or _is_system(name):
        return name
    mark, rest = _split_mark(name)
    return name if rest.startswith(namespace + SEPARATOR) else f"{mark}{namespace}{SEPARATOR}{rest}"


def without_namespace(namespace: str, name: str) -> str:
    """Return the topic or group as the application knows it. A name of another namespace stays whole."""
    mark, rest = _split_mark(name)
    prefix = namespace + SEPARATOR
    return mark + rest[len(prefix) :] if namespace and rest.startswith(prefix) else name


def _is_system(name: str) -> bool:
    return is_system_topic(name) or name.startswith(SYSTEM_GROUP_PREFIX)


def _split_mark(name: str) -> tuple[str, str]:
    for mark in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(mark):
            return mark, name[len(mark) :]
    return "", name


_FIELDS = frozenset({"topic", "originTopic", "consumerGroup", "producerGroup", "group", "groupName"})
"""Header fields, and keys of JSON bodies, with names of topics and groups."""
_SHORT_FIELDS = frozenset({"a", "b"})
"""The short fields of group and topic in the headers of sends."""
_SENDS = frozenset({RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2})
_NAMES_IN_BODY = frozenset(
    {
        RequestCode.HEART_BEAT,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.CHECK_CLIENT_CONFIG,
    }
)


class WireNames:
    """Translates requests and answers between the names of an application and those of its namespace.

    The rest of the SDK knows the application's names alone. Requests pass here last, answers first.
    """

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def to_wire(self, request: RemotingCommand) -> None:
        """Add the namespace to the names of a client's request. Idempotent."""
        self._translate_fields(request, with_namespace)
        if request.code in _NAMES_IN_BODY and request.body:
            request.body = self._translate_body(request.body, with_namespace)

    def from_wire(self, request_code: int, answer: RemotingCommand) -> None:
        """Remove the namespace from the names in the answer to a client's request."""
        if request_code in _NAMES_IN_BODY and answer.body:
            answer.body = self._translate_body(answer.body, without_namespace)

    def request_from_wire(self, request: RemotingCommand) -> None:
        """Remove the namespace from the names in the header of a server's request."""
        self._translate_fields(request, without_namespace)

    def _translate_fields(self, command: RemotingCommand, translate: Callable[[str, str], str]) -> None:
        fields, wanted = command.ext_fields, _FIELDS
        if command.code in _SENDS:
            wanted = _FIELDS | _SHORT_FIELDS
        for name in wanted & fields.keys():
            fields[name] = translate(self._namespace, fields[name])

    def _translate_body(self, body: bytes, translate: Callable[[str, str], str]) -> bytes:
        def walk(value: Any) -> Any:
            if isinstance(value, dict):
                return {
                    key: translate(self._namespace, part) if key in _FIELDS and isinstance(part, str) else walk(part)
                    for key, part in value.items()
                }
            return [walk(part) for part in value] if isinstance(value, list) else value

        try:
            return dump_json(walk(load_json(body)))
        except ValueError:  # its decoder names the fault
            return body
