"""The SDK's consumer beside stock's: one ordered group of both, and mqadmin's questions about an SDK consumer."""

import asyncio
import re
import uuid
from collections import defaultdict
from typing import Any

import pytest

from ringmq.client import ConsumeFrom, Consumer, Message, MessageExt, MessageQueue, Producer, compose_message
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.remoting import json_body
from ringmq.remoting.codes import RequestCode
from tests.conformance.servers import Server
from tests.conformance.stock_client import StockClient
from tests.server_pool import ServerPool
from tests.waiting import until


@pytest.fixture(params=["ringmq", "stock"])
def beside(request: pytest.FixtureRequest, shared_servers: ServerPool) -> Server:
    """Both kinds of server, whatever `--judge-stock` says: stock's shows what mqadmin and its member expect."""
    return shared_servers(request.param)


@pytest.fixture
def topic() -> str:
    return f"Sdk_{uuid.uuid4().hex[:12]}"


async def fill(server: Server, topic: str, count: int) -> list[MessageQueue]:
    async with Producer(server.namesrv) as producer:
        await producer.send(Message(topic, b"first"))
        queues = list(await producer.queues(topic))
        for queue in queues:
            for i in range(count):
                await producer.send(compose_message(topic, b"%d" % i, keys=f"k{queue.queue_id}-{i}"), queue=queue)
    return queues


async def ask(stock_client: StockClient, operation: str, server: Server, **args: object) -> Any:
    return await asyncio.to_thread(stock_client.call, operation, server.namesrv, **args)


async def mqadmin(stock_client: StockClient, server: Server, command: str) -> str:
    return str(await ask(stock_client, "mqadmin", server, command=[*command.split(), "-n", server.namesrv]))


async def consumer_status(server: Server, group: str, topic: str) -> dict[str, dict[MessageQueue, int]]:
    """What the broker hears when it asks a group's members where they are (223); mqadmin has no command for it."""
    client = RemotingClient()
    try:
        fields = {"group": group, "topic": topic}
        answer = await client.call(server.broker, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, fields)
    finally:
        await client.close()
    tables = json_body.mapping(json_body.read_object(answer.body, "GetConsumerStatusBody"), "consumerTable")
    return {member: json_body.queue_mapping(tables, member) for member in tables}


async def test_an_ordered_group_of_stock_s_and_the_sdk_s_members(
    beside: Server, topic: str, stock_client: StockClient
) -> None:
    """While messages come, queues go to stock's member and back: each in order, all handled, hardly one twice."""
    group = f"g_{topic}"
    queues = await fill(beside, topic, 5)
    sent = 5 * len(queues) + 1
    enough = asyncio.Event()
    ours: list[tuple[int, int]] = []

    async def keep_sending() -> None:
        nonlocal sent
        async with Producer(beside.namesrv) as producer:
            while not enough.is_set():
                for queue in queues:
                    await producer.send(Message(topic, b"x"), queue=queue)
                    sent += 1
                await asyncio.sleep(0.01)  # span: the pace of the sends

    async def handle(message: MessageExt) -> None:
        ours.append((message.queue_id, message.queue_offset))
        await asyncio.sleep(0.002)  # span: the pace of the handler

    def owned(consumer: Consumer) -> int:
        return sum(queue.topic == topic for queue in consumer.assignment())

    async with (
        asyncio.timeout(180),
        asyncio.TaskGroup() as tasks,
        Consumer(topic, beside.namesrv, group, ordered=True, consume_from=ConsumeFrom.FIRST) as consumer,
    ):
        tasks.create_task(keep_sending())
        tasks.create_task(consumer.run(handle))
        await ask(stock_client, "holdOrderly", beside, topic=topic, group=group, pauseMillis=2)

        async def is_shared() -> bool:
            count: int = await ask(stock_client, "countOrderly", beside, group=group)
            return count >= 40 and owned(consumer) == 2

        await until(is_shared, "both members have queues")
        theirs = [(queue, offset) for queue, offset in await ask(stock_client, "releaseOrderly", beside, group=group)]
        enough.set()
        # a member that ends beside a lost request to unlock keeps its queues for the 60 s of a lock
        await until(lambda: len({*ours, *theirs}) >= sent and owned(consumer) == 4, "all are handled", 120)
        await consumer.close()
    for seen in (ours, theirs):
        by_queue: dict[int, list[int]] = defaultdict(list)
        for queue_id, offset in seen:
            by_queue[queue_id].append(offset)
        for offsets in by_queue.values():
            assert offsets == sorted(set(offsets)), "each member sees a queue in order"
    # stock's member gives a queue back with its last commit up to one message behind
    assert len(ours) + len(theirs) - sent <= len(queues)


async def test_mqadmin_asks_a_consumer_of_the_sdk(beside: Server, topic: str, stock_client: StockClient) -> None:
    group = f"g_{topic}"
    await fill(beside, topic, 5)
    handled: list[MessageExt] = []

    async def handle(message: MessageExt) -> None:
        handled.append(message)
        if message.body == b"4" and len(handled) > 21:
            raise ValueError("four")

    async with Consumer(topic, beside.namesrv, group, consume_from=ConsumeFrom.FIRST) as consumer:
        running = asyncio.create_task(consumer.run(handle))
        await until(lambda: len(handled) >= 21, "all are handled")
        await consumer.commit()
        shown = await mqadmin(stock_client, beside, f"consumerStatus -g {group} -i {consumer.client_id} -s")
        assert re.search(rf"{topic}\s+judged\s+3\s+\d+", shown), shown
        assert "PROP_CONSUME_TYPE" in shown
        assert "CONSUME_PASSIVELY" in shown
        assert "test_sdk_consumer.py" in shown, "where its threads stand"
        listed = await mqadmin(stock_client, beside, f"consumerStatus -g {group}")
        assert consumer.client_id in listed
        assert "Same subscription" in listed
        assert "Rebalance OK" in listed
        for message, result in ((handled[0], "CR_SUCCESS"), (next(m for m in handled if m.body == b"4"), "CR_THROW")):
            count = len(handled)
            command = f"queryMsgById -t {topic} -i {message.offset_msg_id} -g {group} -d {consumer.client_id}"
            assert result in await mqadmin(stock_client, beside, command)
            assert len(handled) == count + 1
            assert handled[-1].body == message.body
        await consumer.close()
        await running


async def test_mqadmin_resets_the_offsets_of_a_consumer_of_the_sdk(
    beside: Server, topic: str, stock_client: StockClient
) -> None:
    group = f"g_{topic}"
    await fill(beside, topic, 5)
    handled: list[MessageExt] = []

    async def handle(message: MessageExt) -> None:
        handled.append(message)

    async with (
        asyncio.timeout(180),
        Consumer(topic, beside.namesrv, group, consume_from=ConsumeFrom.FIRST) as consumer,
    ):
        running = asyncio.create_task(consumer.run(handle))
        await until(lambda: len(handled) >= 21, "all are handled")
        await consumer.commit()
        await mqadmin(stock_client, beside, f"resetOffsetByTime -g {group} -t {topic} -s 0")
        async with Producer(beside.namesrv) as producer:  # the broker moves a queue at its next pull
            for queue in await producer.queues(topic):
                await producer.send(Message(topic, b"wake"), queue=queue)
        await until(lambda: len({(m.queue_id, m.queue_offset) for m in handled[21:]}) >= 25, "all are handled again")
        await consumer.close()
        await running


async def test_stock_tells_its_clients_to_reset_and_asks_them_where_they_are(
    shared_servers: ServerPool, topic: str, stock_client: StockClient
) -> None:
    """As brokers before 5 do always: 220 and 221 to the clients."""
    server = shared_servers("stock")
    group = f"g_{topic}"
    await fill(server, topic, 5)
    switch = f"updateBrokerConfig -b {server.broker} -k useServerSideResetOffset -v "
    await mqadmin(stock_client, server, switch + "false")
    try:
        async with (
            asyncio.timeout(60),
            Consumer(topic, server.namesrv, group, auto_ack=False, consume_from=ConsumeFrom.FIRST) as consumer,
        ):
            seen = 0
            while seen < 21:
                seen += consumer.ack(await consumer.poll())
            await consumer.commit()
            table = await consumer_status(server, group, topic)
            assert {client: sum(offsets.values()) for client, offsets in table.items()} == {consumer.client_id: 21}
            await mqadmin(stock_client, server, f"resetOffsetByTime -g {group} -t {topic} -s 0")
            again = 0
            while again < 21:
                again += len(await consumer.poll())
    finally:
        await mqadmin(stock_client, server, switch + "true")
