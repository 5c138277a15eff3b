"""A range of the mapped commit log as rows: window by window, record by record."""

from collections.abc import Iterator
from functools import cached_property

import pyarrow as pa

from ringmq.spark_bridge.data_loss import DataLossPolicy, log
from ringmq.spark_bridge.errors import DataLossError, ReadError
from ringmq.spark_bridge.log_segments import LogSegments, Segment
from ringmq.spark_bridge.open_rows import open_rows
from ringmq.spark_bridge.queue_units import BatchQueueUnits, QueueUnits, open_queue
from ringmq.spark_bridge.read_settings import ReadSettings
from ringmq.spark_bridge.rows import WantedQueue, WantedRows, walk_log
from ringmq.spark_bridge.slices import LogSpan, QueueSpan, Slice
from ringmq.store import record as records

RECORD_BYTES_MAX = 256 << 20  # a larger size is a damaged one


def read_log(part: Slice, columns: tuple[str, ...], how: ReadSettings) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `part.log`, in log order. Raises `DataLossError` and `ReadError`."""
    assert part.log is not None and part.broker.store is not None
    reader = _LogReader(part, columns, how)
    try:
        with LogSegments(part.broker.store) as segments:
            yield from reader.read(part.log, segments.at(part.log.begin))
    except DataLossError as error:
        reader.data_loss.report(error)
    if reader.left_out:
        text = "%s: %d records contain another log offset than their own and are in no queue: skipped"
        log.warning(text, part.broker.store.root, reader.left_out)
    if reader.rows.count:
        yield reader.rows.take()


class _LogReader:
    """One slice's state."""

    def __init__(self, part: Slice, columns: tuple[str, ...], how: ReadSettings) -> None:
        assert part.broker.store is not None
        self._root = part.broker.store.root
        self.data_loss = DataLossPolicy(fail=how.fail_on_data_loss)
        self.left_out = 0
        self._window_bytes = how.window_bytes
        self._spans = [span for span in part.spans if span.count]
        queues = tuple(
            WantedQueue(span.key.topic, span.key.queue_id, span.begin, span.end, span.log_begin) for span in self._spans
        )
        wanted = WantedRows(queues, part.times, how.verify_crc)
        self.rows = open_rows(how.shape(columns, part.broker.name), wanted)

    def read(self, log: LogSpan, segment: Segment) -> Iterator[pa.RecordBatch]:
        """Yield full batches. The remaining rows stay in `rows`."""
        at, window_bytes = log.begin, self._window_bytes
        while at < log.end:
            with segment.window(at, min(log.end, at + window_bytes), populate=True) as window:
                data, start, window_end = window.data, window.start, window.end
                stop = yield from walk_log(self.rows, data, at - start, window_end - start, start)
                size = int.from_bytes(data[stop.at : stop.at + 4], "big")
            stopped_at = start + stop.at
            is_cut = stop.reason == records.SHORT and window_end < log.end
            if stop.reason == records.BLANK:
                return  # the rest of the file is empty
            if stop.reason == records.END or (is_cut and stopped_at > at):
                at, window_bytes = stopped_at, self._window_bytes
            elif stop.reason == records.BAD_PLACE and self._next_known(stopped_at, log.end) != stopped_at:
                self.left_out += 1  # no queue has it: dispatch has left it out (store/record_values.py)
                at, window_bytes = stopped_at + size, self._window_bytes
            elif is_cut and window_bytes < RECORD_BYTES_MAX:
                window_bytes *= 2  # one record is larger than the window
            else:
                self.data_loss.report(ReadError(f"{segment.path}: no record at offset {stopped_at}: {stop.text}"))
                at, window_bytes = self._next_known(stopped_at + 1, log.end), self._window_bytes

    @cached_property
    def _queues(self) -> list[tuple[QueueSpan, QueueUnits | BatchQueueUnits]]:
        """Return the queues, which only reports of losses need."""
        return [(span, open_queue(self._root, span.key)) for span in self._spans]

    def _next_known(self, position: int, end: int) -> int:
        """Return the first position from `position` on of a record that one of the queues knows."""
        places = [units.first_from(position, span.begin, span.end) for span, units in self._queues]
        return min((place for place in places if place is not None), default=end)
