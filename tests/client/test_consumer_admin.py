"""What a consumer answers its broker: running info, offsets, resets, one message now; and what it says to nonsense."""

import asyncio

import pytest

from ringmq.client import ConsumeFrom, Consumer, MessageExt, MessageQueue, RetryLater
from ringmq.client.blocking import Consumer as BlockingConsumer
from ringmq.client.consuming.consume_stats import ConsumeStats
from ringmq.remoting import json_body
from ringmq.remoting.admin_bodies import encode_queue_offsets
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.message import encode_message
from tests.client.consuming import Eventually
from tests.client.fake_broker import FakeCluster
from tests.client.threaded_cluster import threaded_cluster

INFO, DIRECTLY = RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY
STATUS, RESET = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, RequestCode.RESET_CONSUMER_CLIENT_OFFSET


def fill(cluster: FakeCluster, count: int) -> list[MessageExt]:
    return [cluster.broker.store(MessageExt("T", b"%d" % i, {"UNIQ_KEY": f"K{i}"})) for i in range(count)]


async def asked(
    cluster: FakeCluster, eventually: Eventually, code: int, fields: dict[str, str], body: bytes = b""
) -> RemotingCommand:
    before = len(cluster.broker.answers)
    cluster.broker.ask("g", code, fields, body)
    await eventually(lambda: len(cluster.broker.answers) > before)
    return cluster.broker.answers[-1]


async def test_running_info_and_offsets(eventually: Eventually) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, 10)
        async with Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST, auto_ack=False) as consumer:
            taken = await consumer.poll(4, timeout_ms=60_000)
            consumer.ack(taken[:3])
            fields = {"consumerGroup": "g", "clientId": consumer.client_id, "jstackEnable": "true"}
            answer = await asked(cluster, eventually, INFO, fields)
            value = json_body.read_object(answer.body, "ConsumerRunningInfo")
            assert value["properties"]["PROP_CONSUMEORDERLY"] == "false"
            assert {entry["topic"] for entry in value["subscriptionSet"]} == {"T", "%RETRY%g"}
            ((queue, shown),) = json_body.queue_objects(value, "mqTable").items()
            assert queue == MessageQueue("T", "a", 0)
            assert (shown["commitOffset"], shown["cachedMsgCount"]) == (3, 6)
            assert (shown["cachedMsgMinOffset"], shown["cachedMsgMaxOffset"]) == (4, 9)
            assert "task " in value["jstack"]
            assert "test_consumer_admin" in value["jstack"]
            answer = await asked(cluster, eventually, STATUS, {"topic": "T", "group": "g"})
            value = json_body.read_object(answer.body, "GetConsumerStatusBody")
            assert json_body.queue_mapping(value, "messageQueueTable") == {queue: 3}


async def test_a_reset_moves_the_consumer_and_the_group(eventually: Eventually) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, 10)
        async with Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST) as consumer:
            await consumer.poll(4, timeout_ms=60_000)
            fields = {"topic": "T", "group": "g", "timestamp": "0", "isForce": "true"}
            body = encode_queue_offsets({MessageQueue("T", "a", 0): 7, MessageQueue("T", "b", 0): 1})
            await asked(cluster, eventually, RESET, fields, body)
            await eventually(lambda: cluster.broker.committed.get(("g", "T", 0)) == 7)
            assert [m.queue_offset for m in await consumer.poll(timeout_ms=60_000)] == [7, 8, 9]


@pytest.mark.parametrize(
    ("failure", "result"),
    [(None, "CR_SUCCESS"), (RetryLater(2), "CR_LATER"), (ValueError("no"), "CR_THROW_EXCEPTION")],
)
async def test_a_message_is_consumed_now(eventually: Eventually, failure: Exception | None, result: str) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        handled: list[bytes] = []

        async def handle(message: MessageExt) -> None:
            handled.append(message.body)
            if failure is not None:
                raise failure

        async with Consumer("T", cluster.namesrv, "g") as consumer:
            fields = {"consumerGroup": "g", "clientId": consumer.client_id, "brokerName": "a"}
            body = encode_message(MessageExt("T", b"now", store_host=("127.0.0.1", 1), born_host=("127.0.0.1", 1)))
            answer = await asked(cluster, eventually, DIRECTLY, fields, body)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "no handler" in str(answer.remark)
            running = asyncio.create_task(consumer.run(handle))
            await asyncio.sleep(0)
            answer = await asked(cluster, eventually, DIRECTLY, fields, body)
            value = json_body.read_object(answer.body, "ConsumeMessageDirectlyResult")
            assert (value["consumeResult"], value["order"], handled) == (result, False, [b"now"])
            await consumer.close()
            await running


@pytest.mark.parametrize(
    ("code", "fields", "body"),
    [
        (INFO, {"consumerGroup": "other", "clientId": "x"}, b""),
        (INFO, {}, b""),
        (DIRECTLY, {"consumerGroup": "other"}, b""),
        (DIRECTLY, {"consumerGroup": "g"}, b"no message"),
        (STATUS, {"topic": "T"}, b""),
        (RESET, {"topic": "T", "group": "g", "timestamp": "0", "isForce": "true"}, b"{"),
        (RESET, {"topic": "T", "group": "g", "timestamp": "x", "isForce": "true"}, b"{}"),
    ],
)
async def test_nonsense_is_answered_and_changes_nothing(
    eventually: Eventually, code: int, fields: dict[str, str], body: bytes
) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, Consumer("T", cluster.namesrv, "g") as consumer:

        async def handle(message: MessageExt) -> None: ...

        running = asyncio.create_task(consumer.run(handle))
        await asyncio.sleep(0)
        answer = await asked(cluster, eventually, code, fields, body)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark
        assert len(consumer.assignment()) == 1
        await consumer.close()
        await running


def test_rates_are_those_of_the_last_whole_minute() -> None:
    stats = ConsumeStats(0.0)
    for second in range(30):
        stats.note_handled("T", float(second), 0.01, failed=second % 10 == 0)
        stats.note_pulled("T", float(second), 0.002, 4)
    begun = stats.status("T", 30.0)
    assert begun.consume_ok_tps == pytest.approx(27 / 30)
    whole = stats.status("T", 61.0)
    assert whole.consume_ok_tps == pytest.approx(27 / 60)
    assert whole.consume_failed_tps == pytest.approx(3 / 60)
    assert whole.consume_rt_ms == pytest.approx(10)
    assert (whole.pull_tps, whole.pull_rt_ms) == (pytest.approx(2), pytest.approx(2))
    later = stats.status("T", 200.0)
    assert (later.consume_ok_tps, later.failed_messages) == (0.0, 3)
    assert stats.status("T", 3700.0).failed_messages == 0
    assert stats.status("U", 1.0).consume_ok_tps == 0.0


def test_a_blocking_consumer_s_listeners_may_use_it() -> None:
    with threaded_cluster(topics={"T": 1}) as cluster:
        told: list[str] = []

        def assigned(queues: list[MessageQueue]) -> None:
            told.append("assigned")
            consumer.seek(queues[0], 3)

        def revoked(queues: list[MessageQueue]) -> None:
            told.append("revoked")
            consumer.ack(taken)

        consumer = BlockingConsumer(
            "T", cluster.namesrv, "g", auto_ack=False, on_assigned=assigned, on_revoked=revoked,
            consume_from=ConsumeFrom.FIRST,
        )  # fmt: skip
        taken: list[MessageExt] = []
        fill(cluster, 5)
        with consumer:
            while len(taken) < 2:
                taken += consumer.poll(timeout_ms=60_000)
        assert told == ["assigned", "revoked"]
        assert [m.queue_offset for m in taken] == [3, 4]
        assert cluster.broker.committed["g", "T", 0] == 5
