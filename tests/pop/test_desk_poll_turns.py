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
    while reason_of(stage, 1) == lib.RMQ_SERVING_LEFT:
        assert stage.desk.serving.struct.why == lib.RMQ_POP_POLLS_LEFT
    assert not arrivals_left(stage)


def polls_of_many_keys(stage: Stage) -> int:
    """600 polls for a queue each, of a topic that is gone then. Returns the topic's id."""
    topic_id = stage.topic("Wide")
    set_topic(stage, topic_id, lib.RMQ_TOPIC_LIVE, read_queues=600)
    for queue_id in range(600):
        poll(stage, "Wide", queueId=queue_id)
    stage.desk.native.struct.polls_ns = 10**10
    return topic_id


def set_topic(stage: Stage, topic_id: int, flags: int, *, read_queues: int = 1) -> None:
    """Another configuration of a topic."""
    lib.rmq_topic_set(stage.kit.plane, topic_id, flags << 40 | 8 << 24 | read_queues << 8 | 6)


def refused(stage: Stage) -> int:
    """One turn. Returns the number of polls that it refuses."""
    turn(stage)
    count = 0
    while answer := stage.verdict():
        assert answer.verdict.type == lib.RMQ_VERDICT_REDO
        count += 1
    return count


def test_a_look_takes_several_turns(stage: Stage) -> None:
    topic_id = polls_of_many_keys(stage)
    set_topic(stage, topic_id, 0)
    stage.desk.native.polls.look()
    counts = list[int]()
    while stage.desk.native.polls.has_more:
        counts.append(refused(stage))
    assert counts[:3] == [256, 256, 88]
    assert not len(stage.desk.native.polls)


def test_a_look_that_is_asked_for_in_the_middle_of_another_sees_all(stage: Stage) -> None:
    topic_id = polls_of_many_keys(stage)
    stage.desk.native.polls.look()
    assert refused(stage) == 0 and stage.desk.native.polls.has_more
    set_topic(stage, topic_id, 0)
    stage.desk.native.polls.look()
    while stage.desk.native.polls.has_more:
        refused(stage)
    assert not len(stage.desk.native.polls)


def test_a_look_without_polls_is_no_work(stage: Stage) -> None:
    stage.desk.native.polls.look()
    assert not stage.desk.native.polls.has_more


def test_a_look_finds_queues_that_may_be_read_now(stage: Stage) -> None:
    topic_id = stage.topic("More", 3)
    set_topic(stage, topic_id, lib.RMQ_TOPIC_LIVE)
    for _ in range(3):
        stage.pop("More")
    held = poll(stage, "More")
    set_topic(stage, topic_id, lib.RMQ_TOPIC_LIVE, read_queues=3)
    stage.pop("More")
    stage.desk.native.polls.look()
    stage.turn()
    stage.send("More", 1, 2)
    stage.turn()
    assert offsets(answered(stage, held)) == "0 2 0"


def test_a_look_finds_a_topic_of_retries_that_is_known_now(stage: Stage) -> None:
    """Recovery has found its records before control knows it."""
    topic_id = stage.topic("%RETRY%G_T")
    assert stage.pop().code == 210, "its window is there"
    stage.restart()
    set_topic(stage, topic_id, lib.RMQ_TOPIC_LIVE | lib.RMQ_TOPIC_RECOVERED)
    held = poll(stage)
    for _ in range(2):
        stage.desk.native.polls.look()
        stage.turn()
    set_topic(stage, topic_id, lib.RMQ_TOPIC_LIVE)
    stage.desk.native.polls.look()
    stage.turn()
    stage.send("%RETRY%G_T", 1)
    stage.turn()
    assert offsets(answered(stage, held)) == "1 0 0"
