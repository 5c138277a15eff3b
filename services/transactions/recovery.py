"""Finds the open halves in the log when the worker starts, in steps. There is no checkpoint: the log tells everything.

1. The newest op record of this project gives `low`: no open half is below this half-queue offset. In a store of a stock
   broker, consumerOffset.json does.
2. Op records behind the half `low` in the log list the halves that are done.
3. The records of the half queue from `low` on are open, unless they are done. A copy replaces older ones. C reads them
   into the table, 40 bytes each (native/src/services/half_table.h).
4. Behind the newest op record, the log may hold records of a chain whose op record a power cut has taken: committed
   messages, and copies. Their halves are done, and their op record has to be made again.

Damaged units and records are passed over. If op records are among them, step 4 begins at the half `low`: what the log
shows as committed or expired is not published again. A half whose unit is damaged is open again once the queue has been
rebuilt, so `low` stays below it (`unread`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ringmq.broker.requests.turns import Steps
from ringmq.remoting import names
from ringmq.services.transactions import records
from ringmq.services.transactions.half_table import DoneHalves, HalfTable
from ringmq.services.transactions.transaction_log import BATCH, HALVES, OPS, Damage, TransactionLog
from ringmq.store.config_files import ConfigFileError, load_config
from ringmq.store.layout import CONFIG

EXPIRED_READ = 16_384
"""Expired transactions that a start reads."""
OFFSETS_FILE = "consumerOffset.json"


class Recovered(Struct, frozen=True):
    """The state of the half queue. The open halves are in the table."""

    next_offset: int
    """The half-queue offset of the next half that arrives."""
    low: int
    missing: list[int]
    """Half-queue offsets of halves that are done and that no op record lists."""
    renamed: dict[int, int]
    """Older copy -> newer copy of halves that a stock broker has copied (`StockCopies`)."""
    stock_origins: dict[int, int]
    """Origin (`records.origin_of`) -> first offset of open halves that a stock broker has copied."""
    damaged: list[int]
    """Half-queue offsets of open halves whose records are damaged."""
    unread: tuple[int, int] | None
    """The first and the last half-queue offset whose unit is damaged."""
    expired: list[int]
    """First offsets of the transactions that have expired last, the oldest first."""


def stock_offset(root: Path, end: int, log_line: Callable[[str], None] = lambda line: None) -> int:
    """The half-queue offset in consumerOffset.json. -1 if there is none. One beyond the `end` of the queue counts as
    none, and `log_line` gets a line about it."""
    name = f"{names.HALF_TOPIC}@{records.GROUP}"
    try:
        entry = load_config(root, OFFSETS_FILE).get("offsetTable", {}).get(name, {})
        offset = entry.get(0, entry.get("0", -1))
    except (ConfigFileError, OSError, AttributeError):
        return -1
    if not isinstance(offset, int):
        return -1
    if offset > end:
        log_line(f"{root / CONFIG / OFFSETS_FILE}: {name} is left out: {_beyond(offset, end)}")
        return -1
    return offset


def _beyond(offset: int, end: int) -> str:
    return f"offset {offset} is beyond the end of its queue, {end}"


class Recovery:
    """Reads half queue, op queue and log into `table`. All records up to the log's `end` must be in their queues."""

    def __init__(
        self, log: TransactionLog, table: HalfTable, log_line: Callable[[str], None] = lambda line: None
    ) -> None:
        self._log, self._table, self._log_line = log, table, log_line
        self.halves = 0
        """Half messages to read. 0: not known yet."""
        self.read = 0
        """Those that are read."""

    def run(self, stock_low: int) -> Steps[Recovered]:
        """Recover. `stock_low`: the half-queue offset in consumerOffset.json, -1 without one. An offset beyond the end
        of the queue is true of another log: all halves count that no op record lists. Raises QueueReadError."""
        half_min, half_max = self._log.bounds(HALVES)
        own_low, scan_from, is_newest = yield from self._newest_op()
        if own_low > half_max:
            self._log_line(f"{names.OP_HALF_TOPIC}: the newest low offset is left out: {_beyond(own_low, half_max)}")
            own_low, is_newest = -1, False
        low = max(half_min, own_low if is_newest else max(own_low, stock_low))
        low_place = self._log.place(HALVES, low) if low < half_max else self._log.end
        self.halves, done = half_max - low, DoneHalves(low, half_max)
        yield from self._read_ops(low_place, done)
        found = Recovered(half_max, low, [], {}, {}, [], None, [])
        yield from self._read_halves(found, done)
        halves, ops = self._log.damage
        found.damaged.extend(offset for offset in halves.records if offset not in done)
        found = replace(found, unread=halves.units)
        knows_ops = scan_from >= 0 and ops == Damage()
        yield from self._scan_tail(scan_from if knows_ops else low_place, found)
        for batch in self._log.last_expired(EXPIRED_READ):
            found.expired.extend(batch)
            yield
        return found

    def _newest_op(self) -> Steps[tuple[int, int, bool]]:
        """(low, log offset, True if no stock broker has had the store since then) of the newest op record with a low
        offset. -1 if there is none."""
        first, newest = self._log.bounds(OPS)
        end, is_newest = newest, True
        while end > first:
            begin = max(first, end - BATCH)
            found = [record for batch in self._log.records(OPS, begin, end) for record in batch]
            for record in reversed(found):
                if (low := records.low_of_op(record)) is not None:
                    return low, record.physical_offset, is_newest
                is_newest = is_newest and records.is_repair(record)
            end = begin
            yield
        return -1, -1, False

    def _read_ops(self, low_place: int, done: DoneHalves) -> Steps[None]:
        _, end = self._log.bounds(OPS)
        for batch in self._log.records(OPS, self._log.first_behind(OPS, low_place), end):
            for record in batch:
                done.add(records.offsets_of_op(record.body))
            yield

    def _read_halves(self, to: Recovered, done: DoneHalves) -> Steps[None]:
        self._table.clear()
        for offset in self._log.stage(to.low, to.next_offset, self._table, done):
            self.read = min(offset, to.next_offset) - to.low
            yield
        to.missing.extend(self._table.settle())
        yield
        if self._table.has_stock_copies:
            yield from self._join_stock_copies(to, done)

    def _join_stock_copies(self, to: Recovered, done: DoneHalves) -> Steps[None]:
        """End the halves of which a stock broker has made a copy: the copies do not name them. Only a store that comes
        from a stock broker has such copies."""
        origins = set[int]()
        for batch in self._log.records(HALVES, to.low, to.next_offset):
            found = (records.half_record(record) for record in batch)
            origins.update(read.origin for read in found if read.is_stock_copy)
            yield
        firsts: dict[int, int] = {}
        """Origin -> newest half."""
        for batch in self._log.records(HALVES, to.low, to.next_offset):
            for read in map(records.half_record, batch):
                half = read.half
                if read.origin not in origins:
                    continue
                if read.is_stock_copy and (first := firsts.get(read.origin)) is not None:
                    self._end(first, to)
                    to.renamed[first] = half.first
                if half.newest not in done:
                    if read.is_stock_copy:
                        to.stock_origins[read.origin] = half.first
                    firsts[read.origin] = half.first
            yield

    def _end(self, first: int, to: Recovered) -> None:
        half = self._table.find(first)
        if half is not None:
            self._table.end(first)
            to.missing.append(half.newest)

    def _scan_tail(self, since: int, to: Recovered) -> Steps[None]:
        def end(first: int) -> None:
            while first in to.renamed:
                first = to.renamed[first]
            self._end(first, to)

        for committed in self._log.commits(since):
            for record in committed:
                end(records.first_of(record))
            yield
        for expired in self._log.expired(since):
            for first in expired:
                end(first)
            yield
