"""Who produces: groups with their connections, told by heartbeats."""

from __future__ import annotations

from collections.abc import Iterator

from ringmq.broker.request import Connection
from ringmq.broker.tables.consumers import Member

Members = dict[Connection, Member]


class ProducerTable:
    """All producer groups with members."""

    def __init__(self) -> None:
        self._groups: dict[str, Members] = {}

    def __iter__(self) -> Iterator[tuple[str, Members]]:
        return iter(self._groups.items())

    def get(self, group: str) -> Members | None:
        """Members of the group, None when there are none."""
        return self._groups.get(group)

    def register(self, group: str, connection: Connection, member: Member) -> None:
        """One group of a heartbeat."""
        self._groups.setdefault(group, {})[connection] = member

    def unregister(self, group: str, connection: Connection) -> None:
        """One member leaves one group."""
        members = self._groups.get(group)
        if members is not None and members.pop(connection, None) is not None and not members:
            del self._groups[group]

    def drop(self, connection: Connection) -> None:
        """The connection is gone."""
        for group in [name for name, members in self._groups.items() if connection in members]:
            self.unregister(group, connection)

    def expired(self, before_ms: int) -> list[Connection]:
        """Connections whose last heartbeat is older than `before_ms`."""
        return [
            connection
            for members in self._groups.values()
            for connection, member in members.items()
            if member.last_update_ms < before_ms
        ]
