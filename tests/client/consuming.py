"""What tests of consumers do with a fake broker: fill queues, take messages, run handlers until something holds."""

import asyncio
from collections.abc import Callable
from typing import Any

from ringmq.client import ConsumeFrom, Consumer, ConsumeRetry, MessageExt
from tests.client.fake_broker import FakeCluster
from tests.waiting import until

Eventually = Callable[..., Any]
"""The fixture `eventually`."""
FAST = ConsumeRetry(local_first_ms=5, local_max_ms=10, suspend_ms=5)


def fill(cluster: FakeCluster, topic: str, queue_id: int, count: int, tags: str = "t") -> None:
    for i in range(count):
        cluster.broker.store(
            MessageExt(topic, b"%d" % i, {"TAGS": tags}, queue_id=queue_id, commit_log_offset=1000 * queue_id + i)
        )


def consumer_of(cluster: FakeCluster, **options: Any) -> Consumer:
    """A consumer of T from its first message on."""
    return Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST, **options)


async def take(consumer: Consumer, count: int) -> list[MessageExt]:
    messages: list[MessageExt] = []
    async with asyncio.timeout(60):
        while len(messages) < count:
            messages += await consumer.poll(count - len(messages))
    return messages


async def run_until(consumer: Consumer, done: Callable[[], object], handler: Any, **options: Any) -> None:
    """Handlers run until `done()`, then the consumer is closed and `run` has to return."""
    running = asyncio.create_task(consumer.run(handler, **options))
    await until(lambda: done() or running.done(), "the handlers have done their work")
    async with asyncio.timeout(60):
        await consumer.close()
        await running
    assert done(), "the run has ended before"
