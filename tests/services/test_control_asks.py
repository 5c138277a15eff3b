"""Asks of a service to control: each ask ends once, whatever control does."""

from typing import Any

from ringmq.broker.requests.client_request import ClientRequest
from ringmq.ipc.asks import AskAnswer
from ringmq.native import lib
from ringmq.remoting import json_body
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.config_beans import TopicConfig
from ringmq.remoting.errors import RequestError
from ringmq.services.control_asks import REPLY_TIMEOUT_MS, TIMEOUT_MS, ControlAsks

NOW = 1000
TOPICS = (TopicConfig("A", 4, 4, 2), TopicConfig("B", 1, 1, 4))


class FakeControl:
    """What control is asked, and what it tells."""

    def __init__(self) -> None:
        self.asked, self.tells, self.has_room = list[tuple[int, int, bytes]](), list[AskAnswer](), True

    @property
    def has_answers(self) -> bool:
        return bool(self.tells)

    def ask(self, kind: int, pending: int, payload: bytes) -> bool:
        if self.has_room:
            self.asked.append((kind, pending, payload))
        return self.has_room

    def answers(self) -> list[AskAnswer]:
        told, self.tells = self.tells, []
        return told


def made() -> tuple[FakeControl, ControlAsks, list[RequestError | None]]:
    control, ended = FakeControl(), list[RequestError | None]()
    topics = ControlAsks(control)
    topics.create(TOPICS, NOW, ended.append)
    return control, topics, ended


def test_topics_are_asked_for_as_control_reads_them() -> None:
    control, topics, ended = made()
    ((kind, token, payload),) = control.asked
    assert kind == lib.RMQ_INBOX_TOPICS and topics.is_waiting
    values: Any = json_body.items(json_body.read_object(payload, "topics"), "topics")
    assert tuple(TopicConfig.from_json(value) for value in values) == TOPICS
    control.tells = [AskAnswer(token, b"")]
    assert topics.has_news and topics.turn(NOW) and not topics.is_waiting
    assert ended == [None]
    assert not topics.turn(NOW + TIMEOUT_MS) and ended == [None], "it ends once"


def test_a_refusal_of_control_keeps_its_words() -> None:
    control, topics, ended = made()
    control.tells = [AskAnswer(control.asked[0][1], b"topics: the table is full (4 entries)")]
    topics.turn(NOW)
    (refusal,) = ended
    assert refusal is not None
    assert (refusal.code, str(refusal)) == (ResponseCode.SYSTEM_ERROR, "topics: the table is full (4 entries)")


def test_a_control_that_does_not_answer_is_busy() -> None:
    control, topics, ended = made()
    assert not topics.turn(NOW + TIMEOUT_MS - 1) and ended == []
    assert topics.turn(NOW + TIMEOUT_MS) and not topics.is_waiting
    assert ended[0] is not None and ended[0].code == ResponseCode.SYSTEM_BUSY
    control.tells = [AskAnswer(control.asked[0][1], b"")]
    assert topics.turn(NOW + TIMEOUT_MS) and len(ended) == 1, "a late answer is for nobody"


def test_a_full_inbox_is_busy_at_once() -> None:
    control, ended = FakeControl(), list[RequestError | None]()
    control.has_room = False
    topics = ControlAsks(control)
    topics.create(TOPICS, NOW, ended.append)
    assert ended[0] is not None and ended[0].code == ResponseCode.SYSTEM_BUSY and not topics.is_waiting


def test_a_check_goes_out_as_control_reads_it() -> None:
    control, ended = FakeControl(), list[RequestError | None]()
    asks = ControlAsks(control)
    asks.check("Gruppe-ä", b"frame", NOW, ended.append)
    asks.create(TOPICS, NOW, ended.append)
    (kind, token, payload), (_, other, _) = control.asked
    assert kind == lib.RMQ_INBOX_CHECK and token != other
    assert ClientRequest.decode(payload) == ClientRequest("Gruppe-ä", b"frame")
    control.tells = [AskAnswer(token, b"producer group Gruppe has no client")]
    asks.turn(NOW)
    (refusal,) = ended
    assert refusal is not None and "has no client" in str(refusal)
    assert asks.is_waiting, "the other ask still waits"


def test_a_reply_has_the_time_of_its_client() -> None:
    control, ended = FakeControl(), list[RequestError | None]()
    asks = ControlAsks(control)
    asks.reply("client", b"frame", NOW, ended.append)
    ((kind, _, payload),) = control.asked
    assert (kind, ClientRequest.decode(payload)) == (lib.RMQ_INBOX_REPLY, ClientRequest("client", b"frame"))
    assert not asks.turn(NOW + REPLY_TIMEOUT_MS - 1) and not ended
    assert asks.turn(NOW + REPLY_TIMEOUT_MS) and ended[0] is not None
