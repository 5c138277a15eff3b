"""Spans of ConsumeQueues as rows: units in batches, their records gathered through the mapped log.

A task reads the queues of a slice window by window of the log, so a page is mapped once and not once for each queue.
"""

import contextlib
import heapq
from collections.abc import Iterator

import pyarrow as pa

from ringmq.spark_bridge.data_loss import DataLossPolicy, log
from ringmq.spark_bridge.errors import DataLossError, ReadError
from ringmq.spark_bridge.log_segments import LogSegments, WindowCursor
from ringmq.spark_bridge.open_rows import open_rows
from ringmq.spark_bridge.queue_units import UNIT_BYTES, BatchQueueUnits, QueueUnits, is_filler, open_queue
from ringmq.spark_bridge.read_settings import ReadSettings
from ringmq.spark_bridge.rows import (
    INDEX_COLUMNS,
    NO_UNIT,
    OUTSIDE,
    Stop,
    Walk,
    WantedQueue,
    WantedRows,
    walk_log,
    walk_units,
)
from ringmq.spark_bridge.slices import QueueKey, QueueSpan, Slice
from ringmq.store import layout
from ringmq.store import record as records

WINDOW_BYTES = 16 << 20  # address space, not memory: only pages with wanted records are touched
UNITS_IN_MEMORY = 1 << 18  # of all queues of a slice together
UNITS_MIN, UNITS_MAX = 64, 4096  # of one queue


def units_answer(part: Slice, columns: tuple[str, ...], how: ReadSettings) -> bool:
    """True if the units provide all columns, so that no record need be read.

    The newest records of a log range may have no units yet.
    """
    if not INDEX_COLUMNS.issuperset(columns) or not part.times.is_open or how.verify_crc or part.broker.store is None:
        return False
    queues = ((open_queue(part.broker.store.root, span.key), span.end) for span in part.spans if span.count)
    return part.log is None or all(queue.position(end - 1) is not None for queue, end in queues)


def read_queues(part: Slice, columns: tuple[str, ...], how: ReadSettings) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `part.spans`, each queue's in order of offsets. Raises `DataLossError` and `ReadError`."""
    assert part.broker.store is not None
    try:
        log = LogSegments(part.broker.store)
    except DataLossError as error:  # all of it
        DataLossPolicy(fail=how.fail_on_data_loss).report(error)
        return
    with (
        log as segments,
        contextlib.closing(WindowCursor(segments, max(WINDOW_BYTES, how.window_bytes))) as windows,
    ):
        yield from _QueueReader(part, columns, how, windows).read()


class _QueueCursor:
    """The progress in a queue. `at` is its next queue offset. `units` begin with that of offset `first`."""

    def __init__(self, number: int, span: QueueSpan, queue: QueueUnits) -> None:
        self.number = number
        self.span = span
        self.queue = queue
        self.at = self.first = span.begin
        self.units = b""

    def load(self, units_max: int) -> bool:
        """Load the next unit into `units`. False if the files have none."""
        if self.at >= self.first + len(self.units) // UNIT_BYTES:
            self.first = self.at
            self.units = self.queue.read(self.at, min(self.span.end, self.at + units_max))
        return bool(self.units)

    @property
    def position(self) -> int:
        """The position of the next record, or of the last one if the next units are not loaded yet."""
        number = min(self.at - self.first, len(self.units) // UNIT_BYTES - 1)
        return int(layout.CONSUME_QUEUE_UNIT.unpack_from(self.units, number * UNIT_BYTES)[0]) if self.units else 0


class _QueueReader:
    """One slice's state."""

    def __init__(self, part: Slice, columns: tuple[str, ...], how: ReadSettings, windows: WindowCursor) -> None:
        assert part.broker.store is not None
        self._root = part.broker.store.root
        self._spans = [span for span in part.spans if span.count]
        queues = tuple(WantedQueue(span.key.topic, span.key.queue_id, span.begin, span.end) for span in self._spans)
        self._rows = open_rows(how.shape(columns, part.broker.name), WantedRows(queues, part.times, how.verify_crc))
        self._units_answer = INDEX_COLUMNS.issuperset(columns) and part.times.is_open and not how.verify_crc
        self._data_loss = DataLossPolicy(fail=how.fail_on_data_loss)
        self._left_out = 0
        self._windows = windows

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield all batches."""
        cursors = []
        for number, span in enumerate(self._spans):
            queue = open_queue(self._root, span.key)
            if isinstance(queue, BatchQueueUnits):
                yield from self._read_batch_queue(span, queue)
            else:
                cursors.append(_QueueCursor(number, span, queue))
        units_max = max(UNITS_MIN, min(UNITS_MAX, UNITS_IN_MEMORY // max(1, len(cursors))))
        heap = [(0, place) for place in range(len(cursors))]
        while heap:
            _, place = heapq.heappop(heap)
            cursor = cursors[place]
            yield from self._read_window(cursor, units_max)
            if cursor.at < cursor.span.end:
                heapq.heappush(heap, (cursor.position, place))
        if self._left_out:
            log.warning("%s: %d queue offsets have no readable record and are skipped", self._root, self._left_out)
        if self._rows.count:
            yield self._rows.take()

    def _read_window(self, cursor: "_QueueCursor", units_max: int) -> Iterator[pa.RecordBatch]:
        """Yield the queue's rows in one window of the log, or of one batch of units."""
        if not cursor.load(units_max):
            folder, at = cursor.queue.folder, cursor.at
            self._data_loss.report(DataLossError(f"{folder} has nothing at offset {at}: retention has taken it"))
            cursor.at = min(cursor.queue.next_offset(at) or cursor.span.end, cursor.span.end)
            return
        units, at = cursor.units, cursor.at - cursor.first
        try:
            stop = yield from self._walk(cursor.number, units, at, cursor.first)
        except DataLossError as error:
            self._data_loss.report(error)
            cursor.at = cursor.first + self._behind_loss(units, at)
            return
        cursor.at = cursor.first + stop.at
        if stop.reason == NO_UNIT and is_filler(*unit_at(units, stop.at)):
            self._left_out += 1  # dispatch has left its record out, or the offset never had one
            cursor.at += 1
        elif stop.reason not in (records.END, OUTSIDE):
            self._data_loss.report(_broken(self._root, cursor.span.key, cursor.at, cursor.position, stop))
            cursor.at += 1

    def _walk(self, number: int, units: bytes, at: int, first: int) -> Walk:
        if self._units_answer:
            return (yield from walk_units(self._rows, number, units, at, first, None, 0))
        position, size = unit_at(units, at)
        if position < 0 or size <= 0 or is_filler(position, size):
            return Stop(at, NO_UNIT)
        try:
            window = self._windows.at(position, size)
        except ReadError as error:
            return Stop(at, NO_UNIT, None, str(error))
        return (yield from walk_units(self._rows, number, units, at, first, window.data, window.start))

    def _behind_loss(self, units: bytes, at: int) -> int:
        """Return the first unit behind `at` whose record is in an existing file."""
        position = layout.CONSUME_QUEUE_UNIT.unpack_from(units, at * UNIT_BYTES)[0]
        start = self._windows.segments.next_start(position)
        places = [unit[0] for unit in layout.CONSUME_QUEUE_UNIT.iter_unpack(units)]
        found = (number for number in range(at + 1, len(places)) if start is not None and places[number] >= start)
        return next(found, len(places))

    def _read_batch_queue(self, span: QueueSpan, queue: BatchQueueUnits) -> Iterator[pa.RecordBatch]:
        """Yield the rows one record after the other: Python unpacks each anyway."""
        at = span.begin
        for position, size, base, count in queue.units(span.begin, span.end):
            if base > at:
                self._data_loss.report(
                    DataLossError(f"{queue.folder} has nothing at offset {at}: retention has taken it")
                )
            at = base + count
            try:
                window = self._windows.at(position, size)
                begin = position - window.start
                stop = yield from walk_log(self._rows, window.data, begin, begin + size, window.start)
                if stop.reason != records.END:
                    raise _broken(self._root, span.key, base, position, stop)
            except (DataLossError, ReadError) as error:
                self._data_loss.report(error)
        if at < span.end:
            self._data_loss.report(DataLossError(f"{queue.folder} has nothing at offset {at}: retention has taken it"))


def unit_at(units: bytes, number: int) -> tuple[int, int]:
    """Return commit-log offset and size of a unit."""
    position, size, _ = layout.CONSUME_QUEUE_UNIT.unpack_from(units, number * UNIT_BYTES)
    return int(position), int(size)


def _broken(root: str, key: QueueKey, queue_offset: int, position: int, stop: Stop) -> ReadError:
    return ReadError(
        f"{root}: queue {key.queue_id} of topic {key.topic}, queue offset {queue_offset}, "
        f"commit-log offset {position}: {stop.text}"
    )
