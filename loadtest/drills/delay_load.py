"""The load of delayed messages beside a drill."""

import asyncio
import time
from collections.abc import Mapping
from typing import ClassVar

from ringmq.client import MessageQueue, Producer, RingmqError
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.loadtest.drills.checker import Violation
from ringmq.loadtest.drills.delays import DELAYED_TOPIC, DELAYS_MS, LANES, SETTINGS, DelayChecker
from ringmq.loadtest.drills.load import BROKER, Course, Tasks
from ringmq.loadtest.drills.reads import read_until

PAUSE_S = 0.01


class DelayLoad:
    """Sends to each level by several lanes."""

    settings: ClassVar[Mapping[str, object]] = SETTINGS

    def __init__(self, course: Course) -> None:
        self._course = course
        self._checker = DelayChecker()
        self._levels = range(1, len(DELAYS_MS) + 1)

    def tasks(self, producer: Producer, client: RemotingClient) -> Tasks:
        """All lanes of all levels."""
        return [self._produce(producer, level, lane) for level in self._levels for lane in range(LANES)]

    async def verdict(self, client: RemotingClient) -> list[Violation]:
        """Read the copies of each level, once they are all there."""
        for level in self._levels:
            place, has_all = [(DELAYED_TOPIC, level - 1)], lambda level=level: self._checker.has_all(level)
            await read_until(client, self._course, place, self._checker.delivered, has_all)
        return self._checker.verdict()

    @property
    def counts(self) -> Mapping[str, int]:
        """Acknowledged sends."""
        return {"delayed": self._checker.acknowledged_count}

    async def _produce(self, producer: Producer, level: int, lane: int) -> None:
        queue = MessageQueue(DELAYED_TOPIC, BROKER, level - 1)
        messages = self._checker.messages(level, lane)
        while self._course.is_running():
            message_id, message = next(messages)
            self._checker.began(message_id, time.time_ns() // 1_000_000)
            try:
                await producer.send(message, queue=queue)
            except (RingmqError, OSError):
                await asyncio.sleep(PAUSE_S)
                continue
            self._checker.acknowledged(message_id)
            await asyncio.sleep(PAUSE_S / 2)  # poll
