"""A consumer with an SQL92 condition beside the drill. The checker, which has no IO, compares its set with the queues.

Kinds of violation (each has a planted example in tests/loadtest/test_filter_checker.py):

  filter miss     the queue holds a message that matches, and no pull gave it
  filter excess   a pull gave a message that does not match, or that the queue does not hold there
  filter double   two pulls gave one place of a queue
"""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from ringmq.client import Producer, RingmqError
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.loadtest.drills.checker import Violation
from ringmq.loadtest.drills.load import Course, Tasks
from ringmq.loadtest.drills.reads import QUEUES, id_of, pull
from ringmq.remoting.message import MessageExt

EXPRESSION = "KEYS ENDSWITH '7'"
SETTINGS = {"enablePropertyFilter": "true"}
PAUSE_S = 0.005
Place = tuple[int, int]
"""Queue id and queue offset."""


def matches(message_id: str) -> bool:
    """Return what EXPRESSION says of a message of the drill, whose key is its id."""
    return message_id.endswith("7")


@dataclass(slots=True)
class FilterChecker:
    """Records one run: what filtered pulls gave, and what the queues hold at the end."""

    _given: list[tuple[Place, str]] = field(default_factory=list)
    _held: dict[Place, str] = field(default_factory=dict)

    def given(self, queue_id: int, queue_offset: int, message_id: str) -> None:
        """Record a message of a filtered pull."""
        self._given.append(((queue_id, queue_offset), message_id))

    def held(self, queue_id: int, queue_offset: int, message_id: str) -> None:
        """Record a message that a queue holds at the end."""
        self._held[queue_id, queue_offset] = message_id

    @property
    def given_count(self) -> int:
        """The number of messages that filtered pulls gave."""
        return len(self._given)

    def verdict(self) -> list[Violation]:
        """Return all violations, none if the pulls gave the matching messages, each once."""
        times = Counter(place for place, _ in self._given)
        doubled = {place: count for place, count in times.items() if count > 1}
        found = [Violation("filter double", f"{place} was given {count} times") for place, count in doubled.items()]
        found += [
            Violation("filter excess", f"{message_id} was given at {place}, which holds {self._held.get(place)}")
            for place, message_id in self._given
            if not matches(message_id) or self._held.get(place) != message_id
        ]
        return found + [
            Violation("filter miss", f"{message_id} at {place} was not given")
            for place, message_id in self._held.items()
            if matches(message_id) and place not in times
        ]


class FilterLoad:
    """Reads each queue of the drill through the condition, from its begin to its end."""

    settings: ClassVar[Mapping[str, object]] = SETTINGS

    def __init__(self, course: Course) -> None:
        self._course = course
        self._checker = FilterChecker()
        self._next_offsets, self._ends = [0] * QUEUES, [0] * QUEUES
        course.final_reads.append(self._held)

    def tasks(self, producer: Producer, client: RemotingClient) -> Tasks:
        """A reader of each queue."""
        return [self._follow(client, queue_id) for queue_id in range(QUEUES)]

    async def verdict(self, client: RemotingClient) -> list[Violation]:
        """Read on to the end of each queue."""
        for queue_id in range(QUEUES):
            await self._read_rest(client, queue_id)
        return self._checker.verdict()

    @property
    def counts(self) -> Mapping[str, int]:
        """Messages that the filtered pulls gave."""
        return {"read by SQL92": self._checker.given_count}

    def _held(self, queue_id: int, message: MessageExt) -> None:
        self._ends[queue_id] = message.queue_offset + 1
        self._checker.held(queue_id, message.queue_offset, id_of(message))

    async def _follow(self, client: RemotingClient, queue_id: int) -> None:
        """Read while the drill runs."""
        while self._course.is_running():
            try:
                found = await self._read_some(client, queue_id)
            except (RingmqError, OSError):
                found = 0
            if not found:
                await asyncio.sleep(PAUSE_S)

    async def _read_rest(self, client: RemotingClient, queue_id: int) -> None:
        """Read on to the queue's end. The checker reports what is not given in time."""
        deadline = time.monotonic() + self._course.timeout_s
        while self._next_offsets[queue_id] < self._ends[queue_id] and time.monotonic() < deadline:
            try:
                found = await self._read_some(client, queue_id)
            except (RingmqError, OSError):
                found = 0
            if not found:
                await asyncio.sleep(PAUSE_S)

    async def _read_some(self, client: RemotingClient, queue_id: int) -> int:
        offset = self._next_offsets[queue_id]
        messages, self._next_offsets[queue_id] = await pull(
            client, self._course.address(), queue_id, offset, expression=EXPRESSION
        )
        for message in messages:
            self._checker.given(queue_id, message.queue_offset, id_of(message))
        return self._next_offsets[queue_id] - offset
