"""The tasks of a read. No Spark.

A read of most of the log becomes ranges of the commit log. Each is inside one file, is cut at borders of records, and
has its spans of queue offsets. Any other read becomes groups of queue spans. The plan freezes all ends.
"""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ringmq.spark_bridge.catalog import Catalog
from ringmq.spark_bridge.errors import ReadError
from ringmq.spark_bridge.limits import read_spans
from ringmq.spark_bridge.log_index import LogIndex
from ringmq.spark_bridge.log_ranges import Extent, log_extent, log_slices
from ringmq.spark_bridge.open_catalog import open_catalog
from ringmq.spark_bridge.options import ReadOptions, parse_options
from ringmq.spark_bridge.pushed_filters import NO_FILTERS, PushedFilters
from ringmq.spark_bridge.schema import COLUMNS, OPEN_COLUMNS, Columns, default_columns
from ringmq.spark_bridge.slices import EVERY_TIME, BrokerLocation, QueueSpan, Slice, TimeRange

log = logging.getLogger("ringmq.spark_bridge")

TASK_BYTES = 512 << 20  # a Python task costs Spark 30 to 80 ms, in which 100 MiB are decoded
TASK_BYTES_MIN = 8 << 20  # below this another task costs more than it saves
RECORD_BYTES = 1024  # a record's size where the log cannot be looked at
LOG_SHARE_MIN = 0.5  # of the bytes in a stretch of log: from here on walking it beats going from record to record
FILES_PER_TASK_MAX = 16  # a range lies inside one file: a log of many small ones would be as many tasks
CLOCK_STEP_MS = 10_000  # a host's clock may be set back by so much without a filter by time losing rows


def columns_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns of a batch read or a stream with these options. Raises `OptionError`, `ReadError`."""
    given = parse_options(options, streaming=None)
    if given.open_messages:
        return given.columns or tuple(OPEN_COLUMNS)
    if given.columns:
        is_short = given.include_headers and "headers" not in given.columns
        return (*given.columns, "headers") if is_short else given.columns
    several = given.store is None and len(open_catalog(given).brokers()) > 1
    return default_columns(headers=given.include_headers, broker=several)


def table_of(options: Mapping[str, str]) -> Columns:
    """Return the table that has the columns of a read with these options. Raises `OptionError`."""
    return OPEN_COLUMNS if parse_options(options, streaming=None).open_messages else COLUMNS


def plan_batch(catalog: Catalog, options: ReadOptions, filters: PushedFilters = NO_FILTERS) -> list[Slice]:
    """The tasks of a batch read, none when there is nothing to read.

    Raises `OptionError`, `ReadError`, and `DataLossError` for offsets out of range with failOnDataLoss.
    """
    times = filters.times
    spans = [_pruned(catalog, span, filters, times) for span in read_spans(catalog, options, filters.wants)]
    return plan_spans(catalog, [span for span in spans if span.count], options, times)


def plan_spans(
    catalog: Catalog, spans: Sequence[QueueSpan], options: ReadOptions, times: TimeRange = EVERY_TIME
) -> list[Slice]:
    """Return the tasks that read `spans`, none of them empty, under minPartitions and maxRecordsPerPartition.

    Raises `ReadError`.
    """
    index = catalog.log_index()
    if index is not None and spans:
        extent = log_extent(index, spans)
        ranges = _plan_log(catalog.brokers()[0], index, spans, extent, options, times)
        if ranges:
            return ranges
        record_bytes = extent.record_bytes
    else:
        record_bytes = sum(span.count for span in spans) * RECORD_BYTES
    tasks = max(options.min_partitions or 1, useful_tasks(record_bytes))
    return slices_of(catalog, spans, tasks, rows_max=options.max_records_per_partition, times=times)


def slices_of(
    catalog: Catalog,
    spans: Sequence[QueueSpan],
    tasks: int,
    *,
    rows_max: int | None = None,
    times: TimeRange = EVERY_TIME,
) -> list[Slice]:
    """Return the rows of `spans` as about `tasks` slices of equal size. `rows_max` bounds the rows of a task.

    Each slice is of one broker. Rows without a unit in a ConsumeQueue become slices of the log. Raises `ReadError` if
    a broker is not in the catalog.
    """
    index = catalog.log_index()
    slices: list[Slice] = []
    if index is not None:
        tails = [replace(s, begin=max(s.begin, index.units_end(s.key, s.end))) for s in spans]
        spans = [replace(s, end=index.units_end(s.key, s.end)) for s in spans]
        tails = [span for span in tails if span.count > 0]
        if tails:
            ranges = log_slices(catalog.brokers()[0], index, tails, log_extent(index, tails), TASK_BYTES, times)
            for part in ranges:  # tasks may share a range: each takes the rows of its own spans
                groups = _groups(part.spans, rows_max or part.rows_max)
                slices += [replace(part, spans=tuple(group)) for group in groups]
    spans = [span for span in spans if span.count > 0]
    total = sum(span.count for span in spans)
    if not total:
        return slices
    size = -(-total // min(tasks, total))
    size = size if rows_max is None else min(size, rows_max)
    places = {place.name: place for place in catalog.brokers()}
    if away := {span.key.broker for span in spans} - places.keys():
        raise ReadError(
            f"brokers {', '.join(sorted(away))} are no longer registered, so their rows cannot be read; "
            "start them and run the query again"
        )
    for name, place in places.items():
        own = [span for span in spans if span.key.broker == name]
        slices += [Slice(place, tuple(group), None, times) for group in _groups(own, size)]
    return slices


def useful_tasks(record_bytes: int) -> int:
    """Return the number of tasks for so many bytes: as many as cores while that pays off, then one for each 512 MiB."""
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores, record_bytes // TASK_BYTES_MIN), -(-record_bytes // TASK_BYTES))


def _pruned(catalog: Catalog, span: QueueSpan, filters: PushedFilters, times: TimeRange) -> QueueSpan:
    """The part of a span that can have rows; store times may fall by CLOCK_STEP_MS, tasks look at each."""
    span = filters.span(span)
    if span.count and times.begin_ms is not None:
        begin = catalog.offset_at(span.key, max(0, times.begin_ms - CLOCK_STEP_MS))
        span = replace(span, begin=span.end if begin is None else min(max(span.begin, begin), span.end))
    if span.count and times.end_ms is not None:
        end = catalog.offset_at(span.key, max(0, times.end_ms + CLOCK_STEP_MS))
        span = replace(span, end=span.end if end is None else min(max(span.begin, end), span.end))
    return span


def _plan_log(
    place: BrokerLocation,
    index: LogIndex,
    spans: Sequence[QueueSpan],
    extent: Extent,
    options: ReadOptions,
    times: TimeRange,
) -> list[Slice]:
    """Return the read as ranges of the log, none if queue spans are better because the read skips too much of the
    log.
    """
    tasks = max(options.min_partitions or 1, useful_tasks(extent.log_bytes))
    files = sum(start < extent.end and extent.begin < start + index.file_bytes for start in index.file_starts)
    if extent.record_bytes < LOG_SHARE_MIN * extent.log_bytes or files > FILES_PER_TASK_MAX * tasks:
        return []
    slices = log_slices(place, index, spans, extent, -(-extent.log_bytes // tasks), times)
    rows_max = options.max_records_per_partition
    return [] if rows_max is not None and any(part.rows_max > rows_max for part in slices) else slices


def _groups(spans: Sequence[QueueSpan], size: int) -> Iterator[list[QueueSpan]]:
    """Yield the spans in order, cut into groups of `size` offsets. The last group may be smaller."""
    group: list[QueueSpan] = []
    room = size
    for span in spans:
        begin = span.begin
        while begin < span.end:
            end = min(span.end, begin + room)
            group.append(QueueSpan(span.key, begin, end, span.log_begin))
            room -= end - begin
            begin = end
            if not room:
                yield group
                group, room = [], size
    if group:
        yield group
