"""Numbers about the worker `timer` for operators: waiting messages by topic, lateness in the last minute."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ringmq.native import ffi, lib
from ringmq.timer.recovery import record_reader
from ringmq.timer.topic_counts import Rows, TopicCounts, TopicCountsFile
from ringmq.timer.working_store import WorkingStore

SAMPLE_MS, MINUTE_MS = 5000, 60_000


class LatenessMinute:
    """The histogram of the last minute, as the difference of two states of the total one."""

    def __init__(self, counts: Callable[[], Sequence[int]]) -> None:
        self._counts = counts
        self._samples: deque[tuple[int, Sequence[int]]] = deque()

    def quantiles_us(self, shares: Sequence[float], now_ms: int) -> tuple[int, list[int]]:
        """Return the number of messages, and upper bounds of the lateness of these shares of them. Times in us.

        The last bucket has no bound: it counts as twice its begin (34 s).
        """
        counts = list(self._counts())
        if not self._samples or now_ms - self._samples[-1][0] >= SAMPLE_MS:
            self._samples.append((now_ms, counts))
        while len(self._samples) > 1 and now_ms - self._samples[1][0] >= MINUTE_MS:
            self._samples.popleft()
        minute = [count - before for count, before in zip(counts, self._samples[0][1], strict=True)]
        return sum(minute), [_bound_us(minute, share) for share in shares]


def _bound_us(counts: Sequence[int], share: float) -> int:
    wanted, reached = share * sum(counts), 0
    for number, count in enumerate(counts):
        reached += count
        if count and reached >= wanted:
            return 1 << number
    return 0


class Statistics:
    """One per process. `save` runs in the saver's thread."""

    def __init__(self, store: WorkingStore) -> None:
        self._latency = store.plane.header.latency[store.role][lib.RMQ_TIMER_LATENCY_DELIVERED]
        self._minute = LatenessMinute(lambda: list(self._latency.counts))
        self._file = TopicCountsFile(store.root, record_reader(store.saver_view), store.wall_ms)
        self.topics = TopicCounts(store.slots.files, store.recovered.progress.open_ms)
        store.slots.set_statistics(self.topics.struct, ffi.addressof(self._latency))

    def write_words(self, words: Any, mono_ms: int) -> None:
        """Write words of the role block (native/src/plane/metrics_layout.h)."""
        words[lib.RMQ_TIMER_WORD_WAITING] = self.topics.messages
        count, (half, most, latest) = self._minute.quantiles_us((0.5, 0.99, 1), mono_ms)
        words[lib.RMQ_TIMER_WORD_MINUTE_COUNT] = count
        words[lib.RMQ_TIMER_WORD_MINUTE_P50_US] = half
        words[lib.RMQ_TIMER_WORD_MINUTE_P99_US] = most
        words[lib.RMQ_TIMER_WORD_MINUTE_MAX_US] = latest

    def rows_to_save(self, mono_ms: int) -> Rows | None:
        """The rows that `save` needs. None if the file is not due, or not all units are counted yet."""
        return self.topics.rows() if self.topics.is_complete and self._file.is_due(mono_ms) else None

    def save(self, rows: Rows | None, mono_ms: int) -> None:
        """Write `timermetrics`. Raises OSError."""
        if rows is not None:
            self._file.write(rows, mono_ms)
