"""Messages that POP has handed out without an ack, found from a stock broker's check points and acks.

A check point (tag `ck`) names the messages of one pop, acks (`ack`, `bAck`) those of them that are done. Both wait in
the timer until the pop is due and then in a revive queue. Those that stock has handled are in front of the revive
group's offset. Acks behind the last check point stay there for ever and mean nothing by themselves.
"""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct, field

from ringmq.store.record import Record
from ringmq.store.record_numbers import LONG_MAX

_Pop = tuple[Any, ...]
"""Topic, group, queue, first offset and time of a pop, which its check point and its acks share."""
_OF_A_POP = (("t", "topic"), ("c", "consumerGroup"), ("q", "queueId"), ("so", "startOffset"), ("pt", "popTime"))
_OFFSET = ("ao", "ackOffset")
_MESSAGES_MAX = 1024
"""The most messages of one pop. Stock hands out 32."""


def _pop(topic: Any, group: Any, queue_id: Any, offset: Any, time_ms: Any) -> _Pop:
    if not isinstance(topic, str) or not isinstance(group, str):
        raise ValueError("topic and group of a pop are text")
    return topic, group, _number(queue_id), _number(offset), _number(time_ms)


def _number(value: Any) -> int:
    if not isinstance(value, int) or not -1 <= value <= LONG_MAX:
        raise ValueError("a pop has numbers of 63 bits")
    return value


def _offsets(values: Any) -> list[int]:
    if not isinstance(values, list) or len(values) > _MESSAGES_MAX:
        raise ValueError(f"a pop has a list of at most {_MESSAGES_MAX} messages")
    return [_number(value) for value in values]


def _first(count: Any) -> range:
    if not 0 <= _number(count) <= _MESSAGES_MAX:
        raise ValueError(f"a pop has 0 to {_MESSAGES_MAX} messages")
    return range(count)


def _one_of(body: dict[str, Any], short: str, long: str) -> Any:
    """Return a member of an ack, under its current name or that of older brokers."""
    return body[short] if short in body else body[long]


class PopLedger(Struct):
    """Check points and acks in any order. A repeated check point counts once."""

    unknown: int = 0
    """The number of records that are neither, or that cannot be read. Each may be a message."""
    is_partial: bool = False
    """True if records of the timer were left out."""
    _out: dict[_Pop, set[int]] = field(default_factory=dict)
    _due_ms: dict[_Pop, int] = field(default_factory=dict)
    _done: dict[_Pop, set[int]] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        """Add one record of a revive queue, or of the timer that will become one."""
        try:
            self._enter(record.properties.get("TAGS", ""), json.loads(record.body))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self.unknown += 1

    def _enter(self, tag: str, body: dict[str, Any]) -> None:
        if tag == "ck":
            pop = _pop(body["t"], body["c"], body["q"], body["so"], body["pt"])
            distances = _offsets(body["d"]) if body.get("d") else _first(body["n"])
            due_ms = _number(body["pt"] + _number(body["it"]))
            self._out.setdefault(pop, set()).update(body["so"] + distance for distance in distances)
            self._due_ms[pop] = due_ms
        elif tag in ("ack", "bAck"):
            pop = _pop(*(_one_of(body, short, long) for short, long in _OF_A_POP))
            several = body.get("aol", body.get("ackOffsetList"))
            acked = [_number(_one_of(body, *_OFFSET))] if several is None else _offsets(several)
            self._done.setdefault(pop, set()).update(acked)
        else:
            self.unknown += 1

    def _open(self) -> dict[_Pop, set[int]]:
        left = {pop: offsets - self._done.get(pop, set()) for pop, offsets in self._out.items()}
        return {pop: offsets for pop, offsets in left.items() if offsets}

    @property
    def messages(self) -> int:
        """The number of messages that are handed out."""
        return sum(map(len, self._open().values()))

    @property
    def due_ms(self) -> int | None:
        """Time at which the first of them becomes visible again."""
        return min((self._due_ms[pop] for pop in self._open()), default=None)
