"""The rules by which read workers redirect or refuse sends. Control publishes them as data in the plane.

native/src/plane/admission_layout.h describes each field.
"""

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any

from msgspec import Struct

from ringmq.native import ffi, lib
from ringmq.remoting import properties

TopicId = Callable[[str], int | None]
"""Looks up the id of a system topic in the plane. None if it is not there."""


class RuleKind(IntEnum):
    """The action of a rule on a send that matches it."""

    REDIRECT = lib.RMQ_RULE_REDIRECT
    REFUSE = lib.RMQ_RULE_REFUSE
    TIMER = lib.RMQ_RULE_TIMER
    """Redirect a message to the time that it asks for, or refuse that time (`admission_time`)."""


class When(IntEnum):
    """The values of the triggering pair that a rule matches."""

    PRESENT = lib.RMQ_WHEN_PRESENT
    POSITIVE = lib.RMQ_WHEN_POSITIVE
    TRUE = lib.RMQ_WHEN_TRUE


class QueueFrom(IntEnum):
    """The queue of the system topic."""

    FIXED = lib.RMQ_QUEUE_FIXED
    LEVEL = lib.RMQ_QUEUE_LEVEL
    ORIGINAL = lib.RMQ_QUEUE_ORIGINAL


class ValueFrom(IntEnum):
    """The value of an added pair; CUT adds none."""

    CUT = lib.RMQ_ADD_NOTHING
    TEXT = lib.RMQ_ADD_TEXT
    TOPIC = lib.RMQ_ADD_TOPIC
    QUEUE = lib.RMQ_ADD_QUEUE
    LEVEL = lib.RMQ_ADD_LEVEL
    UNIQ_KEY = lib.RMQ_ADD_UNIQ_KEY
    OUT_MS = lib.RMQ_ADD_OUT_MS


ANY_TRANSACTION: int = lib.RMQ_TRANSACTION_ANY
RULE_KEY_MAX: int = lib.RMQ_RULE_KEY_MAX
"""Bytes of the longest UNIQ_KEY that a rule can add."""


class RulePair(Struct, frozen=True):
    """A pair that a redirected message gets in place of the client's."""

    name: bytes
    value_from: ValueFrom
    text: bytes = b""


REAL_QUEUE = (
    RulePair(properties.REAL_TOPIC.encode(), ValueFrom.TOPIC),
    RulePair(properties.REAL_QID.encode(), ValueFrom.QUEUE),
)
"""The pairs by which a message that waits elsewhere keeps the queue that its sender named."""


class Rule(Struct, frozen=True):
    """One rule. The first rule of a set that matches decides."""

    kind: RuleKind
    name: bytes = b""
    when: When = When.PRESENT
    transaction: int = 0
    topic_id: int = 0
    queue_from: QueueFrom = QueueFrom.FIXED
    queue_id: int = 0
    sys_flag_clear: int = 0
    pairs: tuple[RulePair, ...] = ()
    code: int = 0
    remark: str = ""
    with_name: bytes = b""
    with_when: When = When.PRESENT
    is_retried: bool = False
    """True: the rule matches only sends with reconsumeTimes > 0."""
    precision_ms: int = 0
    """Of TIMER. 0: there is no wheel, so the rule refuses."""
    delay_max_ms: int = 0
    slot_messages_max: int = 0
    recall_topic_id: int = 0
    """Of TIMER: the topic in recall handles. 0: the client's."""
    room_bytes: int = 0
    """Bytes of properties that later copies of the message get at most, beside `pairs`."""
    halves_max: int = 0
    """Of half messages: open ones of all producers, of a host, of a producer group. 0: the rule counts none."""
    host_halves_max: int = 0
    group_halves_max: int = 0
    half_topic_id: int = 0


_NUMBERS = (
    "kind", "when", "transaction", "topic_id", "queue_from", "queue_id", "sys_flag_clear", "code", "with_when",
    "precision_ms", "delay_max_ms", "slot_messages_max", "recall_topic_id", "room_bytes",
    "halves_max", "host_halves_max", "group_halves_max", "half_topic_id",
)  # fmt: skip


def rules_struct(rules: Iterable[Rule]) -> Any:
    """The rules as a struct rmq_admission_rules. Raises ValueError if a rule does not fit into it."""
    found = tuple(rules)
    struct = ffi.new("struct rmq_admission_rules *")
    if len(found) > lib.RMQ_RULES_MAX:
        raise ValueError(f"{len(found)} admission rules, the limit is {lib.RMQ_RULES_MAX}")
    struct.count = len(found)
    for rule, to in zip(found, struct.rules, strict=False):
        for field in _NUMBERS:
            setattr(to, field, getattr(rule, field))
        to.retried, to.with_length = rule.is_retried, _put(to.with_name, rule.with_name)
        if len(rule.pairs) > lib.RMQ_RULE_PAIRS_MAX:
            raise ValueError(f"an admission rule with {len(rule.pairs)} pairs, the limit is {lib.RMQ_RULE_PAIRS_MAX}")
        to.name_length, to.pair_count = _put(to.name, rule.name), len(rule.pairs)
        _put(to.remark, rule.remark.encode() + b"\0")
        for pair, target in zip(rule.pairs, to.pairs, strict=False):
            target.value_from = pair.value_from
            target.name_length, target.value_length = _put(target.name, pair.name), _put(target.value, pair.text)
    return struct


def publish_rules(plane: Any, rules: Iterable[Rule]) -> None:
    """Replace the whole set in `plane` (struct rmq_plane). Raises ValueError if no read worker could apply a rule.

    Control approves a cold send that matches a rule. The read worker looks the rule up when it runs the send again. If
    the rule is gone by then, the send is stored as an ordinary message. To withdraw a rule, first replace it by a
    REFUSE of the same pair, and keep that until all such sends have run.
    """
    found = tuple(rules)
    if lib.rmq_rules_publish(plane, rules_struct(found)) < 0:
        raise ValueError(f"an admission rule is malformed, the published ones stay: {found}")


def published_rules(plane: Any) -> tuple[Rule, ...]:
    """The set of rules that read workers apply."""
    struct, version = ffi.new("struct rmq_admission_rules *"), ffi.new("uint64_t *")
    lib.rmq_rules_take(plane, struct, version)
    return tuple(_rule(struct.rules[number]) for number in range(struct.count))


def _rule(struct: Any) -> Rule:
    pairs = [
        RulePair(
            _get(pair.name, pair.name_length), ValueFrom(pair.value_from), _get(pair.value, pair.value_length)
        )
        for pair in struct.pairs[0 : struct.pair_count]
    ]  # fmt: skip
    return Rule(
        RuleKind(struct.kind), _get(struct.name, struct.name_length), When(struct.when), struct.transaction,
        struct.topic_id, QueueFrom(struct.queue_from), struct.queue_id, struct.sys_flag_clear, tuple(pairs),
        struct.code, ffi.string(struct.remark).decode(), _get(struct.with_name, struct.with_length),
        When(struct.with_when), bool(struct.retried), struct.precision_ms, struct.delay_max_ms,
        struct.slot_messages_max, struct.recall_topic_id, struct.room_bytes, struct.halves_max,
        struct.host_halves_max, struct.group_halves_max, struct.half_topic_id,
    )  # fmt: skip


def _put(to: Any, text: bytes) -> int:
    if len(text) > len(to):
        raise ValueError(f"{text!r} in an admission rule takes {len(text)} bytes, the limit is {len(to)}")
    ffi.memmove(to, text, len(text))
    return len(text)


def _get(text: Any, length: int) -> bytes:
    return bytes(ffi.buffer(text, length))
