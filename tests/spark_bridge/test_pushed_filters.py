"""Filters narrow a plan to a superset of the rows that they accept, and to exactly these where they say so."""

import itertools
import operator
from typing import Any

import pytest

from ringmq.spark_bridge.pushed_filters import PushedFilter, PushedFilters
from ringmq.spark_bridge.slices import QueueKey, QueueSpan

TESTS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq}
TOPICS = ["A", "Ab", "B", "b", "ä", "\U0001f600", "\uff21"]


@pytest.mark.parametrize("op", TESTS)
def test_texts_compare_by_their_bytes(op: str) -> None:
    for wanted, topic in itertools.product(TOPICS, TOPICS):
        filters = PushedFilters((PushedFilter("topic", op, (wanted,)),))
        assert filters.wants(QueueKey(topic, "a", 0)) == TESTS[op](topic.encode(), wanted.encode())


@pytest.mark.parametrize("op", TESTS)
@pytest.mark.parametrize("value", range(-2, 12))
def test_offsets_and_queue_ids(op: str, value: int) -> None:
    offsets = PushedFilters((PushedFilter("offset", op, (value,)),)).span(QueueSpan(QueueKey("A", "a", 0), 3, 9))
    assert list(range(offsets.begin, offsets.end)) == [n for n in range(3, 9) if TESTS[op](n, value)]
    queues = PushedFilters((PushedFilter("partition", op, (value,)),))
    assert [n for n in range(9) if queues.wants(QueueKey("A", "a", n))] == [n for n in range(9) if TESTS[op](n, value)]


@pytest.mark.parametrize("op", TESTS)
@pytest.mark.parametrize("value_us", [0, 1, 999, 1000, 1001, 1999, 2000, 2500])
def test_store_times_are_whole_milliseconds(op: str, value_us: int) -> None:
    times = PushedFilters((PushedFilter("timestamp", op, (value_us,)),)).times
    begin, end = times.begin_ms or 0, 5 if times.end_ms is None else times.end_ms
    assert list(range(begin, min(end, 5))) == [ms for ms in range(5) if TESTS[op](ms * 1000, value_us)]


def test_several_values() -> None:
    topics = PushedFilter("topic", "=", ("A", "B"))
    offsets = PushedFilter("offset", "=", (4, 7))
    filters = PushedFilters((topics, offsets))
    assert [t for t in TOPICS if filters.wants(QueueKey(t, "a", 0))] == ["A", "B"]
    span = filters.span(QueueSpan(QueueKey("A", "a", 0), 0, 100))
    assert (span.begin, span.end) == (4, 8)
    assert topics.is_exact
    assert not offsets.is_exact, "5 and 6 are left for Spark to drop"


def test_conditions_hold_together() -> None:
    conditions: list[Any] = [
        ("offset", ">", (4,)),
        ("offset", "<=", (7,)),
        ("offset", ">=", (6,)),
        ("topic", "=", ("A",)),
    ]
    filters = PushedFilters(tuple(PushedFilter(*condition) for condition in conditions))
    span = filters.span(QueueSpan(QueueKey("A", "a", 0), 0, 100))
    assert (span.begin, span.end) == (6, 8)
    nothing = PushedFilters((PushedFilter("offset", ">", (9,)), PushedFilter("offset", "<", (4,))))
    assert nothing.span(QueueSpan(QueueKey("A", "a", 0), 0, 100)).count == 0
