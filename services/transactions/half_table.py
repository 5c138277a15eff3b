"""The open half messages in a table of C (native/src/services/half_table.h). A million of them takes 40 MB."""

from __future__ import annotations

import errno
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ringmq.native import ffi, lib
from ringmq.store.queue_reader import RecordBatch

COMPACT_MIN = 4096
"""Ended entries below which the table is not compacted."""
ENDED, OPEN, SENT, HELD = (
    lib.RMQ_HALF_ENDED, lib.RMQ_HALF_OPEN, lib.RMQ_HALF_SENT, lib.RMQ_HALF_HELD,
)  # fmt: skip
CHECKS_MAX = 0xFFFF
IMMUNITY_S_MAX = 0x7FFFFFFF
NO_IMMUNITY: int = lib.RMQ_HALF_NO_IMMUNITY


class Half(NamedTuple):
    """An open half message. Checks copy it to the end of the half queue."""

    first: int
    """Half-queue offset of the message that the producer sent. It names the transaction."""
    newest: int
    """Half-queue offset of its newest copy, `first` if there is none."""
    born_ms: int
    immunity_s: int
    """CHECK_IMMUNITY_TIME_IN_SECONDS, NO_IMMUNITY if the message has no such property."""
    checks: int
    """Checks so far."""


class DoneHalves:
    """The half-queue offsets from `low` on that op records list."""

    def __init__(self, low: int, end: int) -> None:
        self._done, self._low = bytearray(max(1, end - low)), low
        self._held = ffi.from_buffer("uint8_t[]", self._done)
        self.struct = ffi.new("struct rmq_done_halves *")
        self.struct.low, self.struct.count, self.struct.done = low, end - low, self._held

    def add(self, offsets: Iterable[int]) -> None:
        """These halves are done. Others than those of the range are passed over."""
        for offset in offsets:
            if 0 <= offset - self._low < self.struct.count:
                self._done[offset - self._low] = 1

    def __contains__(self, offset: int) -> bool:
        return 0 <= offset - self._low < self.struct.count and bool(self._done[offset - self._low])


class HalfTable:
    """Open halves in the order of `first`. New halves have the largest one, so a look-up is a binary search.

    An open half is OPEN, or HELD by its owner while it works on it, or SENT by C, which takes OPEN ones alone
    (native/src/services/transaction_ends.h).
    """

    def __init__(self, secret: Sequence[int] = (0, 0)) -> None:
        """`secret`: of the plane, for the shares."""
        self.native = ffi.gc(ffi.new("struct rmq_half_table *"), lib.rmq_half_table_free)
        self.native.role, self.native.secret = lib.RMQ_ROLE_TRANSACTIONS, list(secret)
        self._row = ffi.new("struct rmq_half_row *")

    def __len__(self) -> int:
        return int(self.native.open)

    def clear(self) -> None:
        """Take all halves out. None may be shared."""
        role, secret = self.native.role, list(self.native.secret)
        lib.rmq_half_table_free(self.native)
        self.native.role, self.native.secret = role, secret

    def add(self, half: Half) -> None:
        """Add a half. Raises ValueError if its `first` is not the largest."""
        _check(lib.rmq_half_table_add(self.native, self._row_of(half)), self)

    def arrive(self, batch: RecordBatch, count: int) -> None:
        """Add the halves of producers among `count` records of the half queue that the batch holds.

        Raises ValueError if the first one is not larger than those in the table.
        """
        _check(lib.rmq_half_table_arrive(self.native, batch.records, batch.units, count), self)

    def stage(self, batch: RecordBatch, count: int, done: DoneHalves) -> list[int]:
        """Add the halves of a batch, copies too, without order. `settle` follows. Returns the queue offsets of damaged
        records."""
        damaged = ffi.new("int64_t[]", max(1, count))
        found = lib.rmq_half_table_stage(self.native, batch.records, batch.units, count, done.struct, damaged)
        _check(min(found, 0), self)
        return list(damaged[0:found])

    def stage_half(self, half: Half, done: DoneHalves, *, is_stock_copy: bool = False) -> None:
        """`stage` of one half."""
        row = self._row_of(half)
        row.is_stock_copy = is_stock_copy
        _check(lib.rmq_half_table_stage_row(self.native, row, done.struct), self)

    @property
    def has_stock_copies(self) -> bool:
        """True if copies of a stock broker were staged."""
        return bool(self.native.stock_copies)

    def settle(self) -> array[int]:
        """Bring the staged halves into order: of each half, the newest copy counts. Returns the queue offsets of older
        copies that no op record lists. It takes about a second for a million halves whose copies lie out of order."""
        replaced = array("q", bytes(8 * lib.rmq_half_table_settle(self.native)))
        with ffi.from_buffer("int64_t[]", replaced, require_writable=True) as to:
            lib.rmq_half_table_take_replaced(self.native, to)
        return replaced

    def share(self, shares: Any) -> None:
        """Count the open halves in a struct rmq_half_shares, and each change from now on."""
        _check(lib.rmq_half_table_share(self.native, shares), self)

    def find(self, first: int) -> Half | None:
        """The open half with this first offset."""
        at = self._place(first)
        return None if at < 0 else self._half(at)

    def end(self, first: int) -> None:
        """Take the half out. Raises KeyError if it is not open."""
        lib.rmq_half_table_end(self.native, self._known_place(first))
        self.compact_if_due()

    def compact_if_due(self) -> None:
        """Give back the memory of halves that have ended, if they are many."""
        ended = self.native.count - self.native.open
        if ended > max(COMPACT_MIN, self.native.open):
            lib.rmq_half_table_compact(self.native)

    def hold(self, first: int) -> None:
        """Keep C from the half. Raises KeyError if it is not open."""
        self.native.rows[self._known_place(first)].state = HELD

    def release(self, first: int) -> None:
        """End `hold`, if the half is open."""
        at = self._place(first)
        if at >= 0:
            self.native.rows[at].state = OPEN

    def state(self, first: int) -> int:
        """ENDED, also for a half that never was, OPEN, SENT or HELD."""
        at = self._place(first)
        return int(self.native.rows[at].state) if at >= 0 else ENDED

    def is_sent(self, first: int) -> bool:
        """True if C has the half in a chain."""
        return bool(self.state(first) == SENT)

    def move(self, first: int, newest: int, *, is_check: bool) -> None:
        """The half has a new copy. Raises KeyError if it is not open."""
        row = self.native.rows[self._known_place(first)]
        row.newest = newest
        if is_check and row.checks < CHECKS_MAX:
            row.checks += 1

    def following(self, first: int, count: int) -> Iterator[Half]:
        """Of `count` entries from the half `first` on, the open ones that C has not sent. Its caller changes nothing
        meanwhile."""
        begin = self._from(first)
        return (
            self._half(at)
            for at in range(begin, min(begin + count, int(self.native.count)))
            if self.native.rows[at].state in (OPEN, HELD)
        )

    def following_first(self, first: int, count: int) -> int | None:
        """The first offset of the entry that `following` leaves for the next call. None if there is none."""
        at = self._from(first) + count
        return int(self.native.rows[at].first) if at < self.native.count else None

    def low(self, next_offset: int) -> int:
        """The half-queue offset below which no half is open. It takes a few ms for a million halves.

        `next_offset`: of the half that arrives next. A copy is in the table at once, but dispatch may show the halves
        in front of it later.
        """
        lowest = int(lib.rmq_half_table_lowest(self.native))
        return next_offset if lowest < 0 else min(lowest, next_offset)

    def _row_of(self, half: Half) -> Any:
        row = self._row
        row.first, row.newest, row.born_ms, row.state, row.is_stock_copy = (
            half.first,
            half.newest,
            half.born_ms,
            OPEN,
            0,
        )
        row.immunity_s, row.checks = min(half.immunity_s, IMMUNITY_S_MAX), min(half.checks, CHECKS_MAX)
        return row

    def _from(self, first: int) -> int:
        return int(lib.rmq_half_table_from(self.native, first))

    def _place(self, first: int) -> int:
        return int(lib.rmq_half_table_place(self.native, first))

    def _known_place(self, first: int) -> int:
        at = self._place(first)
        if at < 0:
            raise KeyError(first)
        return at

    def _half(self, at: int) -> Half:
        row = self.native.rows[at]
        return Half(int(row.first), int(row.newest), int(row.born_ms), int(row.immunity_s), int(row.checks))


def _check(result: int, table: HalfTable) -> None:
    if result == -errno.ENOMEM:
        raise MemoryError(f"no memory for more than {len(table)} open half messages")
    if result < 0:
        raise ValueError(f"a half message comes behind {table.native.rows[table.native.count - 1].first}")
