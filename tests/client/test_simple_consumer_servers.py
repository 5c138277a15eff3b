"""The consumer by POP beside real servers, RingMQ and stock RocketMQ: the same tests for both, by both transports.

A stock broker gives messages again 2 to 4 s after their time. A late look at one of its topics of retries may take the
rest of a wait.
"""

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ringmq.client import (
    BrokerError,
    ConsumeFrom,
    Message,
    PoppedMessage,
    Producer,
    ReceiptExpiredError,
    SimpleConsumer,
    Sql92,
    compose_message,
)
from tests.client.awaited import STOCK_BY_ASYNCIO, AwaitedSimpleConsumer, transports
from tests.client.test_consumer_servers import dead_letters
from tests.conformance.servers import RingmqServer, Server

pytestmark = pytest.mark.timeout(240)
transport = transports(AwaitedSimpleConsumer)
LONG_MS = 600_000
"""An invisible time that no test waits for."""
FIRST_MS = 60_000
"""The wait of a pop for which RingMQ may have to start its worker. On a busy machine that takes seconds."""
AGAIN_MS = 2000
"""The wait of a pop for messages that come again: stock's pops look for them when they begin."""


def consumer_of(server: Server, topics: Any, topic: str, **options: Any) -> SimpleConsumer:
    return SimpleConsumer(topics, server.namesrv, f"g_{topic}", consume_from=ConsumeFrom.FIRST, **options)


async def fill(server: Server, topic: str, count: int, first: int = 0, **parts: Any) -> None:
    async with Producer(server.namesrv) as producer:
        await producer.send_all(
            [compose_message(topic, b"%d" % n, **parts) for n in range(first, first + count)], pipeline=8
        )


async def take(
    consumer: SimpleConsumer, count: int, invisible_ms: int = LONG_MS, wait_ms: int = FIRST_MS
) -> list[PoppedMessage]:
    found: list[PoppedMessage] = []
    async with asyncio.timeout(120):
        while len(found) < count:
            found += await consumer.receive(min(32, count - len(found)), wait_ms=wait_ms, invisible_ms=invisible_ms)
    return found


async def test_members_share_the_messages_of_all_queues(server: Server, topic: str) -> None:
    await fill(server, topic, 200, tags="t", keys="k")
    got: Counter[bytes] = Counter()
    async with consumer_of(server, topic, topic) as first, consumer_of(server, topic, topic) as second:

        async def work(consumer: SimpleConsumer, together: bool) -> None:
            while got.total() < 200:
                messages = await consumer.receive(7, wait_ms=500 if got else FIRST_MS, invisible_ms=LONG_MS)
                got.update(message.body for message in messages)
                for done in [messages] if together else [[message] for message in messages]:
                    await consumer.ack(done)

        async with asyncio.timeout(120):
            await asyncio.gather(
                *(work(consumer, together) for consumer in (first, second) for together in (False, True))
            )
    assert got == {b"%d" % n: 1 for n in range(200)}


async def test_a_wait_ends_with_a_message(server: Server, topic: str) -> None:
    await fill(server, topic, 1)
    async with consumer_of(server, topic, topic) as consumer:
        (first,) = await take(consumer, 1)
        await consumer.ack(first)
        waiting = asyncio.create_task(consumer.receive(wait_ms=60_000))
        await asyncio.sleep(0.3)  # span: the broker holds the pop
        await fill(server, topic, 1, 1)
        (message,) = await waiting
        await consumer.ack(message)
        began = time.monotonic()
        assert await consumer.receive(wait_ms=600) == []
        assert time.monotonic() - began >= 0.5
    assert (message.body, message.attempt) == (b"1", 1)


@STOCK_BY_ASYNCIO
async def test_messages_come_again_until_they_are_acknowledged(server: Server, topic: str) -> None:
    await fill(server, topic, 4)
    async with consumer_of(server, topic, topic) as consumer:
        first = {message.body: message for message in await take(consumer, 4)}
        await consumer.ack(first[b"0"])
        for body in (b"1", b"2", b"3"):
            await consumer.change_invisible(first[body], 300)
        again = {message.body: message for message in await take(consumer, 3, wait_ms=AGAIN_MS)}
        assert again.keys() == {b"1", b"2", b"3"}
        for message in again.values():
            assert (message.topic, message.attempt) == (topic, 2)
            assert message.read_topic == f"%RETRY%g_{topic}_{topic}"
        with pytest.raises(ReceiptExpiredError):
            await consumer.change_invisible(first[b"1"], 1000)
        await consumer.ack([again[b"1"], again[b"2"]])
        await consumer.nack(again[b"3"])
        (third,) = await take(consumer, 1, wait_ms=AGAIN_MS)
        assert (third.body, third.attempt) == (b"3", 3)
        await consumer.ack(third)
        assert await consumer.receive(wait_ms=3000) == []


@STOCK_BY_ASYNCIO
async def test_a_renewed_message_does_not_come_again(server: Server, topic: str) -> None:
    await fill(server, topic, 2)
    async with consumer_of(server, topic, topic) as consumer:
        messages = {message.body: message for message in await take(consumer, 2, 5000)}
        await consumer.change_invisible(messages[b"0"], LONG_MS)
        (again,) = await take(consumer, 1, wait_ms=AGAIN_MS)
        assert again.body == b"1"
        await consumer.ack([messages[b"0"], again])
        assert await consumer.receive(wait_ms=1000) == []


async def test_filters_choose_messages(server: Server, topic: str) -> None:
    for number in range(8):
        await fill(server, topic, 1, number, tags="AB"[number % 2], properties={"size": str(number)})
    async with consumer_of(server, {topic: "B || C"}, topic) as consumer:
        assert sorted(message.body for message in await take(consumer, 4)) == [b"1", b"3", b"5", b"7"]
        assert await consumer.receive(wait_ms=300) == []
    condition = Sql92("size > 4")
    async with SimpleConsumer({topic: condition}, server.namesrv, f"s_{topic}", consume_from=ConsumeFrom.FIRST) as one:
        assert sorted(message.body for message in await take(one, 3)) == [b"5", b"6", b"7"]
    with pytest.raises(BrokerError):
        async with consumer_of(server, {topic: Sql92("size >")}, topic):
            pass


async def test_a_rejected_message_is_a_dead_letter(server: Server, topic: str) -> None:
    await fill(server, topic, 2)
    async with consumer_of(server, topic, topic) as consumer:
        first, second = await take(consumer, 2)
        await consumer.ack(second)
        await consumer.reject(first)
        (dead,) = await dead_letters(server, f"g_{topic}", 1)
        assert dead.body == first.body
        assert await consumer.receive(wait_ms=300) == []


async def test_several_topics_have_one_consumer(server: Server, topic: str) -> None:
    other = f"{topic}_2"
    await fill(server, topic, 20)
    await fill(server, other, 20)
    async with consumer_of(server, {topic: "*", other: "*"}, topic) as consumer:
        messages = await take(consumer, 40)
        await consumer.ack(messages)
        assert Counter(message.topic for message in messages) == {topic: 20, other: 20}
        waiting = asyncio.create_task(consumer.receive(wait_ms=60_000))
        await asyncio.sleep(0.3)  # span: it waits at one of the topics
        await fill(server, other, 1)
        assert [message.topic for message in await waiting] == [other]


async def test_an_ordered_queue_waits_for_its_batch(server: Server, topic: str) -> None:
    async with Producer(server.namesrv) as producer:
        await producer.send(Message(topic, b"0"))
        for number in range(1, 6):
            await producer.send(Message(topic, b"%d" % number), sharding_key="one")
    async with consumer_of(server, topic, topic, ordered=True) as consumer:
        order: list[bytes] = []
        async with asyncio.timeout(120):
            while len(order) < 6:
                messages = await consumer.receive(2, wait_ms=2000, invisible_ms=LONG_MS)
                if any(message.body != b"0" for message in messages):
                    behind = await consumer.receive(2, wait_ms=0, invisible_ms=LONG_MS)
                    assert [message.body for message in behind] in ([], [b"0"])  # it is of another queue
                    messages += behind
                order += [message.body for message in messages]
                for message in messages:
                    await consumer.ack(message)
    assert [body for body in order if body != b"0"] == [b"1", b"2", b"3", b"4", b"5"]


async def test_a_new_topic_is_found(server: Server, topic: str) -> None:
    async with consumer_of(server, topic, topic) as consumer:
        waiting = asyncio.create_task(consumer.receive(wait_ms=60_000))
        await asyncio.sleep(0.2)  # span: the consumer finds no route
        await fill(server, topic, 1)
        (message,) = await waiting
        assert message.body == b"0"


async def test_receipts_outlive_a_restart_of_the_broker(tmp_path: Path, topic: str) -> None:
    server = RingmqServer(tmp_path, {"mappedFileSizeCommitLog": 8 << 20})
    try:
        await fill(server, topic, 9)
        async with consumer_of(server, topic, topic) as consumer:
            one, *several = await take(consumer, 9)
            waiting = asyncio.create_task(consumer.receive(wait_ms=60_000))
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.restart)
            await consumer.ack(one)
            await consumer.ack(several[:4])
            for message in several[4:]:
                await consumer.nack(message)
            again = await waiting
            again += await take(consumer, 4 - len(again)) if len(again) < 4 else []
            assert {message.body for message in again} == {message.body for message in several[4:]}
            await consumer.ack(again)
            assert await consumer.receive(wait_ms=500) == []
    finally:
        server.close()
