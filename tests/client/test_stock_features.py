"""What stock RocketMQ serves beyond plain sends, by both transports of the SDK: delays, recall, requests with replies,
transactions."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ringmq.client import (
    BrokerError,
    ConsumeFrom,
    Consumer,
    Message,
    MessageExt,
    Producer,
    ReplyTimeoutError,
    SendError,
    TransactionProducer,
    TransactionState,
    compose_message,
    compose_reply,
)
from tests.client.awaited import AwaitedProducer, AwaitedTransactionProducer, transports
from tests.conformance import servers

pytestmark = pytest.mark.timeout(180)
transport = transports(AwaitedProducer, AwaitedTransactionProducer)


async def take(consumer: Consumer, count: int, timeout_s: float = 60) -> list[MessageExt]:
    messages: list[MessageExt] = []
    async with asyncio.timeout(timeout_s):
        while len(messages) < count:
            messages += await consumer.poll()
    return messages


def reading(server: servers.Server, topic: str) -> Consumer:
    return Consumer(topic, server.namesrv, f"g_{topic}", consume_from=ConsumeFrom.FIRST)


async def test_delayed_messages_come_later(server: servers.Server, topic: str) -> None:
    async with Producer(server.namesrv) as producer, reading(server, topic) as consumer:
        await producer.send(Message(topic, b"now"))
        await producer.send(compose_message(topic, b"level", delay_level=2))
        await producer.send(Message(topic, b"after"), delay=timedelta(seconds=2))
        await producer.send(Message(topic, b"at"), deliver_at=datetime.now(UTC) + timedelta(seconds=2))
        arrived = {m.body: m.store_timestamp_ms - m.born_timestamp_ms for m in await take(consumer, 4)}
    assert min(arrived[b"level"], arrived[b"after"], arrived[b"at"]) >= 900


async def test_a_delay_level_delays_at_both_brokers(server: servers.Server, topic: str) -> None:
    async with Producer(server.namesrv) as producer, reading(server, topic) as consumer:
        await producer.send(Message(topic, b"now"))
        await producer.send(compose_message(topic, b"level", delay_level=2))
        now, level = await take(consumer, 2)
    assert (now.body, level.body) == (b"now", b"level")
    assert level.store_timestamp_ms - max(level.born_timestamp_ms, now.store_timestamp_ms) >= 900


async def test_a_delayed_message_is_recalled(server: servers.Server, topic: str) -> None:
    async with Producer(server.namesrv) as producer, reading(server, topic) as consumer:
        await producer.send(Message(topic, b"first"))
        kept, gone = [
            await producer.send(compose_message(topic, body, delay_ms=4000)) for body in (b"kept", b"recalled")
        ]
        assert kept.recall_handle
        assert gone.recall_handle
        assert await producer.recall(gone.recall_handle) == gone.message_id
        assert sorted(m.body for m in await take(consumer, 2)) == [b"first", b"kept"]
        assert await consumer.poll(timeout_ms=1500) == []
        with pytest.raises(BrokerError):  # delivered by now
            await producer.recall(kept.recall_handle)
        with pytest.raises(ValueError, match="recall handle"):
            await producer.recall("nonsense")


@asynccontextmanager
async def answering(
    server: servers.Server, topic: str, answer: Callable[[Message], bytes | None]
) -> AsyncIterator[None]:
    """A consumer that replies."""
    async with (
        Consumer(topic, server.namesrv, f"g_{topic}") as consumer,
        Producer(server.namesrv, "repliers") as producer,
    ):

        async def serve() -> None:
            async for message in consumer:
                body = answer(message)
                if body is not None:
                    await producer.reply(message, body, {"from": "us"})

        task = asyncio.create_task(serve())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_requests_get_their_replies(server: servers.Server, topic: str) -> None:
    large = b"0123456789abcdef" * 1000

    def answer(message: Message) -> bytes | None:
        return None if message.body == b"silence" else large if message.body == b"large" else b"re: " + message.body

    async with Producer(server.namesrv) as producer:
        await producer.send(Message(topic, b"silence"))  # makes the topic
        async with answering(server, topic, answer):
            replies = await asyncio.gather(
                *(producer.request(Message(topic, b"%d" % number), 60_000) for number in range(20))
            )
            assert [reply.body for reply in replies] == [b"re: %d" % number for number in range(20)]
            assert {reply.properties["from"] for reply in replies} == {"us"}
            assert (await producer.request(Message(topic, b"large"), 60_000)).body == large
            with pytest.raises(ReplyTimeoutError, match="within 3000 ms"):
                await producer.request(Message(topic, b"silence"), 3000)


async def test_a_reply_whose_asker_is_gone_is_refused(server: servers.Server, topic: str) -> None:
    asked = Message(topic, b"", {"CORRELATION_ID": "1", "REPLY_TO_CLIENT": "nobody", "CLUSTER": "DefaultCluster"})
    async with Producer(server.namesrv) as producer:
        with pytest.raises(SendError) as caught:
            await producer.reply(asked, b"answer")
    assert "nobody" in str(caught.value)
    with pytest.raises(ValueError, match="REPLY_TO_CLIENT"):
        compose_reply(Message(topic, b""), b"")


async def test_what_is_rolled_back_is_never_seen(server: servers.Server, topic: str) -> None:
    def check(message: MessageExt) -> TransactionState:
        """The broker asks after a second, also for what a slow machine has not ended by then."""
        return TransactionState.COMMIT if message.body == b"kept" else TransactionState.ROLLBACK

    def failing(message: Message) -> TransactionState:
        raise LookupError("the database is away")

    group = f"tx_{topic}"
    async with (
        TransactionProducer(server.namesrv, group, check=check) as producer,
        reading(server, topic) as consumer,
    ):
        await producer.send(Message(topic, b"plain"))
        kept = await producer.send_in_transaction(Message(topic, b"kept"), lambda m: TransactionState.COMMIT)
        gone = await producer.send_in_transaction(Message(topic, b"gone"), lambda m: TransactionState.ROLLBACK)
        unknown = await producer.send_in_transaction(Message(topic, b"unknown"), failing)
        assert [(r.state.name, r.confirmed) for r in (kept, gone, unknown)] == [
            ("COMMIT", True),
            ("ROLLBACK", True),
            ("UNKNOWN", False),
        ]
        assert isinstance(unknown.error, LookupError)
        messages = await take(consumer, 2)
        assert sorted(m.body for m in messages) == [b"kept", b"plain"]
        assert {m.msg_id for m in messages} >= {kept.sent.message_id}
        # Stock publishes a half twice if its check and the first answer meet on a slow machine.
        twice = {b"kept"} if server.kind == "stock" else set()
        assert {m.body for m in await consumer.poll(timeout_ms=500)} <= twice
        with pytest.raises(ValueError, match="delayed"):
            await producer.send_in_transaction(compose_message(topic, b"", delay_level=1), failing)


async def test_the_broker_asks_how_it_ended(server: servers.Server, topic: str) -> None:
    later = b"0123456789abcdef" * 300  # stored compressed
    asked: list[Any] = []

    def check(message: MessageExt) -> TransactionState:
        asked.append((message.topic, message.body, threading.current_thread() is threading.main_thread()))
        if len(asked) == 1:
            raise LookupError("the database is away")
        return TransactionState.COMMIT

    async with (
        TransactionProducer(server.namesrv, f"tx_{topic}", check=check) as producer,
        reading(server, topic) as consumer,
    ):
        await producer.send(Message(topic, b"plain"))
        left = await producer.send_in_transaction(Message(topic, later), lambda m: TransactionState.UNKNOWN)
        messages = await take(consumer, 2, 90)
    assert (left.confirmed, left.error) == (False, None)
    assert sorted(m.body for m in messages) == [later, b"plain"]
    assert asked[0] == asked[1] == (topic, later, False)
