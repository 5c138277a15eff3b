"""Entries that requests of clients make: refused while memory is short, and made if the configuration allows it."""

from __future__ import annotations

from dataclasses import dataclass

from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.tables.groups import GroupTable
from ringmq.broker.tables.protocols import PlaneProtocol
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.config_beans import SubscriptionGroupConfig
from ringmq.remoting.errors import RequestError


@dataclass(frozen=True, slots=True)
class NewEntries:
    """The rules for new topics, groups, clients and locks."""

    live: LiveConfig
    plane: PlaneProtocol
    groups: GroupTable

    def refuse_when_short(self, what: str) -> None:
        """Raise RequestError while the memory of the broker is near ringmqMemoryMax. `what`: the new entry in words."""
        if self.plane.header.memory.level:
            raise RequestError(
                f"{what} is refused: the memory of the broker is near ringmqMemoryMax, try again later",
                field="",
                code=ResponseCode.SYSTEM_BUSY,
            )

    def find_group(self, group: str, now_ms: int) -> SubscriptionGroupConfig | None:
        """The group's configuration. A missing one is made if clients may make it. Raises RequestError."""
        may_make = self.live.config.auto_create_subscription_group
        if may_make and self.groups.get(group) is None:
            self.refuse_when_short(f"group {group}")
        return self.groups.find(group, may_make, now_ms)
