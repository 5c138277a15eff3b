"""Orderly pops at the desk: what blocks a queue, what comes again, and which poll looks when."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from desk_stage import BATCH_ACK, BROKER, CHANGE, NOTIFICATION, Answer, Stage, receipts
from test_desk_polls import answered, offsets, poll

from ringmq.native import lib
from ringmq.pop.role_words import Counter
from tests.waiting import wait_until

ILLEGAL = 13


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A topic of one queue with six messages."""
    made = Stage(tmp_path / "store")
    made.topic("T", 1)
    made.group("G")
    made.send("T", 6)
    yield made


def pop(stage: Stage, count: int = 3, attempt: str | None = None, **fields: Any) -> Answer:
    return stage.pop(maxMsgNums=count, order="true", attemptId=attempt, **{"invisibleTime": 60_000, **fields})


def told(answer: Answer) -> tuple[str, str, str, str]:
    """Offsets, counts, rest, and the revive queue."""
    names = ("msgOffsetInfo", "orderCountInfo", "restNum", "reviveQid")
    return tuple(answer.fields[name] for name in names)  # type: ignore[return-value]


NOTHING = ("", "", "0", "999")


def change(stage: Stage, receipt: str, invisible_ms: int, **fields: Any) -> Answer:
    return stage.ack(receipt, code=CHANGE, invisibleTime=invisible_ms, **fields)


def batch_ack(stage: Stage, receipt: str, bits: bytes) -> Answer:
    start, time_ms, invisible_ms, revive, flag, broker, queue_id, _ = receipt.split(" ")
    group = {
        "b": b64encode(bits).decode(), "c": "G", "it": int(invisible_ms), "pt": int(time_ms), "q": int(queue_id),
        "r": flag, "rq": int(revive), "so": int(start), "t": "T",
    }  # fmt: skip
    return stage.ask(BATCH_ACK, {}, json.dumps({"acks": [group], "brokerName": broker}).encode())


def committed(stage: Stage) -> int:
    """The consumer offset that is reported."""
    topic_id, group_id = stage.plane.topic_find("T"), stage.plane.group_find("G")
    assert topic_id is not None and group_id is not None
    slot = stage.plane.queue_find(topic_id, 0)
    window = None if slot is None else stage.desk.window_of(group_id, slot)
    assert window is not None
    return int(lib.rmq_pop_first_open(stage.windows, window.place))


@pytest.mark.parametrize("odd", [False, True])
def test_a_batch_blocks_its_queue(stage: Stage, odd: bool) -> None:
    answer = pop(stage, attempt="a1", odd=odd)
    assert (answer.code, answer.command.remark, told(answer)) == (0, "FOUND", ("0 0 0,1,2", "0 0 0", "3", "999"))
    assert (len(answer.messages), committed(stage)) == (3, 0)
    for attempt in ("a2", None):
        blocked = pop(stage, attempt=attempt, odd=odd)
        assert (blocked.code, blocked.command.remark, told(blocked)) == (210, "NO_MESSAGE_IN_QUEUE", NOTHING)
    again = pop(stage, attempt="a1", odd=odd)
    assert told(again) == ("0 0 0,1,2", "0 0 0", "3", "999"), "the same attempt, and its counts are kept"
    assert int(again.fields["popTime"]) > int(answer.fields["popTime"])
    assert stage.ack(receipts(answer)[0]).code == 0 and committed(stage) == 0, "of an earlier pop"


def test_acknowledgements_move_the_offset_in_order(stage: Stage) -> None:
    first, second, third = receipts(pop(stage))
    assert stage.ack(second).code == 0 and committed(stage) == 0
    assert stage.ack(first).code == 0 and committed(stage) == 2
    assert stage.ack(first).code == 0 and committed(stage) == 2, "below the offset of the group"
    assert stage.ack(third.replace(f" {third.split(' ')[1]} ", " 1 ")).code == 0 and committed(stage) == 2
    assert told(pop(stage)) == NOTHING
    illegal = stage.ack(third, offset=5)
    remark = "offset is illegal, key:T@G@0, old:2, commit:5, next:-1, /127.0.0.1:4321"
    assert (illegal.code, illegal.command.remark) == (ILLEGAL, remark)
    assert stage.ack(third).code == 0 and committed(stage) == 3
    assert told(pop(stage)) == ("0 0 3,4,5", "0 0 0", "0", "999")
    assert stage.desk.native.counted(Counter.ACKS) == 3


def test_messages_come_again_from_the_first_one_that_is_open(stage: Stage) -> None:
    """Those behind it, too, though they are acknowledged."""
    batch = receipts(pop(stage, 4, invisibleTime=0))
    for receipt in (batch[0], batch[2]):
        stage.ack(receipt)
    assert told(pop(stage, 4, invisibleTime=0)) == ("0 0 1,2,3,4", "0 qo0%1 1;0 qo0%2 1;0 qo0%3 1;0 0 0", "1", "999")
    assert told(pop(stage, 2)) == ("0 0 1,2", "0 qo0%1 2;0 qo0%2 2;0 0 2", "3", "999")


@pytest.mark.parametrize("queue_id", [-1, 0])
def test_the_last_acknowledgement_wakes_a_poll(stage: Stage, queue_id: int) -> None:
    batch = receipts(pop(stage))
    held, other = (poll(stage, order="true", queueId=queue_id) for _ in range(2))
    for receipt in batch[:2]:
        stage.ack(receipt)
    assert stage.verdict() is None
    pending = stage.put(200051, {"consumerGroup": "G", "topic": "T", "queueId": 0, "extraInfo": batch[2], "offset": 2})
    stage.turn()
    acked = stage.verdict()
    assert acked is not None and (acked.code, acked.verdict.pending) == (0, pending)
    found = answered(stage, held)
    assert offsets(found) == "0 0 3,4,5" and found.fields["orderCountInfo"] == "0 0 0"
    assert stage.verdict() is None and other.hold is not None


@pytest.mark.parametrize("queue_id", [-1, 0])
def test_a_poll_gets_the_batch_when_its_time_is_over(stage: Stage, queue_id: int) -> None:
    began_ns = time.monotonic_ns()
    pop(stage, invisibleTime=1000)
    held = poll(stage, order="true", queueId=queue_id, maxMsgNums=2)
    found: list[Answer] = []

    def has_come() -> bool:
        stage.turn()
        if (answer := stage.verdict()) is not None:
            found.append(answer)
        return bool(found)

    assert stage.desk.native.polls.sleep_ms() <= 1000
    wait_until(has_come, "the answer to the poll")
    assert time.monotonic_ns() - began_ns >= 999_000_000
    assert (found[0].verdict.serial, told(found[0])[:2]) == (
        held.verdict.serial,
        ("0 0 0,1", "0 qo0%0 1;0 qo0%1 1;0 0 1"),
    )


def test_a_change_sets_the_time_of_one_message(stage: Stage) -> None:
    first, second = receipts(pop(stage, 2))
    answer = change(stage, first, 0)
    fields = answer.fields
    assert (answer.code, fields["popTime"], fields["reviveQid"]) == (0, first.split(" ")[1], "999")
    assert 0 <= int(fields["invisibleTime"]) < 5000, "from the pop on"
    assert told(pop(stage)) == NOTHING, "the other message has its time"
    late = change(stage, second.replace(f" {second.split(' ')[1]} ", " 1 "), 0)
    assert (late.code, late.fields["popTime"]) == (0, "1") and told(pop(stage)) == NOTHING
    change(stage, second, 0)
    assert told(pop(stage, 2)) == ("0 0 0,1", "0 qo0%0 1;0 qo0%1 1;0 0 1", "4", "999")


def test_a_change_of_a_message_that_is_done_answers_zeros(stage: Stage) -> None:
    receipt = receipts(pop(stage))[0]
    stage.ack(receipt)
    assert change(stage, receipt, 500).fields == {"popTime": "0", "invisibleTime": "0", "reviveQid": "0"}
    assert change(stage, receipt, -1).code == 29
    assert change(stage, receipt, 500, offset=6).code == 208


def test_batches_of_acknowledgements(stage: Stage) -> None:
    receipt = receipts(pop(stage, 4))[0]
    assert batch_ack(stage, receipt, b"\x0a").code == 0 and committed(stage) == 0
    illegal = batch_ack(stage, receipt, b"\x31")
    assert illegal.code == ILLEGAL and committed(stage) == 2
    assert illegal.command.remark == "offset is illegal, key:T@G@0, old:2, commit:5, next:-1, /127.0.0.1:4321"
    assert batch_ack(stage, receipt, b"\xff\xff").code == ILLEGAL and committed(stage) == 4
    assert stage.desk.native.counted(Counter.ACKS) == 4
    assert batch_ack(stage, receipt.replace(BROKER, "other"), b"\xff").code == 0


@pytest.mark.parametrize("attempt", ["a1", None])
def test_a_batch_that_no_client_has_received_is_free(stage: Stage, attempt: str | None) -> None:
    pop(stage, invisibleTime=0)
    lost = pop(stage, attempt=attempt)
    held = poll(stage, order="true", maxMsgNums=3)
    assert told(lost)[1] == "0 qo0%0 1;0 qo0%1 1;0 qo0%2 1;0 0 1"
    stage.unsent(lost.verdict)
    stage.turn()
    found = answered(stage, held)
    assert told(found)[:2] == told(lost)[:2], "as if it had not been given"


def test_the_replacement_of_a_worker_knows_the_batch(stage: Stage) -> None:
    pop(stage, 3, invisibleTime=0)
    batch = receipts(pop(stage, 3, attempt="a1"))
    stage.ack(batch[1])
    stage.restart()
    assert told(pop(stage, attempt="a2")) == NOTHING
    assert told(pop(stage, attempt="a1"))[:2] == ("0 0 0,1,2", "0 qo0%0 1;0 qo0%1 1;0 qo0%2 1;0 0 1")
    batch = receipts(pop(stage, 3, attempt="a1"))
    stage.ack(batch[1])
    stage.restart()
    stage.ack(batch[0])
    assert committed(stage) == 2


def test_queues_block_each_for_itself(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "store")
    stage.topic("T", 3)
    stage.group("G")
    for queue_id in range(3):
        stage.send("T", 3, queue_id)
    assert told(pop(stage, 2, queueId=1)) == ("0 1 0,1", "0 1 0", "1", "999")
    both = pop(stage, 6)
    assert {tuple(entry.split(" ")[1:]) for entry in both.fields["msgOffsetInfo"].split(";")} == {
        ("0", "0,1,2"), ("2", "0,1,2"),
    }  # fmt: skip
    assert sorted(both.fields["orderCountInfo"].split(";")) == ["0 0 0", "0 2 0"]
    assert told(pop(stage)) == NOTHING


def test_messages_that_a_filter_does_not_want_are_passed(stage: Stage) -> None:
    for tag in "abab":
        stage.send("T", 1, properties=b"TAGS\x01%s\x02" % tag.encode())
    answer = pop(stage, 2, exp="b")
    assert (answer.fields["startOffsetInfo"], told(answer)[0]) == ("0 0 0", "0 0 7,9")
    for receipt in receipts(answer):
        assert stage.ack(receipt).code == 0
    assert committed(stage) == 10
    assert pop(stage).code == 210


def test_attempts_are_bounded(stage: Stage) -> None:
    assert pop(stage, attempt="a" * 128).code == 0
    refused = pop(stage, attempt="a" * 129)
    assert refused.code == 1 and "attemptId" in (refused.command.remark or "")
    assert "128" in (refused.command.remark or "")


# ---- a group that turns from one kind to the other ----


def test_a_normal_pop_takes_the_messages_of_a_batch(stage: Stage) -> None:
    """It begins at the offset of the group, as in RocketMQ."""
    batch = receipts(pop(stage))
    stage.ack(batch[0])
    normal = stage.pop(maxMsgNums=2)
    assert normal.fields["msgOffsetInfo"] == "0 0 1,2"
    assert stage.ack(batch[1]).code == 0 and committed(stage) == 1, "the normal pop has it"
    assert told(pop(stage, 2)) == ("0 0 3,4", "0 0 0", "1", "999"), "no message of the batch is open any more"
    for receipt in receipts(normal):
        stage.ack(receipt)
    assert committed(stage) == 3


def test_an_orderly_pop_goes_on_behind_normal_ones(stage: Stage) -> None:
    """What was returned gets its copies now: no orderly pop reads it."""
    lost, kept = stage.pop(maxMsgNums=1), stage.pop(maxMsgNums=1)
    stage.unsent(lost.verdict)
    stage.turn()
    assert lib.rmq_pop_counts_of(stage.windows).returned == 1
    assert told(pop(stage, 2))[0] == "0 0 2,3"
    counts = lib.rmq_pop_counts_of(stage.windows)
    assert (counts.returned, counts.reviving, counts.open) == (0, 1, 2)
    assert stage.ack(receipts(kept)[0]).code == 0
    assert committed(stage) == 0


def test_a_batch_of_acknowledgements_ends_with_what_a_batch_can_have(stage: Stage) -> None:
    stage.send("T", 60)
    receipt = receipts(pop(stage, 32))[0]
    illegal = batch_ack(stage, receipt, b"\xff" * 8)
    assert illegal.code == ILLEGAL and committed(stage) == 32
    assert illegal.command.remark == "offset is illegal, key:T@G@0, old:32, commit:32, next:-1, /127.0.0.1:4321"


# ---- notifications ----


def is_told(stage: Stage, attempt: str = "a2") -> str:
    """Whether a pop of this attempt would find a message."""
    return stage.notification(order="true", attemptId=attempt).fields["hasMsg"]


def test_a_notification_leaves_out_a_queue_that_a_batch_blocks(stage: Stage) -> None:
    assert is_told(stage) == "true"
    batch = receipts(pop(stage, 6, "a1"))
    assert (is_told(stage), is_told(stage, "a1")) == ("false", "true")
    for receipt in batch:
        change(stage, receipt, 0)
    assert is_told(stage) == "true"


@pytest.mark.parametrize("queue_id", [-1, 0])
def test_a_queue_that_becomes_free_tells_one_notification(stage: Stage, queue_id: int) -> None:
    """Nothing has come to the queue."""
    batch = receipts(pop(stage))
    fields = {
        "consumerGroup": "G", "topic": "T", "queueId": queue_id, "pollTime": 600_000, "order": "true",
        "bornTime": time.time_ns() // 1_000_000,
    }  # fmt: skip
    for _ in range(2):
        stage.put(NOTIFICATION, fields)
        stage.turn()
        held = stage.verdict()
        assert held is not None and held.hold is not None
    for receipt in batch:
        stage.put(
            200051, {"consumerGroup": "G", "topic": "T", "queueId": 0, "extraInfo": receipt, "offset": receipt[-1]}
        )
        stage.turn()
        assert (acked := stage.verdict()) is not None and acked.code == 0
    assert answered(stage, held).fields["hasMsg"] == "true"
    assert stage.verdict() is None
