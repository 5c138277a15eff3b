"""The service of replies over a control and a write that the test plays: each reply gets one answer, behind both."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.relations import changed
from ringmq.broker.requests.request import Outbox, Reply, Request, Wait
from ringmq.native import lib
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand, decode_frame
from ringmq.remoting.errors import RequestError
from ringmq.services.appends import Origin
from ringmq.services.kit.flight import Result
from ringmq.services.replies.counters import DELIVERED_COUNTER, FAILED_COUNTER, UNSTORED_COUNTER
from ringmq.services.replies.service import OPEN_MAX, OpenReply, ReplyService
from ringmq.services.topic_creator import Then
from ringmq.services.topics import Topic
from tests.conformance.wire import send_fields
from tests.services.kit import NOW, request_of

TOPIC = Topic("C_REPLY_TOPIC", 7, 6, 1, 1, lib.RMQ_TOPIC_LIVE)
PLACES = {"msgId", "queueId", "queueOffset"}
NO_PLACE = {"msgId": "0", "queueId": "0", "queueOffset": "0"}


@dataclass
class Stage:
    """Topics, appends and control in one, and the service over them."""

    has_room: bool = True
    queue_of_topic: tuple[int, int, int] | None = (7, 1, 0)
    config: BrokerConfig = field(default_factory=BrokerConfig)
    too_large: bool = False

    def __post_init__(self) -> None:
        self.appended, self.pushed = list[OpenReply](), list[tuple[str, RemotingCommand, Then]]()
        self.found, self.words, self.outbox = list[Result[OpenReply]](), Counter[int](), Outbox()
        parts: dict[str, Any] = {"topics": self, "appends": self, "control": self}
        self.service = ReplyService(
            **parts, config=lambda: self.config, outbox=self.outbox, words=self.words, wall_ms=lambda: NOW
        )

    def find(self, name: str) -> Topic:
        return TOPIC

    def queue(self, name: str, queue_id: int) -> tuple[int, int, int] | None:
        return self.queue_of_topic

    def own_origin(self) -> Origin:
        return Origin(NOW, bytes([10, 0, 0, 1]), 10911)

    def append(self, what: OpenReply, *args: object, **options: object) -> bool:
        if self.has_room:
            self.appended.append(what)
        return self.has_room

    def results(self) -> Iterator[Result[OpenReply]]:
        while self.found:
            yield self.found.pop()

    def reply(self, client_id: str, frame: bytes, now_ms: int, then: Then) -> None:
        if self.too_large:
            raise ValueError("an ask of 99 bytes")
        self.pushed.append((client_id, decode_frame(frame), then))

    def ask(self) -> Request:
        pairs = {"REPLY_TO_CLIENT": "c1"}
        fields = {name: str(value) for name, value in send_fields(TOPIC.name, 0, pairs).items()}
        return request_of(RequestCode.SEND_REPLY_MESSAGE, fields, b"reply")

    def begin(self) -> Request:
        request = self.ask()
        assert isinstance(self.service.on_request(request), Wait) and not request.command.body
        return request

    def store(self, code: int = ResponseCode.SUCCESS) -> None:
        """Write takes or refuses the last append."""
        end = 200 if code == ResponseCode.SUCCESS else -1
        self.found.append(Result(self.appended[-1], code, 0, 5, 100, end))
        assert self.service.turn(NOW)

    def push(self, refusal: str = "") -> None:
        """Control answers the last push."""
        self.pushed[-1][2](RequestError(refusal, field="", code=ResponseCode.SYSTEM_ERROR) if refusal else None)

    def answer(self) -> RemotingCommand:
        (effect,) = self.outbox.take()
        assert isinstance(effect, Reply)
        return effect.command


@pytest.mark.parametrize("stored_first", [True, False])
def test_a_reply_is_answered_behind_push_and_store(stored_first: bool) -> None:
    stage = Stage()
    stage.begin()
    steps = (stage.store, stage.push) if stored_first else (stage.push, stage.store)
    steps[0]()
    assert not stage.outbox.take() and not stage.service.is_idle
    steps[1]()
    answer = stage.answer()
    assert answer.code == 0 and answer.remark is None and stage.service.is_idle
    assert (answer.ext_fields["queueOffset"], answer.ext_fields["msgId"]) == ("5", "0A00000100002A9F0000000000000064")
    assert stage.words == {DELIVERED_COUNTER: 1}


@pytest.mark.parametrize(
    ("refusal", "store_code", "code", "fields"),
    [
        ("", ResponseCode.SERVICE_NOT_AVAILABLE, 0, NO_PLACE),
        ("gone", ResponseCode.SERVICE_NOT_AVAILABLE, 1, {}),
        ("gone", ResponseCode.SUCCESS, 1, {"queueId": "0", "queueOffset": "5"}),
        ("", ResponseCode.FLUSH_DISK_TIMEOUT, 0, {"queueId": "0", "queueOffset": "5"}),
    ],
)
def test_the_answer_tells_of_the_push_and_of_the_place(
    refusal: str, store_code: int, code: int, fields: dict[str, str]
) -> None:
    stage = Stage()
    stage.begin()
    stage.push(refusal)
    stage.store(store_code)
    answer = stage.answer()
    assert (answer.code, answer.remark) == (code, refusal or None)
    assert fields.items() <= answer.ext_fields.items() and ("msgId" in answer.ext_fields) == bool(fields)
    assert answer.ext_fields.keys() - PLACES == {"MSG_REGION", "TRACE_ON"}
    is_unstored = store_code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert stage.words[UNSTORED_COUNTER] == is_unstored and stage.words[FAILED_COUNTER] == bool(refusal)


def test_nothing_is_stored_where_the_broker_says_so_or_the_queue_is_gone() -> None:
    off = changed(BrokerConfig(), {"storeReplyMessageEnable": "false"})
    for stage, unstored in ((Stage(config=off), 0), (Stage(queue_of_topic=None), 1)):
        stage.begin()
        stage.push()
        assert stage.answer().ext_fields.items() >= NO_PLACE.items()
        assert not stage.appended and stage.words[UNSTORED_COUNTER] == unstored


def test_without_room_nothing_is_pushed_and_the_replier_comes_again() -> None:
    stage = Stage(has_room=False)
    answer = stage.service.on_request(stage.ask())
    assert isinstance(answer, RemotingCommand) and answer.code == ResponseCode.SYSTEM_BUSY
    assert not stage.pushed and stage.service.is_idle


def test_replies_that_wait_are_bounded() -> None:
    stage = Stage()
    for _ in range(OPEN_MAX):
        stage.begin()
    answer = stage.service.on_request(stage.ask())
    assert isinstance(answer, RemotingCommand) and answer.code == ResponseCode.SYSTEM_BUSY
    assert len(stage.appended) == len(stage.pushed) == OPEN_MAX
    stage.push()
    stage.store()
    stage.begin()


def test_a_reply_that_control_cannot_take_is_answered_1() -> None:
    stage = Stage(too_large=True)
    stage.begin()
    stage.store()
    answer = stage.answer()
    assert answer.code == 1 and answer.remark == "push reply message to c1fail. an ask of 99 bytes"
