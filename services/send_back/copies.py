"""Stores copies of records through a user of the port. Their bytes lie in a part of the arena, used as a ring."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from ringmq.native import lib
from ringmq.services.arena_ring import ArenaRing
from ringmq.services.shared_port import USER_SHIFT, Completed, SharedPort
from ringmq.store.native_copies import NativeCopies
from ringmq.store.record_copy import Cause, CopyLimits, RecordCopy

T = TypeVar("T")
_RING_LANE = 0


class NotCopied(Struct, Generic[T], frozen=True):
    """A record of which no copy can be made. Another try has the same result."""

    what: T
    cause: Cause


class Copies(Generic[T]):
    """The copies of one service. `arena`: its part of the arena, from the first byte to the one behind the last."""

    def __init__(self, port: SharedPort, arena: tuple[int, int], limits: CopyLimits) -> None:
        self._port = port.user()
        self._arena = port.arena
        self._first_byte = arena[0]
        self._ring = ArenaRing(arena[1] - arena[0])
        self._limits = limits
        self._following = 0
        self._oldest: deque[int] = deque()
        """Numbers of submitted copies in order. The answered ones at the front are dropped at the next answer."""
        self._waiting: dict[int, T] = {}

    @property
    def in_flight(self) -> int:
        """Submitted copies without an answer."""
        return len(self._waiting)

    @property
    def has_answers(self) -> bool:
        """True if an answer may wait."""
        return self._port.has_answers

    def store(self, batch: Sequence[tuple[T, RecordCopy]]) -> tuple[int, list[NotCopied[T]]]:
        """Copy and submit the first copies of the batch. Their answers come later.

        Returns the number of copies that are done, refused ones included, and the refused ones. The others found no
        room; the caller submits them again.
        """
        batch = batch[: self._port.room]
        if not batch:
            return 0, []
        native = NativeCopies([copy for _, copy in batch], self._limits, self._arena, 0, 0)
        done = self._copy(native)
        refused, made = list[NotCopied[T]](), 0
        for number in range(done):
            what = batch[number][0]
            if not native.requests[number].kind:
                refused.append(NotCopied(what, Cause(native.copies[number].cause)))
                continue
            if made < number:
                native.requests[made] = native.requests[number]
            native.requests[made].token = self._note(what)
            made += 1
        if made:
            self._ring.take(_RING_LANE, self._following, int(native.batch.arena_at) - self._first_byte)
            if self._port.submit(native.requests, made) < made:
                raise RuntimeError("the request ring took fewer requests than it had room for")
        return done, refused

    def answers(self) -> list[tuple[T, Completed]]:
        """The answers since the last call."""
        found = list[tuple[T, Completed]]()
        while completed := self._port.take():
            found.append((self._waiting.pop(completed.token), completed))
        if found:
            while self._oldest and self._oldest[0] % (1 << USER_SHIFT) not in self._waiting:
                self._oldest.popleft()
            self._ring.give_back([self._oldest[0] if self._oldest else self._following])
        return found

    def _note(self, what: T) -> int:
        number = self._following
        self._following += 1
        self._oldest.append(number)
        self._waiting[number % (1 << USER_SHIFT)] = what
        return number % (1 << USER_SHIFT)

    def _copy(self, native: NativeCopies) -> int:
        while True:
            start, end = self._ring.span
            native.batch.arena_at, native.batch.arena_end = self._first_byte + start, self._first_byte + end
            done = lib.rmq_record_copies(native.copies, native.count, native.batch, native.requests)
            if done or not self._ring.wrap():
                return int(done)
