"""Pushed filters of a query: conditions on topic, partition, offset and timestamp that reduce a plan.

An instance only ever narrows. Whether it narrows exactly to what a filter means, `PushedFilter.is_exact` says; what
is not exact stays for Spark to check.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ringmq.spark_bridge.slices import QueueKey, QueueSpan, TimeRange

_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
}
COLUMNS = frozenset({"topic", "partition", "offset", "timestamp"})


@dataclass(frozen=True, slots=True)
class PushedFilter:
    """`column op value`, or one of several values with `=`. Timestamps are microseconds since 1970."""

    column: str
    op: str
    values: tuple[str | int, ...]

    @property
    def is_exact(self) -> bool:
        """True if the read gives exactly the rows that match. Several offsets or times leave gaps."""
        return len(self.values) == 1 or self.column in ("topic", "partition")

    def accepts(self, value: str | int) -> bool:
        """True if a value of the column matches. Texts compare by their UTF-8 bytes, as in Spark."""
        test, key = _TESTS[self.op], _bytes_of
        return any(test(key(value), key(wanted)) for wanted in self.values)

    @property
    def interval(self) -> tuple[int | None, int | None]:
        """Return the smallest interval [begin, end) of whole numbers with all matching values. None is open."""
        numbers = [int(value) for value in self.values]
        begin, end = min(numbers), max(numbers) + 1
        return {
            "=": (begin, end),
            "<": (None, begin),
            "<=": (None, end),
            ">": (end, None),
            ">=": (begin, None),
        }[self.op]


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """All conditions hold at once."""

    filters: tuple[PushedFilter, ...] = ()

    def wants(self, key: QueueKey) -> bool:
        """True if the queue can have matching rows."""
        values: dict[str, str | int] = {"topic": key.topic, "partition": key.queue_id}
        return all(c.accepts(values[c.column]) for c in self.filters if c.column in values)

    def span(self, span: QueueSpan) -> QueueSpan:
        """Return the part of a span that can have matching rows. Without one the end is the begin."""
        begin, end = self._interval("offset")
        begin = span.begin if begin is None else min(max(begin, span.begin), span.end)
        end = span.end if end is None else min(max(end, begin), span.end)
        return QueueSpan(span.key, begin, end)

    @property
    def times(self) -> TimeRange:
        """Return the store times, in whole milliseconds, of possible rows."""
        begin_us, end_us = self._interval("timestamp")
        begin = None if begin_us is None else -(-begin_us // 1000)
        return TimeRange(begin, None if end_us is None else -(-end_us // 1000))

    def _interval(self, column: str) -> tuple[int | None, int | None]:
        intervals = [condition.interval for condition in self.filters if condition.column == column]
        begins = [begin for begin, _ in intervals if begin is not None]
        ends = [end for _, end in intervals if end is not None]
        return max(begins, default=None), min(ends, default=None)


NO_FILTERS = PushedFilters()


def _bytes_of(value: str | int) -> bytes | int:
    return value.encode() if isinstance(value, str) else value
