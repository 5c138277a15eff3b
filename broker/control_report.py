"""What only control knows and others want to see: name servers and clients, as a small file beside the plane.

Control replaces the file as a whole when something has changed, at most once a second; whoever reads it asks control
for nothing. Health, metrics and the service's status text read it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from ringmq.ipc.segment import segment_path

if TYPE_CHECKING:  # who only reads the report needs no tables
    from ringmq.broker.tables.consumers import ConsumerTable
    from ringmq.broker.tables.producers import ProducerTable

PART = "report"
PERIOD_MS = 1000
GROUPS_PER_TURN = 200
"""Counted between two requests: some 100 us."""
CLIENT_KINDS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class NameServerState:
    """One configured name server as registration sees it."""

    address: str
    registered: bool
    """It has taken a registration since the start."""
    failures: int
    """Calls that have failed since the last one that did not."""
    other: str = ""
    """Address of another broker that it knows by this one's name and id, empty = none."""


@dataclass(frozen=True, slots=True)
class ClientKind:
    """Clients that are alike. `group` and `consume_type` are empty for producers."""

    group: str
    language: str
    version: int
    consume_type: str
    count: int


@dataclass(frozen=True, slots=True)
class ControlReport:
    """One look at control."""

    permission: int = 6
    """brokerPermission, which may change while the broker runs."""
    name_servers: tuple[NameServerState, ...] = ()
    clients: tuple[ClientKind, ...] = ()
    left_out: int = 0
    """Kinds of clients beyond CLIENT_KINDS_MAX."""
    sends_from_ms: int = 0
    """startAcceptSendRequestTimeStamp, which may change while the broker runs."""
    refused: tuple[tuple[str, int], ...] = ()
    """(class of request, how many were refused for their sender)."""
    rooms: tuple[tuple[str, int, int], ...] = ()
    """(kind, entries, limit) of what clients make control remember."""

    def to_json(self) -> bytes:
        """For the file."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: bytes) -> ControlReport:
        """Inverse of to_json."""
        value = json.loads(data)
        servers = tuple(NameServerState(**entry) for entry in value["name_servers"])
        clients = tuple(ClientKind(**entry) for entry in value["clients"])
        refused = tuple((access, count) for access, count in value.get("refused", ()))
        rooms = tuple((kind, used, limit) for kind, used, limit in value.get("rooms", ()))
        return cls(
            value["permission"], servers, clients, value["left_out"], value.get("sends_from_ms", 0), refused, rooms
        )


def read_report(plane_name: str) -> ControlReport | None:
    """The newest report; None while control has not made one."""
    try:
        return ControlReport.from_json(segment_path(plane_name, PART).read_bytes())
    except FileNotFoundError:
        return None


class ClientCensus:
    """Counts clients a slice of groups at a time, so that no request waits for a large table."""

    def __init__(self, consumers: ConsumerTable, producers: ProducerTable) -> None:
        self._consumers = consumers
        self._producers = producers
        self._rest: Iterator[Callable[[dict[tuple[str, str, int, str], int]], None]] = iter(())
        self._counts: dict[tuple[str, str, int, str], int] = {}
        self.clients: tuple[ClientKind, ...] = ()
        self.left_out = 0

    def turn(self) -> None:
        """Count on; `clients` is replaced when a round is over."""
        work = list(islice(self._rest, GROUPS_PER_TURN))
        for count in work:
            count(self._counts)
        if len(work) < GROUPS_PER_TURN:
            kinds = sorted(self._counts.items())
            self.clients = tuple(ClientKind(*kind, count) for kind, count in kinds[:CLIENT_KINDS_MAX])
            self.left_out = max(0, len(kinds) - CLIENT_KINDS_MAX)
            self._counts = {}
            self._rest = iter([*self._consumer_groups(), *self._producer_groups()])

    def _consumer_groups(self) -> Iterator[Callable[[dict[tuple[str, str, int, str], int]], None]]:
        for group in self._consumers:

            def count(counts: dict[tuple[str, str, int, str], int], group: Any = group) -> None:
                for member in group.members.values():
                    kind = (group.name, member.language, member.version, group.consume_type)
                    counts[kind] = counts.get(kind, 0) + 1

            yield count

    def _producer_groups(self) -> Iterator[Callable[[dict[tuple[str, str, int, str], int]], None]]:
        for _, members in self._producers:

            def count(counts: dict[tuple[str, str, int, str], int], members: Any = members) -> None:
                for member in members.values():
                    kind = ("", member.language, member.version, "")
                    counts[kind] = counts.get(kind, 0) + 1

            yield count


class ReportWriter:
    """Control's side: writes what is new."""

    def __init__(self, plane_name: str) -> None:
        self._path = segment_path(plane_name, PART)
        self._last: ControlReport | None = None
        self._next_ms = 0

    def publish(self, report: ControlReport, now_ms: int) -> None:
        """Replace the file if it says something else and the last one is old enough. Raises OSError."""
        if report == self._last or now_ms < self._next_ms:
            return
        self._next_ms = now_ms + PERIOD_MS
        fresh = self._path.with_name(f"{self._path.name}.new")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(report.to_json())
        fresh.replace(self._path)
        self._last = report
