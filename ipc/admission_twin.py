"""native/src/admission/admission.c in Python: the decision about a decoded send. Tests compare both.

Control calls this twin for cold sends.
"""

import re
from enum import IntEnum

from msgspec import Struct

from ringmq.ipc.admission import ANY_TRANSACTION, QueueFrom, Rule, RuleKind, ValueFrom, When
from ringmq.ipc.admission_time import TimeAsked, time_asked
from ringmq.native import lib

TRANSACTION_MASK = 0xC
INNER_BATCH_FLAGS = 0xC0
BATCH_TOPIC_MAX = 127
PROPERTIES_MAX = 32767
KEY_PAIR_BYTES = 10
RESERVED_PAIRS_MAX: int = lib.RMQ_RESERVED_PAIRS_MAX
"""Reserved pairs of a message that rules see."""
_INT32 = 1 << 31
_NUMBER = re.compile(rb"([-+]?)0*([0-9]{1,19})")
"""The numbers that rmq_text_int32 reads: int() refuses thousands of zeros in front."""


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


class Send(Struct, frozen=True):
    """A decoded send. Its properties have no JSON escapes."""

    topic: bytes
    queue_id: int
    sys_flag: int
    batch: bool
    body_length: int
    properties: bytes
    reconsume_times: int = 0


class Limits(Struct, frozen=True):
    """struct rmq_admission_limits."""

    message_bytes_max: int
    additions_length: int
    made_key_length: int


class TopicState(Struct, frozen=True):
    """The entry of the send's topic in the published tables."""

    live: bool
    send_cold: bool
    read_queues: int
    write_queues: int
    topic_id: int = 0


class Admitted(Struct, frozen=True):
    """struct rmq_admitted, and the queue of the topic that the client named."""

    verdict: Verdict
    reason: Reason = Reason.NOTHING
    rule: int = 0
    queue_id: int = 0
    level: int = 0
    time_fault: int = 0
    out_ms: int = 0


def admit(
    send: Send,
    limits: Limits,
    topic: TopicState,
    rules: tuple[Rule, ...],
    *,
    approved: bool = False,
    turn: int = 0,
    now_ms: int = 0,
) -> Admitted:
    """The decision about one send. `now_ms` is the wall clock. Full slots are not refused here."""
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
    asked = _Asked(send, topic.topic_id, queue_id, key_length, now_ms)
    admitted, of_rule = _choose(asked, rules, approved, reserved)
    length = len(send.properties) + 1 + added + of_rule + limits.additions_length
    if admitted.verdict in (Verdict.PLAIN, Verdict.REDIRECT) and length > PROPERTIES_MAX:
        return Admitted(Verdict.ASK, Reason.PROPERTIES)
    return admitted


def is_reserved(name: bytes) -> bool:
    """True if a pair of this name asks for more than storing, or if control refuses it.

    A pair that the broker drops (CLUSTER and its kin, POP_CK) is none.
    """
    return (
        name in (b"TRAN_MSG", b"DELAY") or (name.startswith(b"TIMER_") and len(name) > 6)
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


class _Asked(Struct, frozen=True):
    """A send with what is known of it."""

    send: Send
    topic_id: int
    queue_id: int
    key_length: int
    now_ms: int


def _choose(
    asked: _Asked, rules: tuple[Rule, ...], approved: bool, reserved: list[tuple[bytes, bytes]]
) -> tuple[Admitted, int]:
    """The decision of the first rule that matches, and the bytes of the pairs that it adds and leaves room for."""
    send, seen = asked.send, reserved[:RESERVED_PAIRS_MAX]
    values, has_bits = dict(seen), bool(send.sys_flag & TRANSACTION_MASK)
    strange = len(reserved) > len(seen) or any(not _is_named(name, rules, send) for name, _ in seen)
    if not approved and strange:
        return Admitted(Verdict.ASK, Reason.PAIR), 0
    for number, rule in enumerate(rules if reserved or has_bits else ()):
        found = _matches(rule, asked, values) if _sees(rule, send) else False
        if found is None and not approved:
            return Admitted(Verdict.ASK, Reason.VALUE), 0
        if not found:
            continue
        out_ms = 0
        if rule.kind == RuleKind.TIMER:
            time, out_ms = time_asked(values, rule, asked.now_ms)
            if time.is_fault:
                return Admitted(Verdict.REFUSE, rule=number, time_fault=time), 0
            if time != TimeAsked.LATER:
                continue
        if rule.kind == RuleKind.REFUSE:
            return Admitted(Verdict.REFUSE, rule=number), 0
        level = (_number(values[rule.name]) or 0) if rule.name and rule.when == When.POSITIVE else 0
        return _redirect(rule, number, asked, min(level, rule.queue_id), out_ms)
    if has_bits:
        return Admitted(Verdict.ASK, Reason.SYS_FLAG), 0
    return Admitted(Verdict.PLAIN), 0


def _sees(rule: Rule, send: Send) -> bool:
    return not send.batch or (rule.kind == RuleKind.TIMER and not rule.name)


def _is_named(name: bytes, rules: tuple[Rule, ...], send: Send) -> bool:
    return any(
        name == rule.name or (rule.kind == RuleKind.TIMER and name.startswith(b"TIMER_"))
        for rule in rules
        if _sees(rule, send)
    )


def _matches(rule: Rule, asked: _Asked, values: dict[bytes, bytes]) -> bool | None:
    """True if the rule matches. None if a value is no number where the rule needs one."""
    send = asked.send
    if rule.kind == RuleKind.TIMER and rule.topic_id == asked.topic_id:
        return False
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
    match = _NUMBER.fullmatch(value)
    number = _INT32 if match is None else int(match[1] + match[2])
    return number if -_INT32 <= number < _INT32 else None


def _redirect(rule: Rule, number: int, asked: _Asked, level: int, out_ms: int) -> tuple[Admitted, int]:
    pairs = added_pairs(rule, asked.send.topic, asked.queue_id, level, b"k" * asked.key_length, out_ms)
    if any(pair.value_from == ValueFrom.UNIQ_KEY for pair in rule.pairs) and asked.key_length > lib.RMQ_RULE_KEY_MAX:
        return Admitted(Verdict.ASK, Reason.VALUE), 0
    queues = {QueueFrom.FIXED: rule.queue_id, QueueFrom.LEVEL: level - 1, QueueFrom.ORIGINAL: asked.queue_id}
    queue_id = queues[rule.queue_from]
    admitted = Admitted(Verdict.REDIRECT, rule=number, queue_id=queue_id, level=level, out_ms=out_ms)
    return admitted, len(pairs) + rule.room_bytes


def added_pairs(rule: Rule, topic: bytes, queue_id: int, level: int, key: bytes, out_ms: int = 0) -> bytes:
    """The pairs that a redirected message gets, as stored."""
    values = {
        ValueFrom.TOPIC: topic, ValueFrom.QUEUE: b"%d" % queue_id, ValueFrom.LEVEL: b"%d" % level,
        ValueFrom.UNIQ_KEY: key, ValueFrom.OUT_MS: b"%d" % out_ms,
    }  # fmt: skip
    return b"".join(
        b"%b\x01%b\x02" % (pair.name, values.get(pair.value_from, pair.text))
        for pair in rule.pairs
        if pair.value_from != ValueFrom.CUT
    )
