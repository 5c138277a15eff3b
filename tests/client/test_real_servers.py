"""The SDK against real servers, RingMQ and stock RocketMQ: the same tests for both."""

import asyncio
from functools import partial

import pytest

from ringmq.client import (
    BodyRules,
    BrokerError,
    Compression,
    ConsumeFrom,
    Consumer,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    SendError,
    compose_message,
)
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.message import decode_messages
from tests.conformance import servers
from tests.raw_client import RawClient
from tests.waiting import until

pytestmark = pytest.mark.timeout(180)


async def take(consumer: Consumer, count: int) -> list[MessageExt]:
    messages: list[MessageExt] = []
    async with asyncio.timeout(60):
        while len(messages) < count:
            messages += await consumer.poll()
    return messages


async def test_what_is_sent_comes_back_whole_and_in_order(server: servers.Server, topic: str) -> None:
    async with Producer(server.namesrv) as producer:
        await producer.send(compose_message(topic, b"first", tags="t", keys="k", properties={"p": "ü"}))
        queue = (await producer.queues(topic))[0]
        sent = await producer.send_all([compose_message(topic, b"%d" % i, tags="t") for i in range(500)])
        together = [compose_message(topic, b"b%d" % i, tags="t") for i in range(20)]
        batch = await producer.send_batch(together, queue=queue)
        assert len(set(batch.offset_message_ids)) == 20
    async with Consumer({topic: "t"}, server.namesrv, f"g_{topic}", consume_from=ConsumeFrom.FIRST) as consumer:
        messages = await take(consumer, 521)
    assert len({m.msg_id for m in messages}) == 521
    assert len({m.body for m in messages}) == 521
    first = next(m for m in messages if m.body == b"first")
    assert (first.tags, first.keys, first.properties["p"]) == ("t", ["k"], "ü")
    by_queue: dict[MessageQueue, list[int]] = {}
    for message in messages:
        place = MessageQueue(topic, message.broker_name, message.queue_id)
        by_queue.setdefault(place, []).append(message.queue_offset)
    for offsets in by_queue.values():
        assert offsets == list(range(len(offsets)))
    at = {(m.queue_id, m.queue_offset): m.msg_id for m in messages}
    assert all(at[r.queue.queue_id, r.queue_offset] == r.message_id for r in sent)


def found_by_id(server: servers.Server, topic: str, message_id: str) -> list[bytes]:
    """The bodies of the messages that a query by their unique key finds."""
    fields = {"topic": topic, "key": message_id, "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 62}
    with RawClient(server.broker) as client:
        answer = client.ask(RequestCode.QUERY_MESSAGE, fields | {"_UNIQUE_KEY_QUERY": "true"})
    found = decode_messages(answer.body)
    return [message.body for message in found if message.uniq_key == message_id]  # stock's mqadmin compares, too


async def test_messages_that_travel_together_keep_their_own_ids(server: servers.Server, topic: str) -> None:
    together = [compose_message(topic, b"batch %d" % i) for i in range(3)]
    alone = [compose_message(topic, b"linger %d" % i) for i in range(3)]
    async with Producer(server.namesrv, linger_ms=50) as producer:
        ids = list((await producer.send_batch(together)).message_ids)
        ids += [result.message_id for result in await asyncio.gather(*map(producer.send, alone))]
    async with Consumer(topic, server.namesrv, f"g_{topic}", consume_from=ConsumeFrom.FIRST) as consumer:
        received = {message.uniq_key: message.body for message in await take(consumer, 6)}
    assert received == dict(zip(ids, (message.body for message in together + alone), strict=True))
    for message_id, body in received.items():
        found = await until(partial(found_by_id, server, topic, str(message_id)), "the index has the message")
        assert found == [body]


@pytest.mark.parametrize("algorithm", [Compression.ZLIB, Compression.LZ4, Compression.ZSTD])
async def test_large_bodies_travel_compressed(server: servers.Server, topic: str, algorithm: Compression) -> None:
    body = b"0123456789abcdef" * 20_000
    async with (
        Consumer(topic, server.namesrv, f"g_{topic}") as consumer,
        Producer(server.namesrv, body_rules=BodyRules(compression=algorithm)) as producer,
    ):
        await producer.send(Message(topic, body))
        (message,) = await take(consumer, 1)
    assert message.body == body
    assert message.store_size < len(body) // 4


async def test_a_consumer_started_with_the_first_send_misses_nothing(server: servers.Server, topic: str) -> None:
    async with Producer(server.namesrv) as producer:
        sending = asyncio.create_task(producer.send_all([compose_message(topic, b"%d" % i) for i in range(100)]))
        async with Consumer(topic, server.namesrv, f"g_{topic}", consume_from=ConsumeFrom.FIRST) as consumer:
            found = {m.body for m in await take(consumer, 100)}
        await sending
    assert found == {b"%d" % i for i in range(100)}


async def test_tags_are_filtered(server: servers.Server, topic: str) -> None:
    tags = ["Aa", "BB", "C", None]
    async with Producer(server.namesrv) as producer:
        await producer.send_all([compose_message(topic, b"%d" % i, tags=tags[i % 4]) for i in range(80)])
    async with Consumer({topic: "BB || C"}, server.namesrv, f"g_{topic}", consume_from=ConsumeFrom.FIRST) as consumer:
        messages = await take(consumer, 40)
        assert await consumer.poll(timeout_ms=300) == []
    assert {m.tags for m in messages} == {"BB", "C"}


async def test_members_share_and_take_over(server: servers.Server, topic: str) -> None:
    def owned(consumer: Consumer) -> int:
        return sum(queue.topic == topic for queue in consumer.assignment())

    async with Producer(server.namesrv) as producer:
        await producer.send_all([Message(topic, b"%d" % i) for i in range(40)])
        async with Consumer(topic, server.namesrv, f"g_{topic}", consume_from=ConsumeFrom.FIRST) as first:
            await until(lambda: owned(first) == 4, "one member has all queues")
            seen = {m.body for m in await take(first, 40)}
            async with Consumer(topic, server.namesrv, f"g_{topic}") as second:
                await until(lambda: owned(first) == owned(second) == 2, "both have two queues")
                await producer.send_all([Message(topic, b"more%d" % i) for i in range(40)])
                both: set[bytes] = set()
                async with asyncio.timeout(60):
                    while len({b for b in both if b.startswith(b"more")}) < 40:
                        for consumer in (first, second):
                            both |= {m.body for m in await consumer.poll(timeout_ms=20)}
            await until(lambda: owned(first) == 4, "one member has all queues")
    assert len(seen) == 40


async def test_commit_survives_the_member_and_seek_goes_anywhere(server: servers.Server, topic: str) -> None:
    group = f"g_{topic}"
    async with Producer(server.namesrv) as producer:
        await producer.send(Message(topic, b"first"))
        queue = (await producer.queues(topic))[1]
        await producer.send_all([Message(topic, b"x")], pipeline=1)
        for i in range(10):
            await producer.send(Message(topic, b"%d" % i), queue=queue)
    async with Consumer(topic, server.namesrv, group, auto_ack=False, consume_from=ConsumeFrom.FIRST) as consumer:
        mine = [m for m in await take(consumer, 12) if m.queue_id == queue.queue_id]
        consumer.ack(m for m in mine if m.queue_offset != mine[4].queue_offset)
    async with Consumer(topic, server.namesrv, group, auto_ack=False) as consumer:
        again = [m for m in await take(consumer, len(mine) - 4) if m.queue_id == queue.queue_id]
        assert again[0].queue_offset == mine[4].queue_offset
        await consumer.seek(queue, mine[-2].queue_offset)
        async with asyncio.timeout(60):
            while (m := (await consumer.poll(1))[0]).queue_id != queue.queue_id:
                pass
        assert m.queue_offset == mine[-2].queue_offset
        await consumer.seek_to_timestamp(queue, mine[0].store_timestamp_ms)
        async with asyncio.timeout(60):
            while (m := (await consumer.poll(1))[0]).queue_id != queue.queue_id:
                pass
        assert m.queue_offset == mine[0].queue_offset


async def test_oneway_arrives(server: servers.Server, topic: str) -> None:
    async with Producer(server.namesrv) as producer, Consumer(topic, server.namesrv, f"g_{topic}") as consumer:
        for i in range(20):
            await producer.send_oneway(Message(topic, b"%d" % i))
        assert {m.body for m in await take(consumer, 20)} == {b"%d" % i for i in range(20)}


async def test_a_refusal_carries_the_broker_s_words(server: servers.Server, topic: str) -> None:
    async with Producer(server.namesrv) as producer:
        await producer.send(Message(topic, b"x"))
        queue = (await producer.queues(topic))[0]._replace(queue_id=77)
        with pytest.raises(SendError) as caught:
            await producer.send(Message(topic, b"x"), queue=queue)
        assert caught.value.code == 29
        assert isinstance(caught.value.cause, BrokerError)
        assert caught.value.remark
