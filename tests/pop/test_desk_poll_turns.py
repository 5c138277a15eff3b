"""A turn of polls has an end: what is left is done in the next ones."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from desk_stage import Stage
from test_desk_polls import answered, offsets, poll, tagged

from ringmq.native import lib


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A topic, and a group whose window is there."""
    made = Stage(tmp_path / "store")
    made.topic("T")
    made.group("G")
    assert made.pop().code == 210
    yield made


def turn(stage: Stage) -> None:
    """One turn of polls."""
    lib.rmq_pop_waiting_turn(stage.desk.native.struct)


def test_a_turn_ends_with_its_time(stage: Stage) -> None:
    """One key is served in any case."""
    held = [poll(stage, queueId=queue_id) for queue_id in (-1, 0)]
    stage.desk.native.struct.polls_ns = 0
    stage.send("T", 2)
    turn(stage)
    assert stage.desk.native.polls.is_awake
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
        assert stage.verdict() is None and stage.desk.native.polls.is_awake
    turn(stage)
    assert offsets(answered(stage, held)) == "0 0 0"
