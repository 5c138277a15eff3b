"""The messages of one slot in memory, in the order of their delivery."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from ringmq.timer.timer_log import Magic


@dataclass(frozen=True, slots=True, order=True)
class TimerMessage:
    """A record of the timer topic. Messages of one millisecond go out in the order in which they were stored."""

    exact_ms: int
    queue_offset: int
    commit_log_offset: int = field(compare=False)
    size: int = field(compare=False)
    magic: Magic = field(compare=False)
    key: str = field(compare=False, default="")
    """Of a delete the key that it names, else the own one: real topic, "+", UNIQ_KEY."""

    @property
    def is_rolled(self) -> bool:
        """True if the message goes back into the timer topic, a delete as well."""
        return Magic.ROLL in self.magic

    @property
    def deletes(self) -> bool:
        """True if the message deletes another one of its slot."""
        return Magic.DELETE in self.magic and not self.is_rolled


class SlotContent:
    """Messages and deletes of one slot. A delete holds for messages that come after it, too, as of stock."""

    def __init__(self, slot_ms: int) -> None:
        self.slot_ms = slot_ms
        self._waiting: list[TimerMessage] = []
        self._deleted: set[str] = set()
        self.dropped = 0
        """Messages that a delete has removed."""

    def add(self, message: TimerMessage) -> None:
        """Add a message or a delete."""
        if message.deletes:
            self._deleted.add(message.key)
        else:
            heapq.heappush(self._waiting, message)

    def take_due(self, now_ms: int, limit: int) -> list[TimerMessage]:
        """Remove and return messages that are due, at most `limit`. A message in the set of deletes is dropped."""
        due: list[TimerMessage] = []
        while len(due) < limit and self._waiting and self._waiting[0].exact_ms <= now_ms:
            message = heapq.heappop(self._waiting)
            if message.key in self._deleted and not message.is_rolled:
                self.dropped += 1
            else:
                due.append(message)
        return due

    @property
    def next_ms(self) -> int | None:
        """Return the time of the next delivery. None if no message waits."""
        return self._waiting[0].exact_ms if self._waiting else None
