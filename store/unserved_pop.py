"""What POP has handed out and nobody has acknowledged, told from a stock broker's check points and acks.

A check point (tag `ck`) names the messages of one pop, acks (`ack`, `bAck`) those of them that are done. Both wait in
the timer until the pop is due and then in a revive queue; what stock has handled stands in front of the revive group's
offset. Acks behind the last check point stay there for ever: they say nothing by themselves.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from ringmq.store.record import Record

_Pop = tuple[Any, ...]
"""Topic, group, queue, first offset and time of a pop: what its check point and its acks have in common."""
_OF_A_POP = (("t", "topic"), ("c", "consumerGroup"), ("q", "queueId"), ("so", "startOffset"), ("pt", "popTime"))
_OFFSET = ("ao", "ackOffset")


def _one_of(body: dict[str, Any], short: str, long: str) -> Any:
    """A member of an ack, under its name of today or that of older brokers."""
    return body[short] if short in body else body[long]


@dataclass(slots=True)
class PopLedger:
    """Check points and acks in any order; a check point that is there twice counts once."""

    unknown: int = 0
    """Records that are neither, or that cannot be read: each may be a message."""
    is_partial: bool = False
    """Records of the timer were left out."""
    _out: dict[_Pop, set[int]] = field(default_factory=dict)
    _due_ms: dict[_Pop, int] = field(default_factory=dict)
    _done: dict[_Pop, set[int]] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        """One record of a revive queue, or of the timer that is to become one."""
        try:
            self._enter(record.properties.get("TAGS", ""), json.loads(record.body))
        except (ValueError, KeyError, TypeError, AttributeError):
            self.unknown += 1

    def _enter(self, tag: str, body: dict[str, Any]) -> None:
        if tag == "ck":
            pop = (body["t"], body["c"], body["q"], body["so"], body["pt"])
            distances = body.get("d") or range(body["n"])
            self._out.setdefault(pop, set()).update(body["so"] + distance for distance in distances)
            self._due_ms[pop] = body["pt"] + body["it"]
        elif tag in ("ack", "bAck"):
            pop = tuple(_one_of(body, short, long) for short, long in _OF_A_POP)
            several: list[int] | None = body.get("aol", body.get("ackOffsetList"))
            self._done.setdefault(pop, set()).update([_one_of(body, *_OFFSET)] if several is None else several)
        else:
            self.unknown += 1

    def _open(self) -> dict[_Pop, set[int]]:
        left = {pop: offsets - self._done.get(pop, set()) for pop, offsets in self._out.items()}
        return {pop: offsets for pop, offsets in left.items() if offsets}

    @property
    def messages(self) -> int:
        """Messages that are out."""
        return sum(map(len, self._open().values()))

    @property
    def due_ms(self) -> int | None:
        """When the first of them is to be seen again."""
        return min((self._due_ms[pop] for pop in self._open()), default=None)
