"""Consumer groups against a fake broker: order, acknowledgement, dead letters, two facades."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ringmq.client import (
    BrokerError,
    ClientClosedError,
    ConsumeFrom,
    Consumer,
    Message,
    MessageExt,
)
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.heartbeat import HeartbeatData
from tests.client.awaited import AwaitedConsumer, transports
from tests.client.consuming import Eventually, fill, take
from tests.client.fake_broker import FakeBroker, FakeCluster, NoAnswer, Peer, refuse

transport = transports(AwaitedConsumer)


async def test_messages_of_a_queue_come_in_order_and_are_committed_on_close() -> None:
    async with FakeCluster(topics={"T": 2}) as cluster:
        fill(cluster, "T", 0, 100)
        fill(cluster, "T", 1, 50)
        async with Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST, auto_ack=False) as consumer:
            messages = await take(consumer, 150)
            assert consumer.ack(messages) == 150
        for queue_id, count in ((0, 100), (1, 50)):
            offsets = [m.queue_offset for m in messages if m.queue_id == queue_id]
            assert offsets == list(range(count))
            assert cluster.broker.committed["g", "T", queue_id] == count


async def test_async_for_acknowledges_what_the_loop_has_left_behind() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, "T", 0, 10)
        async with Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST) as consumer:
            async for message in consumer:
                if message.queue_offset == 6:
                    break
        assert cluster.broker.committed["g", "T", 0] == 6, "the message in hand at the break is not acknowledged"


async def test_an_unacknowledged_message_is_delivered_again_to_the_next_member() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, "T", 0, 10)
        async with Consumer("T", cluster.namesrv, "g", auto_ack=False, consume_from=ConsumeFrom.FIRST) as first:
            messages = await take(first, 10)
            first.ack([m for m in messages if m.queue_offset != 3])
            await first.commit()
            assert cluster.broker.committed["g", "T", 0] == 3
        async with Consumer("T", cluster.namesrv, "g") as second:
            assert [m.queue_offset for m in await take(second, 7)] == list(range(3, 10))


async def test_an_older_commit_still_under_way_never_overwrites_the_last_one(
    monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    """A broker serves requests in parallel, stock does: the order of two commits is the client's to keep."""
    monkeypatch.setattr("ringmq.client.consumer.COMMIT_INTERVAL_S", 0.01)
    async with FakeCluster(topics={"T": 1}) as cluster:
        late: list[RemotingCommand] = []
        served = asyncio.Event()

        def serve_the_first_commit_late(broker: FakeBroker, request: RemotingCommand) -> NoAnswer | None:
            if request.code != RequestCode.UPDATE_CONSUMER_OFFSET or late:
                return None
            late.append(request)
            peer = broker.peers[0]

            def serve() -> None:
                cluster.serve(broker, peer, request)
                served.set()

            asyncio.get_running_loop().call_later(0.2, serve)
            return NoAnswer.SILENCE

        cluster.rules.append(serve_the_first_commit_late)
        cluster.broker.committed["g", "T", 0] = 0  # no start to commit
        fill(cluster, "T", 0, 10)
        async with Consumer("T", cluster.namesrv, "g", auto_ack=False, consume_from=ConsumeFrom.FIRST) as consumer:
            messages = await take(consumer, 10)
            consumer.ack(messages[:5])
            await eventually(lambda: late)
            consumer.ack(messages[5:])
        await served.wait()
        commits = cluster.broker.asked(RequestCode.UPDATE_CONSUMER_OFFSET)
        assert [commit.ext_fields["commitOffset"] for commit in commits] == ["5", "10"]
        assert cluster.broker.committed["g", "T", 0] == 10


async def test_the_first_commit_of_a_group_goes_alone() -> None:
    """Stock 5.3 keeps only some of a group's very first offsets when they arrive in parallel."""
    async with FakeCluster(topics={"T": 4}) as cluster:
        under_way = 0
        most_at_first = 0
        answered = 0

        def serve_late(broker: FakeBroker, request: RemotingCommand) -> NoAnswer | None:
            nonlocal under_way, most_at_first, answered
            if request.code != RequestCode.UPDATE_CONSUMER_OFFSET or request in late:
                return None
            late.append(request)
            under_way += 1
            if not answered:
                most_at_first = max(most_at_first, under_way)

            def serve(peer: Peer = broker.peers[0]) -> None:
                nonlocal under_way, answered
                under_way -= 1
                answered += 1
                cluster.serve(broker, peer, request)

            asyncio.get_running_loop().call_later(0.02, serve)
            return NoAnswer.SILENCE

        late: list[RemotingCommand] = []
        cluster.rules.append(serve_late)
        for queue_id in range(4):
            fill(cluster, "T", queue_id, 5)
        async with Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST, auto_ack=False) as consumer:
            consumer.ack(await take(consumer, 20))
        assert cluster.broker.committed == {("g", "T", queue_id): 5 for queue_id in range(4)}
        assert most_at_first == 1


async def test_a_heartbeat_under_way_is_over_before_the_member_leaves(
    monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr("ringmq.client.connections.heartbeat.HEARTBEAT_INTERVAL_S", 0.01)
    async with FakeCluster(topics={"T": 1}) as cluster:
        late: list[RemotingCommand] = []
        order: list[int] = []

        def serve_a_second_heartbeat_late(broker: FakeBroker, request: RemotingCommand) -> NoAnswer | None:
            if request.code == RequestCode.UNREGISTER_CLIENT:
                order.append(request.code)
            if request.code != RequestCode.HEART_BEAT or not broker.asked(RequestCode.GET_CONSUMER_LIST_BY_GROUP):
                return None
            if request in late:
                order.append(request.code)
                return None
            late.append(request)
            asyncio.get_running_loop().call_later(0.05, cluster.serve, broker, broker.peers[0], request)
            return NoAnswer.SILENCE

        cluster.rules.append(serve_a_second_heartbeat_late)
        async with Consumer("T", cluster.namesrv, "g"):
            await eventually(lambda: late)
        assert order[-1] == RequestCode.UNREGISTER_CLIENT
        assert order.count(RequestCode.HEART_BEAT) == len(late)


async def test_batches_are_of_one_queue_and_end_with_the_consumer() -> None:
    async with FakeCluster(topics={"T": 2}) as cluster:
        fill(cluster, "T", 0, 40)
        fill(cluster, "T", 1, 40)
        consumer = Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST)
        await consumer.start()
        count = 0
        async for batch in consumer.batches(16):
            assert 1 <= len(batch) <= 16
            assert len({m.queue_id for m in batch}) == 1
            count += len(batch)
            if count == 80:
                asyncio.get_running_loop().call_soon(asyncio.ensure_future, consumer.close())
        assert count == 80
        assert [m async for m in consumer] == []
        with pytest.raises(ClientClosedError):
            await consumer.commit()


async def test_a_poll_for_nothing_is_refused_and_loses_nothing() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, "T", 0, 5)
        async with Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST) as consumer:
            (first,) = await consumer.poll(1)
            with pytest.raises(ValueError, match="max_messages must be positive"):
                await consumer.poll(0)
            assert [first, *await take(consumer, 4)][4].queue_offset == 4


async def test_poll_gives_up_in_time() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, Consumer("T", cluster.namesrv, "g") as consumer:
        assert await consumer.poll(timeout_ms=30) == []


async def test_a_parked_pull_is_woken_by_the_next_message(eventually: Eventually) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, Consumer("T", cluster.namesrv, "g") as consumer:
        await eventually(lambda: cluster.broker.parked)
        fill(cluster, "T", 0, 1)
        assert [m.body for m in await take(consumer, 1)] == [b"0"]


async def test_tags_are_asked_for_and_checked_again() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, "T", 0, 3, "Aa")
        fill(cluster, "T", 0, 3, "BB")
        async with Consumer(
            {"T": "BB || C"}, cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST, auto_ack=False
        ) as consumer:
            messages = await take(consumer, 3)
            assert {m.tags for m in messages} == {"BB"}
            consumer.ack(messages)
        data = HeartbeatData.decode(cluster.broker.asked(RequestCode.HEART_BEAT)[0].body)
        subscriptions = {s.topic: s for s in data.consumers[0].subscriptions}
        assert subscriptions["T"].tags_set == {"BB", "C"}
        assert subscriptions["%RETRY%g"].is_all
        assert cluster.broker.committed["g", "T", 0] == 6, "what the filter dropped counts as processed"


def test_bad_arguments_are_named() -> None:
    for arguments, text in (
        (([],), "at least one topic"),
        (("a b",), "illegal"),
        (({"T": " || "},), "names no tag"),
        (("T", "127.0.0.1:1", "bad group"), "group"),
    ):
        with pytest.raises(ValueError, match=text):
            Consumer(*arguments)  # type: ignore[arg-type]


async def test_a_blocking_loop_acknowledges_what_it_has_left_behind_and_no_more() -> None:
    from ringmq.client import blocking

    def work(cluster: FakeCluster) -> list[int]:
        with blocking.Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST) as consumer:
            for message in consumer:
                if message.queue_offset == 3:
                    break
            consumer.commit()
            assert cluster.broker.committed["g", "T", 0] == 3, "the message in hand at the break is not acknowledged"
            return [next(iter(consumer)).queue_offset for _ in range(3)]

    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, "T", 0, 10)
        assert await asyncio.to_thread(work, cluster) == [4, 5, 6]
        assert cluster.broker.committed["g", "T", 0] == 6


async def test_the_blocking_facade_does_the_same() -> None:
    from ringmq.client import blocking

    def work(namesrv: str) -> list[bytes]:
        with (
            blocking.Consumer("T", namesrv, "g", consume_from=ConsumeFrom.FIRST) as consumer,
            blocking.Producer(namesrv) as producer,
        ):
            assert len(producer.queues("T")) == 2
            producer.send(Message("T", b"one"))
            producer.send_batch([Message("T", b"two"), Message("T", b"three")])
            producer.send_oneway(Message("T", b"four"))
            producer.send_all([Message("T", b"five")])
            bodies = []
            for message in consumer:
                bodies.append(message.body)
                if len(bodies) == 5:
                    break
            consumer.commit()
            return sorted(bodies)

    async with FakeCluster(topics={"T": 2}) as cluster:
        assert await asyncio.to_thread(work, cluster.namesrv) == [b"five", b"four", b"one", b"three", b"two"]
    with pytest.raises(ClientClosedError):
        blocking.Producer().send(Message("T", b"x"))


@pytest.mark.parametrize("ordered", [False, True])
async def test_dead_letters_are_acknowledged_where_they_are_read(ordered: bool) -> None:
    """Brokers store them with the topic they came from and the times they failed, as what the retry topic holds."""
    failed: dict[str, Any] = {"properties": {"RETRY_TOPIC": "T"}, "reconsume_times": 1}
    async with FakeCluster(topics={"%DLQ%g": 1, "%RETRY%g": 1}) as cluster:
        for topic in ("%DLQ%g", "%RETRY%g"):
            cluster.broker.store(MessageExt(topic, b"", **failed))
        async with Consumer(
            "%DLQ%g", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST, auto_ack=False, ordered=ordered
        ) as consumer:
            found = {message.topic: message for message in await take(consumer, 2)}
            assert consumer.ack(found["%DLQ%g"]) == 1
            await consumer.commit()
            assert cluster.broker.committed["g", "%DLQ%g", 0] == 1
            assert cluster.broker.committed.get(("g", "%RETRY%g", 0), 0) == 0, "the one in there is not processed yet"
            assert consumer.ack(found["T"]) == 1


@pytest.mark.parametrize("ordered", [False, True])
async def test_dead_letters_count_as_processed_when_the_next_is_asked_for(ordered: bool) -> None:
    async with FakeCluster(topics={"%DLQ%other": 1}) as cluster:
        for _ in range(2):
            cluster.broker.store(MessageExt("%DLQ%other", b"", {"RETRY_TOPIC": "T"}, reconsume_times=16))
        async with Consumer(
            "%DLQ%other", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST, ordered=ordered
        ) as consumer:
            assert [message.queue_offset for message in await take(consumer, 2)] == [0, 1]
            assert await consumer.poll(timeout_ms=0) == []
            await consumer.commit()
            assert cluster.broker.committed["g", "%DLQ%other", 0] == 2


async def test_a_message_whose_rejection_fails_stays_open() -> None:
    sent: list[dict[str, str]] = []

    def take_back(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
        if request.code != RequestCode.CONSUMER_SEND_MSG_BACK:
            return None
        sent.append(request.ext_fields)
        if len(sent) == 1:
            return refuse(request, ResponseCode.SYSTEM_ERROR, "not now")
        return RemotingCommand.response_to(request, ResponseCode.SUCCESS)

    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, "T", 0, 3)
        cluster.rules.append(take_back)
        async with Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST, auto_ack=False) as consumer:
            messages = await take(consumer, 3)
            with pytest.raises(BrokerError, match="not now"):
                await consumer.reject(messages[1])
            consumer.ack([messages[0], messages[2]])
            await consumer.commit()
            assert cluster.broker.committed["g", "T", 0] == 1
            assert await consumer.reject(messages[1])
            await consumer.commit()
            assert cluster.broker.committed["g", "T", 0] == 3
            assert not await consumer.reject(messages[1])
        assert [(fields["offset"], fields["delayLevel"], fields["group"]) for fields in sent] == [("1", "-1", "g")] * 2


async def test_a_broadcasting_group_has_no_dead_letters(tmp_path: Path) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, "T", 0, 1)
        async with Consumer(
            "T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST, broadcast=True, offset_file=tmp_path / "offsets"
        ) as consumer:
            (message,) = await take(consumer, 1)
            with pytest.raises(ValueError, match="group g is broadcasting"):
                await consumer.reject(message)
