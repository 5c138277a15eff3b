"""The loads of the drill's own topic: sends by several lanes to each queue, and readers that follow them."""

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from ringmq.client import MessageQueue, Producer, RingmqError
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.loadtest.drills.checker import Violation
from ringmq.loadtest.drills.load import BROKER, Course, Tasks
from ringmq.loadtest.drills.reads import QUEUES, TOPIC, follow, id_of, max_offset, read_up_to
from ringmq.loadtest.drills.sends import lane_messages
from ringmq.remoting.message import MessageExt

IN_FLIGHT_PER_QUEUE = 4
PAUSE_S = 0.01


class SendLoad:
    """Sends, each recorded before it leaves."""

    settings: ClassVar[Mapping[str, object]] = {}

    def __init__(self, course: Course) -> None:
        self._course = course
        self._sent = 0

    def tasks(self, producer: Producer, client: RemotingClient) -> Tasks:
        """All lanes of all queues."""
        lanes = [(queue_id, lane) for queue_id in range(QUEUES) for lane in range(IN_FLIGHT_PER_QUEUE)]
        return [self._produce(producer, queue_id, lane) for queue_id, lane in lanes]

    async def verdict(self, client: RemotingClient) -> list[Violation]:
        """Leave the verdict to the readers."""
        return []

    @property
    def counts(self) -> Mapping[str, int]:
        """All sends, and those that were acknowledged."""
        return {"sends": self._sent, "acknowledged": self._course.checker.acknowledged_count}

    async def _produce(self, producer: Producer, queue_id: int, lane: int) -> None:
        course, queue = self._course, MessageQueue(TOPIC, BROKER, queue_id)
        messages = lane_messages(course.checker, queue_id, lane)
        while course.is_running():
            message_id, message = next(messages)
            self._sent += 1
            try:
                result = await producer.send(message, queue=queue)
            except (RingmqError, OSError):
                await asyncio.sleep(PAUSE_S)
                continue
            course.checker.acknowledged(message_id, TOPIC, result.queue.queue_id, result.queue_offset)
            course.ends[queue_id] = max(course.ends[queue_id], result.queue_offset + 1)
            course.acknowledged.set()


class ReadLoad:
    """Reads of all readable messages during the drill, and of all messages at its end, both from the first one on."""

    settings: ClassVar[Mapping[str, object]] = {}

    def __init__(self, course: Course) -> None:
        self._course = course
        self._read = 0

    def tasks(self, producer: Producer, client: RemotingClient) -> Tasks:
        """A reader of each queue."""
        return [follow(client, self._course, (TOPIC, queue_id), self._take) for queue_id in range(QUEUES)]

    async def verdict(self, client: RemotingClient) -> list[Violation]:
        """Read the queues at the end, from first to last, and judge all sends and reads."""
        course = self._course
        for queue_id in range(QUEUES):
            end = await self._shown_end(client, queue_id)
            take = partial(self._take_final, queue_id)
            await read_up_to(client, course.address(), queue_id, end, take, course.timeout_s)
        return course.checker.verdict()

    @property
    def counts(self) -> Mapping[str, int]:
        """Messages that the readers got during the drill."""
        return {"read while it ran": self._read}

    def _take(self, message: MessageExt) -> None:
        self._read += 1
        self._course.checker.read(TOPIC, message.queue_id, message.queue_offset, id_of(message))
        for take in self._course.reads:
            take(message)

    def _take_final(self, queue_id: int, message: MessageExt) -> None:
        self._course.checker.final_read(TOPIC, queue_id, message.queue_offset, id_of(message))
        for take in self._course.final_reads:
            take(queue_id, message)

    async def _shown_end(self, client: RemotingClient, queue_id: int) -> int:
        """Return the queue's end, once a restarted control answers and dispatch shows all acknowledged messages.

        If that never happens, the checker reports it.
        """
        deadline = time.monotonic() + self._course.timeout_s
        while True:
            try:
                end = await max_offset(client, self._course.address(), queue_id)
            except (RingmqError, OSError):
                if time.monotonic() > deadline:
                    raise
            else:
                if end >= self._course.ends[queue_id] or time.monotonic() > deadline:
                    return end
            await asyncio.sleep(PAUSE_S)  # poll
