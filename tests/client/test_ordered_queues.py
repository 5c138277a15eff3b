"""Ordered consumption by handlers, one message of a queue at a time, under its lock: against a fake broker."""

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from ringmq.client import ConsumeFrom, Consumer, MessageExt, MessageQueue
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from tests.client.awaited import AwaitedConsumer, transports
from tests.client.consuming import FAST, Eventually, fill, run_until
from tests.client.fake_broker import FakeBroker, FakeCluster, refuse

transport = transports(AwaitedConsumer)


def consumer_of(cluster: FakeCluster, topics: Any = "T", group: str = "g", **options: Any) -> Consumer:
    return Consumer(topics, cluster.namesrv, group, consume_from=ConsumeFrom.FIRST, **options)


async def test_after_a_seek_an_ordered_queue_waits_for_the_handler_that_runs(eventually: Eventually) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, consumer_of(cluster, ordered=True) as consumer:
        fill(cluster, "T", 0, 3)
        begun: list[int] = []
        ended: list[int] = []
        gate = asyncio.Event()

        async def handle(message: MessageExt) -> None:
            begun.append(message.queue_offset)
            if len(begun) == 1:
                await gate.wait()
            ended.append(message.queue_offset)

        running = asyncio.create_task(consumer.run(handle))
        await eventually(lambda: begun)
        await eventually(lambda: len(cluster.broker.asked(RequestCode.PULL_MESSAGE)) > 1)
        asked = len(cluster.broker.asked(RequestCode.PULL_MESSAGE))
        await consumer.seek(MessageQueue("T", "a", 0), 1)
        await eventually(lambda: len(cluster.broker.asked(RequestCode.PULL_MESSAGE)) > asked + 1)
        assert begun == [0], "its messages are here, and their turn comes later"
        gate.set()
        await eventually(lambda: len(ended) == 3)
        await consumer.close()
        await running
        assert begun == ended == [0, 1, 2]


async def test_an_ordered_queue_is_handled_one_by_one_and_waits_behind_a_failure() -> None:
    async with FakeCluster(topics={"T": 2}) as cluster, consumer_of(cluster, ordered=True) as consumer:
        fill(cluster, "T", 0, 20)
        fill(cluster, "T", 1, 20)
        order: dict[int, list[int]] = defaultdict(list)
        running: set[int] = set()

        async def handle(message: MessageExt) -> None:
            assert message.queue_id not in running
            running.add(message.queue_id)
            await asyncio.sleep(0.001)  # span: in which another of the queue could begin
            running.discard(message.queue_id)
            order[message.queue_id].append(message.queue_offset)
            if message.queue_id == 1 and message.queue_offset == 5 and order[1].count(5) < 3:
                raise ValueError("again")

        await run_until(consumer, lambda: len(order[0]) == 20 and len(order[1]) == 22, handle, retry=FAST)
        assert order[0] == list(range(20))
        assert order[1] == [*range(5), 5, 5, *range(5, 20)]
        assert cluster.broker.committed == {("g", "T", 0): 20, ("g", "T", 1): 20}
        assert not cluster.broker.locks, "given back at the end"
        assert not cluster.broker.asked(RequestCode.CONSUMER_SEND_MSG_BACK)


async def test_an_ordered_queue_is_not_read_before_its_lock_is_ours() -> None:
    async with FakeCluster(topics={"T": 2}) as cluster:
        fill(cluster, "T", 0, 3)
        fill(cluster, "T", 1, 3)
        taken = MessageQueue("T", "a", 0)
        cluster.broker.locks["g", taken] = "another"
        async with consumer_of(cluster, ordered=True) as consumer:
            assert {m.queue_id for m in await consumer.poll(timeout_ms=60_000)} == {1}
            assert await consumer.poll(timeout_ms=100) == []
            cluster.broker.committed["g", "T", 0] = 2  # the other member has read on
            del cluster.broker.locks["g", taken]
            messages = await consumer.poll(timeout_ms=60_000)
        assert [(m.queue_id, m.queue_offset) for m in messages] == [(0, 2)]


async def test_a_lost_lock_voids_what_was_read(monkeypatch: pytest.MonkeyPatch, eventually: Eventually) -> None:
    monkeypatch.setattr("ringmq.client.consuming.queue_locks.RENEW_INTERVAL_S", 0.05)
    async with FakeCluster(topics={"T": 1}) as cluster, consumer_of(cluster, ordered=True) as consumer:
        fill(cluster, "T", 0, 10)
        queue = MessageQueue("T", "a", 0)
        handled: list[int] = []
        gate = asyncio.Event()

        async def handle(message: MessageExt) -> None:
            handled.append(message.queue_offset)
            if len(handled) == 2:
                await gate.wait()

        running = asyncio.create_task(consumer.run(handle))
        await eventually(lambda: len(handled) == 2)
        cluster.broker.locks["g", queue] = "another"
        asked = len(cluster.broker.asked(RequestCode.LOCK_BATCH_MQ))
        await eventually(lambda: len(cluster.broker.asked(RequestCode.LOCK_BATCH_MQ)) > asked + 1)
        gate.set()
        cluster.broker.committed["g", "T", 0] = 7
        del cluster.broker.locks["g", queue]
        await eventually(lambda: len(handled) == 5)
        await consumer.close()
        await running
        assert handled == [0, 1, 7, 8, 9]
        assert cluster.broker.committed["g", "T", 0] == 10


async def test_nothing_of_an_ordered_queue_is_handed_out_when_its_lock_has_expired(
    monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    def refuse_locks(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
        return refuse(request, 1, "busy") if request.code == RequestCode.LOCK_BATCH_MQ else None

    monkeypatch.setattr("ringmq.client.consuming.queue_locks.RENEW_INTERVAL_S", 0.05)
    monkeypatch.setattr("ringmq.client.consuming.queue_locks.LOCK_VALID_S", 0.5)
    async with FakeCluster(topics={"T": 1}) as cluster, consumer_of(cluster, ordered=True, auto_ack=False) as consumer:
        fill(cluster, "T", 0, 10)
        assert [m.queue_offset for m in await consumer.poll(1)] == [0]
        locks, queue = consumer._locks, MessageQueue("T", "a", 0)
        assert locks is not None
        cluster.rules.append(refuse_locks)
        await eventually(lambda: not locks.held(queue))
        assert await consumer.poll(timeout_ms=50) == [], "they may be another member's now"
        cluster.broker.committed["g", "T", 0] = 7
        monkeypatch.setattr("ringmq.client.consuming.queue_locks.LOCK_VALID_S", 30.0)
        cluster.rules.clear()
        assert (await consumer.poll(timeout_ms=60_000))[0].queue_offset == 7


@pytest.mark.parametrize("fails", [False, True])
async def test_a_queue_whose_handler_runs_on_is_kept_until_it_has_ended(
    fails: bool, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        FakeCluster(topics={"T": 2}) as cluster,
        consumer_of(cluster, ordered=True, drain_timeout_ms=50) as first,
    ):
        fill(cluster, "T", 0, 2)
        fill(cluster, "T", 1, 2)
        begun: dict[int, list[tuple[str, int]]] = defaultdict(list)
        gate = asyncio.Event()

        async def hold(message: MessageExt) -> None:
            begun[message.queue_id].append(("first", message.queue_offset))
            if not gate.is_set():
                await gate.wait()
                if fails:
                    raise ValueError("again")

        async def handle(message: MessageExt) -> None:
            begun[message.queue_id].append(("second", message.queue_offset))

        one = asyncio.create_task(first.run(hold, retry=FAST))
        await eventually(lambda: begun[0] and begun[1])
        (holder,) = set(cluster.broker.locks.values())
        async with consumer_of(cluster, ordered=True) as second:
            other = asyncio.create_task(second.run(handle))
            await eventually(lambda: "until its handler ends" in caplog.text)
            await asyncio.sleep(0.3)  # span: in which the second could begin
            (given,) = (queue for queue in second.assignment() if queue.topic == "T")
            assert cluster.broker.locks["g", given] == holder
            assert begun[given.queue_id] == [("first", 0)], "nothing beside it"
            gate.set()
            await eventually(lambda: ("second", 1) in begun[given.queue_id])
            assert begun[given.queue_id][1:] == [("second", 0), ("second", 1)][1 - fails :]
            await second.close()
            await other
        await first.close()
        await one


async def test_a_queue_that_is_given_away_is_finished_committed_and_unlocked_first(eventually: Eventually) -> None:
    async with FakeCluster(topics={"T": 2}) as cluster, consumer_of(cluster, ordered=True) as first:
        fill(cluster, "T", 0, 50)
        fill(cluster, "T", 1, 50)
        handled: dict[int, list[tuple[str, int]]] = defaultdict(list)

        def handler(name: str) -> Any:
            async def handle(message: MessageExt) -> None:
                handled[message.queue_id].append((name, message.queue_offset))
                await asyncio.sleep(0.01)  # span: so that the second gets some

            return handle

        one = asyncio.create_task(first.run(handler("first")))
        await eventually(lambda: len(handled[0]) > 3 and len(handled[1]) > 3)
        async with consumer_of(cluster, ordered=True) as second:
            other = asyncio.create_task(second.run(handler("second")))
            await eventually(lambda: len(handled[0]) >= 50 and len(handled[1]) >= 50)
            await second.close()
            await other
        await first.close()
        await one
    for queue_id in (0, 1):
        assert [offset for _, offset in handled[queue_id]] == list(range(50)), "nothing twice, nothing out of order"
    assert {name for found in handled.values() for name, _ in found} == {"first", "second"}
