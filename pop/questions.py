"""The questions of POP to control: a group with topics of one queue that it needs, offsets of the revive topic, and
consumer offsets on disk."""

from __future__ import annotations

from msgspec import Struct

from ringmq.broker.requests.questions import Control
from ringmq.ipc.asks import Ask
from ringmq.ipc.errors import PlaneFullError
from ringmq.native import lib
from ringmq.pop.revive_records import REVIVE_GROUP
from ringmq.remoting import json_body, names
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.config_beans import TopicConfig
from ringmq.remoting.errors import RequestError
from ringmq.services.control_asks import ControlAsks
from ringmq.services.topic_creator import Then

SAVE = b'{"save":"offsets"}'
"""The payload of the ask for consumer offsets on disk."""


class PopAsk(Struct, frozen=True):
    """The names of a group and of topics that it needs: of its retries, or of its dead letters."""

    group: str
    topics: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """The payload of the ask."""
        return json_body.write_body({"group": self.group, "topics": list(self.topics)})

    @classmethod
    def decode(cls, payload: bytes) -> PopAsk:
        """The ask of a payload. Raises RequestError."""
        value = json_body.read_object(payload, "pop")
        topics = json_body.items(value, "topics")
        return cls(str(value.get("group", "")), tuple(str(topic) for topic in topics))


class HandledAsk(Struct, frozen=True):
    """The offset of the last handled record of each queue of the revive topic. -1: of that queue none."""

    topic: str
    offsets: tuple[int, ...]

    def encode(self) -> bytes:
        """The payload of the ask."""
        return json_body.write_body({"handled": self.topic, "offsets": list(self.offsets)})


class PopAsks(ControlAsks):
    """The asks of the worker `pop` to control."""

    def make(self, asked: PopAsk, now_ms: int, then: Then) -> None:
        """Ask for a group and its topics. `then` gets None once the plane has what a client may make, else a refusal.
        A group that clients may not make is missing then, too."""
        self._ask(lib.RMQ_INBOX_POP, asked.encode(), now_ms, then)

    def handled(self, asked: HandledAsk, now_ms: int, then: Then) -> None:
        """Commit offsets of the revive group. `then` gets None, or a refusal."""
        self._ask(lib.RMQ_INBOX_POP, asked.encode(), now_ms, then)

    def save_offsets(self, now_ms: int, then: Then) -> None:
        """Have control write its consumer offsets. `then` gets None once the file has them, or a refusal."""
        self._ask(lib.RMQ_INBOX_POP, SAVE, now_ms, then)


def answer_pop(control: Control, record: Ask, now_ms: int) -> None:
    """Answer a question of POP."""
    if b'"handled"' in record.payload[:16]:
        commit_handled(control, record, now_ms)
    elif record.payload == SAVE:
        control.answer_when_saved(record, control.note_offsets_to_save)
    else:
        make_for_group(control, record, now_ms)


def commit_handled(control: Control, record: Ask, now_ms: int) -> None:
    """Commit the offsets of the revive group."""
    remark = ""
    try:
        value = json_body.read_object(record.payload, "handled")
        for queue_id, offset in enumerate(json_body.items(value, "offsets")):
            if int(offset) >= 0:
                control.commit_offset(REVIVE_GROUP, str(value["handled"]), int(offset), now_ms, queue_id)
    except (RequestError, PlaneFullError, LookupError, TypeError, ValueError) as error:
        remark = str(error)
    control.answer(record, remark)


def make_for_group(control: Control, record: Ask, now_ms: int) -> None:
    """Make what POP needs. The answer comes once it is on disk."""

    def make() -> None:
        asked = PopAsk.decode(record.payload)
        for topic in asked.topics:
            if not names.is_retry_topic(topic) and not names.is_dlq_topic(topic):
                refusal = f"topic {topic!r} is neither of retries nor of dead letters"
                raise RequestError(refusal, field="topics", code=ResponseCode.INVALID_PARAMETER)
        control.make_for_group(asked.group, [TopicConfig(topic, 1, 1) for topic in asked.topics], now_ms)
        for topic in filter(names.is_retry_topic, asked.topics):
            control.begin_offset(asked.group, topic, now_ms)

    control.answer_when_saved(record, make)


QUESTIONS = {lib.RMQ_INBOX_POP: answer_pop}
