"""A turn of polls has an end: what is left is done in the next ones."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from desk_stage import ROLE, Stage
from test_desk_polls import answered, offsets, poll, tagged
from test_desk_waiting import reason_of

from ringmq.native import ffi, lib


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A topic, and a group whose window is there."""
    made = Stage(tmp_path / "store")
    made.topic("T")
    made.group("G")
    assert made.pop().code == 210
    yield made


def tell_arrivals(stage: Stage, topic: str, count: int) -> None:
    """Messages have come, as dispatch tells."""
    topic_id = stage.plane.topic_find(topic)
    assert topic_id is not None
    ring = stage.kit.header.ports.port[stage.plane.port_of(ROLE)].arrived
    assert ring.head - ring.tail + count <= ring.capacity
    slots = ffi.cast("uint32_t *", stage.kit.plane.base + ring.slots_at)
    for _ in range(count):
        slots[ring.head % ring.capacity] = stage.kit.queue_slot(topic_id, 0)
        ring.head += 1


def arrivals_left(stage: Stage) -> int:
    ring = stage.kit.header.ports.port[stage.plane.port_of(ROLE)].arrived
    return int(ring.head - ring.tail)


def turn(stage: Stage) -> None:
    """One turn of polls."""
    lib.rmq_pop_waiting_turn(stage.desk.native.struct)


def test_a_turn_ends_with_its_time(stage: Stage) -> None:
    """One key is served in any case."""
    held = [poll(stage, queueId=queue_id) for queue_id in (-1, 0)]
    stage.desk.native.struct.polls_ns = 0
    stage.send("T", 2)
    turn(stage)
    assert stage.desk.native.polls.has_more
    assert stage.verdict() is not None and stage.verdict() is None
    stage.send("T", 1)
    turn(stage)
    assert stage.verdict() is not None and len(stage.desk.native.polls) == len(held) - 2


def test_a_key_goes_on_where_the_time_of_a_turn_has_ended(stage: Stage) -> None:
    held = [poll(stage, exp=expression) for expression in ("a", "b", "c")][-1]
    stage.desk.native.struct.polls_ns = 0
    stage.send("T", 1, **tagged("c"))
    for _ in range(2):
        turn(stage)
        assert stage.verdict() is None and stage.desk.native.polls.has_more
    turn(stage)
    assert offsets(answered(stage, held)) == "0 0 0"


def test_a_turn_takes_a_bounded_number_of_arrivals(tmp_path: Path) -> None:
    """No bell rings for those that are left, so the worker does not sleep."""
    stage = Stage(tmp_path / "store", arrived_slots=4096)
    stage.topic("T")
    stage.turn()
    tell_arrivals(stage, "T", 3000)
    left = list[int]()
    while not left or left[-1]:
        turn(stage)
        left.append(arrivals_left(stage))
        assert stage.desk.native.polls.has_more == (left[-1] > 0)
        assert (stage.desk.sleep_ms(stage.now_ms) == 0) == (left[-1] > 0)
    assert left == [3000 - 1024, 3000 - 2048, 0]


def test_all_arrivals_are_taken_before_the_worker_sleeps(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "store", arrived_slots=4096)
    stage.topic("T")
    tell_arrivals(stage, "T", 3000)
    assert reason_of(stage, 1) == lib.RMQ_SERVING_DUE
    assert not arrivals_left(stage)
