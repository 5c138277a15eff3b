"""The pops of a group whose offsets are reset meanwhile. The checker finds broken promises from the clients' own
record. No IO.

Kinds of violation (each has a planted example in tests/loadtest/test_reset_checker.py):

  lost message      a send was acknowledged, no reset has passed the message, and no pop has ever given it
  lost retry        a message was left open, no reset has passed it since, and it never came back
  not begun anew    a reset was answered, and a message at or behind its offset was not given since
  given below       a reset was answered, and a pop that began later has given a message of the queue below its offset
  given twice       two pops have given a message, the second within the invisible time of the first
  seen after ack    an acknowledgement was answered in time, and a pop that began later has given the message

A reset of the queue lies between two pops in none of the last two kinds, and between the reset and the pop in none of
the others. A reset counts from its request until its answer. Without an answer it counts until the broker has no time
left for it.

A reset begins another life of a message, in which the queue gives it once and the topic of retries has its copies. A
copy of an earlier life stays with the reset: consumers may get it before the queue gives the message again, or behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ringmq.loadtest.drills.checker import Violation

NEVER = 1 << 62


class Place(NamedTuple):
    """A queue that a message was sent to, and its offset there."""

    queue_id: int
    offset: int


class _Sent(NamedTuple):
    """An acknowledged message. `began`: the number of its send."""

    place: Place
    began: int


@dataclass(slots=True)
class _Pop:
    """One pop of a message. Times in ms of the wall clock, others are numbers of the clients' events."""

    began: int
    answered: int
    is_copy: bool
    pop_time_ms: int
    due_ms: int
    asked: int = NEVER
    acknowledged: int = NEVER

    @property
    def text(self) -> str:
        """The moment of the pop and where it found the message, for a person."""
        return f"{'as a copy ' if self.is_copy else ''}at {self.pop_time_ms}"


@dataclass(slots=True)
class _Reset:
    """One request to reset a queue. `over`: the event from which on it changes nothing more."""

    queue_id: int
    offset: int
    began: int
    over: int = NEVER
    is_done: bool = False

    def may_lie_between(self, begin: int, end: int) -> bool:
        """True if it may have happened between two events."""
        return self.began < end and begin < self.over


@dataclass(slots=True)
class ResetChecker:
    """Records one run. A message is named by the body with which it was sent."""

    _clock: int = 0
    _sent: dict[str, _Sent] = field(default_factory=dict)
    _pops: dict[str, list[_Pop]] = field(default_factory=dict)
    _resets: list[_Reset] = field(default_factory=list)
    _settled: set[str] = field(default_factory=set)
    """Messages that need not be given any more, unless a reset or another pop follows."""

    def sent(self, began: int, name: str, place: Place) -> None:
        """Record that send `began` was acknowledged."""
        self._sent[name] = _Sent(place, began)

    def begins(self) -> int:
        """Return the number of the pop or send that is about to begin."""
        self._clock += 1
        return self._clock

    def popped(self, began: int, name: str, pop_time_ms: int, due_ms: int, *, is_copy: bool) -> int:
        """Record a message of the answer to pop `began`. Returns its number among the pops of the message."""
        self._clock += 1
        self._settled.discard(name)
        pops = self._pops.setdefault(name, [])
        pops.append(_Pop(began, self._clock, is_copy, pop_time_ms, due_ms))
        return len(pops) - 1

    def asks_ack(self, name: str, number: int) -> None:
        """Record that an acknowledgement is about to leave."""
        self._clock += 1
        self._pops[name][number].asked = self._clock

    def acknowledged(self, name: str, number: int, now_ms: int) -> None:
        """Record that an acknowledgement was answered 0."""
        self._clock += 1
        pop = self._pops[name][number]
        if now_ms < pop.due_ms:
            pop.acknowledged = self._clock

    def asks_reset(self, queue_id: int, offset: int) -> int:
        """Record that the request of a reset is about to leave. Returns the number of the reset."""
        self._clock += 1
        self._resets.append(_Reset(queue_id, offset, self._clock))
        return len(self._resets) - 1

    def was_reset(self, number: int) -> None:
        """Record that a reset was answered 0."""
        self._settled.clear()
        self._resets[number].is_done = True
        self.gives_up_reset(number)

    def gives_up_reset(self, number: int) -> None:
        """Record that a reset has happened before now, or never happens."""
        self._clock += 1
        self._resets[number].over = self._clock

    @property
    def has_all(self) -> bool:
        """True if nothing has to be given any more, and no reset is under way that could change it."""
        return all(reset.over < NEVER for reset in self._resets) and self.settled_count == len(self._sent)

    @property
    def settled_count(self) -> int:
        """The number of messages that need not be given any more."""
        self._settled |= {name for name in self._sent.keys() - self._settled if not self._missing(name)}
        return len(self._settled)

    @property
    def reset_count(self) -> int:
        """The number of resets that were answered 0."""
        return sum(reset.is_done for reset in self._resets)

    @property
    def again_count(self) -> int:
        """The number of messages that came again from their queue."""
        return sum(sum(not pop.is_copy for pop in pops) > 1 for pops in self._pops.values())

    def verdict(self) -> list[Violation]:
        """Return all violations, none if every promise was kept."""
        found = []
        for name, sent in self._sent.items():
            if kind := self._missing(name):
                pops = self._pops.get(name, [])
                found.append(Violation(kind, f"{name} at {sent.place} was popped {len(pops)} times"))
            found += self._wrong_pops(name, sent)
        return found

    def _of_queue(self, queue_id: int) -> Iterable[_Reset]:
        return (reset for reset in self._resets if reset.queue_id == queue_id)

    def _is_passed(self, place: Place, since: int) -> bool:
        """True if a reset may have moved the group on behind the message."""
        resets = self._of_queue(place.queue_id)
        return any(reset.offset > place.offset and since < reset.over for reset in resets)

    def _missing(self, name: str) -> str:
        """The kind of the violation if the message comes no more."""
        (place, sent), pops = self._sent[name], self._pops.get(name, [])
        for reset in self._of_queue(place.queue_id):
            begins_anew = reset.is_done and reset.offset <= place.offset
            given = any(reset.began < pop.answered for pop in pops)
            if begins_anew and not given and not self._is_passed(place, reset.began):
                return "not begun anew"
        if not pops:
            return "" if self._is_passed(place, sent) else "lost message"
        last = max(pops, key=lambda pop: pop.answered)
        is_left = all(pop.asked == NEVER for pop in pops)
        return "lost retry" if is_left and not self._is_passed(place, last.began) else ""

    def _wrong_pops(self, name: str, sent: _Sent) -> list[Violation]:
        place, pops = sent.place, sorted(self._pops.get(name, []), key=lambda pop: pop.pop_time_ms)
        found = []
        for number, pop in enumerate(pops):
            for reset in self._of_queue(place.queue_id):
                is_below = not pop.is_copy and place.offset < reset.offset and reset.is_done and reset.over < pop.began
                if is_below and not self._may_begin_anew(place, reset.began, pop.answered):
                    text = f"{name} at {place}, popped {pop.text}"
                    found.append(Violation("given below", f"{text}, behind a reset to {reset.offset}"))
            for at, before in enumerate(pops[:number]):
                since = sent.began if pop.is_copy else _life_began(sent, pops[: at + 1])
                if self._may_begin_anew(place, since, pop.answered):
                    continue
                about = f"{name} at {place}, popped {before.text} and {pop.text}"
                if before.acknowledged < pop.began:
                    found.append(Violation("seen after ack", f"{about}; the ack of the first was answered in time"))
                elif pop.pop_time_ms < before.due_ms:
                    found.append(Violation("given twice", f"{about}; the first was invisible until {before.due_ms}"))
        return found

    def _may_begin_anew(self, place: Place, begin: int, end: int) -> bool:
        """True if a reset may have set the group back to the message between two events."""
        resets = self._of_queue(place.queue_id)
        return any(reset.offset <= place.offset and reset.may_lie_between(begin, end) for reset in resets)


def _life_began(sent: _Sent, pops: Sequence[_Pop]) -> int:
    """The event from which on a reset may have begun a life behind that of the last pop. The clients do not know the
    first pop of a life whose answer was lost: it may be any since the send."""
    return next((pop.began for pop in reversed(pops) if not pop.is_copy), sent.began)
