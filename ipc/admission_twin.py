"""native/src/admission.c in Python: the decision about a decoded send. Tests compare both.

Control calls this twin for cold sends.
"""

import re
from dataclasses import dataclass
from enum import IntEnum

from ringmq.ipc.admission import ANY_TRANSACTION, QueueFrom, Rule, RuleKind, ValueFrom, When
from ringmq.native import lib

TRANSACTION_MASK = 0xC
INNER_BATCH_FLAGS = 0xC0
BATCH_TOPIC_MAX = 127
PROPERTIES_MAX = 32767
KEY_PAIR_BYTES = 10
_INT32 = 1 << 31
_NUMBER = re.compile(rb"-?[0-9]{1,19}")
"""The numbers that rmq_text_int32 reads. Sends with more leading zeros are cold."""


class Verdict(IntEnum):
    """The decision about a send."""

    PLAIN = lib.RMQ_ADMIT_PLAIN
    REDIRECT = lib.RMQ_ADMIT_REDIRECT
    REFUSE = lib.RMQ_ADMIT_REFUSE
    ASK = lib.RMQ_ADMIT_ASK


class Reason(IntEnum):
    """The reason why a send goes to control. Code outside of this core finds FIELDS, ESCAPES and SYSTEM_TOPIC."""

    NOTHING = lib.RMQ_REASON_NOTHING
    FIELDS = lib.RMQ_REASON_FIELDS
    SYS_FLAG = lib.RMQ_REASON_SYS_FLAG
    BODY = lib.RMQ_REASON_BODY
    TOPIC = lib.RMQ_REASON_TOPIC
    TOPIC_COLD = lib.RMQ_REASON_TOPIC_COLD
    WRITE_QUEUES = lib.RMQ_REASON_WRITE_QUEUES
    BATCH_TOPIC = lib.RMQ_REASON_BATCH_TOPIC
    QUEUE = lib.RMQ_REASON_QUEUE
    ESCAPES = lib.RMQ_REASON_ESCAPES
    NUL = lib.RMQ_REASON_NUL
    PAIR = lib.RMQ_REASON_PAIR
    VALUE = lib.RMQ_REASON_VALUE
    PROPERTIES = lib.RMQ_REASON_PROPERTIES
    SYSTEM_TOPIC = lib.RMQ_REASON_SYSTEM_TOPIC


@dataclass(frozen=True, slots=True)
class Send:
    """A decoded send. Its properties have no JSON escapes."""

    topic: bytes
    queue_id: int
    sys_flag: int
    batch: bool
    body_length: int
    properties: bytes
    reconsume_times: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """struct rmq_admission_limits."""

    message_bytes_max: int
    additions_length: int
    made_key_length: int


@dataclass(frozen=True, slots=True)
class TopicState:
    """The entry of the send's topic in the published tables."""

    live: bool
    send_cold: bool
    read_queues: int
    write_queues: int


@dataclass(frozen=True, slots=True)
class Admitted:
    """struct rmq_admitted, and the queue of the topic that the client named."""

    verdict: Verdict
    reason: Reason = Reason.NOTHING
    rule: int = 0
    queue_id: int = 0
    level: int = 0


def admit(
    send: Send, limits: Limits, topic: TopicState, rules: tuple[Rule, ...], *, approved: bool = False, turn: int = 0
) -> Admitted:
    """The decision about one send."""
    reason = _head(send, limits, rules) or _target(send, topic, approved)
    if reason:
        return Admitted(Verdict.ASK, reason)
    queue_id = send.queue_id if send.queue_id >= 0 else turn % topic.write_queues
    if queue_id >= max(topic.read_queues, topic.write_queues):
        return Admitted(Verdict.ASK, Reason.QUEUE)
    pairs = _scan(send.properties)
    if pairs is None:
        return Admitted(Verdict.ASK, Reason.NUL)
    key = next((value for name, value in reversed(pairs) if name == b"UNIQ_KEY"), None)
    key_length = limits.made_key_length - KEY_PAIR_BYTES if key is None else len(key)
    added = 0 if send.batch or key is not None else limits.made_key_length
    reserved = [(name, value) for name, value in pairs if is_reserved(name)]
    admitted, of_rule = _choose(send, rules, approved, reserved, queue_id, key_length)
    length = len(send.properties) + 1 + added + of_rule + limits.additions_length
    if admitted.verdict in (Verdict.PLAIN, Verdict.REDIRECT) and length > PROPERTIES_MAX:
        return Admitted(Verdict.ASK, Reason.PROPERTIES)
    return admitted


def is_reserved(name: bytes) -> bool:
    """True if a pair of this name asks for more than storing, or if no client may send it."""
    return (
        name in (b"TRAN_MSG", b"DELAY", b"POP_CK") or (name.startswith(b"TIMER_") and len(name) > 6)
        or name.startswith(b"INNER")
    )  # fmt: skip


def _head(send: Send, limits: Limits, rules: tuple[Rule, ...]) -> Reason:
    if send.sys_flag & (INNER_BATCH_FLAGS | (0 if rules else TRANSACTION_MASK)):
        return Reason.SYS_FLAG
    return Reason.NOTHING if 0 < send.body_length <= limits.message_bytes_max else Reason.BODY


def _target(send: Send, topic: TopicState, approved: bool) -> Reason:
    if not topic.live:
        return Reason.TOPIC
    if topic.send_cold and not approved:
        return Reason.TOPIC_COLD
    if not topic.write_queues:
        return Reason.WRITE_QUEUES
    return Reason.BATCH_TOPIC if send.batch and len(send.topic) > BATCH_TOPIC_MAX else Reason.NOTHING


def _scan(properties: bytes) -> list[tuple[bytes, bytes]] | None:
    """The (name, value) pairs. None if there is a NUL."""
    if b"\0" in properties:
        return None
    pairs = [piece.partition(b"\x01") for piece in properties.split(b"\x02")]
    return [(name, value) for name, _, value in pairs if name and value]


def _choose(
    send: Send, rules: tuple[Rule, ...], approved: bool, reserved: list[tuple[bytes, bytes]], queue_id: int,
    key_length: int,
) -> tuple[Admitted, int]:  # fmt: skip
    """The decision of the first rule that matches, and the bytes of the pairs that it adds."""
    seen, names = reserved[: lib.RMQ_RESERVED_PAIRS_MAX], {rule.name for rule in rules}
    values = dict(seen)
    strange = len(reserved) > len(seen) or any(name not in names for name, _ in seen)
    if not approved and reserved and (send.batch or strange):
        return Admitted(Verdict.ASK, Reason.PAIR), 0
    for number, rule in enumerate(() if send.batch or not (reserved or send.sys_flag & TRANSACTION_MASK) else rules):
        found = _matches(rule, send, values)
        if found is None and not approved:
            return Admitted(Verdict.ASK, Reason.VALUE), 0
        if not found:
            continue
        if rule.kind == RuleKind.REFUSE:
            return Admitted(Verdict.REFUSE, rule=number), 0
        level = (_number(values[rule.name]) or 0) if rule.name and rule.when == When.POSITIVE else 0
        return _redirect(rule, number, send, queue_id, min(level, rule.queue_id), key_length)
    if send.sys_flag & TRANSACTION_MASK:
        return Admitted(Verdict.ASK, Reason.SYS_FLAG), 0
    return Admitted(Verdict.PLAIN), 0


def _matches(rule: Rule, send: Send, values: dict[bytes, bytes]) -> bool | None:
    """True if the rule matches. None if a value is no number where the rule needs one."""
    if rule.transaction not in (ANY_TRANSACTION, send.sys_flag & TRANSACTION_MASK):
        return False
    if rule.is_retried and send.reconsume_times <= 0:
        return False
    if not rule.name:
        return True
    first = _holds(rule.when, values.get(rule.name))
    return _holds(rule.with_when, values.get(rule.with_name)) if first and rule.with_name else first


def _holds(when: When, value: bytes | None) -> bool | None:
    if value is None:
        return False
    if when == When.POSITIVE:
        number = _number(value)
        return None if number is None else number > 0
    return when == When.PRESENT or value.lower() == b"true"


def _number(value: bytes) -> int | None:
    is_number = _NUMBER.fullmatch(value) and -_INT32 <= int(value) < _INT32
    return int(value) if is_number else None


def _redirect(rule: Rule, number: int, send: Send, queue_id: int, level: int, key_length: int) -> tuple[Admitted, int]:
    pairs = added_pairs(rule, send.topic, queue_id, level, b"k" * key_length)
    if any(pair.value_from == ValueFrom.UNIQ_KEY for pair in rule.pairs) and key_length > lib.RMQ_RULE_KEY_MAX:
        return Admitted(Verdict.ASK, Reason.VALUE), 0
    queues = {QueueFrom.FIXED: rule.queue_id, QueueFrom.LEVEL: level - 1, QueueFrom.ORIGINAL: queue_id}
    return Admitted(Verdict.REDIRECT, rule=number, queue_id=queues[rule.queue_from], level=level), len(pairs)


def added_pairs(rule: Rule, topic: bytes, queue_id: int, level: int, key: bytes) -> bytes:
    """The pairs that a redirected message gets, as stored."""
    values = {
        ValueFrom.TOPIC: topic, ValueFrom.QUEUE: b"%d" % queue_id, ValueFrom.LEVEL: b"%d" % level,
        ValueFrom.UNIQ_KEY: key,
    }  # fmt: skip
    return b"".join(
        b"%b\x01%b\x02" % (pair.name, values.get(pair.value_from, pair.text))
        for pair in rule.pairs
        if pair.value_from != ValueFrom.CUT
    )
