"""Decides which HTTP connections stay open. A core without IO; times are seconds of the monotonic clock.

A connection is a stranger until its first whole request, then it is known. Each kind has half of the slots. So a flood
of silent connections closes no scraper, and a flood of requests leaves slots for new connections. If a kind is full,
the host with the most connections of that kind loses the one that was heard from least recently.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import Enum

from msgspec import Struct, field

from ringmq.remoting.networks import host_key

CONNECTIONS_MAX = 256
HEAD_TIMEOUT_S = 2.0
"""Time from the first byte of a request (for the first request: from the accept) to the end of its head."""
IDLE_TIMEOUT_S = 60.0
"""Time between two requests. Prometheus scrapes every 15 s to 60 s."""
ANSWER_TIMEOUT_S = 30.0
"""Time from a whole request to the last byte of its answer."""
STALL_TIMEOUT_S = 5.0
"""Time within an answer for which the peer may take no byte."""


class Phase(Enum):
    """The phase of a connection, named after the event that it waits for."""

    HEAD = "head"
    PAGE = "page"
    """The server is making the answer."""
    ANSWER = "answer"
    IDLE = "idle"


class _Entry(Struct):
    host: str
    phase: Phase
    since: float
    """Begin of the phase. For ANSWER and PAGE: the time when the request was whole."""
    heard: float
    """Time when the peer last sent or took a byte."""


class _Pool(Struct):
    """Connections of one kind, the least recently heard first."""

    places: int
    entries: dict[int, _Entry] = field(default_factory=dict)
    by_host: Counter[str] = field(default_factory=Counter)

    def put(self, number: int, entry: _Entry) -> None:
        self.entries[number] = entry
        self.by_host[entry.host] += 1

    def take(self, number: int) -> _Entry:
        entry = self.entries.pop(number)
        self.by_host[entry.host] -= 1
        if not self.by_host[entry.host]:
            del self.by_host[entry.host]
        return entry

    def victim(self) -> int | None:
        """The connection to close. None while there are at most `places`."""
        if len(self.entries) <= self.places:
            return None
        most = max(self.by_host.values())
        return next(number for number, entry in self.entries.items() if self.by_host[entry.host] == most)


class HttpConnections:
    """Phases and deadlines of all connections. The caller names each connection by a number."""

    def __init__(self, connections_max: int = CONNECTIONS_MAX) -> None:
        self._strangers = _Pool(connections_max // 2)
        self._known = _Pool(connections_max - connections_max // 2)

    def __len__(self) -> int:
        """Number of open connections."""
        return len(self._strangers.entries) + len(self._known.entries)

    def opened(self, number: int, host: str, now: float) -> int | None:
        """A connection was accepted. Returns the connection to close for it, which may be itself. None if a slot is
        free."""
        self._strangers.put(number, _Entry(host_key(host), Phase.HEAD, now, now))
        return self._strangers.victim()

    def received(self, number: int, now: float) -> None:
        """Bytes of a request have arrived, and its head is incomplete."""
        entry = self._entry(number)
        if entry.phase is Phase.IDLE:
            entry.phase, entry.since = Phase.HEAD, now
        self._touch(number, entry, now)

    def requested(self, number: int, now: float, phase: Phase) -> int | None:
        """A whole request has arrived, and the connection enters `phase`. Returns the connection to close, None if
        there is none."""
        pool = self._pool(number)
        entry = pool.take(number)
        entry.phase, entry.since, entry.heard = phase, now, now
        self._known.put(number, entry)
        return self._known.victim() if pool is self._strangers else None

    def answering(self, number: int, now: float) -> None:
        """The answer is made, and sending begins."""
        entry = self._entry(number)
        entry.phase, entry.heard = Phase.ANSWER, now

    def progressed(self, number: int, now: float) -> None:
        """The peer has taken bytes of the answer."""
        self._touch(number, self._entry(number), now)

    def answered(self, number: int, now: float) -> None:
        """The whole answer is sent, and the connection stays open."""
        entry = self._entry(number)
        entry.phase, entry.since = Phase.IDLE, now
        self._touch(number, entry, now)

    def closed(self, number: int) -> None:
        """The connection has ended."""
        self._pool(number).take(number)

    def overdue(self, now: float) -> list[int]:
        """Connections whose deadline has passed."""
        return [number for number, entry in self._all() if _is_overdue(entry, now)]

    def _all(self) -> Iterator[tuple[int, _Entry]]:
        yield from self._strangers.entries.items()
        yield from self._known.entries.items()

    def _pool(self, number: int) -> _Pool:
        return self._strangers if number in self._strangers.entries else self._known

    def _entry(self, number: int) -> _Entry:
        return self._pool(number).entries[number]

    def _touch(self, number: int, entry: _Entry, now: float) -> None:
        entry.heard = now
        entries = self._pool(number).entries
        if entries is self._known.entries:  # a stranger that sends byte after byte gets no better place
            entries[number] = entries.pop(number)


def _is_overdue(entry: _Entry, now: float) -> bool:
    if entry.phase is Phase.IDLE:
        return now - entry.since >= IDLE_TIMEOUT_S
    if entry.phase is Phase.HEAD:
        return now - entry.since >= HEAD_TIMEOUT_S
    if entry.phase is Phase.PAGE:
        return now - entry.since >= ANSWER_TIMEOUT_S
    return now - entry.since >= ANSWER_TIMEOUT_S or now - entry.heard >= STALL_TIMEOUT_S
