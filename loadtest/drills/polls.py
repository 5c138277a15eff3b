"""The polls of a drill: pops that wait. The checker finds broken promises from the consumers' own record. No IO.

Kinds of violation (each has a planted example in tests/loadtest/test_drill_poll_checker.py):

  unanswered poll  a connection lived, and no answer came by it until UNANSWERED_MS behind the end of the poll
  overtaken poll   by the same connection, two polls after each other were answered first, both of which began
                   OVERTAKEN_MS behind the end of this one
  early end        a poll was answered without a message before its end
  passed by        a poll ended in time without a message, and one could be read for SEEN_MS that no pop had given yet
  left poll        every poll was answered or its connection had ended, and the broker counts some that wait
  many cut off     more polls lost their connection than faults and consumers explain
  many refused     more polls were refused than faults and consumers explain

A poll whose connection ended has no answer to judge. How late an answer or a message is depends on the machine, so
another answer is the measure: it shows that the workers served. A message can be read once a reader of the drill's own
topic got one that was sent later.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

from ringmq.loadtest.drills.checker import Violation

LAST_LOOK_MS = 50
"""A poll looks for the last time so long before its end, and is answered then."""
EARLY_MS = 20
"""A read worker's time of a request is that of its round, which may have begun before the request was sent."""
OVERTAKEN_MS = 1000
"""A read worker answers a poll itself 200 ms behind its end. The first later answer may come in the same turn."""
UNANSWERED_MS = 20_000
"""A poll that finds no worker waits 3 s more for its replacement, and a busy machine starts it late."""
SEEN_MS = 2000
"""From the first read of a message that was sent later until a poll finds a message, at most."""


@dataclass(slots=True)
class _Poll:
    """Times in ms are of the wall clock, others are numbers of the client's events. `ended_ms`: without a message."""

    began_ms: int
    poll_ms: int
    connection: int
    began: int
    ended_ms: int | None = None
    is_unanswered: bool = False
    passed_at: int | None = None
    """Time of the first answer to a later poll."""
    is_overtaken: bool = False


@dataclass(slots=True)
class PollChecker:
    """Records one run. All polls ask for messages of all queues."""

    _clock: int = 0
    _polls: list[_Poll] = field(default_factory=list)
    _open: set[int] = field(default_factory=set)
    _sent: dict[str, int] = field(default_factory=dict)
    _given: dict[str, int] = field(default_factory=dict)
    _born: list[int] = field(default_factory=list)
    """Of messages that readers got, each born later than those before."""
    _read: list[int] = field(default_factory=list)
    """The times of these reads."""
    _refused: int = 0
    _cut_off: int = 0
    _left: int = 0
    _failed_max: int | None = None

    def sent(self, message_id: str, now_ms: int) -> None:
        """Record that a send was acknowledged."""
        self._sent[message_id] = now_ms

    def read(self, born_ms: int, now_ms: int) -> None:
        """Record that a reader got a message of any topic that was born at `born_ms` of the drill's clock."""
        if not self._born or born_ms > self._born[-1]:
            self._born.append(born_ms)
            self._read.append(now_ms)

    def begins(self, now_ms: int, poll_ms: int, connection: int) -> int:
        """Record that a poll is about to leave by a connection, named by a number. Returns the number of the poll."""
        self._clock += 1
        self._polls.append(_Poll(now_ms, poll_ms, connection, self._clock))
        self._open.add(len(self._polls) - 1)
        return len(self._polls) - 1

    def answered(self, number: int) -> None:
        """Record that a poll was answered, in whatever words."""
        self._clock += 1
        self._open.discard(number)
        answered = self._polls[number]
        for other in (self._polls[one] for one in self._open):
            is_over = other.began_ms + other.poll_ms + OVERTAKEN_MS < answered.began_ms
            if not is_over or other.connection != answered.connection:
                continue
            if other.passed_at is None:
                other.passed_at = self._clock
            elif answered.began > other.passed_at:
                other.is_overtaken = True

    def given(self, message_id: str, pop_time_ms: int, reconsume_times: int) -> None:
        """Record a message that an answer had. One that comes again was given before."""
        if reconsume_times == 0:
            self._given[message_id] = min(pop_time_ms, self._given.get(message_id, pop_time_ms))
        else:
            self._given.setdefault(message_id, 0)

    def ended(self, number: int, now_ms: int) -> None:
        """Record that the answer says that no message came."""
        self._polls[number].ended_ms = now_ms

    def refused(self) -> None:
        """Record that the answer refuses the poll."""
        self._refused += 1

    def cut_off(self, number: int) -> None:
        """Record that the connection of a poll ended."""
        self._open.discard(number)
        self._cut_off += 1

    def unanswered(self, number: int) -> None:
        """Record that no answer came until UNANSWERED_MS behind the end, by a connection that lived."""
        self._open.discard(number)
        self._polls[number].is_unanswered = True

    def left(self, count: int) -> None:
        """Record how many polls the broker counts when no client waits any more."""
        self._left = count

    def may_fail(self, count: int) -> None:
        """Record how many polls may have lost their connection, and how many may have been refused."""
        self._failed_max = count

    @property
    def counts(self) -> Mapping[str, int]:
        """Numbers for a report, by their words in it."""
        in_vain = [poll for poll in self._polls if poll.ended_ms is not None]
        late_ms = [poll.ended_ms - poll.began_ms - poll.poll_ms for poll in in_vain if poll.ended_ms is not None]
        return {
            "polls": len(self._polls),
            "in vain": len(in_vain),
            "cut off": self._cut_off,
            "refused": self._refused,
            "ms late at most": max([0, *late_ms]),
        }

    def verdict(self) -> list[Violation]:
        """Return all violations, none if every promise was kept."""
        left = [Violation("left poll", f"{self._left} polls wait for no client")] if self._left else []
        return [*self._wrong_ends(), *self._passed_by(), *left, *self._many_failures()]

    def _many_failures(self) -> list[Violation]:
        if (limit := self._failed_max) is None:
            return []
        found = (("many cut off", self._cut_off), ("many refused", self._refused))
        return [Violation(kind, f"{count} polls, at most {limit} may be") for kind, count in found if count > limit]

    def _wrong_ends(self) -> list[Violation]:
        found = []
        for poll in self._polls:
            about = f"a poll of {poll.poll_ms} ms that began at {poll.began_ms}"
            if poll.is_unanswered:
                found.append(Violation("unanswered poll", f"{about} was not answered"))
            if poll.is_overtaken:
                found.append(Violation("overtaken poll", f"{about} had no answer before later ones"))
            if poll.ended_ms is not None:
                waited_ms = poll.ended_ms - poll.began_ms
                if waited_ms < poll.poll_ms - LAST_LOOK_MS - EARLY_MS:
                    found.append(Violation("early end", f"{about} ended after {waited_ms} ms"))
        return found

    def _passed_by(self) -> list[Violation]:
        """Of each message that was given late, the first poll that should have had it.

        A poll that ends late may have had no look, or one while its worker started and could not read yet.
        """
        ends = sorted(
            poll.ended_ms
            for poll in self._polls
            if poll.ended_ms is not None and poll.ended_ms <= poll.began_ms + poll.poll_ms
        )
        found = []
        for name, sent_ms in self._sent.items():
            given_ms = self._given.get(name)
            later = bisect_right(self._born, sent_ms)
            if given_ms is None or later == len(self._read):
                continue  # lost, which the checker of pops tells; or sent at the end
            readable_ms = self._read[later]
            missed = [ended_ms for ended_ms in ends if readable_ms + SEEN_MS < ended_ms < given_ms]
            if missed:
                about = f"{name}, sent at {sent_ms}, to be read at {readable_ms} and given at {given_ms}"
                found.append(Violation("passed by", f"{about}; a poll ended at {missed[0]} without it"))
        return found
