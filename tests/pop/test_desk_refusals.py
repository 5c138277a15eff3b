"""Refusals of the desk: the codes, remarks and fields of stock, in its order, whichever way a request is decoded."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from desk_stage import ACK, BATCH_ACK, CHANGE, GROUP_ON, POP, Stage, receipts

from ringmq.broker.requests.request import FAQ
from ringmq.native import lib
from ringmq.pop.role_words import Counter
from ringmq.remoting.errors import RequestError

ZEROS = {"invisibleTime": "0", "restNum": "0", "popTime": "0", "reviveQid": "0"}
CHANGE_ZEROS = {"invisibleTime": "0", "popTime": "0", "reviveQid": "0"}
MONTH_MS = 30 * 24 * 3600 * 1000


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A topic of four queues with twelve messages in queue 0."""
    made = Stage(tmp_path / "store", broker_ip1="127.0.0.1", auto_create_subscription_group=False)
    made.topic("T", 4)
    made.topic("W", perm=2)
    made.group("G")
    made.group("OFF", lib.RMQ_GROUP_LIVE)
    made.group("DEAD", 0)
    made.send("T", 12)
    yield made


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"bornTime": 1}, 210, "the broker[127.0.0.1] pop message is timeout too much"),
        ({"maxMsgNums": 33}, 29, "the broker[127.0.0.1] pop message's num is greater than 32"),
        ({"topic": "NO"}, 17, f"topic[NO] not exist, apply first please! {FAQ}"),
        ({"topic": "W"}, 16, "the topic[W] peeking message is forbidden"),
        ({"queueId": 4}, 29,
         "queueId[4] is illegal, topic:[T] topicConfig.readQueueNums:[4] consumer:[/127.0.0.1:4321]"),
        ({"consumerGroup": "NO"}, 26, f"subscription group [NO] does not exist, {FAQ}"),
        ({"consumerGroup": "DEAD"}, 26, f"subscription group [DEAD] does not exist, {FAQ}"),
        ({"consumerGroup": "OFF"}, 16, "subscription group no permission, OFF"),
        ({"expType": "SQL92", "exp": "a >", "bornTime": 0}, 23, "parse the consumer's subscription failed"),
        ({"expType": "XPATH", "exp": "a"}, 23, "parse the consumer's subscription failed"),
        ({"exp": "||"}, 23, "parse the consumer's subscription failed"),
        ({"invisibleTime": -1}, 29, f"invisibleTime = -1 is outside 0..{MONTH_MS}"),
        ({"invisibleTime": MONTH_MS + 1}, 29, f"invisibleTime = {MONTH_MS + 1} is outside 0..{MONTH_MS}"),
    ],
)  # fmt: skip
def test_refused_pops(stage: Stage, fields: dict[str, Any], code: int, remark: str, odd: bool) -> None:
    answer = stage.pop(fields.get("topic", "T"), odd=odd, **{k: v for k, v in fields.items() if k != "topic"})
    assert (answer.code, answer.command.remark, answer.fields) == (code, remark, ZEROS)
    assert stage.desk.native.counted(Counter.MESSAGES) == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"bornTime": None}, {"bornTime": 0}, {"exp": None, "expType": None}, {"exp": ""}, {"initMode": 7},
        {"invisibleTime": MONTH_MS}, {"queueId": -5}, {"pollTime": 2**63 - 1}, {"order": "false"}, {"attemptId": "x"},
    ],
)  # fmt: skip
def test_pops_that_are_served(stage: Stage, fields: dict[str, Any]) -> None:
    assert stage.pop(**fields).code == 0


def test_checks_have_the_order_of_stock(stage: Stage) -> None:
    wrong: dict[str, Any] = {
        "bornTime": 1, "maxMsgNums": 33, "queueId": 4, "consumerGroup": "NO", "exp": "||",
        "invisibleTime": -1,
    }  # fmt: skip
    codes = []
    for name, right in (
        ("bornTime", 0), ("maxMsgNums", 1), ("queueId", 0), ("consumerGroup", "G"), ("exp", "*"), ("invisibleTime", 1),
    ):  # fmt: skip
        codes.append(stage.pop(**wrong).code)
        wrong[name] = right
    assert codes == [210, 29, 29, 26, 23, 29]
    assert stage.pop(**wrong).code == 0


def test_an_unreadable_broker(stage: Stage) -> None:
    stage.set(broker_permission=2)
    answer = stage.pop()
    assert (answer.code, answer.command.remark) == (16, "the broker[127.0.0.1] pop message is forbidden")


@pytest.mark.parametrize(
    "name", ["consumerGroup", "topic", "queueId", "maxMsgNums", "invisibleTime", "pollTime", "initMode"]
)
def test_a_missing_field_is_named(stage: Stage, name: str) -> None:
    answer = stage.pop(**{name: None})
    assert (answer.code, answer.command.remark) == (1, f"PopMessageRequestHeader: the required field {name} is missing")


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "T" * 256}, 17, "topic not exist: topic has 256 bytes, the limit is 255"),
        (
            {"consumerGroup": "G" * 256},
            26,
            "subscription group not exist: consumerGroup has 256 bytes, the limit is 255",
        ),
        ({"exp": "a" * 8193}, 23, "parse the consumer's subscription failed: exp has 8193 bytes, the limit is 8192"),
    ],
)
def test_texts_are_bounded(stage: Stage, fields: dict[str, Any], code: int, remark: str) -> None:
    answer = stage.ask(POP, {
        "consumerGroup": "G", "topic": "T", "queueId": 0, "maxMsgNums": 1, "invisibleTime": 1, "pollTime": 0,
        "bornTime": 0, "initMode": 0, **fields,
    })  # fmt: skip
    assert (answer.code, answer.command.remark) == (code, remark)


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("kind", [ACK, CHANGE])
@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "NO"}, 17, f"topic[NO] not exist, apply first please! {FAQ}"),
        ({"queueId": 4}, 13,
         "queueId[4] is illegal, topic:[T] topicConfig.readQueueNums:[4] consumer:[/127.0.0.1:4321]"),
        ({"queueId": -1}, 13,
         "queueId[-1] is illegal, topic:[T] topicConfig.readQueueNums:[4] consumer:[/127.0.0.1:4321]"),
        ({"offset": 13}, 208, "offset is illegal, key:T@0, commit:13, store:0~12"),
        ({"offset": -1}, 208, "offset is illegal, key:T@0, commit:-1, store:0~12"),
        ({"extraInfo": "a b"}, 1,
         "java.lang.IllegalArgumentException: getBrokerName fail, extraInfoStrs length 2, "
         "org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil.getBrokerName(ExtraInfoUtil.java:102)"),
        ({"extraInfo": None}, 1,
         "java.lang.IllegalArgumentException: split extraInfo is null, "
         "org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil.split(ExtraInfoUtil.java:35)"),
        ({"extraInfo": "x 1 2 3 0 broker-a 0 0"}, 1, 'java.lang.NumberFormatException: For input string: "x"'),
        ({"extraInfo": "0 " * 600}, 1, None),
    ],
)  # fmt: skip
def test_refused_acks_and_changes(
    stage: Stage, kind: int, fields: dict[str, Any], code: int, remark: str | None, odd: bool
) -> None:
    (receipt,) = receipts(stage.pop(maxMsgNums=1))
    asked = {"consumerGroup": "G", "topic": "T", "queueId": 0, "extraInfo": receipt, "offset": 0, "invisibleTime": 9}
    answer = stage.ask(kind, asked | fields, odd=odd)
    wanted = "not set any response code" if kind == CHANGE and code == 208 else remark
    assert answer.code == code
    if remark is not None:
        assert answer.command.remark == wanted
        assert answer.fields == (CHANGE_ZEROS if kind == CHANGE else {})
    else:
        assert "extraInfo has 1200 bytes, the limit is 1024" in str(answer.command.remark)
    assert stage.desk.native.counted(Counter.ACKS) == 0


def test_the_end_of_a_queue_may_be_acknowledged_but_not_changed(stage: Stage) -> None:
    (receipt,) = receipts(stage.pop(maxMsgNums=1))
    assert stage.ack(receipt, offset=12).code == 0
    assert stage.ack(receipt, offset=12, code=CHANGE, invisibleTime=1).code == 208


def test_control_makes_a_group_if_the_broker_says_so(stage: Stage) -> None:
    stage.set(auto_create_subscription_group=True)
    fields = {
        "consumerGroup": "NEW", "topic": "T", "queueId": 0, "maxMsgNums": 1, "invisibleTime": 1, "pollTime": 0,
        "bornTime": 0, "initMode": 0,
    }  # fmt: skip
    for _ in range(2):
        stage.put(POP, fields)
    stage.turn()
    assert stage.verdict() is None
    ((group, then),) = stage.control.asked
    assert group == "NEW", "requests of a group share a question"
    stage.group("NEW")
    then(None)
    stage.turn()
    offsets = [stage.verdict(), stage.verdict()]
    assert [answer.fields["msgOffsetInfo"] for answer in offsets if answer] == ["0 0 0", "0 0 1"]


def test_no_window_begins_before_its_group_is_on_disk(stage: Stage) -> None:
    """A death of control and of all would take the group from the next start, and the windows with it."""
    stage.control.is_saving = True
    stage.put(
        POP,
        {
            "consumerGroup": "G", "topic": "T", "queueId": 0, "maxMsgNums": 1, "invisibleTime": 1, "pollTime": 0,
            "bornTime": 0, "initMode": 0,
        },
    )  # fmt: skip
    stage.turn()
    assert stage.verdict() is None
    assert not stage.names.lines
    ((group, then),) = stage.control.asked
    assert group == "G"
    then(None)
    stage.turn()
    answer = stage.verdict()
    assert answer is not None
    assert answer.code == 0
    assert stage.names.lines


def test_a_group_that_control_does_not_make(stage: Stage) -> None:
    stage.set(auto_create_subscription_group=True)
    fields = {
        "consumerGroup": "NEW", "topic": "T", "queueId": 0, "maxMsgNums": 1, "invisibleTime": 1, "pollTime": 0,
        "bornTime": 0, "initMode": 0,
    }  # fmt: skip
    stage.put(POP, fields)
    stage.put(POP, fields | {"consumerGroup": "OTHER"})
    stage.turn()
    (_, first), (_, second) = stage.control.asked
    first(RequestError("too many groups", field="group", code=1))
    second(None)
    stage.turn()
    answers = [stage.verdict(), stage.verdict()]
    assert [(answer.code, answer.fields) for answer in answers if answer] == [(1, ZEROS), (26, ZEROS)]
    assert stage.desk.is_idle


def test_a_stopped_desk_refuses_everything(stage: Stage) -> None:
    (receipt,) = receipts(stage.pop(maxMsgNums=1))
    stage.desk.stop("pop/journal: Input/output error")
    remark = "POP is stopped until the broker starts again: pop/journal: Input/output error"
    body = b'{"acks":[{"b":"AQ==","c":"G","it":1,"pt":1,"q":0,"r":"0","rq":0,"so":0,"t":"T"}],"brokerName":"broker-a"}'
    answers = [stage.pop(), stage.ack(receipt), stage.ack(receipt, code=CHANGE, invisibleTime=1)]
    answers += [stage.ask(BATCH_ACK, {}, body), stage.ask(BATCH_ACK, {}, body, odd=True)]
    assert {(answer.code, answer.command.remark) for answer in answers} == {(1, remark)}


def test_a_group_without_members_may_pop(stage: Stage) -> None:
    """Clients of POP send no heartbeat before their first pop."""
    assert GROUP_ON & lib.RMQ_GROUP_HAS_MEMBERS == 0
    assert stage.pop().code == 0
