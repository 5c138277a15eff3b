"""Requests and replies with stock's Java client and the SDK on either end, on RingMQ and on stock."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ringmq.client import Consumer, Message, Producer, ReplyTimeoutError
from tests.conformance.servers import Server
from tests.conformance.stock_client import StockClient

COUNT = 32
QUESTIONS = [f"question {number}" for number in range(COUNT)]
ANSWERS = {question: f"re: {question}" for question in QUESTIONS}
WAIT_S = 120


@pytest.fixture(params=["ringmq", "stock"])
def server(request: pytest.FixtureRequest, shared_servers: Callable[[str], Server]) -> Server:
    return shared_servers(request.param)


@pytest.fixture
def topic(server: Server, stock_client: StockClient) -> str:
    name = f"Replies_{uuid.uuid4().hex[:12]}"
    assert stock_client.call("createTopic", server.namesrv, topic=name, queues=4) == "created"
    return name


class JavaReplier:
    """A push consumer of Java that replies to `count` requests."""

    def __init__(self, client: StockClient, server: Server, topic: str, count: int) -> None:
        self._seen = client.submit(
            "answerRequests", server.namesrv, topic=topic, group=f"g_{topic}", count=count, waitSeconds=WAIT_S
        )

    async def seen(self) -> Any:
        return await asyncio.to_thread(self._seen.result, WAIT_S)


@asynccontextmanager
async def sdk_replier(server: Server, topic: str) -> AsyncIterator[None]:
    """A consumer of the SDK that replies to all requests but "silence"."""
    async with Consumer(topic, server.namesrv, f"s_{topic}") as consumer, Producer(server.namesrv, "repliers") as own:

        async def serve() -> None:
            async for message in consumer:
                if message.body != b"silence":
                    await own.reply(message, b"re: " + message.body)

        task = asyncio.create_task(serve())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def java_asks(client: StockClient, server: Server, topic: str) -> Any:
    return await asyncio.to_thread(
        client.call, "askRequests", server.namesrv, topic=topic, count=COUNT, waitSeconds=WAIT_S
    )


def check_asked(server: Server, asked: Any) -> None:
    print(f"{server.kind}: {len(asked['replies'])} replies, failed {asked['failed']}")
    assert asked["replies"] == ANSWERS
    assert asked["failed"] == {"silence": "time-out"}


async def test_java_asks_and_java_replies(server: Server, stock_client: StockClient, topic: str) -> None:
    replier = JavaReplier(stock_client, server, topic, COUNT + 1)
    check_asked(server, await java_asks(stock_client, server, topic))
    seen = await replier.seen()
    print(f"{server.kind}: {len(seen['replied'])} replied")
    assert seen == {"replied": sorted(f"SEND_OK {question}" for question in QUESTIONS), "failed": {}}


async def test_java_asks_and_the_sdk_replies(server: Server, stock_client: StockClient, topic: str) -> None:
    async with sdk_replier(server, topic):
        check_asked(server, await java_asks(stock_client, server, topic))


async def test_the_sdk_asks_and_java_replies(server: Server, stock_client: StockClient, topic: str) -> None:
    replier = JavaReplier(stock_client, server, topic, COUNT + 1)
    async with Producer(server.namesrv, "askers") as producer:
        replies = await asyncio.gather(
            *(producer.request(Message(topic, question.encode()), 60_000) for question in QUESTIONS)
        )
        with pytest.raises(ReplyTimeoutError):
            await producer.request(Message(topic, b"silence"), 3000)
    assert [reply.body.decode() for reply in replies] == list(ANSWERS.values())
    seen = await replier.seen()
    print(f"{server.kind}: {len(replies)} replies, {len(seen['replied'])} replied")
    assert len(seen["replied"]) == COUNT and not seen["failed"]


async def test_a_java_replier_is_told_that_its_requester_left(
    server: Server, stock_client: StockClient, topic: str
) -> None:
    replier = JavaReplier(stock_client, server, topic, 1)
    assert await asyncio.to_thread(stock_client.call, "askAndLeave", server.namesrv, topic=topic) == "left"
    seen = await replier.seen()
    assert not seen["replied"] and seen["failed"].keys() == {"slow"}, seen
    print(f"{server.kind}: {seen['failed']['slow']}")
    assert seen["failed"]["slow"].startswith("push reply message fail, channel of <")
