"""Names for the ids of the plane, and the topics and groups of the system (stock's rules)."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from ringmq.remoting import names

RETRY_PREFIX, DLQ_PREFIX = "%RETRY%", "%DLQ%"
_SYSTEM_GROUP_PREFIX = "cid_rmq_sys_"


def name_of(entry: NDArray[Any]) -> str:
    """The name of a topic or group."""
    return bytes(entry["name"])[: int(entry["name_length"])].decode("utf-8", "replace")


def java_bool(value: bool) -> str:
    """The text that Java prints for it."""
    return "true" if value else "false"


def is_system_group(group: str) -> bool:
    """True for a group of the system (`BrokerMetricsManager.isSystemGroup`)."""
    return group.lower().startswith(_SYSTEM_GROUP_PREFIX)


def is_system(topic: str, group: str = "") -> str:
    """The label is_system."""
    return java_bool(names.is_system_topic(topic) or is_system_group(group))
