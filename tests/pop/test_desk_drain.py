"""A desk that gives no message, because an operator drains the broker. It serves all that ends a message."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from desk_stage import CHANGE, Stage, receipts
from desk_stage import DRAIN as DRAIN_CODE
from test_desk_notifications import FALSE, told
from test_desk_notifications import poll as notification
from test_desk_polls import answered, offsets, poll

from ringmq.pop.role_words import Counter
from ringmq.remoting.pop_bodies import DRAIN, RESUME, SERVING, WAITING


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A consumer has messages 0 and 1 of four."""
    made = Stage(tmp_path / "store")
    made.topic("T")
    made.group("G")
    made.send("T", 4)
    assert offsets(made.pop(maxMsgNums=2)) == "0 0 0,1"
    yield made


@pytest.mark.parametrize("fields", [{}, {"odd": True}, {"order": True}])
def test_a_pop_finds_nothing(stage: Stage, fields: dict[str, Any]) -> None:
    assert stage.drain(DRAIN) == WAITING
    answer = stage.pop(**fields)
    assert (answer.code, answer.fields["restNum"]) == (210, "0")
    assert stage.desk.native.counted(Counter.BOUND) == 0
    assert stage.drain(RESUME) == SERVING
    assert offsets(stage.pop(**fields)) == "0 0 2,3"


def test_a_group_without_windows_gets_none(stage: Stage) -> None:
    stage.group("H")
    stage.drain(DRAIN)
    lines = list(stage.names.lines)
    assert stage.pop(group="H").code == 210 and stage.names.lines == lines


def test_a_poll_waits_until_messages_are_given_again(stage: Stage) -> None:
    stage.drain(DRAIN)
    held = poll(stage)
    stage.send("T", 1)
    stage.turn()
    assert stage.verdict() is None
    stage.put(DRAIN_CODE, {"choice": RESUME})
    stage.turn()
    assert offsets(answered(stage, held)) == "0 0 2,3,4"


def test_a_notification_tells_of_none(stage: Stage) -> None:
    stage.drain(DRAIN)
    assert stage.notification().fields == FALSE
    held = notification(stage)
    stage.send("T", 1)
    stage.turn()
    assert stage.verdict() is None
    stage.put(DRAIN_CODE, {"choice": RESUME})
    stage.turn()
    told(stage, held)


def test_receipts_count(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "store")
    stage.topic("T")
    stage.group("G")
    stage.send("T", 3)
    first, second, third = receipts(stage.pop())
    stage.drain(DRAIN)
    assert stage.ack(first).code == stage.ack(second, code=CHANGE, invisibleTime=9000).code == 0
    assert stage.ack(third).code == 0 and stage.inflight().messages == 1


def test_messages_that_no_client_has_received_stay(stage: Stage) -> None:
    lost = stage.pop()
    stage.drain(DRAIN)
    stage.desk.native.unsent(lost.verdict.serial)
    assert stage.pop().code == stage.pop(order=True).code == 210
    stage.drain(RESUME)
    assert offsets(stage.pop()) == "0 0 2,3"
