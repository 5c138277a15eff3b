"""The long polls of a drill: a message has to wake a poll that waits. The checker judges the consumers' own record.
No IO.

Kind of violation (a planted example is in tests/loadtest/test_wake_checker.py):

  late look  a send was acknowledged while a poll of the topic waited, the poll waited on for LATE_MS by a connection
             that lived, and no pop had given the message by then

Polls look for messages only when they are woken, and at their end. That lies far behind LATE_MS, so that a wake-up
which is lost shows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ringmq.loadtest.drills.checker import Violation

LATE_MS = 5000
"""From the answer to a send until a poll finds the message, at most, deaths of workers on a busy machine among it."""


@dataclass(slots=True)
class _Poll:
    """Times in ms of the wall clock. `ended_ms`: of the answer, or when the connection had ended."""

    topic: str
    began_ms: int
    ended_ms: int


@dataclass(slots=True)
class WakeChecker:
    """Records one run. Each topic has one group, which polls all queues."""

    _polls: list[_Poll] = field(default_factory=list)
    _sent: dict[tuple[str, str], int] = field(default_factory=dict)
    _given: dict[tuple[str, str], int] = field(default_factory=dict)

    def sent(self, topic: str, name: str, now_ms: int) -> None:
        """Record that a send was acknowledged."""
        self._sent[topic, name] = now_ms

    def given(self, topic: str, name: str, pop_time_ms: int, reconsume_times: int) -> None:
        """Record a message that an answer had. One that comes again was given before."""
        at_ms = pop_time_ms if reconsume_times == 0 else 0
        self._given[topic, name] = min(at_ms, self._given.get((topic, name), at_ms))

    def waited(self, topic: str, began_ms: int, ended_ms: int) -> None:
        """Record a poll: when it left, and its answer or the last moment at which its connection is known to live."""
        self._polls.append(_Poll(topic, began_ms, ended_ms))

    @property
    def has_all(self) -> bool:
        """True if each acknowledged send was given."""
        return self._sent.keys() <= self._given.keys()

    @property
    def settled_count(self) -> int:
        """The number of messages that were given."""
        return len(self._given)

    @property
    def witnessed_count(self) -> int:
        """The number of sends for which a poll waited by a connection that lived on until the message was given."""
        return sum(bool(self._witnesses(key, sent_ms)) for key, sent_ms in self._sent.items())

    def verdict(self) -> list[Violation]:
        """Return all violations, none if every promise was kept."""
        found = []
        for key, sent_ms in self._sent.items():
            given_ms = self._given.get(key)
            about = f"message {key[1]} of {key[0]}, sent at {sent_ms}"
            if given_ms is None:
                found.append(Violation("lost message", f"{about}, was never popped"))
                continue
            late = [poll for poll in self._witnesses(key, sent_ms) if poll.ended_ms > sent_ms + LATE_MS]
            if late and given_ms > sent_ms + LATE_MS:
                text = f"a poll waited from {late[0].began_ms} to {late[0].ended_ms}"
                found.append(Violation("late look", f"{about}, was given at {given_ms}; {text}"))
        return found

    def _witnesses(self, key: tuple[str, str], sent_ms: int) -> list[_Poll]:
        until_ms = min(sent_ms + LATE_MS, self._given.get(key, sent_ms + LATE_MS))
        return [
            poll for poll in self._polls
            if poll.topic == key[0] and poll.began_ms < sent_ms and poll.ended_ms >= until_ms
        ]  # fmt: skip
