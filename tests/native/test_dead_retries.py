"""Sends to a retry topic that control calls dead letters (RMQ_REDO_DEAD_LETTER)."""

import pytest
from reader_kit import BOTH, MakeKit, ReaderKit, connected, send_frame
from test_admission_rules import ADDITIONS, UNIQ, delay_rule, records

from ringmq.ipc.admission import publish_rules
from ringmq.native import lib
from ringmq.remoting.codes import SerializeType

COLD = lib.RMQ_TOPIC_SEND_COLD
"""The flag of retry topics: control decides about each send."""


@pytest.fixture
def kit(make_kit: MakeKit) -> ReaderKit:
    kit = make_kit()
    kit.set_additions(ADDITIONS.encode())
    kit.start("write")
    kit.start("read")
    kit.wide_topic(b"%RETRY%G", flags=COLD)
    return kit


def retry_frame(serialise: SerializeType, properties: str, **fields: str) -> bytes:
    """The send of a client whose send-back has failed."""
    return send_frame("%RETRY%G", b"failed", properties, queue=2, serialise=serialise, j="4", **fields)


@pytest.mark.parametrize("serialise", BOTH)
@pytest.mark.parametrize("delay", ["", "DELAY\x013\x02"])
def test_a_retry_that_control_calls_dead(kit: ReaderKit, serialise: SerializeType, delay: str) -> None:
    """As SendMessageProcessor.handleRetryAndDLQ: queue 0 of the dead letter topic, DELAY = -1, nothing else changed."""
    kit.wide_topic(b"%DLQ%G", 1)
    publish_rules(kit.plane, [delay_rule(kit)])
    frame = retry_frame(serialise, f"RETRY_TOPIC\x01T\x02{delay}{UNIQ}")
    with connected(kit) as client:
        client.send(frame)
        record, _ = kit.take()
        kit.verdict(record, lib.RMQ_VERDICT_REDO, rule=lib.RMQ_REDO_DEAD_LETTER)
        answer = client.answer()
    assert (answer.code, answer.ext_fields["queueOffset"]) == (0, "0")
    assert records(kit) == [("%DLQ%G", 0, 0, 0, f"RETRY_TOPIC\x01T\x02{UNIQ}DELAY\x01-1\x02")]
    ((_, data, view),) = kit.records()
    assert view.reconsume_times == 4
    assert data[view.body_at : view.body_at + view.body_length] == b"failed"


@pytest.mark.parametrize("serialise", BOTH)
def test_a_dead_retry_without_its_topic_goes_to_control_again(kit: ReaderKit, serialise: SerializeType) -> None:
    with connected(kit) as client:
        client.send(retry_frame(serialise, UNIQ))
        kit.verdict(kit.take()[0], lib.RMQ_VERDICT_REDO, rule=lib.RMQ_REDO_DEAD_LETTER)
        kit.verdict(kit.take()[0], lib.RMQ_VERDICT_REDO)
        assert client.answer().code == 0
    assert [row[:2] for row in records(kit)] == [("%RETRY%G", 2)], "the last verdict counts"


@pytest.mark.parametrize("end", ["\x02", ""])
def test_a_dead_retry_has_room_for_its_pair(kit: ReaderKit, end: str) -> None:
    """Properties end at 32767 bytes with the broker's additions and the end mark that the last pair may lack."""
    kit.wide_topic(b"%DLQ%G", 1)
    room = 32767 - len(ADDITIONS) - len(UNIQ) - len("a\x01\x02") - len("DELAY\x01-1\x02")
    with connected(kit) as client:
        client.send(retry_frame(SerializeType.JSON, f"{UNIQ}a\x01{'v' * room}{end}"))
        kit.verdict(kit.take()[0], lib.RMQ_VERDICT_REDO, rule=lib.RMQ_REDO_DEAD_LETTER)
        assert client.answer().code == 0
        client.send(retry_frame(SerializeType.JSON, f"{UNIQ}a\x01{'v' * (room + 1)}{end}"))
        for _ in range(4):
            kit.verdict(kit.take()[0], lib.RMQ_VERDICT_REDO, rule=lib.RMQ_REDO_DEAD_LETTER)
        assert client.answer().code == 2, "it never fits"
    assert len(kit.records()) == 1


def test_only_sends_to_retry_topics_are_dead(kit: ReaderKit) -> None:
    kit.wide_topic(b"%DLQ%TopicZ", 1)
    kit.wide_topic(b"TopicZ", flags=COLD)
    with connected(kit) as client:
        client.send(send_frame("TopicZ", b"x"))
        kit.verdict(kit.take()[0], lib.RMQ_VERDICT_REDO, rule=lib.RMQ_REDO_DEAD_LETTER)
        kit.verdict(kit.take()[0], lib.RMQ_VERDICT_REDO)
        assert client.answer().code == 0
    assert [row[0] for row in records(kit)] == ["TopicZ"]
