"""Where messages go and how they travel, against real servers, RingMQ and stock: the same tests, both transports."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest

from ringmq.client import (
    ConsumeFrom,
    Consumer,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
)
from tests.client.awaited import AwaitedProducer, transports
from tests.conformance.servers import Server

pytestmark = pytest.mark.timeout(180)
transport = transports(AwaitedProducer)


async def read_all(server: Server, topic: str, count: int) -> list[MessageExt]:
    messages: list[MessageExt] = []
    async with (
        Consumer(topic, server.namesrv, f"g_{topic}", consume_from=ConsumeFrom.FIRST) as consumer,
        asyncio.timeout(60),
    ):
        while len(messages) < count:
            messages += await consumer.poll()
    return messages


async def test_a_queue_a_selector_and_a_key_decide_where_messages_go(server: Server, topic: str) -> None:
    def by_length(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        return queues[len(message.body) % len(queues)]

    async with Producer(server.namesrv) as producer:
        queues = await producer.queues(topic)
        sent: dict[bytes, Any] = {b"to one": await producer.send(Message(topic, b"to one"), queue=queues[2])}
        for body in (b"x", b"xx", b"xxx"):
            sent[body] = await producer.send(Message(topic, body), selector=by_length)
        for number in range(10):
            body = b"keyed %d" % number
            sent[body] = await producer.send(Message(topic, body), sharding_key="orderId")
    by_body = {m.body: m for m in await read_all(server, topic, 14)}
    assert by_body.keys() == sent.keys()
    for body, result in sent.items():
        assert (by_body[body].queue_id, by_body[body].queue_offset) == (result.queue.queue_id, result.queue_offset)
    assert [by_body[body].queue_id for body in (b"to one", b"x", b"xx", b"xxx")] == [2, 1, 2, 3]
    keyed = [m for m in by_body.values() if m.body.startswith(b"keyed")]
    assert len({m.queue_id for m in keyed}) == 1
    assert {m.properties["__SHARDINGKEY"] for m in keyed} == {"orderId"}
    assert [m.body for m in sorted(keyed, key=lambda m: m.queue_offset)] == [b"keyed %d" % n for n in range(10)]


async def test_messages_that_linger_are_stored_where_their_results_say(server: Server, topic: str) -> None:
    async with Producer(server.namesrv, linger_ms=50) as producer:
        queues = await producer.queues(topic)
        bodies = [b"%d" % number for number in range(60)]
        results = await asyncio.gather(
            *(producer.send(Message(topic, body), queue=queues[at % 2]) for at, body in enumerate(bodies))
        )
    places: dict[tuple[int, int], bytes] = {}
    offsets: dict[int, list[int]] = defaultdict(list)
    for message in await read_all(server, topic, 60):
        places[message.queue_id, message.queue_offset] = message.body
        offsets[message.queue_id].append(message.queue_offset)
    assert [places[result.queue.queue_id, result.queue_offset] for result in results] == bodies
    assert offsets == {0: list(range(30)), 1: list(range(30))}
    assert len({result.message_id for result in results}) == 60
