"""Control's report to other processes about name servers and clients: a small file beside the plane.

Control replaces the file as a whole after a change, at most once a second, so readers send control no requests. Health,
metrics and the service's status text read it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import asdict

from ringmq.ipc.segment import segment_path
from ringmq.remoting.json_text import dump_json

if TYPE_CHECKING:  # a process that only reads the report needs no tables
    from ringmq.broker.tables.consumers import ConsumerTable
    from ringmq.broker.tables.producers import ProducerTable

PART = "report"
PERIOD_MS = 1000
MEMBERS_PER_TURN = 1000
"""Members and groups counted between two requests, in some 0.5 ms."""
CLIENT_KINDS_MAX = 10_000
"""Kinds that are sorted and written at once, in some 15 ms."""
Kind = tuple[str, str, int, str]


class NameServerState(Struct, frozen=True):
    """The registration at one configured name server."""

    address: str
    registered: bool
    """True if it has accepted a registration since the start."""
    failures: int
    """Calls that have failed since the last successful one."""
    other: str = ""
    """Address of another broker that it knows by this one's name and id. Empty = none."""


class ClientKind(Struct, frozen=True):
    """Clients with equal fields. `group` and `consume_type` are empty for producers."""

    group: str
    language: str
    version: int
    consume_type: str
    count: int


class ControlReport(Struct, frozen=True):
    """Control's state at one moment."""

    permission: int = 6
    """brokerPermission. It may change while the broker runs."""
    name_servers: tuple[NameServerState, ...] = ()
    clients: tuple[ClientKind, ...] = ()
    left_out: int = 0
    """Number of kinds of clients beyond CLIENT_KINDS_MAX."""
    sends_from_ms: int = 0
    """startAcceptSendRequestTimeStamp. It may change while the broker runs."""
    refused: tuple[tuple[str, int], ...] = ()
    """(class of request, number of requests refused because of their sender)."""
    entry_counts: tuple[tuple[str, int, int], ...] = ()
    """(kind, entries, limit) of the entries that clients create in control."""
    role: str = ""
    """The line about a start as master that waits, or a configuration with another role than the tenure file."""

    def to_json(self) -> bytes:
        """The content of the file."""
        value = asdict(self)
        value["name_servers"] = [asdict(server) for server in self.name_servers]
        value["clients"] = [
            (kind.group, kind.language, kind.version, kind.consume_type, kind.count) for kind in self.clients
        ]
        return dump_json(value)

    @classmethod
    def from_json(cls, data: bytes) -> ControlReport:
        """Inverse of to_json."""
        value = json.loads(data)
        servers = tuple(NameServerState(**entry) for entry in value["name_servers"])
        clients = tuple(ClientKind(*entry) for entry in value["clients"])
        refused = tuple((access, count) for access, count in value.get("refused", ()))
        entry_counts = tuple((kind, used, limit) for kind, used, limit in value.get("entry_counts", ()))
        return cls(
            value["permission"],
            servers,
            clients,
            value["left_out"],
            value.get("sends_from_ms", 0),
            refused,
            entry_counts,
            value.get("role", ""),
        )


def read_report(plane_name: str) -> ControlReport | None:
    """The newest report. None while control has written none."""
    try:
        return ControlReport.from_json(segment_path(plane_name, PART).read_bytes())
    except FileNotFoundError:
        return None


class ClientCensus:
    """Counts clients a slice of groups at a time, so that no request waits for a large table."""

    def __init__(self, consumers: ConsumerTable, producers: ProducerTable) -> None:
        self._consumers = consumers
        self._producers = producers
        self._rest: Iterator[int] = iter(())
        self._counts: dict[Kind, int] = {}
        self._left_out = 0
        self.clients: tuple[ClientKind, ...] = ()
        self.left_out = 0

    def turn(self) -> None:
        """Continue to count. The end of a round replaces `clients`."""
        seen = 0
        for members in self._rest:
            seen += members
            if seen >= MEMBERS_PER_TURN:
                return
        kinds = sorted(self._counts.items())
        self.clients = tuple(ClientKind(*kind, count) for kind, count in kinds)
        self.left_out = self._left_out
        self._counts, self._left_out = {}, 0
        self._rest = self._groups()

    def _groups(self) -> Iterator[int]:
        """Count one group after the other. Yields its number of members, plus one for the group."""
        for members in self._producers.all_members():
            for member in members.values():
                kind = ("", member.language, member.version, "")
                self._counts[kind] = self._counts.get(kind, 0) + 1
            yield 1 + len(members)
        for group in self._consumers.all_groups():
            kinds: dict[Kind, int] = {}
            for member in group.members.values():
                kind = (group.name, member.language, member.version, group.consume_type)
                kinds[kind] = kinds.get(kind, 0) + 1
            if len(self._counts) + len(kinds) <= CLIENT_KINDS_MAX:
                self._counts |= kinds
            else:
                self._left_out += len(kinds)
            yield 1 + len(group.members)


class ReportWriter:
    """Writes control's changed reports."""

    def __init__(self, plane_name: str) -> None:
        self._path = segment_path(plane_name, PART)
        self._last: ControlReport | None = None
        self._next_ms = 0

    def publish(self, report: ControlReport, now_ms: int) -> None:
        """Replace the file if the report has changed and the last one is old enough. Raises OSError."""
        if report == self._last or now_ms < self._next_ms:
            return
        self._next_ms = now_ms + PERIOD_MS
        fresh = self._path.with_name(f"{self._path.name}.new")
        fresh.unlink(missing_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(report.to_json())
        fresh.replace(self._path)
        self._last = report
