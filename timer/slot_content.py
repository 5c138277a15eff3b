"""The messages of one slot in memory, in the order of their delivery. The twin of native/src/timer/timer_slot.c."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ringmq.timer.timer_log import Magic

NEAR_MS: int = 4_194_304
FAR_SECONDS = FAR_MINUTES = NEAR_MS
"""Messages that are later than NEAR_MS are ordered by seconds, and by minutes beyond FAR_SECONDS. So 24 bits of the C
core hold 8 years: the open slot lies ahead of a clock that was set back."""


@dataclass(frozen=True, slots=True, order=True)
class TimerMessage:
    """A message that waits. Messages of one millisecond go out in the order of their units."""

    at_ms: int
    """Time of the delivery. A rolled message goes at the slot's time."""
    unit: int
    """Number of its unit, over all files of the log."""
    magic: Magic = field(compare=False, default=Magic.DEFAULT)
    key: str = field(compare=False, default="")
    """Of a delete the key that it names, else the own one (TimerRecord)."""

    @property
    def is_rolled(self) -> bool:
        """True if the message goes back into the timer topic, a delete as well."""
        return Magic.ROLL in self.magic

    @property
    def deletes(self) -> bool:
        """True if the message deletes another one of its slot."""
        return Magic.DELETE in self.magic and not self.is_rolled


class SlotContent:
    """Messages and deletes of one slot. A delete holds for messages that come after it, too, as of stock.

    Of more than `messages_max` messages that walks have found, the earliest are kept. The next walk finds those that
    were left out. Messages that arrive later, behind the units of the first walk, are always kept: they may come too
    late for a walk that takes what is behind its predecessor's.
    """

    def __init__(self, slot_ms: int, messages_max: int, units_end: int) -> None:
        self.slot_ms = slot_ms
        self.units_end = units_end
        """Number behind the last unit that walks find."""
        self.left_out = 0
        self._messages_max = max(2, messages_max)
        self._waiting: list[TimerMessage] = []
        self._found = 0
        self._deleted: set[str] = set()
        self._taken_below: TimerMessage | None = None
        self._kept_below: TimerMessage | None = None

    def add(self, message: TimerMessage) -> None:
        """Add a message or a delete. Those of walks come by `found`."""
        if not message.deletes:
            self._push(self._rounded(message))
        elif message.key:
            self._deleted.add(message.key)

    def found(self, message: TimerMessage) -> None:
        """Add what a walk has found. Messages that an earlier walk has taken are passed over."""
        if message.deletes or self._taken_below is None or self._rounded(message) >= self._taken_below:
            self.add(message)

    def walk_again(self) -> None:
        """Begin another walk. It takes the messages that the walk before has left out."""
        self._taken_below, self._kept_below, self.left_out = self._kept_below, None, 0

    def take(self, now_ms: int, room: int) -> list[TimerMessage]:
        """Remove and return messages that are due, at most `room`."""
        due: list[TimerMessage] = []
        while len(due) < room and self._has_next and self._waiting[0].at_ms <= now_ms:
            due.append(heapq.heappop(self._waiting))
            self._found -= due[-1].unit < self.units_end
        return due

    def give_back(self, messages: Iterable[TimerMessage]) -> None:
        """Return messages that were taken and not stored."""
        for message in messages:
            self._push(message)

    def is_deleted(self, message: TimerMessage) -> bool:
        """True if a delete names the message. Rolled deletes are not deleted."""
        return Magic.DELETE not in message.magic and message.key in self._deleted

    @property
    def next_ms(self) -> int | None:
        """Return the time of the next delivery. None if no message waits in memory, or those left out come first."""
        return self._waiting[0].at_ms if self._has_next else None

    @property
    def _has_next(self) -> bool:
        """False as well while messages that came later wait behind those that are left out."""
        return bool(self._waiting) and (self._kept_below is None or self._waiting[0] < self._kept_below)

    @property
    def needs_walk(self) -> bool:
        """True if messages are left out, and all that walks have kept are taken."""
        return self.left_out > 0 and not self._found

    def _rounded(self, message: TimerMessage) -> TimerMessage:
        ms = message.at_ms - self.slot_ms
        if ms >= -NEAR_MS:
            return message if ms < NEAR_MS else replace(message, at_ms=self.slot_ms + NEAR_MS - 1)
        seconds = (-NEAR_MS - ms) // 1000
        if seconds >= FAR_SECONDS:
            seconds = FAR_SECONDS + min((seconds - FAR_SECONDS) // 60, FAR_MINUTES) * 60
        return replace(message, at_ms=self.slot_ms - NEAR_MS - seconds * 1000)

    def _push(self, message: TimerMessage) -> None:
        is_found = message.unit < self.units_end
        if is_found and self._kept_below is not None and message >= self._kept_below:
            self.left_out += 1
            return
        heapq.heappush(self._waiting, message)
        self._found += is_found
        if self._found > self._messages_max:
            self._leave_out()

    def _leave_out(self) -> None:
        """Leave out the later half of what walks have found."""
        found = sorted(message for message in self._waiting if message.unit < self.units_end)
        late = [message for message in self._waiting if message.unit >= self.units_end]
        kept = len(found) // 2
        self.left_out += len(found) - kept
        self._kept_below = found[kept]
        self._found = kept
        self._waiting = found[:kept] + late
        heapq.heapify(self._waiting)
