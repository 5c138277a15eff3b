"""Records by which RocketMQ keeps open messages in the log: check points and acknowledgements.

A check point (tag `ck`) names the messages of one pop of one queue. An acknowledgement (`ack`, of several messages
`bAck`) names those of them that are done. The body is JSON with the keys in the order of RocketMQ's writer. A record
waits in the timer topic until its time, and then lies in a queue of the revive topic (`PopReviveService`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from ringmq.native import lib
from ringmq.remoting import names, properties
from ringmq.store.record_numbers import LONG_MAX

CHECK_POINT, ACK, BATCH_ACK = "ck", "ack", "bAck"
TAGS = (CHECK_POINT, ACK, BATCH_ACK)
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
"""The group whose offsets are the last handled record of each revive queue."""
EARLIER_MS = 1000
"""A check point leaves the timer so long before its pop is due, and so before the acknowledgements."""

BODY_BYTES_MAX = 65_536
POINT_MESSAGES_MAX: int = lib.RMQ_POP_ENTRY_MESSAGES
"""The most messages of a check point. RocketMQ writes up to 32. A stop writes a pop of at most so many entries."""
ACKS_MAX = 1024
"""The most messages of an acknowledgement."""
NAME_CHARS_MAX = 255
QUEUE_ID_MAX = (1 << 31) - 1
OFFSET_MAX = LONG_MAX - (1 << 32)
"""The largest offset that is taken: distances and spans are added to it."""
BITS = 32
"""Bits of the acknowledgements in a check point."""

_encode = msgspec.json.Encoder().encode
_LONG_NAMES = {
    "t": "topic", "c": "consumerGroup", "q": "queueId", "so": "startOffset", "pt": "popTime", "bn": "brokerName",
    "ao": "ackOffset", "aol": "ackOffsetList",
}  # fmt: skip
"""Names of older writers of acknowledgements."""


class ReviveRecordError(ValueError):
    """A record that is no check point and no acknowledgement. The message names the field and its limit."""


class Pop(NamedTuple):
    """One pop of one queue, which a check point shares with its acknowledgements. `broker`: "" is the own one."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time_ms: int
    broker: str


class CheckPoint(NamedTuple):
    """The messages of a pop: their distances from its start offset. Bit i of `acked`: the i-th one is done."""

    pop: Pop
    invisible_ms: int
    distances: tuple[int, ...]
    acked: int = 0
    put_again: int = 0
    """Failed tries of the broker to give the message again (`rp`)."""

    @property
    def open_offsets(self) -> list[int]:
        """Queue offsets of the messages that are not done, ascending."""
        start = self.pop.start_offset
        left = (start + at for bit, at in enumerate(self.distances) if bit >= BITS or not self.acked >> bit & 1)
        return sorted(set(left))

    @property
    def due_ms(self) -> int:
        """Time at which the messages become visible again."""
        return self.pop.pop_time_ms + self.invisible_ms


class Acks(NamedTuple):
    """Messages of a pop that are done, by queue offset."""

    pop: Pop
    offsets: tuple[int, ...]


# ---- bodies and keys ----


def check_point_body(point: CheckPoint) -> bytes:
    """The JSON of a check point."""
    pop = point.pop
    body: dict[str, Any] = {
        "bm": point.acked, "bn": pop.broker, "c": pop.group, "d": point.distances, "it": point.invisible_ms,
        "n": len(point.distances), "pt": pop.pop_time_ms, "q": pop.queue_id, "reviveTime": point.due_ms, "ro": 0,
    }  # fmt: skip
    if point.put_again:
        body["rp"] = str(point.put_again)
    return _encode(body | {"so": pop.start_offset, "t": pop.topic})


def ack_body(acks: Acks) -> bytes:
    """The JSON of the acknowledgement of one message."""
    return _ack_body({"ao": acks.offsets[0]}, acks.pop)


def batch_ack_body(acks: Acks) -> bytes:
    """The JSON of an acknowledgement of several messages. Without a broker's name it is that of stock's buffer."""
    return _ack_body({"ao": -1 if acks.pop.broker else 0, "aol": acks.offsets}, acks.pop)


def _ack_body(body: dict[str, Any], pop: Pop) -> bytes:
    if pop.broker:
        body["bn"] = pop.broker
    body |= {"c": pop.group, "pt": pop.pop_time_ms, "q": pop.queue_id, "so": pop.start_offset, "t": pop.topic}
    return _encode(body)


def check_point_key(pop: Pop) -> str:
    """UNIQ_KEY of a check point."""
    return _key(pop, pop.start_offset, pop.broker, CHECK_POINT)


def ack_key(acks: Acks) -> str:
    """UNIQ_KEY of the acknowledgement of one message."""
    return _key(acks.pop, acks.offsets[0], acks.pop.broker, ACK)


def batch_ack_key(acks: Acks) -> str:
    """UNIQ_KEY of an acknowledgement of several messages."""
    if acks.pop.broker:
        return _key(acks.pop, -1, acks.pop.broker, ACK)
    return _key(acks.pop, list(acks.offsets), BATCH_ACK)


def _key(pop: Pop, what: object, *rest: str) -> str:
    return "@".join((pop.topic, str(pop.queue_id), str(what), pop.group, str(pop.pop_time_ms), *rest))


# ---- properties ----


def plain_properties(deliver_ms: int, key: str, tag: str) -> bytes:
    """Properties of a record whose time is over: it goes to the revive topic at once."""
    return _pairs({properties.TIMER_DELIVER_MS: deliver_ms, properties.UNIQ_KEY: key, properties.TAGS: tag})


def timed_properties(deliver_ms: int, key: str, tag: str, topic: str, revive_queue: int, out_ms: int) -> bytes:
    """Properties of a record in the timer topic. `topic`: the revive topic."""
    return _pairs({
        properties.REAL_TOPIC: topic, properties.TIMER_DELIVER_MS: deliver_ms, properties.UNIQ_KEY: key,
        properties.TAGS: tag, properties.TIMER_OUT_MS: out_ms, properties.REAL_QID: revive_queue,
    })  # fmt: skip


def out_ms(deliver_ms: int, precision_ms: int) -> int:
    """Time of the timer's slot: the next full one before the time of delivery."""
    return deliver_ms - (deliver_ms % precision_ms or precision_ms)


def _pairs(pairs: Mapping[str, object]) -> bytes:
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs.items()).encode()


# ---- reading ----


def read_record(tag: str, body: bytes) -> CheckPoint | Acks:
    """Read a record by its tag and body. Unknown members are passed over. Raises ReviveRecordError."""
    if tag not in TAGS:
        raise ReviveRecordError(f"tag {tag[:32]!r} is none of {', '.join(TAGS)}")
    if len(body) > BODY_BYTES_MAX:
        raise ReviveRecordError(f"the body has {len(body)} bytes, the limit is {BODY_BYTES_MAX}")
    try:
        members = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ReviveRecordError(f"the body is no JSON: {error}") from error
    if not isinstance(members, dict):
        raise ReviveRecordError("the body is no JSON object")
    return _check_point(members) if tag == CHECK_POINT else _acks(members, tag)


def _check_point(members: dict[str, Any]) -> CheckPoint:
    pop = Pop(
        _name(members, "t"), _name(members, "c"), _number(members, "q", QUEUE_ID_MAX),
        _number(members, "so", OFFSET_MAX), _number(members, "pt"), _broker(members),
    )  # fmt: skip
    count = _number(members, "n", POINT_MESSAGES_MAX)
    given = members.get("d")
    distances = tuple(range(count)) if not given else _numbers("d", given, QUEUE_ID_MAX, POINT_MESSAGES_MAX)
    acked = members.get("bm", 0)
    if not isinstance(acked, int) or isinstance(acked, bool) or not -(1 << BITS - 1) <= acked < 1 << BITS:
        raise ReviveRecordError(f"bm is no number of {BITS} bits")
    invisible_ms = _number(members, "it", LONG_MAX - pop.pop_time_ms)
    return CheckPoint(pop, invisible_ms, distances, acked & (1 << BITS) - 1, _put_again(members.get("rp")))


def _acks(members: dict[str, Any], tag: str) -> Acks:
    short = {name: members[long] for name, long in _LONG_NAMES.items() if name not in members and long in members}
    members = members | short
    pop = Pop(
        _name(members, "t"), _name(members, "c"), _number(members, "q", QUEUE_ID_MAX),
        _number(members, "so", OFFSET_MAX), _number(members, "pt"), _broker(members),
    )  # fmt: skip
    if tag == ACK:
        return Acks(pop, (_number(members, "ao", OFFSET_MAX),))
    return Acks(pop, _numbers("aol", members.get("aol"), OFFSET_MAX, ACKS_MAX))


def _name(members: Mapping[str, Any], field: str) -> str:
    value = members.get(field)
    if not isinstance(value, str) or not 0 < len(value) <= NAME_CHARS_MAX:
        raise ReviveRecordError(f"{field} is no name of 1 to {NAME_CHARS_MAX} characters")
    return sys.intern(value)  # a start keeps millions of records of a few names


def _broker(members: Mapping[str, Any]) -> str:
    return _name(members, "bn") if members.get("bn") else ""


def _number(members: Mapping[str, Any], field: str, limit: int = LONG_MAX) -> int:
    return _checked(field, members.get(field), limit)


def _numbers(field: str, values: object, limit: int, count_max: int) -> tuple[int, ...]:
    if not isinstance(values, list) or len(values) > count_max:
        raise ReviveRecordError(f"{field} is no list of at most {count_max} numbers")
    return tuple(_checked(field, value, limit) for value in values)


def _checked(field: str, value: object, limit: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= limit:
        raise ReviveRecordError(f"{field} is no number of 0 to {limit}")
    return value


def _put_again(value: object) -> int:
    if value is None or value == "":
        return 0
    if not isinstance(value, str) or not value.isascii() or not value.isdecimal() or len(value) > 9:
        raise ReviveRecordError("rp is no number of at most 9 digits")
    return int(value)


def is_revive_topic(topic: str) -> bool:
    """True for the revive topic of any cluster."""
    return topic.startswith(names.revive_topic(""))
