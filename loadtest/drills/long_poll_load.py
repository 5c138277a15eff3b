"""The load of long polls beside a drill: groups of which each member waits for the next message, which comes rarely."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import ClassVar

from ringmq.client import Producer, RingmqError, compose_message
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.loadtest.drills.checker import Violation
from ringmq.loadtest.drills.load import BROKER, Course, Tasks
from ringmq.loadtest.drills.polls import UNANSWERED_MS
from ringmq.loadtest.drills.pop_load import now_ms, settle
from ringmq.loadtest.drills.reads import id_of
from ringmq.loadtest.drills.wakes import WakeChecker
from ringmq.loadtest.load.pops import Popper

TOPICS = tuple(f"DrillLongPolls{number}" for number in range(8))
GROUP = "drill_long_polls"
MEMBERS = 2
"""Consumers of each topic."""
POLL_MS, SHORT_POLL_MS = 20_000, 200
"""Of the run, and behind it."""
INVISIBLE_MS = 60_000
SEND_PAUSE_S = 0.8
"""Between two sends: the messages of a topic come further apart than a look may be late."""
PAUSE_S = 0.02


class LongPollLoad:
    """Sends to some topics in turn, and consumers that wait for the messages."""

    settings: ClassVar[Mapping[str, object]] = {}

    def __init__(self, course: Course) -> None:
        self._course = course
        self._checker = WakeChecker()
        self._waiting = 0

    def tasks(self, producer: Producer, client: RemotingClient) -> Tasks:
        """A producer and the consumers."""
        consumers = (self._consume(client, topic) for topic in TOPICS for _ in range(MEMBERS))
        return [self._produce(producer), *consumers]

    @property
    def counts(self) -> Mapping[str, int]:
        """Messages, and those for which a poll waited."""
        return {"sent to long polls": self._checker.settled_count, "witnessed": self._checker.witnessed_count}

    async def verdict(self, client: RemotingClient) -> list[Violation]:
        """Pop what is left, and judge."""
        poppers = itertools.cycle([self._popper(client, topic) for topic in TOPICS])

        async def turn() -> None:
            await self._turn(client, next(poppers), SHORT_POLL_MS)

        await settle(self._checker, turn, self._course.timeout_s, 0)
        return self._checker.verdict()

    def _popper(self, client: RemotingClient, topic: str) -> Popper:
        timeout_ms = POLL_MS + UNANSWERED_MS
        return Popper(client, self._course.address, BROKER, topic, GROUP, timeout_ms=timeout_ms)

    async def _produce(self, producer: Producer) -> None:
        """One message after the other. Behind the run, messages end the polls."""
        numbers = itertools.count(1)
        while self._course.is_running():
            await self._send(producer, next(numbers))
            await asyncio.sleep(SEND_PAUSE_S)  # span: the pace of the load
        while self._waiting:
            for number in itertools.islice(numbers, len(TOPICS)):
                await self._send(producer, number)
            await asyncio.sleep(PAUSE_S)  # poll

    async def _send(self, producer: Producer, number: int) -> None:
        topic = TOPICS[number % len(TOPICS)]
        try:
            await producer.send(compose_message(topic, f"{number}".encode()))
        except (RingmqError, OSError):
            return
        self._checker.sent(topic, f"{number}", now_ms())

    async def _consume(self, client: RemotingClient, topic: str) -> None:
        popper = self._popper(client, topic)
        self._waiting += 1
        try:
            while self._course.is_running():
                if not await self._turn(client, popper, POLL_MS):
                    await asyncio.sleep(PAUSE_S)  # poll
        finally:
            self._waiting -= 1

    async def _turn(self, client: RemotingClient, popper: Popper, poll_ms: int) -> bool:
        """Poll once, and acknowledge what came. True if there was an answer."""
        try:
            connection = await client.connection(self._course.address())
        except (RingmqError, OSError):
            return False
        if not connection.heard:  # by other loads: a read worker that is not there yet finds the time of a poll over
            return False
        began_ms = now_ms()
        try:
            _, found = await popper.ask(1, INVISIBLE_MS, poll_ms)
        except (RingmqError, OSError):
            return False
        self._checker.waited(popper.topic, began_ms, now_ms())
        for one in found:
            times = one.message.reconsume_times
            self._checker.given(popper.topic, id_of(one.message), one.receipt.pop_time_ms, times)
            try:
                await popper.ack(one.receipt)
            except (RingmqError, OSError):
                continue  # the message comes again, which judges nothing here
        return True
