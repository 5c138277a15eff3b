"""The open messages of a group, as operators ask for them: sums, the oldest pops, shares of queues and of clients."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from desk_stage import CHANGE, INFLIGHT, Stage, receipts

from ringmq.pop import inflight
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.pop_bodies import ROWS_MAX, PopInflight
from ringmq.store.queue_reader import QueueReader
from tests.waiting import wait_until

RETRY = "%RETRY%G+T"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A topic of four queues, with ten messages in queue 1 and three in queue 2."""
    made = Stage(tmp_path / "store", enable_retry_topic_v2=True)
    made.topic("T", 4)
    made.topic("U", 1)
    made.group("G")
    made.group("other")
    made.send("T", 10, 1)
    made.send("T", 3, 2)
    made.send("U", 2, 0)
    yield made


def test_a_group_without_open_messages_has_none(stage: Stage) -> None:
    stage.pop(group="other")
    assert stage.inflight() == PopInflight(0, 0, 0, 0, 0, 0)


def test_what_is_open_counts_by_queue_and_by_client(stage: Stage) -> None:
    first = stage.pop(queueId=1, maxMsgNums=4, connection=7)
    time.sleep(0.01)  # span: the second pop is younger
    stage.pop(queueId=1, maxMsgNums=2, connection=8, invisibleTime=5000)
    stage.pop(queueId=2, maxMsgNums=3, connection=7)
    stage.pop("U", connection=7)
    stage.pop(group="other", connection=9)
    stage.ack(receipts(first)[0])
    seen = stage.inflight()
    assert (seen.messages, seen.due, seen.returned, seen.pops) == (10, 0, 0, 4)
    assert [(row.topic, row.queue_id, row.messages) for row in seen.queues] == [("T", 1, 5), ("T", 2, 3), ("U", 0, 2)]
    assert [row.messages for row in seen.clients] == [8, 2]
    assert (seen.queue_count, seen.client_count) == (3, 2)
    assert len({row.client for row in seen.clients}) == 2
    assert all(row.client.startswith("127.0.0.1:") for row in seen.clients)
    oldest = seen.oldest[0]
    assert (oldest.topic, oldest.queue_id, oldest.queue_offset, oldest.messages) == ("T", 1, 1, 3)
    assert 10 <= oldest.age_ms == seen.queues[0].oldest_ms == seen.clients[0].oldest_ms < 60_000
    assert oldest.due_in_ms == 60_000 - oldest.age_ms
    assert oldest.client == seen.clients[0].client
    assert 0 < seen.oldest[1].due_in_ms <= 5000
    assert [row.due_in_ms for row in seen.clients] == [oldest.due_in_ms, seen.oldest[1].due_in_ms]
    assert seen.queues[0].due_in_ms == seen.oldest[1].due_in_ms, "the next one that comes again, not the oldest one"
    assert {row.attempts for row in seen.oldest} == {1}


def test_a_topic_includes_messages_that_came_again(stage: Stage) -> None:
    stage.topic(RETRY, 1)
    stage.send(RETRY, 2, 0)
    while stage.inflight().messages < 15:  # a pop looks at one form of the topic of retries
        stage.pop()
    stage.pop("U")
    assert {(row.topic, row.messages) for row in stage.inflight(topic="T").queues} == {("T", 10), ("T", 3), (RETRY, 2)}
    assert stage.inflight(topic="U").messages == 2
    assert stage.inflight(topic=RETRY).messages == 2
    assert stage.inflight().messages == 17


def test_messages_that_came_again_have_their_attempts(stage: Stage) -> None:
    stage.topic(RETRY, 1)
    stage.send(RETRY, 1, 0, reconsume_times=4)
    while stage.inflight().messages < 14:  # a pop looks at one form of the topic of retries
        stage.pop()
    assert {row.topic: row.attempts for row in stage.inflight().oldest} == {"T": 1, RETRY: 5}


def test_a_record_that_is_not_in_memory_tells_no_attempts(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look waits for no disk."""
    stage.topic(RETRY, 1)
    stage.send(RETRY, 1, 0, reconsume_times=4)
    while stage.inflight().messages < 14:
        stage.pop()
    monkeypatch.setattr(QueueReader, "in_memory", lambda reader, offset: False)
    assert {row.topic: row.attempts for row in stage.inflight().oldest} == {"T": 1, RETRY: 0}


def test_a_batch_of_an_orderly_group_is_shown_while_it_blocks(stage: Stage) -> None:
    ordered = {"queueId": 1, "order": "true", "maxMsgNums": 4}
    stage.pop(**ordered, invisibleTime=1, connection=7)
    time.sleep(0.01)  # span: the time is over
    assert stage.inflight() == PopInflight(0, 0, 0, 0, 0, 0), "no consumer has the messages any more"
    first, *_ = receipts(stage.pop(**ordered, connection=8))
    stage.ack(first)
    seen = stage.inflight()
    (row,) = seen.oldest
    assert (row.topic, row.queue_id, row.queue_offset, row.messages, row.attempts) == ("T", 1, 1, 3, 2)
    assert (seen.messages, seen.due, [one.messages for one in seen.clients]) == (3, 0, [3])
    assert row.client == seen.clients[0].client and row.client.startswith("127.0.0.1:")
    assert 0 < row.due_in_ms == seen.queues[0].due_in_ms <= 60_000
    stage.restart()
    assert [one.messages for one in stage.inflight().clients] == [3]


def test_lists_are_bounded(stage: Stage) -> None:
    for _ in range(10):
        stage.pop(queueId=1, maxMsgNums=1)
    seen = stage.inflight(maxRows=3)
    assert (len(seen.oldest), seen.pops, seen.messages) == (3, 10, 10)
    assert [row.queue_offset for row in seen.oldest] == [0, 1, 2]
    assert (stage.inflight(maxRows=0).queues, stage.inflight(maxRows=0).messages) == ((), 10)
    assert len(stage.inflight(maxRows=ROWS_MAX).oldest) == 10


def test_messages_that_no_client_has_received_are_told_apart(stage: Stage) -> None:
    lost = stage.pop(queueId=1, maxMsgNums=3)
    stage.pop(queueId=1, maxMsgNums=2)
    stage.desk.native.unsent(lost.verdict.serial)
    seen = stage.inflight()
    assert (seen.messages, seen.returned, seen.pops) == (2, 3, 1)


def test_messages_whose_time_is_over_are_told_apart(stage: Stage) -> None:
    (receipt,) = receipts(stage.pop(queueId=1, maxMsgNums=1))
    stage.ack(receipt, code=CHANGE, invisibleTime=1)
    time.sleep(0.01)  # span: the time is over
    seen = stage.inflight()
    assert (seen.messages, seen.due) == (1, 1)
    assert seen.oldest[0].due_in_ms < 0


def test_a_new_process_names_clients_by_number_until_they_pop(stage: Stage) -> None:
    stage.pop(queueId=1, maxMsgNums=1, connection=7)
    (before,) = stage.inflight().clients
    stage.restart()
    (after,) = stage.inflight().clients
    assert before.client.startswith("127.0.0.1:")
    assert len(after.client) == 8 and int(after.client, 16) > 0
    stage.pop(queueId=1, maxMsgNums=1, connection=7)
    assert [row.client for row in stage.inflight().clients] == [before.client]


@pytest.mark.parametrize(
    ("fields", "code", "named"),
    [
        ({"consumerGroup": "nobody"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "the group nobody does not exist"),
        ({"topic": "nothing"}, ResponseCode.TOPIC_NOT_EXIST, "the topic nothing does not exist"),
        ({"maxRows": 65}, ResponseCode.INVALID_PARAMETER, "maxRows = 65 is not in 0..64"),
        ({"maxRows": -1}, ResponseCode.INVALID_PARAMETER, "maxRows = -1 is not in 0..64"),
        ({"consumerGroup": "x" * 256}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "the limit is 255"),
        ({"topic": "x" * 256}, ResponseCode.TOPIC_NOT_EXIST, "the limit is 255"),
        ({"maxRows": "many"}, ResponseCode.SYSTEM_ERROR, "maxRows"),
    ],
)
def test_bad_requests_are_refused(stage: Stage, fields: dict[str, Any], code: int, named: str) -> None:
    answer = stage.ask(INFLIGHT, {"consumerGroup": "G"} | fields)
    assert answer.code == code
    assert named in (answer.command.remark or "")


def test_a_group_is_named(stage: Stage) -> None:
    answer = stage.ask(INFLIGHT, {})
    assert answer.code != 0
    assert "consumerGroup" in (answer.command.remark or "")


def test_looks_wait_for_one_another_up_to_a_bound(stage: Stage) -> None:
    stage.pop(queueId=1, maxMsgNums=1)
    asked = [stage.put(INFLIGHT, {"consumerGroup": "G"}) for _ in range(inflight.LOOKS_MAX + 1)]
    codes: dict[int, int] = {}

    def are_answered() -> bool:
        stage.turn()
        while (answer := stage.verdict()) is not None:
            codes[answer.verdict.pending] = answer.code
        return len(codes) == len(asked)

    wait_until(are_answered, "each look is answered")
    assert codes == dict.fromkeys(asked[:-1], 0) | {asked[-1]: ResponseCode.SYSTEM_BUSY}


def test_acknowledgements_come_between_the_steps_of_a_look(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflight, "STEP_ENTRIES", 1)
    (receipt, *_) = [receipts(stage.pop(queueId=1, maxMsgNums=1))[0] for _ in range(5)]
    look = stage.put(INFLIGHT, {"consumerGroup": "G"})
    stage.desk.turn(stage.now_ms)
    assert stage.verdict() is None
    assert stage.ack(receipt).code == 0, "the look is under way"
    answer = stage.verdict()
    while answer is None:
        stage.turn()
        answer = stage.verdict()
    assert answer.verdict.pending == look


def test_a_deleted_group_does_not_exist(stage: Stage) -> None:
    stage.plane.group(stage.plane.group_find("G") or 0).config = 0
    assert stage.ask(INFLIGHT, {"consumerGroup": "G"}).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
