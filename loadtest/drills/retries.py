"""The failed messages of a drill. The checkers find broken promises from the client's own record. No IO.

Kinds of violation (each has a planted example in tests/loadtest/test_retry_checker.py):

  lost retry        a send-back was answered 0, but no copy of its message with its reconsumeTimes is stored
  doubled retry     there are more copies than requests that asked for them
  early retry       a copy was stored before the first request + the delay of its level
  wrong dead letter a copy is in the other of the two topics
  skipped order     a member of an ordered group got a message before an earlier one of its queue was settled
  lost dead letter  an ordered group passed a message that always fails, and it is not among the dead letters
  false dead letter a message that does not always fail is among the dead letters
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ringmq.loadtest.drills.checker import Violation
from ringmq.loadtest.drills.reads import id_of
from ringmq.remoting.message import MessageExt
from ringmq.remoting.names import is_dlq_topic

RETRIES_MAX = 2
"""reconsumeTimes of the last retry. The next send-back makes a dead letter."""
FAILS_ONCE, FAILS_ALWAYS = 5, 7
"""Every so many numbers of an ordered queue is a message that fails once, or always."""

Copy = tuple[str, int]
"""The id of a message, and the reconsumeTimes of a copy of it."""


@dataclass(slots=True)
class RetryChecker:
    """Records the send-backs of one run and their copies. Times in ms, of the wall clock."""

    delay_ms: int
    _asked: Counter[Copy] = field(default_factory=Counter)
    _answered: Counter[Copy] = field(default_factory=Counter)
    _began_ms: dict[Copy, int] = field(default_factory=dict)
    _copies: Counter[Copy] = field(default_factory=Counter)
    _found: list[Violation] = field(default_factory=list)

    def asks(self, message_id: str, times: int, now_ms: int) -> None:
        """Record that a send-back is about to begin. `times`: the reconsumeTimes that its copy gets."""
        self._asked[message_id, times] += 1
        self._began_ms.setdefault((message_id, times), now_ms)

    def answered(self, message_id: str, times: int) -> None:
        """Record that a send-back was answered 0."""
        self._answered[message_id, times] += 1

    def stored(self, message: MessageExt) -> None:
        """Record a message of the retry topic or the dead letter topic at the end."""
        copy = id_of(message), message.reconsume_times
        name, times = copy
        is_dead = is_dlq_topic(message.topic)
        self._copies[copy] += 1
        if is_dead != (times > RETRIES_MAX):
            self._found.append(Violation("wrong dead letter", f"{name} with reconsumeTimes {times} in {message.topic}"))
        early_ms = self._began_ms.get(copy, 0) + self.delay_ms - message.store_timestamp_ms
        if not is_dead and early_ms > 0:
            self._found.append(Violation("early retry", f"{name} came {early_ms} ms early"))

    @property
    def has_all(self) -> bool:
        """True if each answered send-back has its copy."""
        return all(self._copies[copy] >= count for copy, count in self._answered.items())

    @property
    def answered_count(self) -> int:
        """The number of answered send-backs."""
        return self._answered.total()

    def verdict(self) -> list[Violation]:
        """Return all violations, none if every promise was kept."""
        found = list(self._found)
        for (name, times), count in self._answered.items():
            stored = self._copies[name, times]
            if stored < count:
                text = f"{name}, reconsumeTimes {times}: {count} answered, {stored} stored"
                found.append(Violation("lost retry", text))
        for (name, times), count in self._copies.items():
            asked = self._asked[name, times]
            if count > asked:
                text = f"{name}, reconsumeTimes {times}: {asked} requests, {count} stored"
                found.append(Violation("doubled retry", text))
        return found


@dataclass(slots=True)
class OrderChecker:
    """Records an ordered group. Each queue holds the drill's messages only, so that offsets are its numbers."""

    _ends: dict[int, int] = field(default_factory=dict)
    """By queue: behind the last acknowledged message."""
    _settled: dict[int, int] = field(default_factory=dict)
    """By queue: all messages below are settled."""
    _failed: Counter[tuple[int, int]] = field(default_factory=Counter)
    _places: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The queue and offset of a message by its id."""
    _dead: set[tuple[int, int]] = field(default_factory=set)
    _found: list[Violation] = field(default_factory=list)

    def acknowledged(self, queue_id: int, queue_offset: int) -> None:
        """Record that the broker acknowledged a send."""
        self._ends[queue_id] = max(self._ends.get(queue_id, 0), queue_offset + 1)

    def handled(self, queue_id: int, queue_offset: int, message_id: str) -> bool:
        """Record a call of the handler. True if the handler has to fail."""
        self._places[message_id] = queue_id, queue_offset
        settled = self._settled.get(queue_id, 0)
        if queue_offset > settled:
            text = f"queue {queue_id}: {queue_offset} came, and {settled} is not settled"
            self._found.append(Violation("skipped order", text))
        place = queue_id, queue_offset
        failures_max = RETRIES_MAX + 1 if self.fails_always(queue_offset) else int(queue_offset % FAILS_ONCE == 0)
        fails = self._failed[place] < failures_max or self.fails_always(queue_offset)
        self._failed[place] += fails
        if not fails or self._failed[place] > RETRIES_MAX:
            self._settled[queue_id] = max(settled, queue_offset + 1)
        return fails

    @staticmethod
    def fails_always(queue_offset: int) -> bool:
        """True for a message that becomes a dead letter."""
        return queue_offset % FAILS_ALWAYS == 0

    def dead(self, message_id: str) -> None:
        """Record a dead letter of the group at the end. `message_id`: that of the message that it was made of."""
        place = self._places.get(message_id)
        if place is None or not self.fails_always(place[1]):
            self._found.append(Violation("false dead letter", f"{message_id} at {place}"))
        else:
            self._dead.add(place)

    @property
    def is_done(self) -> bool:
        """True if all acknowledged messages are settled."""
        return all(self._settled.get(queue_id, 0) >= end for queue_id, end in self._ends.items())

    def has_dead(self, committed: dict[int, int]) -> bool:
        """True if all dead letters below the group's offsets are there."""
        return not self._lost(committed)

    @property
    def settled_count(self) -> int:
        """The number of settled messages."""
        return sum(self._settled.values())

    def verdict(self, committed: dict[int, int]) -> list[Violation]:
        """Return all violations. `committed`: the group's offset by queue."""
        lost = [Violation("lost dead letter", f"queue {queue}: {at}") for queue, at in self._lost(committed)]
        return [*self._found, *lost]

    def _lost(self, committed: dict[int, int]) -> list[tuple[int, int]]:
        return [
            (queue, at)
            for queue, end in sorted(committed.items())
            for at in range(0, end, FAILS_ALWAYS)
            if (queue, at) not in self._dead
        ]
