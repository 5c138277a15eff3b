"""What the Python SDK shares with stock's clients and tools: namespaces and message trace. On RingMQ and on stock."""

import asyncio
import uuid
from collections.abc import Callable

import pytest

from ringmq.client import (
    ConnectionSettings,
    ConsumeFrom,
    Consumer,
    MessageExt,
    Producer,
    TraceSettings,
    TransactionProducer,
    TransactionState,
    compose_message,
)
from tests.conformance.servers import Server
from tests.conformance.stock_client import StockClient

NAMESPACE = "MQ_INST_1"


@pytest.fixture(params=["ringmq", "stock"])
def server(request: pytest.FixtureRequest, shared_servers: Callable[[str], Server]) -> Server:
    return shared_servers(request.param)


@pytest.fixture
def topic() -> str:
    return f"Sdk_{uuid.uuid4().hex[:12]}"


async def receive(consumer: Consumer, count: int) -> list[MessageExt]:
    messages: list[MessageExt] = []
    async with asyncio.timeout(60):
        while len(messages) < count:
            messages += await consumer.poll()
    return messages


async def test_a_namespace_is_the_same_for_java(server: Server, stock_client: StockClient, topic: str) -> None:
    settings = ConnectionSettings(namespace=NAMESPACE)
    async with Producer(server.namesrv, settings=settings) as producer:
        results = [await producer.send(compose_message(topic, b"python %d" % i)) for i in range(5)]
        assert {r.queue.topic for r in results} == {q.topic for q in await producer.queues(topic)} == {topic}
    arguments = {"namespace": NAMESPACE, "topic": topic}
    sent_to = await asyncio.to_thread(stock_client.call, "namespaceSend", server.namesrv, **arguments)
    assert set(sent_to) == {topic}
    seen = await asyncio.to_thread(
        stock_client.call, "namespaceConsume", server.namesrv, **arguments, group=f"g_{topic}", count=10
    )
    whole = sorted([f"{topic} python {i}" for i in range(5)] + [f"{topic} java {i}" for i in range(5)])
    assert sorted(seen) == whole
    async with Consumer(
        topic, server.namesrv, f"p_{topic}", auto_ack=False, consume_from=ConsumeFrom.FIRST, settings=settings
    ) as consumer:
        messages = await receive(consumer, 10)
        assert {queue.topic for queue in consumer.assignment()} <= {topic, f"%RETRY%p_{topic}"}
        assert consumer.ack(messages) == len(messages)
        await consumer.commit()
    assert sorted(f"{m.topic} {m.body.decode()}" for m in messages) == whole
    async with Consumer(
        f"{NAMESPACE}%{topic}", server.namesrv, f"{NAMESPACE}%g_{topic}", consume_from=ConsumeFrom.FIRST
    ) as whole_names:
        assert await whole_names.poll(timeout_ms=500) == [], "the group of Java's member has read it all"


@pytest.mark.parametrize("own_topic", [True, False])
async def test_mqadmin_finds_the_sdk_s_trace(
    server: Server, stock_client: StockClient, topic: str, own_topic: bool
) -> None:
    if server.kind == "ringmq" and not own_topic:
        pytest.skip("RingMQ's broker makes no trace topic by itself")
    trace = TraceSettings(topic=f"Trace_{topic}") if own_topic else TraceSettings()
    settings = ConnectionSettings(trace=trace)
    async with Producer(server.namesrv, f"pub_{topic}", settings=settings) as producer:
        sent = await producer.send(compose_message(topic, b"x", tags="t", keys=["k1", "k2"]))
        untagged = await producer.send(compose_message(topic, b"y"))
    async with Consumer(
        topic, server.namesrv, f"sub_{topic}", consume_from=ConsumeFrom.FIRST, settings=settings
    ) as consumer:
        messages = await receive(consumer, 2)
        assert {m.msg_id for m in messages} == {sent.message_id, untagged.message_id}
        assert await consumer.poll(timeout_ms=100) == []  # asking for more acknowledges them
    for message_id in (sent.message_id, untagged.message_id):
        command = ["queryMsgTraceById", "-i", message_id, "-t", trace.topic, "-n", server.namesrv]
        printed = ""
        async with asyncio.timeout(60):
            while "Sub" not in printed or "Pub" not in printed:  # poll: the index follows
                printed = await asyncio.to_thread(stock_client.call, "mqadmin", server.namesrv, command=command)
        rows = [line.split() for line in printed.splitlines() if line and not line.startswith("#")]
        by_type = {row[0]: row for row in rows}
        assert by_type["Pub"][1] == f"pub_{topic}", printed
        assert by_type["Sub"][1] == f"sub_{topic}", printed
        assert by_type["Pub"][-1] == by_type["Sub"][-1] == "success", printed


async def test_the_end_of_a_transaction_is_traced(shared_servers: Callable[[str], Server], topic: str) -> None:
    server = shared_servers("stock")
    settings = ConnectionSettings(trace=TraceSettings(topic=f"Trace_{topic}"), namespace=NAMESPACE)

    def check(message: MessageExt) -> TransactionState:
        return TransactionState.ROLLBACK if message.topic == topic else TransactionState.UNKNOWN

    async with TransactionProducer(server.namesrv, f"tx_{topic}", check=check, settings=settings) as producer:
        told = await producer.send_in_transaction(compose_message(topic, b"x"), lambda m: TransactionState.COMMIT)
        asked = await producer.send_in_transaction(compose_message(topic, b"y"), lambda m: TransactionState.UNKNOWN)
        assert told.confirmed
        wanted = {
            (told.sent.message_id, "COMMIT_MESSAGE", "false"),
            (asked.sent.message_id, "ROLLBACK_MESSAGE", "true"),  # the broker has found the namespace's group
        }
        ends: set[tuple[str, ...]] = set()
        async with (
            Consumer(f"Trace_{topic}", server.namesrv, f"r_{topic}", consume_from=ConsumeFrom.FIRST) as consumer,
            asyncio.timeout(60),
        ):
            while not wanted <= ends:
                for message in await consumer.poll():
                    lines = [line.split("\x01") for line in message.body.decode().split("\x02")]
                    ends |= {(line[5], *line[11:]) for line in lines if line[0] == "EndTransaction"}
