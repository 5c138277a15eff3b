"""The pops of a drill. The checker finds broken promises from the consumers' own record. No IO.

Kinds of violation (each has a planted example in tests/loadtest/test_pop_checker.py):

  lost message      a send was acknowledged, and no pop has ever given the message
  lost retry        a message was left open, and never came back
  given twice       two pops have given a message, the second within the invisible time of the first
  seen after ack    an acknowledgement was answered in time, and a pop that began later has given the message
  uncounted retry   a later pop of a message has no higher reconsumeTimes

Deaths of processes alone keep all of this. An acknowledgement that was answered after the end of its invisible time may
have come too late: it is not judged. The same holds for a change of that time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ringmq.loadtest.drills.checker import Violation


@dataclass(slots=True)
class _Pop:
    """One pop of a message. `due_ms`: the earliest end of its invisible time. Events have numbers of the client."""

    began: int
    pop_time_ms: int
    due_ms: int
    reconsume_times: int
    acknowledged_at: int | None = None
    may_be_acknowledged: bool = False


@dataclass(slots=True)
class PopChecker:
    """Records one run. Times in ms, of the wall clock that the broker has too."""

    _clock: int = 0
    _sent: set[str] = field(default_factory=set)
    _pops: dict[str, list[_Pop]] = field(default_factory=dict)
    _acknowledged: int = 0

    def sent(self, message_id: str) -> None:
        """Record that a send was acknowledged."""
        self._sent.add(message_id)

    def begins(self) -> int:
        """Return the number of the pop that is about to begin."""
        self._clock += 1
        return self._clock

    def popped(self, began: int, message_id: str, pop_time_ms: int, due_ms: int, reconsume_times: int) -> int:
        """Record a message of the answer to pop `began`. Returns its number among the pops of the message."""
        pops = self._pops.setdefault(message_id, [])
        pops.append(_Pop(began, pop_time_ms, due_ms, reconsume_times))
        return len(pops) - 1

    def asks_ack(self, message_id: str, number: int) -> None:
        """Record that an acknowledgement is about to leave. Without an answer it may be done or not."""
        self._pops[message_id][number].may_be_acknowledged = True

    def acknowledged(self, message_id: str, number: int, now_ms: int) -> None:
        """Record that an acknowledgement was answered 0."""
        pop = self._pops[message_id][number]
        self._clock += 1
        self._acknowledged += 1
        if now_ms < pop.due_ms:
            pop.acknowledged_at = self._clock

    def asks_change(self, message_id: str, number: int, now_ms: int, invisible_ms: int) -> int:
        """Record that a change of the invisible time is about to leave. Returns the end that it replaces, in ms."""
        pop = self._pops[message_id][number]
        replaced_ms, pop.due_ms = pop.due_ms, min(pop.due_ms, now_ms + invisible_ms)
        return replaced_ms

    def changed(self, message_id: str, number: int, now_ms: int, replaced_ms: int, due_ms: int) -> None:
        """Record that a change was answered 0, with a new end of the invisible time."""
        if now_ms < replaced_ms:
            self._pops[message_id][number].due_ms = due_ms

    @property
    def has_all(self) -> bool:
        """True if each acknowledged send was popped and no message is left open."""
        return self._sent <= self._pops.keys() and not any(map(self._is_open, self._pops))

    @property
    def settled_count(self) -> int:
        """The number of messages that were popped and are not left open."""
        return sum(not self._is_open(name) for name in self._pops)

    @property
    def popped_count(self) -> int:
        """The number of pops of messages."""
        return sum(map(len, self._pops.values()))

    @property
    def acknowledged_count(self) -> int:
        """The number of acknowledgements that were answered 0."""
        return self._acknowledged

    def verdict(self) -> list[Violation]:
        """Return all violations, none if every promise was kept."""
        lost = [
            Violation("lost message", f"{name} was never popped") for name in sorted(self._sent - self._pops.keys())
        ]
        found = [violation for name in self._pops for violation in self._wrong_pops(name)]
        left = [
            Violation("lost retry", f"{name} was popped {len(pops)} times, the last time at {pops[-1].pop_time_ms}")
            for name, pops in self._pops.items() if self._is_open(name)
        ]  # fmt: skip
        return lost + found + left

    def _is_open(self, message_id: str) -> bool:
        return not any(pop.may_be_acknowledged for pop in self._pops[message_id])

    def _wrong_pops(self, message_id: str) -> list[Violation]:
        pops = sorted(self._pops[message_id], key=lambda pop: pop.pop_time_ms)
        found = []
        for number, pop in enumerate(pops):
            for before in pops[:number]:
                about = f"{message_id}, popped at {before.pop_time_ms} and {pop.pop_time_ms}"
                if before.acknowledged_at is not None and pop.began > before.acknowledged_at:
                    found.append(Violation("seen after ack", f"{about}; the ack of the first was answered in time"))
                elif pop.pop_time_ms < before.due_ms:
                    found.append(Violation("given twice", f"{about}; the first was invisible until {before.due_ms}"))
                if pop.reconsume_times <= before.reconsume_times:
                    times = before.reconsume_times, pop.reconsume_times
                    found.append(Violation("uncounted retry", f"{about}; reconsumeTimes {times}"))
        return found
