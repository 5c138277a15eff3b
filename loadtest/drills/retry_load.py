"""The load of failed messages beside a drill: send-backs up to the dead letters, and an ordered group whose handler
fails.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import ClassVar

from ringmq.client import (
    ConsumeFrom,
    Consumer,
    ConsumeRetry,
    MessageExt,
    MessageQueue,
    Producer,
    RingmqError,
    compose_message,
)
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.loadtest.drills.checker import Violation
from ringmq.loadtest.drills.delays import DELAYS_MS
from ringmq.loadtest.drills.load import BROKER, Course, Tasks
from ringmq.loadtest.drills.reads import TIMEOUT_MS, id_of, pull, read_until
from ringmq.loadtest.drills.retries import RETRIES_MAX, OrderChecker, RetryChecker
from ringmq.remoting.client_headers import ConsumerSendMsgBackRequestHeader
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.names import dlq_topic, retry_topic

FAILING_TOPIC, FAILING_GROUP = "DrillFails", "drill_fails"
ORDERED_TOPIC, ORDERED_GROUP, ORDERED_QUEUES = "DrillOrdered", "drill_ordered", 2
LEVEL = 1
SEND_BACK_TIMES = 20
"""Requests for one copy. A broker that was killed answers none for some seconds."""
PAUSE_S = 0.02


class RetryLoad:
    """Failed messages, sent back by hand and by a member of an ordered group."""

    settings: ClassVar[Mapping[str, object]] = {}

    def __init__(self, course: Course) -> None:
        self._course = course
        self._retries, self._order = RetryChecker(DELAYS_MS[LEVEL - 1]), OrderChecker()

    def tasks(self, producer: Producer, client: RemotingClient) -> Tasks:
        """Producers and consumers of both topics."""
        return [
            self._fail(producer, client),
            self._fail_again(client),
            *(self._produce_ordered(producer, queue_id) for queue_id in range(ORDERED_QUEUES)),
            self._consume_ordered(),
        ]

    @property
    def counts(self) -> Mapping[str, int]:
        """Answered send-backs, and settled messages of the ordered group."""
        return {"sent back": self._retries.answered_count, "in an ordered group": self._order.settled_count}

    async def verdict(self, client: RemotingClient) -> list[Violation]:
        """Read the copies, once they are all there."""
        places = [(topic, 0) for topic in (retry_topic(FAILING_GROUP), dlq_topic(FAILING_GROUP))]
        await read_until(client, self._course, places, self._retries.stored, lambda: self._retries.has_all)
        committed = {queue_id: await self._committed(client, queue_id) for queue_id in range(ORDERED_QUEUES)}
        await read_until(
            client, self._course, [(dlq_topic(ORDERED_GROUP), 0)],
            lambda message: self._order.dead(message.properties["ORIGIN_MESSAGE_ID"]),
            lambda: self._order.has_dead(committed),
        )  # fmt: skip
        return self._retries.verdict() + self._order.verdict(committed)

    # ---- send-backs ----

    async def _fail(self, producer: Producer, client: RemotingClient) -> None:
        """Send messages, and send each back."""
        number = 0
        while self._course.is_running():
            number += 1
            body = f"{number}".encode() + b"." * (number * 41 % 300)
            try:
                result = await producer.send(compose_message(FAILING_TOPIC, body, keys=str(number)))
            except (RingmqError, OSError):
                await asyncio.sleep(PAUSE_S)
                continue
            await self._send_back(client, str(number), 1, int(result.offset_message_ids[0][-16:], 16))
            await asyncio.sleep(PAUSE_S)

    async def _fail_again(self, client: RemotingClient) -> None:
        """Send the retries back, until they are dead letters."""
        offset = 0
        while self._course.is_running():
            try:
                messages, offset = await pull(client, self._course.address(), 0, offset, retry_topic(FAILING_GROUP))
            except (RingmqError, OSError):
                messages = []
            for message in messages:
                times = message.reconsume_times + 1
                await self._send_back(client, id_of(message), times, message.commit_log_offset)
            if not messages:
                await asyncio.sleep(PAUSE_S)

    async def _send_back(self, client: RemotingClient, message_id: str, times: int, log_offset: int) -> None:
        """Send a message back until it is answered 0, or the load ends."""
        header = ConsumerSendMsgBackRequestHeader(
            offset=log_offset, group=FAILING_GROUP, delay_level=LEVEL, origin_msg_id=message_id,
            origin_topic=FAILING_TOPIC, unit_mode=False, max_reconsume_times=RETRIES_MAX,
        )  # fmt: skip
        for _ in range(SEND_BACK_TIMES):
            self._retries.asks(message_id, times, time.time_ns() // 1_000_000)
            request = RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, header.encode())
            try:
                answer = await client.invoke(self._course.address(), request, timeout_ms=TIMEOUT_MS)
            except (RingmqError, OSError):
                answer = None
            if answer is not None and answer.code == 0:
                self._retries.answered(message_id, times)
                return
            if not self._course.is_running():
                return
            await asyncio.sleep(5 * PAUSE_S)

    # ---- an ordered group ----

    async def _produce_ordered(self, producer: Producer, queue_id: int) -> None:
        queue = MessageQueue(ORDERED_TOPIC, BROKER, queue_id)
        while self._course.is_running():
            try:
                result = await producer.send(compose_message(ORDERED_TOPIC, b"ordered"), queue=queue)
            except (RingmqError, OSError):
                await asyncio.sleep(PAUSE_S)
                continue
            self._order.acknowledged(queue_id, result.queue_offset)
            await asyncio.sleep(2 * PAUSE_S)

    async def _consume_ordered(self) -> None:
        """Run a member until the load has ended and all is settled."""

        async def handle(message: MessageExt) -> None:
            if self._order.handled(message.queue_id, message.queue_offset, message.offset_msg_id):
                raise ValueError("planned")

        retry = ConsumeRetry(max_reconsume_times=RETRIES_MAX, suspend_ms=20, local_first_ms=50, local_max_ms=200)
        async with Consumer(
            ORDERED_TOPIC, self._course.namesrv, ORDERED_GROUP, ordered=True, consume_from=ConsumeFrom.FIRST
        ) as consumer:
            running = asyncio.create_task(consumer.run(handle, retry=retry))
            while self._course.is_running():
                await asyncio.sleep(PAUSE_S)  # poll
            deadline = time.monotonic() + self._course.timeout_s
            while not self._order.is_done and time.monotonic() < deadline:
                await asyncio.sleep(PAUSE_S)  # poll
            await consumer.close()
            await running

    # ---- the end ----

    async def _committed(self, client: RemotingClient, queue_id: int) -> int:
        fields = {"consumerGroup": ORDERED_GROUP, "topic": ORDERED_TOPIC, "queueId": str(queue_id)}
        code, timeout_ms = RequestCode.QUERY_CONSUMER_OFFSET, int(1000 * self._course.timeout_s)
        answer = await client.call(self._course.address(), code, fields, timeout_ms=timeout_ms)
        return int(answer.ext_fields["offset"])
