"""From stored records to batches: the selection of rows, the filling of a batch, and the loop between the two.

`Rows` is one batch in progress. Its two implementations give the same results: `NativeRows` writes Arrow buffers in
the C core, `PlainRows` is plain Python for hosts with the base install only.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from ringmq.spark_bridge.fallback_record import FallbackRecordError, RowMessage, StoredRecord, messages_of
from ringmq.spark_bridge.slices import EVERY_TIME, TimeRange
from ringmq.store import record as records

FALLBACK = 4  # RMQ_ROW_FALLBACK
OUTSIDE = 5
NO_UNIT = -7
FOREIGN_QUEUE = -8
UNREADABLE = -9  # a fallback record that cannot be unpacked

REASONS = records.REASONS | {
    records.BAD_MAGIC: "neither a record nor a blank: this reader knows the formats DAA320A7 and DAA320AB",
    NO_UNIT: "the queue has nothing at this offset",
    FOREIGN_QUEUE: "the record there has another size, place, queue or queue offset",
}
ANYWHERE = -1  # as `data_start`: each record lies where it says, as in the body of a pull answer


@dataclass(frozen=True, slots=True)
class WantedQueue:
    """Offsets [`begin`, `end`) of a queue. Records before `log_begin` belong to an earlier topic of the same name."""

    topic: str
    queue_id: int
    begin: int
    end: int
    log_begin: int = 0


@dataclass(frozen=True)
class WantedRows:
    """The selected messages: of these queues, stored in `times`, never half or rolled-back ones."""

    queues: tuple[WantedQueue, ...]
    times: TimeRange = EVERY_TIME
    check_crc: bool = False
    by_name: dict[tuple[str, int], WantedQueue] = field(init=False)

    def __post_init__(self) -> None:
        by_name = {(queue.topic, queue.queue_id): queue for queue in self.queues}
        object.__setattr__(self, "by_name", by_name)


@dataclass(frozen=True, slots=True)
class BatchShape:
    """Columns and sizes of batches, the name for the column `broker`, True if the next batch overwrites the last."""

    columns: tuple[str, ...]
    broker: str
    batch_bytes: int
    batch_rows: int
    reuse_buffers: bool = False


class Stop(NamedTuple):
    """Reason why a walk stopped at `at`, an offset in the bytes or a number of units. FALLBACK has a `record`."""

    at: int
    reason: int
    record: StoredRecord | None = None
    detail: str = ""

    @property
    def text(self) -> str:
        """The reason in words."""
        return self.detail or REASONS.get(self.reason, str(self.reason))


class Rows(Protocol):
    """One batch in progress. Walks stop when it is full."""

    wanted: WantedRows
    wants_value: bool

    @property
    def count(self) -> int:
        """The number of rows in the batch."""

    def from_log(self, data: Any, begin: int, end: int, data_start: int) -> Stop:
        """Add the records of `data[begin:end]`. `data[0]` has commit-log offset `data_start`, or ANYWHERE."""

    def from_units(self, queue: int, units: bytes, begin: int, unit_offset: int, data: Any, data_start: int) -> Stop:
        """Add the records of 20-byte units from number `begin` on. The first unit has queue offset `unit_offset`.

        `queue` is an index in `wanted.queues`. Without `data` the units alone make the rows (`INDEX_COLUMNS`).
        """

    def put(self, record: StoredRecord, message: RowMessage) -> bool:
        """Add one message of a record. False if it does not fit."""

    def grow(self) -> None:
        """Double the space, for a row that does not fit into an empty batch."""

    def take(self) -> pa.RecordBatch:
        """Return the batch and begin the next one."""


INDEX_COLUMNS = frozenset({"topic", "partition", "offset", "timestampType", "broker", "commit_log_offset"})
"""Columns that a unit of a ConsumeQueue provides without its record."""


Walk = Generator[pa.RecordBatch, None, Stop]


def walk_log(rows: Rows, data: Any, begin: int, end: int, data_start: int) -> Walk:
    """Yield full batches. Return the final stop. The remaining rows stay in `rows`."""
    return _walk(rows, lambda at: rows.from_log(data, at, end, data_start), begin, lambda record: len(record.raw))


def walk_units(rows: Rows, queue: int, units: bytes, begin: int, unit_offset: int, data: Any, data_start: int) -> Walk:
    """Do the same for units of a ConsumeQueue. The stop counts units."""
    return _walk(
        rows, lambda at: rows.from_units(queue, units, at, unit_offset, data, data_start), begin, lambda record: 1
    )


def _walk(rows: Rows, step: Callable[[int], Stop], at: int, advance: Callable[[StoredRecord], int]) -> Walk:
    while True:
        stop = step(at)
        at = stop.at
        if stop.reason == records.FULL:
            yield from _make_room(rows)
        elif stop.reason == FALLBACK and stop.record is not None:
            try:
                yield from put_fallback(rows, stop.record)
            except FallbackRecordError as error:
                return Stop(at, UNREADABLE, None, str(error))
            at += advance(stop.record)
        else:
            return stop


def put_fallback(rows: Rows, record: StoredRecord) -> Generator[pa.RecordBatch, None, None]:
    """Add the messages of a record that Python has to unpack. Raises `FallbackRecordError`."""
    queue = rows.wanted.by_name.get((record.topic, record.queue_id))
    for message in messages_of(record, wants_body=rows.wants_value):
        if queue is None or not queue.begin <= message.queue_offset < queue.end:
            continue
        while not rows.put(record, message):
            yield from _make_room(rows)


def _make_room(rows: Rows) -> Generator[pa.RecordBatch, None, None]:
    if rows.count:
        yield rows.take()
    else:
        rows.grow()
