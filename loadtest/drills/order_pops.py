"""The orderly pops of a drill. The checker finds broken promises from the consumers' own record. No IO.

Kinds of violation (each has a planted example in tests/loadtest/test_order_checker.py):

  lost message      a send was acknowledged, and no pop has ever given the message
  lost retry        a message was left open, and never came back
  unordered batch   the messages of a batch do not follow each other in their queue
  passed over       a batch begins behind a message that no consumer has acknowledged
  given while held  a batch was given while another attempt had an open message of the queue, whose time was not over
  seen after ack    all messages up to this one were acknowledged in time, and a pop that began later has given it

A batch of an attempt that was asked for more than once may have been given again, to no consumer. Its receipts are void
then, and it blocks no queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ringmq.loadtest.drills.checker import Violation

CLOCKS_MS = 2
"""The broker measures the invisible time by the steady clock, and tells pop times of the wall clock, both in whole
milliseconds: so much is no early pop."""


@dataclass(slots=True)
class _Batch:
    """Messages of a queue by offset. Times in ms of the wall clock, others are numbers of the client's events."""

    began: int
    answered: int
    pop_time_ms: int
    attempt: str
    is_sure: bool
    due_ms: dict[int, int]
    asked: dict[int, int] = field(default_factory=dict)
    """The event of an acknowledgement that has left: the message is done or not."""
    done: dict[int, int] = field(default_factory=dict)
    """The event of the answer to an acknowledgement in time."""

    def holds_at(self, event: int, now_ms: int) -> bool:
        """True if an open message blocks the queue."""
        return any(
            now_ms < due_ms - CLOCKS_MS and event < self.asked.get(at, event + 1) for at, due_ms in self.due_ms.items()
        )

    def passed(self) -> dict[int, int]:
        """By the offset of each message that is done with all before it: since when."""
        found, last = dict[int, int](), 0
        for at in sorted(self.due_ms):
            if at not in self.done:
                break
            found[at] = last = max(last, self.done[at])
        return found


@dataclass(slots=True)
class OrderChecker:
    """Records one run of a group that pops in order. Queues are named by their numbers."""

    _clock: int = 0
    _sent: dict[int, set[int]] = field(default_factory=dict)
    _batches: dict[int, list[_Batch]] = field(default_factory=dict)

    def sent(self, queue_id: int, offset: int) -> None:
        """Record that a send was acknowledged."""
        self._sent.setdefault(queue_id, set()).add(offset)

    def begins(self) -> int:
        """Return the number of the pop that is about to begin."""
        self._clock += 1
        return self._clock

    def popped(
        self, began: int, queue_id: int, due_ms: dict[int, int], pop_time_ms: int, attempt: str, *, is_sure: bool
    ) -> int:
        """Record the batch of a queue in the answer to pop `began`: the end of the invisible time of each offset.
        `is_sure`: the attempt was asked for once. Returns the number of the batch."""
        self._clock += 1
        batches = self._batches.setdefault(queue_id, [])
        batches.append(_Batch(began, self._clock, pop_time_ms, attempt, is_sure, due_ms))
        return len(batches) - 1

    def asks_acks(self, queue_id: int, number: int, offsets: Sequence[int]) -> None:
        """Record that acknowledgements are about to leave."""
        self._clock += 1
        for offset in offsets:
            self._batches[queue_id][number].asked.setdefault(offset, self._clock)

    def acknowledged(self, queue_id: int, number: int, offsets: Sequence[int], now_ms: int) -> None:
        """Record that acknowledgements were answered 0. Those behind their time may have come too late."""
        self._clock += 1
        batch = self._batches[queue_id][number]
        for offset in offsets:
            if now_ms < batch.due_ms[offset]:
                batch.done.setdefault(offset, self._clock)

    def asks_change(self, queue_id: int, number: int, offset: int, now_ms: int, invisible_ms: int) -> None:
        """Record that a change of the invisible time is about to leave."""
        due_ms = self._batches[queue_id][number].due_ms
        due_ms[offset] = min(due_ms[offset], now_ms + invisible_ms)

    def changed(self, queue_id: int, number: int, offset: int, now_ms: int, due_ms: int) -> None:
        """Record that a change was answered 0 in time, with a new end of the invisible time."""
        batch = self._batches[queue_id][number]
        if now_ms < batch.due_ms[offset]:
            batch.due_ms[offset] = due_ms

    @property
    def has_all(self) -> bool:
        """True if each acknowledged send was popped and no message is left open."""
        return not any(self._lost(queue_id) or self._open(queue_id) for queue_id in self._queues())

    @property
    def settled_count(self) -> int:
        """The number of messages that were popped and are not left open."""
        return sum(len(self._asked(queue_id)) for queue_id in self._queues())

    @property
    def batch_count(self) -> int:
        """The number of batches."""
        return sum(map(len, self._batches.values()))

    @property
    def repeated_count(self) -> int:
        """The number of batches of attempts that were asked for more than once."""
        return sum(not batch.is_sure for batches in self._batches.values() for batch in batches)

    def verdict(self) -> list[Violation]:
        """Return all violations, none if every promise was kept."""
        found = []
        for queue_id in self._queues():
            about = f"queue {queue_id}"
            found += [
                Violation("lost message", f"{about}, offset {at}, was never popped") for at in self._lost(queue_id)
            ]
            found += [Violation("lost retry", f"{about}, offset {at}, was left open") for at in self._open(queue_id)]
            batches = sorted(self._batches.get(queue_id, []), key=lambda batch: batch.pop_time_ms)
            for number, batch in enumerate(batches):
                first = f"{about}, the batch of {sorted(batch.due_ms)} popped at {batch.pop_time_ms}"
                found += self._wrong_begin(queue_id, batch, first)
                for later in batches[number + 1 :]:
                    found += _wrong_pair(batch, later, f"{first}, then {sorted(later.due_ms)} at {later.pop_time_ms}")
        return found

    def _queues(self) -> list[int]:
        return sorted(self._sent.keys() | self._batches.keys())

    def _asked(self, queue_id: int) -> set[int]:
        return {at for batch in self._batches.get(queue_id, []) for at in batch.asked}

    def _given(self, queue_id: int) -> set[int]:
        return {at for batch in self._batches.get(queue_id, []) for at in batch.due_ms}

    def _lost(self, queue_id: int) -> list[int]:
        return sorted(self._sent.get(queue_id, set()) - self._given(queue_id))

    def _open(self, queue_id: int) -> list[int]:
        return sorted(self._given(queue_id) - self._asked(queue_id))

    def _wrong_begin(self, queue_id: int, batch: _Batch, about: str) -> list[Violation]:
        offsets, found = sorted(batch.due_ms), []
        if offsets != list(range(offsets[0], offsets[-1] + 1)):
            found.append(Violation("unordered batch", about))
        others = self._batches[queue_id]
        asked = {at for other in others for at, event in other.asked.items() if event < batch.answered}
        if left := sorted(set(range(offsets[0])) - asked):
            found.append(Violation("passed over", f"{about}; offset {left[0]} was not acknowledged"))
        return found


def _wrong_pair(before: _Batch, later: _Batch, about: str) -> list[Violation]:
    """A batch and one that was popped later."""
    if not before.is_sure:
        return []
    found, is_same = [], bool(before.attempt) and before.attempt == later.attempt
    if not is_same and before.holds_at(later.answered, later.pop_time_ms):
        found.append(Violation("given while held", about))
    if seen := [at for at, event in before.passed().items() if at in later.due_ms and event < later.began]:
        found.append(Violation("seen after ack", f"{about}; offset {seen[0]} was done"))
    return found
