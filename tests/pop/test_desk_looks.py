"""Looks: PEEK shows what the next pop gives and takes nothing, POLLING_INFO counts polls. Stock refuses the same."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from desk_stage import GROUP_ON, PEEK, POLLING_INFO, Answer, Stage, receipts
from plane_kit import maps_of

from ringmq.broker.requests.request import FAQ, Connection, Request
from ringmq.native import lib
from ringmq.pop.role_words import Counter
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.command import RemotingCommand, decode_frame
from ringmq.remoting.errors import RequestError
from ringmq.store.queue_reader import DeletedError, NotMappedError

V1, V2 = "%RETRY%G_T", "%RETRY%G+T"
ZEROS = {"invisibleTime": "0", "restNum": "0", "popTime": "0", "reviveQid": "0"}
NO_POLLS = {"pollingNum": "0"}
LOOKS = 100
"""One of them at least begins with the topic of retries, and one with the other topic."""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A topic of four queues, with ten messages in queue 1."""
    made = Stage(tmp_path / "store", broker_ip1="127.0.0.1")
    made.topic("T", 4)
    made.group("G")
    made.send("T", 10, 1)
    yield made


def places(answer: Answer) -> list[tuple[str, int, int]]:
    """Topic, queue and offset of each message."""
    return [(message.topic, message.queue_id, message.queue_offset) for message in answer.messages]


def offsets(answer: Answer) -> list[int]:
    return [message.queue_offset for message in answer.messages]


def test_a_look_shows_messages_and_takes_nothing(stage: Stage) -> None:
    for _ in range(2):
        answer = stage.peek(maxMsgNums=4)
        assert (answer.code, answer.command.remark) == (0, "FOUND")
        assert answer.fields == {**ZEROS, "restNum": "10"}
        assert [message.body for message in answer.messages] == [b"m0", b"m1", b"m2", b"m3"]
        assert answer.verdict.type == lib.RMQ_VERDICT_RECORDS
        assert answer.verdict.pieces == 2, "the header, and four neighbours in the log"
    assert stage.names.lines == [], "no window is made"
    assert int(lib.rmq_pop_counts_of(stage.windows).entries) == 0
    assert stage.pop(maxMsgNums=4).fields["msgOffsetInfo"] == "0 1 0,1,2,3"


def test_a_look_goes_on_behind_what_was_popped(stage: Stage) -> None:
    stage.pop(maxMsgNums=3)
    answer = stage.peek(maxMsgNums=2)
    assert (offsets(answer), answer.fields["restNum"]) == ([3, 4], "7")
    assert stage.pop(maxMsgNums=2).fields["msgOffsetInfo"] == "0 1 3,4"


def test_messages_that_no_client_has_received_come_first(stage: Stage) -> None:
    stage.pop(maxMsgNums=2)
    lost = stage.pop(maxMsgNums=3)
    stage.pop(maxMsgNums=2)
    stage.desk.native.unsent(lost.verdict.serial)
    answer = stage.peek()
    assert (offsets(answer), answer.fields["restNum"]) == ([2, 3, 4, 7, 8, 9], "6")
    assert offsets(stage.peek(maxMsgNums=2)) == [2, 3]
    topic = stage.plane.topic_find("T")
    assert topic is not None
    stage.kit.queue(topic, 1).min_offset = 4
    answer = stage.peek()
    assert (offsets(answer), answer.fields["restNum"]) == ([4, 7, 8, 9], "4")
    assert stage.pop().fields["msgOffsetInfo"] == "0 1 4"


@pytest.mark.parametrize(("committed", "wanted", "rest"), [(6, [6, 7, 8, 9], 4), (10, [], 0), (99, [], 0)])
def test_without_a_window_a_look_begins_at_the_consumer_offset(
    stage: Stage, committed: int, wanted: list[int], rest: int
) -> None:
    group, topic = stage.plane.group_find("G"), stage.plane.topic_find("T")
    assert group is not None and topic is not None
    assert lib.rmq_offset_put(stage.kit.plane, group, stage.kit.queue_slot(topic, 1), committed) == 0
    answer = stage.peek()
    assert (offsets(answer), answer.fields["restNum"]) == (wanted, str(rest))


def test_deleted_messages_are_passed_over(stage: Stage) -> None:
    stage.pop(maxMsgNums=4)
    topic = stage.plane.topic_find("T")
    assert topic is not None
    stage.kit.queue(topic, 1).min_offset = 7
    answer = stage.peek()
    assert (offsets(answer), answer.fields["restNum"]) == ([7, 8, 9], "6"), "stock counts the deleted ones, too"
    stage.group("H")
    answer = stage.peek(group="H")
    assert (offsets(answer), answer.fields["restNum"]) == ([7, 8, 9], "3")


def test_messages_that_retention_takes_meanwhile_are_passed_over(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, ranges = stage.desk._reader, stage.desk._reader.ranges

    def late(slot: int, offset: int, *more: int) -> Any:
        if offset < 4:
            raise DeletedError("deleted", 4)
        return ranges(slot, offset, *more)

    monkeypatch.setattr(reader, "ranges", late)
    assert offsets(stage.peek()) == list(range(4, 10))


def test_a_queue_that_cannot_be_read_now_is_passed_over(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.send("T", 2, 3)
    reader, ranges = stage.desk._reader, stage.desk._reader.ranges
    topic = stage.plane.topic_find("T")
    assert topic is not None
    bad = stage.kit.queue_slot(topic, 1)

    def some(slot: int, *more: int) -> Any:
        if slot == bad:
            raise NotMappedError("not now")
        return ranges(slot, *more)

    monkeypatch.setattr(reader, "ranges", some)
    answer = stage.peek()
    assert (places(answer), answer.fields["restNum"]) == ([("T", 3, 0), ("T", 3, 1)], "12")
    assert stage.desk.native.counted(Counter.UNREADABLE) == 1


def test_one_answer_has_messages_of_several_queues(stage: Stage) -> None:
    for queue_id in (0, 3):
        stage.send("T", 3, queue_id)
    answer = stage.peek()
    found = [("T", 0, n) for n in range(3)] + [("T", 1, n) for n in range(10)] + [("T", 3, n) for n in range(3)]
    assert sorted(places(answer)) == found
    assert answer.fields["restNum"] == "16"
    first = {stage.peek(maxMsgNums=1).messages[0].queue_id for _ in range(LOOKS)}
    assert first == {0, 1, 3}, "each queue comes first in its turn"
    assert stage.peek(maxMsgNums=1).fields["restNum"] == "16", "of all queues, however few are shown"


def test_one_queue_may_be_asked_for(stage: Stage) -> None:
    stage.send("T", 3, 3)
    answer = stage.peek(queueId=3, maxMsgNums=2)
    assert (places(answer), answer.fields["restNum"]) == ([("T", 3, 0), ("T", 3, 1)], "3")
    assert stage.peek(queueId=2).code == ResponseCode.PULL_NOT_FOUND


@pytest.mark.parametrize("fields", [{"queueId": 0}, {"maxMsgNums": 0}])
def test_a_look_that_shows_nothing(stage: Stage, fields: dict[str, Any]) -> None:
    answer = stage.peek(**fields)
    rest = "10" if "maxMsgNums" in fields else "0"
    assert (answer.code, answer.command.remark) == (ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE")
    assert (answer.fields, answer.messages) == ({**ZEROS, "restNum": rest}, [])


def test_the_client_is_told_if_the_records_cannot_be_sent(stage: Stage) -> None:
    asked = stage.peek()
    instead = decode_frame(asked.instead)
    assert (instead.code, instead.opaque) == (ResponseCode.PULL_NOT_FOUND, asked.command.opaque)
    assert (instead.remark, instead.ext_fields) == ("NO_MESSAGE_IN_QUEUE", {**ZEROS, "restNum": "10"})


def test_a_oneway_look_gets_no_answer(stage: Stage) -> None:
    fields = {"consumerGroup": "G", "topic": "T", "queueId": -1, "maxMsgNums": 32}
    for code in (PEEK, POLLING_INFO):
        stage.put(code, fields, oneway=True)
        stage.turn()
        answer = stage.verdict()
        assert answer is not None
        assert answer.verdict.type == lib.RMQ_VERDICT_DROP


# ---- bounds ----


def test_an_answer_has_the_messages_and_bytes_of_a_pull(stage: Stage) -> None:
    settings = stage.kit.header.settings
    stage.send("T", 50, 2)
    settings.pull_memory_count_max = 100
    assert len(stage.peek(maxMsgNums=2**31 - 1).messages) == 32
    settings.pull_memory_count_max = 20
    assert len(stage.peek().messages) == 20
    size = len(stage.peek(queueId=2, maxMsgNums=1).command.body)
    settings.pull_memory_bytes_max = 1024 + 5 * size
    assert len(stage.peek(queueId=2).messages) == 5
    settings.pull_memory_bytes_max = 1
    assert len(stage.peek(queueId=2).messages) == 1, "the first message is taken, however large"
    settings.memory_window_bytes, settings.pull_disk_bytes_max = 0, 262_144
    assert len(stage.peek(queueId=2).messages) == settings.pull_disk_count_max


def test_records_on_disk_and_in_memory_have_the_bounds_of_those_on_disk(stage: Stage) -> None:
    """They lie side by side. A read worker takes the bounds of the first."""
    settings, end = stage.kit.header.settings, int(stage.kit.marks.append_offset)
    size = len(stage.peek(maxMsgNums=1).command.body)
    settings.memory_window_bytes = end - size
    assert len(stage.peek().messages) == settings.pull_disk_count_max


def test_no_page_of_the_log_is_touched(stage: Stage) -> None:
    file = stage.kit.root / "commitlog" / f"{0:020d}"
    before = maps_of(file)
    stage.peek()
    assert maps_of(file) == before


def test_a_topic_of_many_queues_is_looked_at_in_slices(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of other connections are answered in between."""
    looks, looked = stage.desk._looks, list[int]()
    look_at = looks._look_at_queue
    monkeypatch.setattr("ringmq.broker.requests.slices.FIRST_GO_MS", 0)
    monkeypatch.setattr(looks, "_look_at_queue", lambda *more: (looked.append(more[-1]), look_at(*more)))
    monkeypatch.setattr(looks, "_polls_waiting", lambda *key: len(looked))
    asked = stage.put(PEEK, {"consumerGroup": "G", "topic": "T", "queueId": -1, "maxMsgNums": 32}, connection=8)
    info = stage.put(POLLING_INFO, {"consumerGroup": "G", "topic": "T", "queueId": -1}, connection=9)
    stage.turn()
    answers = [stage.verdict(), stage.verdict()]
    assert [answer and answer.verdict.pending for answer in answers] == [info, asked]
    assert [answer and answer.fields.get("pollingNum") for answer in answers] == ["1", None], "behind one queue of four"
    assert len(looked) == 4


# ---- retries ----


@pytest.mark.parametrize(("is_v2", "topic"), [(False, V1), (True, V2)])
def test_messages_that_have_come_again_are_shown_as_they_are(stage: Stage, is_v2: bool, topic: str) -> None:
    stage.set(enable_retry_topic_v2=is_v2, pop_from_retry_probability=0)
    for name in (V1, V2):
        stage.topic(name)
        stage.send(name, 2)
    answers = [stage.peek() for _ in range(LOOKS)]
    retries, others = [(topic, 0, 0), (topic, 0, 1)], [("T", 1, number) for number in range(10)]
    seen = [places(answer) for answer in answers]
    assert {answer.fields["restNum"] for answer in answers} == {"12"}
    assert seen.count([*retries, *others]) + seen.count([*others, *retries]) == LOOKS
    share = seen.count([*retries, *others])
    assert 0 < share < LOOKS / 2, "one in five"
    assert all("POP_CK" not in message.properties for message in answers[0].messages)


def test_retries_come_last_if_there_is_room_for_them(stage: Stage) -> None:
    stage.topic(V1)
    stage.send(V1, 2)
    answers = [stage.peek(maxMsgNums=10) for _ in range(LOOKS)]
    assert {(answer.messages[0].topic, answer.fields["restNum"]) for answer in answers} == {(V1, "12"), ("T", "10")}
    assert {len(answer.messages) for answer in answers} == {10}
    answer = stage.peek(queueId=0)
    assert (places(answer), answer.fields["restNum"]) == ([(V1, 0, 0), (V1, 0, 1)], "2")


# ---- polls ----


def test_no_poll_waits(stage: Stage) -> None:
    answer = stage.polling_info()
    assert (answer.code, answer.command.remark) == (0, "not set any response code")
    assert answer.fields == NO_POLLS


@pytest.mark.parametrize(("queue_id", "asked"), [(0, 0), (3, 3), (-1, -1), (-7, -1)])
def test_polls_are_counted_by_group_topic_and_queue(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, queue_id: int, asked: int
) -> None:
    waiting = {("G", "T", asked): 3}
    monkeypatch.setattr(stage.desk._looks, "_polls_waiting", lambda *key: waiting.get(key, 0))
    assert stage.polling_info(queueId=queue_id).fields == {"pollingNum": "3"}


# ---- refusals ----


def look(stage: Stage, code: int, fields: dict[str, Any]) -> Answer:
    asked = {"consumerGroup": "G", "topic": "T", "queueId": -1, "maxMsgNums": 32}
    return stage.ask(code, {**asked, **fields})


def refused(stage: Stage) -> None:
    stage.set(auto_create_subscription_group=False)
    stage.topic("W", perm=2)
    stage.group("OFF", lib.RMQ_GROUP_LIVE)
    stage.group("DEAD", 0)


@pytest.mark.parametrize(("code", "zeros"), [(PEEK, ZEROS), (POLLING_INFO, NO_POLLS)])
@pytest.mark.parametrize(
    ("fields", "refusal", "remark"),
    [
        ({"topic": "NO"}, 17, f"topic[NO] not exist, apply first please! {FAQ}"),
        ({"topic": "W"}, 16, "the topic[W] peeking message is forbidden"),
        ({"queueId": 4}, 29,
         "queueId[4] is illegal, topic:[T] topicConfig.readQueueNums:[4] consumer:[/127.0.0.1:4321]"),
        ({"consumerGroup": "NO"}, 26, f"subscription group [NO] does not exist, {FAQ}"),
        ({"consumerGroup": "DEAD"}, 26, f"subscription group [DEAD] does not exist, {FAQ}"),
        ({"consumerGroup": "OFF"}, 16, "subscription group no permission, OFF"),
    ],
)  # fmt: skip
def test_refusals_of_stock(
    stage: Stage, code: int, zeros: dict[str, str], fields: dict[str, Any], refusal: int, remark: str
) -> None:
    refused(stage)
    answer = look(stage, code, fields)
    assert (answer.code, answer.command.remark, answer.fields) == (refusal, remark, zeros)


@pytest.mark.parametrize("code", [PEEK, POLLING_INFO])
def test_half_a_character_is_a_question_mark(stage: Stage, code: int) -> None:
    fields = {"consumerGroup": "G", "topic": "\ud800", "queueId": "-1", "maxMsgNums": "1"}
    request = Request(RemotingCommand(code, 1, ext_fields=fields), Connection(0, 5, 9, 3, "127.0.0.1", 4321), 0)
    answer = stage.desk._looks.on_request(request)
    assert isinstance(answer, RemotingCommand)
    assert (answer.code, answer.remark) == (17, f"topic[?] not exist, apply first please! {FAQ}")


@pytest.mark.parametrize(("code", "zeros"), [(PEEK, ZEROS), (POLLING_INFO, NO_POLLS)])
def test_a_broker_that_may_not_be_read(stage: Stage, code: int, zeros: dict[str, str]) -> None:
    stage.set(broker_permission=2)
    answer = look(stage, code, {"topic": "NO"})
    assert (answer.code, answer.fields) == (16, zeros)
    assert answer.command.remark == "the broker[127.0.0.1] peeking message is forbidden"


@pytest.mark.parametrize(("code", "zeros"), [(PEEK, ZEROS), (POLLING_INFO, NO_POLLS)])
def test_looks_end_when_pop_has_stopped(stage: Stage, code: int, zeros: dict[str, str]) -> None:
    stage.desk.stop("no space left")
    answer = look(stage, code, {})
    assert (answer.code, answer.fields) == (1, zeros)
    assert answer.command.remark == "POP is stopped until the broker starts again: no space left"


@pytest.mark.parametrize(
    ("code", "fields", "refusal", "remark"),
    [
        (PEEK, {"maxMsgNums": -1}, 29, "maxMsgNums = -1 is below 0"),
        (PEEK, {"maxMsgNums": None}, 1, "PeekMessageRequestHeader: the required field maxMsgNums is missing"),
        (PEEK, {"queueId": "x"}, 1, "PeekMessageRequestHeader: the field queueId = 'x' is not"),
        (PEEK, {"topic": "t" * 256}, 17, "topic has 256 bytes, the limit is 255"),
        (PEEK, {"consumerGroup": "ä" * 128}, 26, "consumerGroup has 256 bytes, the limit is 255"),
        (POLLING_INFO, {"topic": "t" * 256}, 17, "topic has 256 bytes, the limit is 255"),
        (POLLING_INFO, {"consumerGroup": "g" * 256}, 26, "consumerGroup has 256 bytes, the limit is 255"),
        (POLLING_INFO, {"queueId": None}, 1, "PollingInfoRequestHeader: the required field queueId is missing"),
    ],
)
def test_fields_beyond_their_limits(stage: Stage, code: int, fields: dict[str, Any], refusal: int, remark: str) -> None:
    answer = look(stage, code, fields)
    assert answer.code == refusal
    assert (answer.command.remark or "").startswith(remark)


def test_checks_have_the_order_of_stock(stage: Stage) -> None:
    refused(stage)
    stage.set(broker_permission=2)
    wrong: dict[str, Any] = {"topic": "NO", "queueId": 4, "consumerGroup": "NO"}
    codes = [look(stage, PEEK, wrong).code]
    stage.set(broker_permission=6)
    for name, right in (("topic", "W"), ("topic", "T"), ("queueId", 0), ("consumerGroup", "OFF")):
        codes.append(look(stage, PEEK, wrong).code)
        wrong[name] = right
    codes.append(look(stage, PEEK, wrong).code)
    assert codes == [16, 17, 16, 29, 26, 16]


# ---- groups that are missing ----


@pytest.mark.parametrize(("code", "fields"), [(PEEK, {**ZEROS, "restNum": "10"}), (POLLING_INFO, NO_POLLS)])
def test_a_group_that_is_missing_is_made(stage: Stage, code: int, fields: dict[str, str]) -> None:
    asked = [stage.put(code, {"consumerGroup": "N", "topic": "T", "queueId": 1, "maxMsgNums": 1}) for _ in range(2)]
    stage.turn()
    assert stage.verdict() is None
    assert not stage.desk.is_idle
    ((group, then),) = stage.control.asked
    assert group == "N", "requests share a question"
    stage.group("N", GROUP_ON)
    then(None)
    stage.turn()
    for pending in asked:
        answer = stage.verdict()
        assert answer is not None
        assert (answer.code, answer.fields, answer.verdict.pending) == (0, fields, pending)
    assert stage.desk.is_idle


@pytest.mark.parametrize(("code", "zeros"), [(PEEK, ZEROS), (POLLING_INFO, NO_POLLS)])
@pytest.mark.parametrize(
    ("error", "refusal", "remark"),
    [
        (RequestError("the disk is full", field="", code=1), 1, "the disk is full"),
        (None, 26, f"subscription group [N] does not exist, {FAQ}"),
    ],
)
def test_a_group_that_cannot_be_made(
    stage: Stage, code: int, zeros: dict[str, str], error: RequestError | None, refusal: int, remark: str
) -> None:
    stage.put(code, {"consumerGroup": "N", "topic": "T", "queueId": 1, "maxMsgNums": 1})
    stage.turn()
    stage.control.asked[0][1](error)
    stage.turn()
    answer = stage.verdict()
    assert answer is not None
    assert (answer.code, answer.command.remark, answer.fields) == (refusal, remark, zeros)


def test_requests_that_wait_are_answered_at_the_end(stage: Stage) -> None:
    stage.put(PEEK, {"consumerGroup": "N", "topic": "T", "queueId": 1, "maxMsgNums": 1})
    stage.turn()
    stage.desk.close(rests=False)
    answer = stage.verdict()
    assert answer is not None
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE


def test_receipts_outlive_looks(stage: Stage) -> None:
    taken = receipts(stage.pop(maxMsgNums=2))
    stage.peek()
    for receipt in taken:
        assert stage.ack(receipt).code == 0
    assert stage.desk.native.counted(Counter.ACKS) == 2
