"""Consumer features against real servers, RingMQ and stock RocketMQ: the same tests for both, over both transports."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringmq.client import (
    BrokerError,
    ConsumeFrom,
    Consumer,
    ConsumeRetry,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    RejectMessage,
    RetryLater,
    RouteError,
    Sql92,
    compose_message,
)
from tests.client.awaited import AwaitedConsumer, transports
from tests.client.consuming import Eventually
from tests.conformance.servers import Server
from tests.waiting import until

pytestmark = pytest.mark.timeout(180)
QUICK = ConsumeRetry(local_first_ms=50, local_max_ms=100, suspend_ms=50)
transport = transports(AwaitedConsumer)


def consumer_of(server: Server, topics: Any, group: str, **options: Any) -> Consumer:
    return Consumer(topics, server.namesrv, group, consume_from=ConsumeFrom.FIRST, **options)


async def fill(server: Server, topic: str, count: int, queues: int = 4) -> list[MessageQueue]:
    """`count` numbered messages in each of the topic's first queues."""
    async with Producer(server.namesrv) as producer:
        await producer.send(Message(topic, b"first"))
        found = list(await producer.queues(topic))[:queues]
        for queue in found:
            for i in range(count):
                await producer.send(compose_message(topic, b"%d" % i), queue=queue)
    return found


async def run_until(consumer: Consumer, done: Callable[[], object], handler: Any, **options: Any) -> None:
    running = asyncio.create_task(consumer.run(handler, **options))
    await until(done, "the handlers have done their work")
    async with asyncio.timeout(60):
        await consumer.close()
        await running


async def dead_letters(server: Server, group: str, count: int) -> list[MessageExt]:
    """At least `count` messages of the group's dead letter topic, and what comes within another second."""
    dead: list[MessageExt] = []
    async with consumer_of(server, None, f"r_{group}") as reader, asyncio.timeout(60):
        while len(dead) < count:
            try:
                if not reader.assignment():
                    await reader.assign(await reader.queues(f"%DLQ%{group}"))
            except RouteError:
                await asyncio.sleep(0.2)  # poll: the topic is made with its first message
                continue
            dead += await reader.poll(timeout_ms=1000)
        return dead + await reader.poll(timeout_ms=1000)


async def test_handlers_get_everything_and_their_group_goes_on_behind_it(server: Server, topic: str) -> None:
    await fill(server, topic, 25)
    seen: list[MessageExt] = []

    async def handle(message: MessageExt) -> None:
        seen.append(message)

    group = f"g_{topic}"
    async with consumer_of(server, topic, group) as consumer:
        await run_until(consumer, lambda: len(seen) == 101, handle, concurrency=8)
    async with consumer_of(server, topic, group) as consumer:
        assert await consumer.poll(timeout_ms=500) == []
        committed = [await consumer.committed(queue) for queue in await consumer.queues(topic)]
    assert sum(offset or 0 for offset in committed) == 101


async def test_a_failed_message_comes_again(server: Server, topic: str) -> None:
    """From the retry topic of its group."""
    await fill(server, topic, 3)
    tries: dict[tuple[int, bytes], list[int]] = defaultdict(list)

    async def handle(message: MessageExt) -> None:
        assert message.topic == topic
        times = tries[message.born_timestamp_ms, message.msg_id.encode()]
        times.append(message.reconsume_times)
        if message.body == b"1" and len(times) < 3:
            raise ValueError("not yet") if len(times) == 1 else RetryLater(1)

    def done() -> bool:
        return len(tries) == 13 and sorted(map(len, tries.values())) == [1] * 9 + [3] * 4

    async with consumer_of(server, topic, f"g_{topic}") as consumer:
        await run_until(consumer, done, handle, retry=QUICK)
    assert [times for times in tries.values() if len(times) == 3] == [[0, 1, 2]] * 4


async def test_after_too_many_failures_a_message_is_a_dead_letter(server: Server, topic: str) -> None:
    group = f"g_{topic}"
    await fill(server, topic, 3, queues=1)
    tries: dict[bytes, int] = defaultdict(int)

    async def handle(message: MessageExt) -> None:
        tries[message.body] += 1
        if message.body == b"0":
            raise ValueError("never")
        if message.body == b"1":
            raise RejectMessage

    async with consumer_of(server, topic, group) as consumer:
        retry = ConsumeRetry(max_reconsume_times=1, delay_level=1)
        await run_until(consumer, lambda: len(tries) == 4 and tries[b"0"] == 2, handle, retry=retry)
    dead = await dead_letters(server, group, 2)
    assert {message.body for message in dead} == {b"0", b"1"}
    assert tries == {b"first": 1, b"0": 2, b"1": 1, b"2": 1}


async def test_a_rejected_message_is_one_dead_letter_and_acknowledged(server: Server, topic: str) -> None:
    group = f"g_{topic}"
    await fill(server, topic, 3, queues=1)
    async with consumer_of(server, topic, group, auto_ack=False) as consumer:
        messages: list[MessageExt] = []
        async with asyncio.timeout(60):
            while len(messages) < 4:
                messages += await consumer.poll()
        rejected = next(message for message in messages if message.body == b"1")
        assert sorted(await asyncio.gather(consumer.reject(rejected), consumer.reject(rejected))) == [False, True]
        assert not await consumer.reject(rejected)
        assert consumer.ack(messages) == 3, "the rejected one is acknowledged already"
    (dead,) = await dead_letters(server, group, 1)
    assert (dead.body, dead.reconsume_times) == (b"1", 1)
    assert dead.properties["ORIGIN_MESSAGE_ID"] == rejected.offset_msg_id
    assert dead.properties["RETRY_TOPIC"] == topic
    async with consumer_of(server, topic, group) as consumer:
        assert await consumer.poll(timeout_ms=500) == []


async def test_members_of_an_ordered_group_hand_queues_over_in_order(
    server: Server, topic: str, eventually: Eventually
) -> None:
    await fill(server, topic, 60, queues=2)
    group = f"g_{topic}"
    order: dict[int, list[int]] = defaultdict(list)
    names: set[str] = set()

    def handler(name: str) -> Any:
        async def handle(message: MessageExt) -> None:
            order[message.queue_id].append(message.queue_offset)
            names.add(name)
            await asyncio.sleep(0.01)  # span: so that the second member gets some
            if message.queue_offset == 7 and order[message.queue_id].count(7) == 1:
                raise ValueError("again")

        return handle

    def done() -> bool:
        return sum(len(set(found)) for found in order.values()) == 121

    async with consumer_of(server, topic, group, ordered=True) as first:
        one = asyncio.create_task(first.run(handler("first"), retry=QUICK))
        await eventually(lambda: order)
        async with consumer_of(server, topic, group, ordered=True) as second:
            await run_until(second, done, handler("second"), retry=QUICK)
        await first.close()
        await one
    for found in order.values():
        without_repetition = [offset for at, offset in enumerate(found) if not (offset == 7 and found[at - 1] == 7)]
        assert without_repetition == list(range(len(without_repetition)))


async def test_broadcasting_members_get_everything_each(server: Server, topic: str, tmp_path: Path) -> None:
    await fill(server, topic, 10)

    async def read(name: str, expected: int) -> int:
        count = 0
        path = tmp_path / f"{name}.json"
        async with consumer_of(server, topic, f"g_{topic}", broadcast=True, offset_file=path) as consumer:
            while messages := await consumer.poll(timeout_ms=60_000 if count < expected else 200):
                count += len(messages)
        return count

    assert await asyncio.gather(read("a", 41), read("b", 41)) == [41, 41]
    await fill(server, topic, 1)
    assert await read("a", 5) == 5


async def test_assigned_queues_seeks_and_pauses(server: Server, topic: str) -> None:
    queues = await fill(server, topic, 5, queues=2)
    middle_ms = int(time.time() * 1000)
    await asyncio.sleep(0.005)  # span: between the times of the messages
    await fill(server, topic, 5, queues=2)
    async with consumer_of(server, None, f"g_{topic}", auto_ack=False) as consumer:
        await consumer.assign(queues)
        for queue in queues:
            await consumer.seek_to_timestamp(queue, middle_ms)
        consumer.pause(queues[:1])
        messages: list[MessageExt] = []
        while found := await consumer.poll(timeout_ms=60_000 if len(messages) < 5 else 300):
            messages += found
        assert {m.queue_id for m in messages} == {queues[1].queue_id}
        assert {b"%d" % i for i in range(5)} <= {m.body for m in messages}
        assert all(m.store_timestamp_ms >= middle_ms for m in messages)
        consumer.resume(queues)
        assert {m.queue_id for m in await consumer.poll(timeout_ms=60_000)} == {queues[0].queue_id}
        consumer.ack(messages)
        await consumer.commit()
        assert await consumer.committed(queues[1]) == messages[-1].queue_offset + 1


async def test_the_broker_filters_by_sql92(server: Server, topic: str) -> None:
    async with Producer(server.namesrv) as producer:
        for i in range(20):
            await producer.send(compose_message(topic, b"%d" % i, properties={"amount": str(i)}))
    chosen = {topic: Sql92("amount >= 15 AND amount < 18")}
    bodies: set[bytes] = set()
    async with consumer_of(server, chosen, f"g_{topic}") as consumer:
        async with asyncio.timeout(60):
            while len(bodies) < 3:
                bodies |= {m.body for m in await consumer.poll()}
        assert await consumer.poll(timeout_ms=300) == []
    assert bodies == {b"15", b"16", b"17"}
    with pytest.raises(BrokerError):
        await consumer_of(server, {topic: Sql92("amount >>")}, f"g2_{topic}").start()
