"""Bodies about the queues that a broker assigns to consumers (spec pop 21). Stock's beans.

QUERY_ASSIGNMENT (400), SET_MESSAGE_REQUEST_MODE (401) and GET_ALL_MESSAGE_REQUEST_MODE (402) have them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ringmq.remoting import json_body
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.errors import BadBody
from ringmq.remoting.heartbeat import BROADCASTING, CLIENT_ID_CHARS_MAX, CLUSTERING, NAME_CHARS_MAX
from ringmq.remoting.message_queue import MessageQueue

PULL = "PULL"
POP = "POP"
MODES = (PULL, POP)
_INT32_MIN, _INT32_MAX = -(1 << 31), (1 << 31) - 1
MODE_MAP = "messageRequestModeMap"
"""The table in the answer to 402, and in the file of a broker."""
MODE_FILE = "messageRequestMode.json"
"""This file, in the folder of the configuration."""


@dataclass(frozen=True, slots=True)
class RequestMode:
    """The way of a group to the messages of a topic: PULL, or POP.

    `pop_share_queue_num`: the number of other members whose queues a member of POP shares, 0 or less = all queues.
    """

    topic: str
    group: str
    mode: str = PULL
    pop_share_queue_num: int = 0

    def to_json(self) -> dict[str, Any]:
        """Stock's bean."""
        return {
            "consumerGroup": self.group,
            "mode": self.mode,
            "popShareQueueNum": self.pop_share_queue_num,
            "topic": self.topic,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> RequestMode:
        """From stock's bean. Without a mode it is PULL, as in stock.

        Raises `BadBody` with INVALID_PARAMETER for another mode and for a number beyond 32 bits.
        """
        mode = json_body.text(value, "mode", PULL).upper()
        if mode not in MODES:
            text = f"field mode = {mode[:64]!r} is not known, accepted: {' or '.join(MODES)}"
            raise json_body.bad_body(text, "mode", ResponseCode.INVALID_PARAMETER)
        share = json_body.integer(value, "popShareQueueNum")
        if not _INT32_MIN <= share <= _INT32_MAX:
            raise BadBody(
                f"field popShareQueueNum = {share} is outside {_INT32_MIN}..{_INT32_MAX}",
                field="popShareQueueNum",
                code=ResponseCode.INVALID_PARAMETER,
                limit=_INT32_MAX,
            )
        topic = json_body.short_text(value, "topic", "", NAME_CHARS_MAX)
        return cls(topic, json_body.short_text(value, "consumerGroup", "", NAME_CHARS_MAX), mode, share)

    @classmethod
    def decode(cls, body: bytes) -> RequestMode:
        """The body of 401. Raises `BadBody`, also for a missing topic or group."""
        value = json_body.read_request(body, "SetMessageRequestModeRequestBody")
        return cls.from_json(_with_names(value, "topic", "consumerGroup"))


@dataclass(frozen=True, slots=True)
class AssignmentQuery:
    """The body of 400."""

    topic: str
    group: str
    client_id: str
    message_model: str
    strategy: str

    @classmethod
    def decode(cls, body: bytes) -> AssignmentQuery:
        """Raises `BadBody`: a stock broker, too, answers 1 without topic, group or message model."""
        value = json_body.read_request(body, "QueryAssignmentRequestBody")
        _with_names(value, "topic", "consumerGroup", "messageModel")
        model = json_body.text(value, "messageModel").upper()
        if model not in (CLUSTERING, BROADCASTING):
            text = f"field messageModel = {model[:64]!r} is not known, accepted: {CLUSTERING} or {BROADCASTING}"
            raise json_body.bad_body(text, "messageModel")
        return cls(
            json_body.short_text(value, "topic", "", NAME_CHARS_MAX),
            json_body.short_text(value, "consumerGroup", "", NAME_CHARS_MAX),
            json_body.short_text(value, "clientId", "", CLIENT_ID_CHARS_MAX),
            model,
            json_body.short_text(value, "strategyName", "", NAME_CHARS_MAX),
        )


def _with_names(value: dict[str, Any], *fields: str) -> dict[str, Any]:
    """`value`, in which each of `fields` has text. Raises `BadBody`."""
    for field in fields:
        if not json_body.text(value, field):
            raise json_body.bad_body(f"field {field} is missing", field)
    return value


NO_RESULT = b"{}"
"""The answer to 400 that leaves a consumer the queues that it has."""
ASSIGNMENTS_HEAD, ASSIGNMENTS_TAIL = b'{"messageQueueAssignments":[', b"]}"
"""The answer to 400 around its entries. Without entries, a consumer gives up its queues."""


def encode_assignment(queue: MessageQueue, mode: str) -> bytes:
    """One entry of the answer to 400."""
    bean = {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}
    return json_body.write_body({"messageQueue": bean, "mode": mode})


def read_modes(value: dict[str, Any], leave_out: Callable[[str], None]) -> Iterator[RequestMode]:
    """The modes in the file of a broker, or in the answer to 402. The keys of an entry are its names, as in stock,
    whatever the entry says. `leave_out` gets a line about each entry that cannot be read. Raises `BadBody` for a body
    without a table.
    """
    for topic, groups in json_body.mapping(value, MODE_MAP).items():
        if not isinstance(groups, dict):
            leave_out(f"request modes of topic {str(topic)[:64]!r} are left out: wanted an object")
            continue
        for group, entry in groups.items():
            try:
                bean = RequestMode.from_json(json_body.mapping({str(group): entry}, str(group)))
            except BadBody as error:
                name = f"{topic}@{group}"[:128]
                leave_out(f"the request mode of {name!r} is left out: {error}")
                continue
            yield RequestMode(str(topic), str(group), bean.mode, bean.pop_share_queue_num)
