"""native/src/admission/admission_time.c in Python: the time that a timer message asks for, and its refusals.

Tests compare both. Rules of stock (`HookUtils.transformTimerMessage`, `TimerMessageStore.isReject`). Unlike stock, a
slot refuses the more often, the fuller it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum

from ringmq.ipc.admission import Rule
from ringmq.native import lib

CHANCES: int = lib.RMQ_CHANCES
_PAIRS = ((b"TIMER_DELAY_SEC", 1000), (b"TIMER_DELAY_MS", 1), (b"TIMER_DELIVER_MS", 0))
"""Names in the order in which they count, and the unit of a delay in ms. 0: not a delay but a time."""
_NUMBER = re.compile(rb"[+-]?[0-9]+")
_INT64 = 1 << 63
_VALUE_SHOWN = 32


class TimeAsked(IntEnum):
    """The outcome. DISABLED and greater ones are faults."""

    NONE = lib.RMQ_TIME_NONE
    LATER = lib.RMQ_TIME_LATER
    PASSED = lib.RMQ_TIME_PASSED
    DISABLED = lib.RMQ_TIME_DISABLED
    NO_NUMBER = lib.RMQ_TIME_NO_NUMBER
    TOO_FAR = lib.RMQ_TIME_TOO_FAR
    DELETES_PASSED = lib.RMQ_TIME_DELETES_PASSED
    SLOT_FULL = lib.RMQ_TIME_SLOT_FULL

    @property
    def is_fault(self) -> bool:
        """True if the message is refused."""
        return self >= TimeAsked.DISABLED


_BECAUSE = {TimeAsked.NO_NUMBER: "is no whole number of 64 bits", TimeAsked.TOO_FAR: "is too far"}


def time_asked(pairs: Mapping[bytes, bytes], rule: Rule, now_ms: int) -> tuple[TimeAsked, int]:
    """Return the outcome and TIMER_OUT_MS, 0 unless the message waits. `pairs`: the reserved ones of the message."""
    found = next(((name, unit) for name, unit in _PAIRS if name in pairs), None)
    if found is None or b"TIMER_OUT_MS" in pairs:
        return TimeAsked.NONE, 0
    if not rule.precision_ms:
        return TimeAsked.DISABLED, 0
    name, unit_ms = found
    value = _number(pairs[name])
    if value is None:
        return TimeAsked.NO_NUMBER, 0
    at_ms = now_ms + value * unit_ms if unit_ms else value
    if at_ms <= now_ms:
        return TimeAsked.DELETES_PASSED if b"TIMER_DEL_UNIQKEY" in pairs else TimeAsked.PASSED, 0
    if at_ms - now_ms > rule.delay_max_ms:
        return TimeAsked.TOO_FAR, 0
    return TimeAsked.LATER, at_ms - (at_ms % rule.precision_ms or rule.precision_ms)


def _number(value: bytes) -> int | None:
    if not _NUMBER.fullmatch(value):
        return None
    digits = value.lstrip(b"+-").lstrip(b"0") or b"0"
    number = int(digits[:20]) * (-1 if value[:1] == b"-" else 1)
    return number if len(digits) < 20 and -_INT64 <= number < _INT64 else None


def slot_refuses(rule: Rule, messages: int, chance: int) -> bool:
    """True if a slot with so many messages refuses another one. `chance` is random, below CHANCES."""
    limit = rule.slot_messages_max
    return messages > limit and (messages >= 2 * limit or chance * limit < CHANCES * (messages - limit))


def time_remark(fault: TimeAsked, pairs: Mapping[bytes, bytes], rule: Rule, messages: int = 0) -> str:
    """Return the remark of a refusal, with stock's words first. `messages`: those of a full slot."""
    name = next(name for name, _ in _PAIRS if name in pairs)
    shown = "".join(chr(byte) if 0x20 <= byte <= 0x7E else "?" for byte in pairs[name][:_VALUE_SHOWN])
    asked, limit = f"{name.decode()} = {shown}", rule.slot_messages_max
    if fault is TimeAsked.DISABLED:
        return f"accurate timer message is not enabled, timerWheelEnable is false: {asked}"
    if fault is TimeAsked.SLOT_FULL:
        return (
            f"timer message is under flow control, max num limit is {2 * limit} or the current value is greater than "
            f"{limit} and less than {2 * limit}, trigger random flow control: {asked} asks for a slot of {messages} "
            "messages"
        )
    return (
        f"timer message illegal, the delay time should not be bigger than the max delay {rule.delay_max_ms}ms; or if "
        f"set del msg, the delay time should be bigger than the current time: {asked} "
        f"{_BECAUSE.get(fault, 'has passed')}"
    )
