"""Long requests, advanced in slices: fair among connections, in order within each.

A connection has at most one request open; its later requests wait behind it. Requests that hold much memory while they
are open share LARGE_MAX slots and wait for one in order of arrival. No request is refused here: a read worker limits
the requests in flight of each connection.

Requests with large answers pause while large answers wait to be sent. Requests that wait for another worker take no
time until it has answered. Requests without changes are dropped when their connection is closed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from ringmq.broker.requests.request import Answer, Connection, Drop, Slices
from ringmq.broker.requests.turns import FIRST_GO_MS, INTAKE_MS, SLICE_MS, SLICES_END_MS, TurnClock

LARGE_MAX = 8


class Work(Protocol):
    """A request, or the end of a connection."""

    @property
    def connection(self) -> Connection:
        """The connection of the work."""

    @property
    def size_bytes(self) -> int:
        """The size of its frame in bytes."""

    def begin(self) -> Answer | Slices:
        """Start the work. Returns the answer, or the steps to it."""

    def complete(self, answer: Answer) -> None:
        """Accept the answer."""

    def fail(self, error: Exception) -> None:
        """Accept an error that `begin` or a step has raised."""


class _Open(Struct):
    work: Work
    slices: Slices
    is_dropped: bool = False


def _never() -> bool:
    return False


def _awaits(opened: _Open) -> bool:
    return opened.slices.awaits is not None and not opened.is_dropped and opened.slices.awaits()


class SliceScheduler:
    """All work that connections have requested."""

    def __init__(self, clock: TurnClock, large_max: int = LARGE_MAX, must_rest: Callable[[], bool] = _never) -> None:
        self._clock = clock
        self._large_max = large_max
        self._must_rest = must_rest
        """True if large answers wait to be sent."""
        self._lanes: dict[Connection, deque[Work]] = {}
        """Connection with unfinished work -> the work that waits behind it."""
        self._ended: set[Connection] = set()
        """Closed connections of `_lanes`."""
        self._next: deque[Work] = deque()
        """Work whose preceding work on its connection is finished."""
        self._open: dict[Connection, _Open] = {}
        """The open work of all queues below."""
        self._small: deque[_Open] = deque()
        self._large: deque[_Open] = deque()
        self._shared: deque[_Open] = deque()
        self._for_a_place: deque[_Open] = deque()
        self._awaiting: list[_Open] = []
        """Work that waits for another worker."""
        self.undone_bytes = 0
        """Sizes of all unfinished work."""

    def __len__(self) -> int:
        """Number of connections with unfinished work."""
        return len(self._lanes)

    @property
    def is_ready(self) -> bool:
        """True if some work can go on at once."""
        return bool(self._next) or any(self._ready()) or not all(map(_awaits, self._awaiting))

    def add(self, work: Work) -> None:
        """Begin the work, or queue it behind earlier work of its connection."""
        self.undone_bytes += work.size_bytes
        lane = self._lanes.get(work.connection)
        if lane is not None:
            lane.append(work)
            return
        self._lanes[work.connection] = deque()
        self._begin(work)

    def end(self, connection: Connection) -> None:
        """The connection is closed: drop its answers."""
        if connection not in self._lanes:
            return
        self._ended.add(connection)
        opened = self._open.get(connection)
        if opened is not None and opened.slices.is_reading:
            opened.is_dropped = True
            self._drop(opened)

    def begin_next(self) -> None:
        """Begin one work that has waited behind another of its connection, if any."""
        if self._next:
            self._begin(self._next.popleft())

    def turn(self) -> None:
        """Advance the open work: at least one slice of each kind, and more while the turn has time."""
        while self.is_ready:
            self._go_on()
            for queue in self._ready():
                opened = queue.popleft()
                if not opened.is_dropped:
                    self._advance(opened, SLICE_MS)
                self._fill_places()
            if self._clock.is_within(INTAKE_MS):
                self.begin_next()
            elif not self._clock.is_within(SLICES_END_MS) or not self._ready():
                return

    def _ready(self) -> list[deque[_Open]]:
        """Queues of work that may go on."""
        queues = (self._small,) if self._must_rest() else (self._small, self._large, self._shared)
        return [queue for queue in queues if queue]

    def finish(self) -> None:
        """Finish all work, because control stops. It takes as long as it must."""
        self._must_rest = _never
        while self._lanes:
            self._clock.begin()
            self.turn()

    def _begin(self, work: Work) -> None:
        try:
            result = work.begin()
        except Exception as error:
            self._failed(work, error)
            return
        if not isinstance(result, Slices):
            self._done(work, result)
            return
        opened = self._open[work.connection] = _Open(work, result)
        if result.is_reading and work.connection in self._ended:
            self._drop(opened)
        elif result.is_large and len(self._large) >= self._large_max:
            self._for_a_place.append(opened)
        elif (result.is_large or result.is_shared) and self._must_rest():
            self._queue_of(opened).append(opened)
        elif result.is_shared and self._shared:  # the steps of an earlier request make its text, too
            self._shared.append(opened)
        else:
            self._advance(opened, FIRST_GO_MS)

    def _advance(self, opened: _Open, limit_ms: int) -> None:
        if opened.slices.awaits is not None:
            limit_ms = 0  # each step may be one behind which it waits
        try:
            answer = self._clock.advance(opened.slices.steps, limit_ms)
        except Exception as error:
            self._failed(opened.work, error)
        else:
            if answer is None:
                self._put(opened)
            else:
                self._done(opened.work, answer)

    def _go_on(self) -> None:
        """Queue the work for which another worker has answered."""
        waited, self._awaiting = self._awaiting, []
        for opened in waited:
            if not opened.is_dropped:
                self._put(opened)

    def _put(self, opened: _Open) -> None:
        if _awaits(opened):
            self._awaiting.append(opened)
        else:
            self._queue_of(opened).append(opened)

    def _queue_of(self, opened: _Open) -> deque[_Open]:
        if opened.slices.is_shared:
            return self._shared
        return self._large if opened.slices.is_large else self._small

    def _fill_places(self) -> None:
        while self._for_a_place and len(self._large) < self._large_max:
            opened = self._for_a_place.popleft()
            if not opened.is_dropped:
                self._large.append(opened)

    def _drop(self, opened: _Open) -> None:
        opened.slices.steps.close()
        self._done(opened.work, Drop())

    def _done(self, work: Work, answer: Answer) -> None:
        try:
            work.complete(answer)
        except Exception as error:
            work.fail(error)
        self._leave(work)

    def _failed(self, work: Work, error: Exception) -> None:
        work.fail(error)
        self._leave(work)

    def _leave(self, work: Work) -> None:
        self.undone_bytes -= work.size_bytes
        self._open.pop(work.connection, None)
        lane = self._lanes[work.connection]
        if lane:
            self._next.append(lane.popleft())
        else:
            del self._lanes[work.connection]
            self._ended.discard(work.connection)
