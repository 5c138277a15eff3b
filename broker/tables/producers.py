"""Producer groups with their connections, as heartbeats report them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice

from ringmq.broker.requests.request import Connection
from ringmq.broker.requests.turns import Steps
from ringmq.broker.tables.consumers import Member
from ringmq.remoting import json_body

Members = dict[Connection, Member]
STEP_MEMBERS = 64


class ProducerTable:
    """All producer groups with members."""

    def __init__(self) -> None:
        self._groups: dict[str, Members] = {}
        self.memberships = 0
        """Members of all groups."""
        self._of_connection: dict[Connection, dict[str, None]] = {}
        self._of_client: dict[str, dict[Connection, int]] = {}
        """Client id -> its connections, the newest last, with the number of their groups."""
        self._turns = 0

    def __iter__(self) -> Iterator[tuple[str, Members]]:
        return iter(self._groups.items())

    def __len__(self) -> int:
        return len(self._groups)

    def all_members(self) -> list[Members]:
        """The current members of each group, in a list of its own."""
        return list(self._groups.values())

    def get(self, group: str) -> Members | None:
        """Members of the group. None if there are none."""
        return self._groups.get(group)

    def next_of(self, group: str) -> Connection | None:
        """A member of the group, each call the next one, as stock (`ProducerManager.getAvailableChannel`)."""
        members = self._groups.get(group)
        if members is None:
            return None
        self._turns += 1
        return next(islice(members, self._turns % len(members), None))

    def of_client(self, client_id: str) -> Connection | None:
        """The newest connection of a client, as stock (`ProducerManager.findChannel`)."""
        connections = self._of_client.get(client_id)
        return None if connections is None else next(reversed(connections))

    def register(self, group: str, connection: Connection, member: Member) -> None:
        """Register one group of a heartbeat."""
        members = self._groups.setdefault(group, {})
        before = members.get(connection)
        if before is not None and before.client_id != member.client_id:
            self.unregister(group, connection)
            members = self._groups.setdefault(group, {})
        if connection not in members:
            self.memberships += 1
            connections = self._of_client.setdefault(member.client_id, {})
            connections[connection] = connections.get(connection, 0) + 1
        members[connection] = member
        self._of_connection.setdefault(connection, {})[group] = None

    def unregister(self, group: str, connection: Connection) -> None:
        """One member leaves one group."""
        members = self._groups.get(group)
        if members is None or (member := members.pop(connection, None)) is None:
            return
        self.memberships -= 1
        if not members:
            del self._groups[group]
        groups = self._of_connection[connection]
        del groups[group]
        self._leave_client(member.client_id, connection)
        if not groups:
            del self._of_connection[connection]

    def _leave_client(self, client_id: str, connection: Connection) -> None:
        connections = self._of_client[client_id]
        connections[connection] -= 1
        if not connections[connection]:
            del connections[connection]
        if not connections:
            del self._of_client[client_id]

    def drop(self, connection: Connection) -> None:
        """Remove a connection that has ended."""
        for group in list(self._of_connection.get(connection, ())):
            self.unregister(group, connection)

    def connections(self) -> Collection[Connection]:
        """Every connection that is a member of some group."""
        return self._of_connection.keys()

    def body(self) -> Steps[bytes]:
        """The answer to 328. Groups may change between two steps."""
        text = bytearray(b'{"data":{')
        written = 0
        for group, members in list(self._groups.items()):
            text += b"," if text.endswith(b"]") else b""
            text += json_body.write_body({group: 0})[1:-2] + b"["
            for number, (connection, member) in enumerate(list(members.items())):
                text += b"," if number else b""
                text += json_body.write_body(
                    {
                        "clientId": member.client_id,
                        "language": member.language,
                        "lastUpdateTimestamp": member.last_update_ms,
                        "remoteIP": connection.host,
                        "version": member.version,
                    }
                )
                written += 1
                if written % STEP_MEMBERS == 0:
                    yield
            text += b"]"
        return bytes(text + b"}}")
