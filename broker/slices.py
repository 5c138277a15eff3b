"""Requests that take longer than one go, advanced in slices: fair among connections, in order within each.

A connection has at most one request open; its later requests wait behind it. Requests that hold much memory while
they are open have LARGE_MAX places and wait for one in the order in which they came. No request is refused here: a read
worker bounds the requests that each connection has under way.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from ringmq.broker.request import Answer, Connection, Slices
from ringmq.broker.turns import FIRST_GO_MS, INTAKE_MS, SLICE_MS, SLICES_END_MS, TurnClock

LARGE_MAX = 8


class Work(Protocol):
    """A request, or the end of a connection."""

    @property
    def connection(self) -> Connection:
        """Whose work it is."""

    @property
    def size_bytes(self) -> int:
        """The size of its frame in bytes."""

    def begin(self) -> Answer | Slices:
        """Start: the answer, or the steps to it."""

    def complete(self, answer: Answer) -> None:
        """The answer is there."""

    def fail(self, error: Exception) -> None:
        """`begin` or a step has raised."""


@dataclass(slots=True)
class _Open:
    work: Work
    slices: Slices


class SlicedWorks:
    """All work of control's that is asked for by connections."""

    def __init__(self, clock: TurnClock, large_max: int = LARGE_MAX) -> None:
        self._clock = clock
        self._large_max = large_max
        self._lanes: dict[Connection, deque[Work]] = {}
        """Connections with work that is not done -> the work that waits behind it."""
        self._next: deque[Work] = deque()
        """Work whose predecessor on its connection is done."""
        self._small: deque[_Open] = deque()
        self._large: deque[_Open] = deque()
        self._for_a_place: deque[_Open] = deque()
        self.undone_bytes = 0
        """Sizes of all work that is not done."""

    def __len__(self) -> int:
        """Connections with work that is not done."""
        return len(self._lanes)

    def add(self, work: Work) -> None:
        """Begin the work, or let it wait behind earlier work of its connection."""
        self.undone_bytes += work.size_bytes
        lane = self._lanes.get(work.connection)
        if lane is not None:
            lane.append(work)
            return
        self._lanes[work.connection] = deque()
        self._begin(work)

    def begin_next(self) -> None:
        """Begin one work that has waited behind another of its connection, if there is one."""
        if self._next:
            self._begin(self._next.popleft())

    def turn(self) -> None:
        """Advance the open work: at least one slice of each kind, and more while the turn has time."""
        while self._lanes:
            for queue in (self._small, self._large):
                if queue:
                    self._advance(queue.popleft(), SLICE_MS)
            if self._clock.is_within(INTAKE_MS):
                self.begin_next()
            elif not self._clock.is_within(SLICES_END_MS) or not (self._small or self._large):
                return

    def finish(self) -> None:
        """Do all of it, however long it takes: control stops."""
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
        elif result.is_large and len(self._large) >= self._large_max:
            self._for_a_place.append(_Open(work, result))
        else:
            self._advance(_Open(work, result), FIRST_GO_MS)

    def _advance(self, opened: _Open, limit_ms: int) -> None:
        try:
            answer = self._clock.advance(opened.slices.steps, limit_ms)
        except Exception as error:
            self._failed(opened.work, error)
        else:
            if answer is None:
                (self._large if opened.slices.is_large else self._small).append(opened)
            else:
                self._done(opened.work, answer)
        if self._for_a_place and len(self._large) < self._large_max:
            self._large.append(self._for_a_place.popleft())

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
        lane = self._lanes[work.connection]
        if lane:
            self._next.append(lane.popleft())
        else:
            del self._lanes[work.connection]
