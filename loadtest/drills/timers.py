"""The timer messages of a drill. The checker finds broken promises from the client's own record.

Kinds of violation (each has a planted example in tests/loadtest/test_timer_checker.py):

  early timer    a copy was stored before the time that its message asks for
  lost timer     a send was acknowledged, but no copy of it is in the target topic
  doubled timer  a message has two copies
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from ringmq.client import MessageQueue, Producer, RingmqError, compose_message
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.loadtest.drills.checker import Violation
from ringmq.loadtest.drills.load import BROKER, Course, Tasks
from ringmq.loadtest.drills.reads import id_of, read_until
from ringmq.remoting.message import MessageExt

TIMER_TOPIC = "DrillTimers"
LANES = 2
DELAYS_MS = (20, 400, 1700, 3100)
SETTINGS = {"mappedFileSizeTimerLog": 1 << 16, "timerRollWindowSlot": 2}
"""Messages that wait for the longest delay are rolled."""
PAUSE_S = 0.01


@dataclass(slots=True)
class TimerChecker:
    """Records one run. Times are of the wall clock."""

    _due_ms: dict[str, int] = field(default_factory=dict)
    _acknowledged: set[str] = field(default_factory=set)
    _copies: list[tuple[str, int]] = field(default_factory=list)
    _missing: set[str] = field(default_factory=set)

    def began(self, message_id: str, due_ms: int) -> None:
        """Record that a send is about to begin."""
        self._due_ms[message_id] = due_ms

    def acknowledged(self, message_id: str) -> None:
        """Record that the broker acknowledged the send."""
        self._acknowledged.add(message_id)
        self._missing.add(message_id)

    def delivered(self, message: MessageExt) -> None:
        """Record a copy of the target topic at the end."""
        self._copies.append((id_of(message), message.store_timestamp_ms))
        self._missing.discard(id_of(message))

    @property
    def has_all(self) -> bool:
        """True if each acknowledged message is delivered. Call it when nothing is sent any more."""
        return not self._missing

    @property
    def acknowledged_count(self) -> int:
        """The number of acknowledged sends."""
        return len(self._acknowledged)

    def verdict(self) -> list[Violation]:
        """Return all violations, none if every promise was kept."""
        copies = Counter(message_id for message_id, _ in self._copies)
        found = [
            Violation("doubled timer", f"{name} has {count} copies") for name, count in copies.items() if count > 1
        ]
        found += [
            Violation("lost timer", f"{name} was acknowledged and is not delivered")
            for name in sorted(self._acknowledged - copies.keys())
        ]
        for name, stored_ms in self._copies:
            if (early_ms := self._due_ms[name] - stored_ms) > 0:
                found.append(Violation("early timer", f"{name} was delivered {early_ms} ms early"))
        return found


class TimerLoad:
    """Sends of messages with a time."""

    settings: ClassVar[Mapping[str, object]] = SETTINGS

    def __init__(self, course: Course) -> None:
        self._course = course
        self._numbers = itertools.count(1)
        self._checker = TimerChecker()

    def tasks(self, producer: Producer, client: RemotingClient) -> Tasks:
        """All lanes."""
        return [self._produce(producer) for _ in range(LANES)]

    @property
    def counts(self) -> Mapping[str, int]:
        """Acknowledged sends."""
        return {"with a time": self._checker.acknowledged_count}

    async def verdict(self, client: RemotingClient) -> list[Violation]:
        """Read the copies, once they are all there."""
        place, has_all = [(TIMER_TOPIC, 0)], lambda: self._checker.has_all
        await read_until(client, self._course, place, self._checker.delivered, has_all)
        return self._checker.verdict()

    async def _produce(self, producer: Producer) -> None:
        queue = MessageQueue(TIMER_TOPIC, BROKER, 0)
        while self._course.is_running():
            number = next(self._numbers)
            message_id, due_ms = str(number), time.time_ns() // 1_000_000 + DELAYS_MS[number % len(DELAYS_MS)]
            body = message_id.encode() + b"." * (number * 37 % 300)
            self._checker.began(message_id, due_ms)
            try:
                message = compose_message(TIMER_TOPIC, body, keys=message_id, deliver_at_ms=due_ms)
                await producer.send(message, queue=queue)
            except (RingmqError, OSError):
                await asyncio.sleep(PAUSE_S)
                continue
            self._checker.acknowledged(message_id)
            await asyncio.sleep(PAUSE_S / 2)  # poll
