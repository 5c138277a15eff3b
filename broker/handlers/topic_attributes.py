"""Attributes of topics: the text of UPDATE_AND_CREATE_TOPIC (`+key=value,-key`) and its rules (`TopicAttributes`,
`AttributeUtil`).
"""

from __future__ import annotations

from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.errors import RequestError

QUEUE_TYPES = ("BatchCQ", "SimpleCQ")
CLEANUP_POLICIES = ("DELETE", "COMPACTION")
MESSAGE_TYPES = ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED")
_CHOICES = {"queue.type": QUEUE_TYPES, "cleanup.policy": CLEANUP_POLICIES, "message.type": MESSAGE_TYPES}
_RESERVE_TIME = "reserve.time"
_UNCHANGEABLE = frozenset({"queue.type", "cleanup.policy"})
ENTRIES_MAX = 64


class BadAttribute(RequestError):
    """An invalid attribute. The answer has SYSTEM_ERROR, as in stock."""

    def __init__(self, message: str) -> None:
        super().__init__(message, field="attributes", code=ResponseCode.SYSTEM_ERROR)


def parse_attributes(text: str | None) -> dict[str, str]:
    """Signed key -> value, "" for a removal. Raises BadAttribute."""
    changes: dict[str, str] = {}
    parts = [part for part in (text or "").split(",") if part]
    if len(parts) > ENTRIES_MAX:
        raise BadAttribute(f"attributes: {len(parts)} entries are over the limit of {ENTRIES_MAX}")
    for part in parts:
        key, equals, value = part.partition("=")
        if key in changes:
            raise BadAttribute(f"attributes: key {key[:64]!r} stands twice")
        if equals and not key.startswith("+"):
            raise BadAttribute(f"attributes: {part[:64]!r}: a key with a value begins with +")
        if not equals and not key.startswith("-"):
            raise BadAttribute(f"attributes: {part[:64]!r}: a key without a value begins with -")
        changes[key] = value
    return changes


def alter_attributes(current: dict[str, str] | None, changes: dict[str, str]) -> dict[str, str]:
    """The attributes after `changes`. `current` None = the topic is new. Raises BadAttribute."""
    result = dict(current or {})
    seen: set[str] = set()
    for signed, value in changes.items():
        sign, key = signed[:1], signed[1:]
        if not key or "+" in key or "-" in key or sign not in "+-":
            raise BadAttribute(f"attributes: {signed[:64]!r} is not +key or -key")
        if key in seen:
            raise BadAttribute(f"alter duplication key. key: {key}")
        seen.add(key)
        if key not in _CHOICES and key != _RESERVE_TIME:
            raise BadAttribute(f"unsupported key: {key[:64]}")
        if current is None and sign == "-":
            raise BadAttribute(f"only add attribute is supported while creating topic. key: {key}")
        if current is not None and key in _UNCHANGEABLE:
            raise BadAttribute(f"attempt to update an unchangeable attribute. key: {key}")
        if sign == "-":
            if key not in result:
                raise BadAttribute(f"attempt to delete a nonexistent key: {key}")
            del result[key]
        else:
            _check_value(key, value)
            result[key] = value
    return result


def _check_value(key: str, value: str) -> None:
    if key in _CHOICES:
        if value not in _CHOICES[key]:
            raise BadAttribute(f"attribute {key} = {value[:64]!r}: value is not in set: {list(_CHOICES[key])}")
        return
    if not value.removeprefix("-").isdecimal() or not -1 <= int(value) < 1 << 63:
        raise BadAttribute(f"attribute {key} = {value[:64]!r}: value is not a number -1..{(1 << 63) - 1}")
