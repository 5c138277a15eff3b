"""Polls of one key that wake one another: what an answer leaves is for the next poll."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from desk_stage import Stage
from test_desk_polls import answered, offsets, poll, tagged


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A topic of three queues, and a group whose windows are there."""
    made = Stage(tmp_path / "store", enable_retry_topic_v2=True, pop_from_retry_probability=0)
    for topic, queues in {"T": 3, "%RETRY%G_T": 1, "%RETRY%G+T": 1}.items():
        made.topic(topic, queues)
    made.group("G")
    for _ in range(8):  # either form of retries is looked at
        assert made.pop().code == 210
    yield made


# ---- what a filter leaves ----


def test_messages_of_one_turn_go_to_the_polls_that_want_them(stage: Stage) -> None:
    first, second = poll(stage, exp="a"), poll(stage, exp="b")
    stage.send("T", 1, 0, **tagged("b"))
    stage.send("T", 1, 1, **tagged("a"))
    stage.turn()
    assert offsets(answered(stage, first)) == "0 1 0"
    assert offsets(answered(stage, second)) == "0 0 0"


def test_messages_behind_the_last_one_of_an_answer_are_left_to_other_filters(stage: Stage) -> None:
    first, second = poll(stage, exp="a"), poll(stage, exp="b")
    for tag in "abb":
        stage.send("T", 1, **tagged(tag))
    stage.turn()
    assert offsets(answered(stage, first)) == "0 0 0"
    assert offsets(answered(stage, second)) == "0 0 1,2"


def test_many_messages_behind_the_last_one_of_an_answer_are_done(stage: Stage) -> None:
    first, second = poll(stage, exp="a"), poll(stage, exp="b")
    stage.send("T", 1, **tagged("a"))
    stage.send("T", 257, **tagged("b"))
    stage.turn()
    assert offsets(answered(stage, first)) == "0 0 0"
    assert stage.verdict() is None
    stage.send("T", 1, **tagged("b"))
    stage.turn()
    assert offsets(answered(stage, second)) == "0 0 258"


@pytest.mark.parametrize("fronts", [("a",), ("a", "c")])
def test_many_polls_with_other_filters_hide_no_poll(stage: Stage, fronts: tuple[str, ...]) -> None:
    for number in range(70):
        poll(stage, exp=fronts[number % len(fronts)])
    held = poll(stage, exp="b")
    stage.send("T", 1, **tagged("b"))
    stage.turn()
    assert offsets(answered(stage, held)) == "0 0 0"


def test_a_key_with_many_filters_goes_on_where_a_turn_has_ended(stage: Stage) -> None:
    for number in range(150):
        poll(stage, exp=f"a{number}")
    held = poll(stage, exp="b")
    stage.send("T", 1, **tagged("b"))
    stage.turn()
    assert offsets(answered(stage, held)) == "0 0 0"
    assert stage.verdict() is None and not stage.desk.native.polls.has_more


# ---- topics and messages that an answer passes by ----


@pytest.mark.parametrize("form", ["%RETRY%G_T", "%RETRY%G+T"])
def test_a_retry_beside_a_full_answer_goes_to_the_next_poll(stage: Stage, form: str) -> None:
    for number in range(8):  # the form that is looked at is drawn by lot
        held = [poll(stage, maxMsgNums=1) for _ in range(2)]
        stage.send("T", 1)
        stage.send(form, 1)
        stage.turn()
        found = [offsets(answered(stage, each)) for each in held]
        assert found == [f"0 0 {number}", f"{1 + ('+' in form)} 0 {number}"]
        assert stage.verdict() is None


def test_retries_of_both_forms_go_to_two_polls(stage: Stage) -> None:
    held = [poll(stage) for _ in range(2)]
    stage.send("%RETRY%G_T", 1)
    stage.send("%RETRY%G+T", 1)
    stage.turn()
    assert sorted(offsets(answered(stage, each)) for each in held) == ["1 0 0", "2 0 0"]


def test_an_answer_that_passes_by_nothing_wakes_no_poll(stage: Stage) -> None:
    held = [poll(stage, maxMsgNums=1) for _ in range(2)]
    stage.send("T", 1)
    stage.turn()
    assert offsets(answered(stage, held[0])) == "0 0 0"
    assert stage.verdict() is None


def test_messages_of_a_large_unsent_answer_go_to_several_polls(stage: Stage) -> None:
    first, *others = [poll(stage), *(poll(stage, maxMsgNums=2) for _ in range(3))]
    stage.send("T", 3, 0)
    stage.send("T", 2, 1)
    stage.turn()
    answer = answered(stage, first)
    assert len(answer.messages) == 5
    stage.unsent(answer.verdict)
    stage.turn()
    found = [answered(stage, each) for each in others]
    assert [len(each.messages) for each in found] == [2, 2, 1]


# ---- retention ----


@pytest.mark.parametrize("is_all", [False, True])
def test_messages_that_retention_takes_hold_up_no_poll(stage: Stage, is_all: bool) -> None:
    """They were left to others that would want them."""
    held = poll(stage, exp="a")
    stage.send("T", 5, **tagged("b"))
    stage.turn()
    topic_id = stage.plane.topic_find("T")
    assert topic_id is not None and stage.verdict() is None
    stage.kit.queue(topic_id, 0).min_offset = 5 if is_all else 3
    stage.send("T", 1, **tagged("a"))
    stage.turn()
    assert offsets(answered(stage, held)) == "0 0 5"
