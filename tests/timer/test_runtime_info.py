"""The rows of timers in the runtime information of a broker."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.ipc.plane import Capacity, Plane
from ringmq.ipc.segment import remove_segments
from ringmq.native import lib
from ringmq.store.layout import TIMER_TOPIC
from ringmq.timer.runtime_info import rows

NOW_MS = 1_800_000_000_123


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    name = f"test-{uuid.uuid4().hex[:12]}"
    yield Plane.create(name, Capacity(), tmp_path.stat(), 1)
    remove_segments(name)


def rate(kind: str, key: str, total: int, now_ms: int) -> float:
    return {("timer", "enqueued"): 1.5, ("timer", "delivered"): 0.5}[kind, key] * total


def test_nothing_waits_without_the_worker(plane: Plane) -> None:
    assert rows(plane, rate, NOW_MS) == {
        "timerReadBehind": "0", "timerOffsetBehind": "0", "timerEnqueueTps": "0.0", "timerDequeueTps": "0.0",
    }  # fmt: skip


def test_rows_are_those_of_the_words(plane: Plane) -> None:
    role = plane.role(lib.RMQ_ROLE_TIMER)
    role.pid = role.generation = 1
    for word, value in (
        (lib.RMQ_TIMER_WORD_ENQUEUED, 8), (lib.RMQ_TIMER_WORD_DELIVERED, 4), (lib.RMQ_TIMER_WORD_NEXT, 5),
        (lib.RMQ_TIMER_WORD_OPEN_MS, NOW_MS - 1500),
    ):  # fmt: skip
        role.counters[word] = value
    plane.queue_add(plane.topic_add(TIMER_TOPIC, lib.RMQ_TOPIC_LIVE << 40), 0, max_offset=8)
    assert rows(plane, rate, NOW_MS) == {
        "timerReadBehind": "1", "timerOffsetBehind": "3", "timerEnqueueTps": "12.0", "timerDequeueTps": "2.0",
    }  # fmt: skip
