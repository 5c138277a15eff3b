"""A full scan: the log cut into ranges, each with its queue offsets."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ringmq.spark_bridge.log_index import LogIndex
from ringmq.spark_bridge.slices import EVERY_TIME, BrokerLocation, LogSpan, QueueSpan, Slice, TimeRange

BORDER_QUEUES_MAX = 16  # queues asked for a record near a cut: enough to come close, bounded for 10,000 topics
SPANS_MAX = 2_000_000  # spans in all ranges together; many queues in a large log get larger ranges


@dataclass(frozen=True, slots=True)
class Extent:
    """The stretch of log [`begin`, `end`) around some spans. About `record_bytes` of it are theirs.

    `places` are the records at which the spans begin, -1 without one.
    """

    begin: int
    end: int
    record_bytes: int
    places: tuple[int, ...]

    @property
    def log_bytes(self) -> int:
        """The bytes of the whole stretch."""
        return self.end - self.begin


def log_extent(index: LogIndex, spans: Sequence[QueueSpan]) -> Extent:
    """Return the stretch of log with the records of `spans`, which are not empty, by two look-ups for each."""
    begin, end, record_bytes = index.span.end, index.span.begin, 0
    places = []
    for span in spans:
        first, last = index.position(span.key, span.begin), index.position(span.key, span.end - 1)
        places.append(-1 if first is None else first.begin)
        if first is None or last is None:  # damaged: it may be anywhere
            begin, end = index.span.begin, index.span.end
            continue
        begin, end = min(begin, first.begin), max(end, last.end)
        record_bytes += span.count * (first.size + last.size) // 2
    return Extent(begin, max(begin, end), min(record_bytes, max(0, end - begin)), tuple(places))


def log_slices(
    place: BrokerLocation,
    index: LogIndex,
    spans: Sequence[QueueSpan],
    extent: Extent,
    range_bytes: int,
    times: TimeRange = EVERY_TIME,
) -> list[Slice]:
    """Return the rows of `spans` as ranges of the log of about `range_bytes`, each inside one file and none without
    rows.
    """
    ranges = _ranges(index, spans, extent, max(1, range_bytes))
    contents: list[list[QueueSpan]] = [[] for _ in ranges]
    borders = [part.begin for part in ranges[1:]]
    for span, first_place in zip(spans, extent.places, strict=True):
        offsets = [min(max(offset, span.begin), span.end) for offset in index.offsets_at(span.key, borders)]
        log_begin = max(0, first_place)  # records before it belong to an earlier topic of this name
        for number, (begin, end) in enumerate(pairwise((span.begin, *offsets, span.end))):
            if begin < end:
                contents[number].append(QueueSpan(span.key, begin, end, log_begin))
                log_begin = 0
    return [Slice(place, tuple(own), part, times) for part, own in zip(ranges, contents, strict=True) if own]


def _ranges(index: LogIndex, spans: Sequence[QueueSpan], extent: Extent, range_bytes: int) -> list[LogSpan]:
    range_bytes = max(range_bytes, extent.log_bytes * len(spans) // SPANS_MAX)
    widest = sorted(spans, key=lambda span: span.count, reverse=True)[:BORDER_QUEUES_MAX]
    keys = [span.key for span in widest]
    ranges = []
    for file_start in index.file_starts:
        at, end = max(extent.begin, file_start), min(extent.end, file_start + index.file_bytes)
        while at < end:
            cut = end if end - at <= range_bytes else min(end, index.border_at(keys, at + range_bytes, end))
            ranges.append(LogSpan(at, cut))
            at = cut
    return ranges
