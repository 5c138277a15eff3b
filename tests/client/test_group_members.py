"""Members of a consumer group against a fake broker: the instant of the start, rebalance, leaving, what breaks."""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

from ringmq.client import ConsumeFrom, Consumer, MessageQueue, Producer, compose_message
from ringmq.client.consuming import group_member
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.route import BrokerData, QueueData, TopicRouteData
from tests.client.awaited import AwaitedConsumer, AwaitedProducer, transports
from tests.client.consuming import Eventually, fill, take
from tests.client.fake_broker import FakeBroker, FakeCluster, ok, refuse

transport = transports(AwaitedProducer, AwaitedConsumer)


# ---- the instant of the start ----


async def test_a_consumer_started_with_the_first_send_misses_nothing() -> None:
    """Whatever the order in which the topic, its route and the first messages come into being."""

    async def send(producer: Producer, steps: int) -> None:
        for _ in range(steps):
            await asyncio.sleep(0)
        await producer.send_all(compose_message("New", b"%d" % i) for i in range(20))

    async def start_both(delay: int) -> None:
        async with FakeCluster() as cluster, Producer(cluster.namesrv) as producer:
            sending = asyncio.create_task(send(producer, delay))
            async with Consumer("New", cluster.namesrv, f"g{delay}", consume_from=ConsumeFrom.FIRST) as consumer:
                found = {m.body for m in await take(consumer, 20)}
            await sending
            assert found == {b"%d" % i for i in range(20)}

    async with asyncio.TaskGroup() as tasks:
        for delay in range(12):
            tasks.create_task(start_both(delay))


async def test_stock_s_trap_an_empty_queue_that_fills_between_two_questions() -> None:
    """The broker says "no offset" (22), gets the first message, and then would name 1 as the maximum."""

    def rule(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
        if request.code != RequestCode.QUERY_CONSUMER_OFFSET or request.ext_fields["topic"] != "T":
            return None
        fill(broker.cluster, "T", 0, 1)
        return refuse(request, ResponseCode.QUERY_NOT_FOUND, "looked before the message came")

    async with FakeCluster(topics={"T": 1}) as cluster:
        cluster.rules.append(rule)
        async with Consumer("T", cluster.namesrv, "g") as consumer:
            assert [m.queue_offset for m in await take(consumer, 1)] == [0]


async def test_a_new_group_begins_at_the_end_and_remembers_it(eventually: Eventually) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        cluster.young_queues = False
        fill(cluster, "T", 0, 5)
        async with Consumer("T", cluster.namesrv, "g") as consumer:
            await eventually(lambda: cluster.broker.parked)
        assert cluster.broker.committed["g", "T", 0] == 5
        fill(cluster, "T", 0, 1)
        async with Consumer("T", cluster.namesrv, "g") as consumer:
            assert [m.queue_offset for m in await take(consumer, 1)] == [5]


# ---- membership ----


async def test_members_share_the_queues_and_take_over_at_once(eventually: Eventually) -> None:
    async with FakeCluster(topics={"T": 8}) as cluster:

        def owned(consumer: Consumer) -> set[MessageQueue]:
            return {q for q in consumer.assignment() if q.topic == "T"}

        async with Consumer("T", cluster.namesrv, "g") as first:
            assert len(owned(first)) == 8
            async with Consumer("T", cluster.namesrv, "g") as second:
                await eventually(lambda: len(owned(first)) == len(owned(second)) == 4)
                assert not owned(first) & owned(second)
            await eventually(lambda: len(owned(first)) == 8)


async def wait_for_a_cancelled_task(queues: list[MessageQueue]) -> None:
    worker = asyncio.create_task(asyncio.Event().wait())
    worker.cancel()
    await worker


def raise_cancelled(queues: list[MessageQueue]) -> None:
    raise asyncio.CancelledError


def end_the_thread(queues: list[MessageQueue]) -> None:
    sys.exit("not now")


@pytest.mark.parametrize(
    ("transport", "listener"),
    [
        ("asyncio", wait_for_a_cancelled_task),
        ("asyncio", raise_cancelled),
        ("blocking", raise_cancelled),
        ("blocking", end_the_thread),
    ],
    indirect=["transport"],
)
async def test_no_listener_ends_the_membership(
    listener: Callable[[list[MessageQueue]], Any], eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    def owned(consumer: Consumer) -> int:
        return sum(queue.topic == "T" for queue in consumer.assignment())

    async with (
        FakeCluster(topics={"T": 8}) as cluster,
        asyncio.timeout(60),
        Consumer("T", cluster.namesrv, "g", on_assigned=listener, on_revoked=listener) as first,
    ):
        await eventually(lambda: owned(first) == 8)  # else the second may come before its first assignment
        async with Consumer("T", cluster.namesrv, "g") as second:
            await eventually(lambda: owned(first) == owned(second) == 4)
        await eventually(lambda: owned(first) == 8)
    assert sum(record.message == f"{listener.__name__} failed" for record in caplog.records) >= 4


async def test_what_a_member_gave_up_is_committed_first(eventually: Eventually) -> None:
    async with FakeCluster(topics={"T": 2}) as cluster:
        for queue_id in (0, 1):
            fill(cluster, "T", queue_id, 10)
        async with Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST, auto_ack=False) as first:
            first.ack(await take(first, 20))
            async with Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST) as second:
                await eventually(lambda: [q for q in second.assignment() if q.topic == "T"])
                (queue,) = (q for q in second.assignment() if q.topic == "T")
                await eventually(lambda: cluster.broker.committed.get(("g", *queue[::2])) == 10)


async def test_an_error_instead_of_the_members_changes_nothing(eventually: Eventually) -> None:
    def rule(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
        return refuse(request, 1, "no") if request.code == RequestCode.GET_CONSUMER_LIST_BY_GROUP else None

    async with FakeCluster(topics={"T": 4}) as cluster, Consumer("T", cluster.namesrv, "g") as consumer:
        before = consumer.assignment()
        asked = len(cluster.broker.asked(RequestCode.GET_CONSUMER_LIST_BY_GROUP))
        cluster.rules.append(rule)
        cluster.broker.notify("g")
        await eventually(lambda: len(cluster.broker.asked(RequestCode.GET_CONSUMER_LIST_BY_GROUP)) > asked)
        assert consumer.assignment() == before
        assert before


async def test_a_broker_that_refused_the_heartbeat_is_not_asked_who_is_there(
    eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its list is without the one that asks, who would give all queues away."""
    async with FakeCluster(("a", "b"), {"T": 2}) as cluster, Consumer("T", cluster.namesrv, "g"):
        unwilling = cluster.brokers["b"]
        monkeypatch.setattr(group_member.random, "choice", lambda found: min(found, key=unwilling.address.__ne__))
        cluster.rules.append(
            lambda broker, request: (
                refuse(request, ResponseCode.SYSTEM_BUSY, "no time")
                if broker is unwilling and request.code == RequestCode.HEART_BEAT
                else None
            )
        )
        async with Consumer("T", cluster.namesrv, "g") as second:
            await eventually(lambda: len([q for q in second.assignment() if q.topic == "T"]) == 2)


async def test_a_broker_that_forgot_the_group_gets_a_heartbeat_and_reading_goes_on(eventually: Eventually) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, Consumer("T", cluster.namesrv, "g") as consumer:
        await eventually(lambda: cluster.broker.parked)
        for peer in cluster.broker.peers:
            peer.groups.clear()
        fill(cluster, "T", 0, 1)  # wakes the pull, which is then answered 24
        assert len(await take(consumer, 1)) == 1


async def test_a_broken_connection_is_made_again(eventually: Eventually) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, Consumer("T", cluster.namesrv, "g") as consumer:
        await eventually(lambda: cluster.broker.parked)
        cluster.broker.close_connections()
        fill(cluster, "T", 0, 3)
        assert len(await take(consumer, 3)) == 3


async def test_leaving_is_said(eventually: Eventually) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        async with Consumer("T", cluster.namesrv, "g") as consumer:
            pass
        (leave,) = cluster.broker.asked(RequestCode.UNREGISTER_CLIENT)
        assert leave.ext_fields == {"clientID": consumer.client_id, "consumerGroup": "g"}


@pytest.mark.parametrize("address", ["nowhere", "no..where:10911"])
async def test_a_broker_that_registered_no_address_does_not_keep_others_from_being_read(address: str) -> None:
    def with_another(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
        if request.code != RequestCode.GET_ROUTEINFO_BY_TOPIC or request.ext_fields["topic"] != "T":
            return None
        brokers = [BrokerData("c", "a", {0: cluster.broker.address}), BrokerData("c", "z", {0: address})]
        route = TopicRouteData([QueueData(name, 1, 1, 6) for name in ("a", "z")], brokers)
        return ok(request, route.encode(standard_json=True))

    async with FakeCluster(topics={"T": 1}) as cluster:
        cluster.rules.append(with_another)
        fill(cluster, "T", 0, 3)
        async with asyncio.timeout(60), Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST) as consumer:
            assert len(await take(consumer, 3)) == 3


async def test_a_member_without_a_name_server_warns_once_for_all_its_topics(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(group_member, "WARN_AGAIN_S", 600.0)
    monkeypatch.setattr(group_member, "MISSING_TOPIC_INTERVAL_S", 0.01)
    rounds = 0
    rebalance = group_member.GroupMember.rebalance

    async def counted(member: group_member.GroupMember) -> bool:
        nonlocal rounds
        rounds += 1
        return await rebalance(member)

    monkeypatch.setattr(group_member.GroupMember, "rebalance", counted)
    async with Consumer(["T", "U"], "127.0.0.1:1", "g"):
        await eventually(lambda: rounds >= 4)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [
        "group g waits for the route of topic T: no connection to name server 127.0.0.1:1: Connection refused"
    ]
    caplog.clear()
    monkeypatch.setattr(group_member, "WARN_AGAIN_S", 0.0)
    async with Consumer("T", "127.0.0.1:1", "g"):
        await eventually(lambda: len(caplog.records) >= 3)
