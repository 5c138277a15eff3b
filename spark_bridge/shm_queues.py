"""Spans of ConsumeQueues as rows: queue by queue, units in batches, their records gathered through the mapped log."""

import contextlib
from collections.abc import Iterator

import pyarrow as pa

from ringmq.spark_bridge.errors import DataLossError, ReadError
from ringmq.spark_bridge.log_segments import LogSegments, WindowCursor
from ringmq.spark_bridge.losses import Losses
from ringmq.spark_bridge.queue_units import UNIT_BYTES, BatchQueueUnits, QueueUnits, open_queue
from ringmq.spark_bridge.rows import (
    INDEX_COLUMNS,
    NO_UNIT,
    OUTSIDE,
    Stop,
    Walk,
    WantedQueue,
    WantedRows,
    open_rows,
    walk_log,
    walk_units,
)
from ringmq.spark_bridge.slice_reader import ReadSettings
from ringmq.spark_bridge.slices import QueueKey, QueueSpan, Slice
from ringmq.store import layout
from ringmq.store import record as records

WINDOW_BYTES = 16 << 20  # address space, not memory: only pages with wanted records are touched


def units_answer(part: Slice, columns: tuple[str, ...], how: ReadSettings) -> bool:
    """Whether the units tell all that is asked, so that no record need be looked at.

    The newest records of a log range may have no units yet.
    """
    if not INDEX_COLUMNS.issuperset(columns) or not part.times.is_open or how.verify_crc or part.broker.store is None:
        return False
    queues = ((open_queue(part.broker.store.root, span.key), span.end) for span in part.spans if span.count)
    return part.log is None or all(queue.position(end - 1) is not None for queue, end in queues)


def read_queues(part: Slice, columns: tuple[str, ...], how: ReadSettings) -> Iterator[pa.RecordBatch]:
    """The rows of `part.spans`, queue by queue in order of offsets. Raises `DataLossError` and `ReadError`."""
    assert part.broker.store is not None
    with (
        LogSegments(part.broker.store) as segments,
        contextlib.closing(WindowCursor(segments, max(WINDOW_BYTES, how.window_bytes))) as windows,
    ):
        yield from _QueueReader(part, columns, how, windows).read()


class _QueueReader:
    """One slice's state."""

    def __init__(self, part: Slice, columns: tuple[str, ...], how: ReadSettings, windows: WindowCursor) -> None:
        assert part.broker.store is not None
        self._root = part.broker.store.root
        self._spans = [span for span in part.spans if span.count]
        queues = tuple(WantedQueue(span.key.topic, span.key.queue_id, span.begin, span.end) for span in self._spans)
        self._rows = open_rows(how.shape(columns, part.broker.name), WantedRows(queues, part.times, how.verify_crc))
        self._units_answer = INDEX_COLUMNS.issuperset(columns) and part.times.is_open and not how.verify_crc
        self._losses = Losses(fail=how.fail_on_data_loss)
        self._windows = windows

    def read(self) -> Iterator[pa.RecordBatch]:
        """All batches."""
        for number, span in enumerate(self._spans):
            queue = open_queue(self._root, span.key)
            if isinstance(queue, BatchQueueUnits):
                yield from self._read_batch_queue(span, queue)
            else:
                yield from self._read_queue(number, span, queue)
        if self._rows.count:
            yield self._rows.take()

    def _read_queue(self, number: int, span: QueueSpan, queue: QueueUnits) -> Iterator[pa.RecordBatch]:
        at = span.begin
        while at < span.end:
            units = queue.read(at, span.end)
            if units:
                yield from self._read_units(number, span.key, units, at)
                at += len(units) // UNIT_BYTES
            else:
                self._losses.meet(DataLossError(f"{queue.folder} has nothing at offset {at}: retention has taken it"))
                at = queue.next_offset(at) or span.end

    def _read_units(self, number: int, key: QueueKey, units: bytes, first: int) -> Iterator[pa.RecordBatch]:
        at, count = 0, len(units) // UNIT_BYTES
        while at < count:
            try:
                stop = yield from self._walk(number, units, at, first)
            except DataLossError as error:
                self._losses.meet(error)
                at = self._behind_loss(units, at)
                continue
            at = stop.at
            if stop.reason not in (records.END, OUTSIDE):
                place = layout.CONSUME_QUEUE_UNIT.unpack_from(units, at * UNIT_BYTES)[0]
                self._losses.meet(_broken(self._root, key, first + at, place, stop))
                at += 1

    def _walk(self, number: int, units: bytes, at: int, first: int) -> Walk:
        if self._units_answer:
            return (yield from walk_units(self._rows, number, units, at, first, None, 0))
        position, size, _ = layout.CONSUME_QUEUE_UNIT.unpack_from(units, at * UNIT_BYTES)
        if position < 0 or size <= 0 or size == layout.FILLER_SIZE:
            return Stop(at, NO_UNIT)
        try:
            window = self._windows.at(position, size)
        except ReadError as error:
            return Stop(at, NO_UNIT, None, str(error))
        return (yield from walk_units(self._rows, number, units, at, first, window.data, window.start))

    def _behind_loss(self, units: bytes, at: int) -> int:
        """The first unit behind `at` whose record is in a file that is there."""
        position = layout.CONSUME_QUEUE_UNIT.unpack_from(units, at * UNIT_BYTES)[0]
        start = self._windows.segments.next_start(position)
        places = [unit[0] for unit in layout.CONSUME_QUEUE_UNIT.iter_unpack(units)]
        found = (number for number in range(at + 1, len(places)) if start is not None and places[number] >= start)
        return next(found, len(places))

    def _read_batch_queue(self, span: QueueSpan, queue: BatchQueueUnits) -> Iterator[pa.RecordBatch]:
        """One record after the other: each is unpacked in Python anyway."""
        at = span.begin
        for position, size, base, count in queue.units(span.begin, span.end):
            if base > at:
                self._losses.meet(DataLossError(f"{queue.folder} has nothing at offset {at}: retention has taken it"))
            at = base + count
            try:
                window = self._windows.at(position, size)
                begin = position - window.start
                stop = yield from walk_log(self._rows, window.data, begin, begin + size, window.start)
                if stop.reason != records.END:
                    raise _broken(self._root, span.key, base, position, stop)
            except (DataLossError, ReadError) as error:
                self._losses.meet(error)
        if at < span.end:
            self._losses.meet(DataLossError(f"{queue.folder} has nothing at offset {at}: retention has taken it"))


def _broken(root: str, key: QueueKey, queue_offset: int, position: int, stop: Stop) -> ReadError:
    return ReadError(
        f"{root}: queue {key.queue_id} of topic {key.topic}, queue offset {queue_offset}, "
        f"commit-log offset {position}: {stop.text}"
    )
