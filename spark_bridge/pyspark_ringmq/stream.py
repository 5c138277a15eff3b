"""Streams: offsets as JSON, limits as Spark's objects. `ringmq.spark_bridge.stream_query` has their meaning."""

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark_ringmq.batch import SlicePartition
from pyspark_ringmq.worker_process import task_batches

from ringmq.spark_bridge.options import ReadOptions
from ringmq.spark_bridge.read_settings import ReadSettings
from ringmq.spark_bridge.slice_reader import read_slice
from ringmq.spark_bridge.stream_core import Limits, offsets_to_json, stream_offset_from_json, stream_offset_to_json
from ringmq.spark_bridge.stream_query import StreamQuery

JsonOffsets = dict[str, dict[str, int]]


def stream_reader(options: ReadOptions, columns: tuple[str, ...]) -> DataSourceStreamReader:
    """Return a stream of `columns` with `options`."""
    return StreamReader(options, columns)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Holds plain data only, as it is pickled to tasks. The driver's instance opens its query on the first call."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._opened: StreamQuery | None = None

    @property
    def _query(self) -> StreamQuery:
        if self._opened is None:
            self._opened = StreamQuery(self._options)
        return self._opened

    def initialOffset(self) -> JsonOffsets:
        """Return the start of a query without a checkpoint."""
        return offsets_to_json(self._query.initial_offsets())

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of each trigger. Only Trigger.Once asks for everything instead."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Freeze the current end of the log as the query's end."""
        self._query.freeze()

    def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:
        """The end of the batch that begins at `start`, which is `start` when there is nothing to do."""
        place = stream_offset_from_json(start)
        end = self._query.next_end(place, self._limits(limit))
        return start if end is place else stream_offset_to_json(end)

    def reportLatestOffset(self) -> JsonOffsets | None:
        """Return the log's end, from which Spark's progress derives the lag. An error here would end the query."""
        end = self._query.last_end()
        return None if end is None else offsets_to_json(end.offsets)

    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> Sequence[InputPartition]:
        """The tasks of a batch."""
        slices = self._query.slices(stream_offset_from_json(start), stream_offset_from_json(end))
        return [SlicePartition(part) for part in slices]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield Arrow batches of one slice. Runs in a task."""
        if not isinstance(partition, SlicePartition):
            return iter(())  # Spark makes one partition of its own of a plan without any
        return task_batches(read_slice(partition.part, self._columns, ReadSettings.of(self._options)))

    def stop(self) -> None:
        """Close the query."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _limits(self, limit: ReadLimit) -> Limits:
        """Return the limits.

        Spark passes one limit. That of minOffsetsPerTrigger applies as well, as in Kafka's source.
        """
        if isinstance(limit, ReadAllAvailable):
            return Limits()
        options = self._options
        if isinstance(limit, ReadMaxRows):
            return Limits(options.min_offsets_per_trigger, limit.max_rows, options.max_trigger_delay_ms)
        if isinstance(limit, ReadMinRows):
            return Limits(limit.min_rows, None, options.max_trigger_delay_ms)
        raise ValueError(f"a stream of messages is limited by rows, not by {limit}")
