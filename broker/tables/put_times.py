"""Times of sends for operators: the last minute of the histogram that read workers keep, under stock's classes.

The histogram has powers of two of a microsecond, so it needs no work of its own for a message. A class of stock whose
bound lies within a power of two gets its share of that bucket.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, pairwise

from msgspec import Struct

from ringmq.broker.tables.protocols import PlaneProtocol
from ringmq.native import lib

WINDOW_MS = 60_000
_CLASSES = {
    "<=0ms": 1, "0~10ms": 10, "10~50ms": 50, "50~100ms": 100, "100~200ms": 200, "200~500ms": 500, "500ms~1s": 1000,
    "1~2s": 2000, "2~3s": 3000, "3~4s": 4000, "4~5s": 5000, "5~10s": 10_000,
}  # fmt: skip
"""Stock's name of a class -> the millisecond below which its times are. Stock counts whole milliseconds."""
_LONGEST_CLASS = "10s~"


class SendTimes(Struct, frozen=True):
    """A histogram of the times from the receipt of a send to its answer."""

    counts: tuple[int, ...] = ()
    """Sends below 2^i microseconds and in no earlier bucket, i = 0 first. The last bucket has the rest, too."""
    max_ns: int = 0
    """The longest one, in nanoseconds."""

    def since(self, earlier: SendTimes) -> SendTimes:
        """The sends after `earlier`. All, if the counters have begun anew since."""
        if len(self.counts) != len(earlier.counts):
            return self
        grown = tuple(now - then for now, then in zip(self.counts, earlier.counts, strict=True))
        return self if min(grown, default=0) < 0 else SendTimes(grown, self.max_ns)

    def distribution(self) -> str:
        """Sends by stock's classes, in stock's format."""
        total = sum(self.counts)
        below = [*(round(self._below(ms * 1000)) for ms in _CLASSES.values()), total]
        counts = [below[0], *(after - before for before, after in pairwise(below))]
        return "".join(f"[{name}]:{count} " for name, count in zip([*_CLASSES, _LONGEST_CLASS], counts, strict=True))

    def percentile_ms(self, share: float) -> float:
        """The time in milliseconds within which this share of the sends was answered. 0.0 without sends."""
        wanted = sum(self.counts) * share
        for number, (count, reached) in enumerate(zip(self.counts, accumulate(self.counts), strict=True)):
            if count and reached >= wanted:
                low, high = _bounds(number)
                within = high - (high - low) * (reached - wanted) / count
                return min(within / 1000, self.max_ns / 1_000_000)
        return 0.0

    def _below(self, us: int) -> float:
        found = 0.0
        for number, count in enumerate(self.counts):
            low, high = _bounds(number)
            found += count * min(1.0, max(0.0, (us - low) / (high - low)))
        return found


class PutTimes:
    """The sends of the last full minute; before the first one is over, those since the start."""

    def __init__(self, read: Callable[[], SendTimes], started_ms: int) -> None:
        self._read = read
        self._begin = SendTimes()
        self._next_ms = started_ms + WINDOW_MS
        self._minute: SendTimes | None = None

    def sample(self, now_ms: int) -> None:
        """Close the minute, if it is over."""
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + WINDOW_MS
        now = self._read()
        self._minute, self._begin = now.since(self._begin), now

    def minute(self) -> SendTimes:
        """The sends that are shown."""
        return self._read() if self._minute is None else self._minute

    def max_ms(self) -> int:
        """The longest time of a send since the start, in whole milliseconds."""
        return self._read().max_ns // 1_000_000


def send_times(plane: PlaneProtocol) -> SendTimes:
    """The sum of the histograms of all read workers."""
    words = [plane.header.latency[reader.role][lib.RMQ_READ_LATENCY_ANSWERED] for reader in plane.readers]
    counts = tuple(map(sum, zip(*(map(int, word.counts) for word in words), strict=True)))
    return SendTimes(counts, max((int(word.max_ns) for word in words), default=0))


def _bounds(number: int) -> tuple[int, int]:
    """The microseconds of a bucket: from the first one to the second."""
    return 1 << number >> 1, 1 << number
