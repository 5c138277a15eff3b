"""A close, a seek or a start that is cancelled or overtaken leaves nothing behind."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringmq.client import (
    ClientClosedError,
    ConnectionSettings,
    ConsumeFrom,
    Consumer,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    SendError,
    Sql92,
)
from ringmq.client.runtimes import waiting
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from tests.client.consuming import Eventually, consumer_of, fill
from tests.client.fake_broker import FakeBroker, FakeCluster, NoAnswer, ok

QUEUE = MessageQueue("T", "a", 0)


def readers() -> int:
    return sum(task.get_name().startswith("read ") for task in asyncio.all_tasks())


async def test_seeks_at_the_same_time_leave_one_reader() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, consumer_of(cluster) as consumer:
        fill(cluster, "T", 0, 5)
        reading = readers()
        await asyncio.gather(*(consumer.seek(QUEUE, 3) for _ in range(3)))
        assert readers() == reading
        assert [m.queue_offset for m in await consumer.poll(9, timeout_ms=60_000)] == [3, 4]
        assert await consumer.poll(9, timeout_ms=50) == []


async def test_a_seek_that_the_close_overtakes_reads_no_more() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, consumer_of(cluster) as consumer:
        reader = consumer._readers[QUEUE]
        await consumer.close()
        await reader.seek(1)  # as one that had begun before
        assert not reader.reading
        assert not [task for task in asyncio.all_tasks() if task.get_name() == f"read {QUEUE}"]


async def test_a_seek_that_is_cancelled_leaves_the_queue_read() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, consumer_of(cluster) as consumer:
        fill(cluster, "T", 0, 2)
        seeking = asyncio.create_task(consumer.seek(QUEUE, 1))
        await asyncio.sleep(0)
        seeking.cancel()
        await asyncio.gather(seeking, return_exceptions=True)
        assert [m.queue_offset for m in await consumer.poll(9, timeout_ms=60_000)] == [1]


async def test_a_start_that_is_cancelled_leaves_no_task() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        cluster.rules.append(lambda broker, request: NoAnswer.SILENCE)
        consumer = consumer_of(cluster)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await consumer.start()
        assert not tasks_of_clients()


def tasks_of_clients() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("ringmq")]


async def closed_while_it_starts(consumer: Consumer, begun: Callable[[], object], eventually: Eventually) -> None:
    async with asyncio.timeout(60):
        starting = asyncio.create_task(consumer.start())
        await eventually(begun)
        await consumer.close()
        with pytest.raises(ClientClosedError, match="closed while it started"):
            await starting
    assert not tasks_of_clients()


@pytest.mark.parametrize("silent", [RequestCode.GET_CONSUMER_LIST_BY_GROUP, RequestCode.CHECK_CLIENT_CONFIG])
async def test_a_close_ends_a_start_that_waits_for_a_broker(silent: RequestCode, eventually: Eventually) -> None:
    def rule(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | NoAnswer | None:
        if request.code == silent:
            return NoAnswer.SILENCE
        return ok(request) if request.code == RequestCode.CHECK_CLIENT_CONFIG else None

    async with FakeCluster(topics={"T": 1}) as cluster:
        cluster.rules.append(rule)
        consumer = Consumer({"T": Sql92("a > 1")}, cluster.namesrv, "g")
        await closed_while_it_starts(consumer, lambda: cluster.broker.asked(silent), eventually)


async def test_a_close_ends_a_start_whose_listener_waits(eventually: Eventually) -> None:
    told, ended = asyncio.Event(), asyncio.Event()

    async def listen(queues: list[MessageQueue]) -> None:
        told.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with FakeCluster(topics={"T": 1}) as cluster:
        await closed_while_it_starts(consumer_of(cluster, on_assigned=listen), told.is_set, eventually)
        assert ended.is_set()


async def test_a_start_that_was_closed_begins_nothing_when_its_expression_is_judged(eventually: Eventually) -> None:
    check, held, leaving = RequestCode.CHECK_CLIENT_CONFIG, list[RemotingCommand](), list[int]()

    def rule(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | NoAnswer | None:
        if request.code == RequestCode.UNREGISTER_CLIENT:
            leaving.append(request.opaque)
            cluster.serve(broker, broker.peers[0], held[0])
        if request.code != check:
            return None
        held.append(request)
        return ok(request) if leaving else NoAnswer.SILENCE

    async with FakeCluster(topics={"T": 1}) as cluster:
        cluster.rules.append(rule)
        consumer = Consumer({"T": Sql92("a > 1")}, cluster.namesrv, "g")
        await closed_while_it_starts(consumer, lambda: cluster.broker.asked(check), eventually)
        assert leaving


def refusing(*codes: RequestCode) -> ConnectionSettings:
    """Settings whose hook lets no request of these codes go out."""

    def hook(address: str, request: RemotingCommand) -> None:
        if request.code in codes:
            raise ValueError("not this one")

    return ConnectionSettings(before_request=(hook,))


@pytest.mark.parametrize("code", [RequestCode.UNLOCK_BATCH_MQ, RequestCode.UPDATE_CONSUMER_OFFSET])
async def test_a_hook_that_fails_while_a_consumer_closes_leaves_nothing_behind(code: RequestCode) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, "T", 0, 1)
        consumer = consumer_of(cluster, ordered=True, auto_ack=False, settings=refusing(code))
        await consumer.start()
        consumer.ack(await consumer.poll(timeout_ms=60_000))
        await consumer.close()
        assert cluster.broker.asked(RequestCode.UNREGISTER_CLIENT)
        assert not consumer._client.connected_addresses()
        (other,) = {RequestCode.UNLOCK_BATCH_MQ, RequestCode.UPDATE_CONSUMER_OFFSET} - {code}
        assert cluster.broker.asked(other)


async def test_a_close_that_is_cancelled_leaves_and_lets_the_offset_file_go(tmp_path: Path) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, "T", 0, 1)
        options = {"broadcast": True, "offset_file": tmp_path / "offsets", "drain_timeout_ms": 100}
        consumer = consumer_of(cluster, **options)
        await consumer.start()
        called = asyncio.Event()

        async def handle(message: MessageExt) -> None:
            called.set()
            await asyncio.Event().wait()

        running = asyncio.create_task(consumer.run(handle))
        await called.wait()
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        assert cluster.broker.asked(RequestCode.UNREGISTER_CLIENT)
        assert not consumer._client.connected_addresses()
        async with consumer_of(cluster, **options):  # the file is free
            pass
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("linger_ms", [0, 1])
async def test_a_producer_s_close_that_is_cancelled_leaves_nothing_behind(
    linger_ms: int, eventually: Eventually
) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        before = asyncio.all_tasks()
        producer = Producer(cluster.namesrv, linger_ms=linger_ms)
        producer.start()
        await producer.send(Message("T", b"x"))
        cluster.rules.append(lambda broker, request: NoAnswer.SILENCE if request.body == b"y" else None)
        sending = asyncio.create_task(producer.send(Message("T", b"y")))
        await eventually(lambda: any(request.body == b"y" for request in cluster.broker.requests))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.close(), 0.1)
        assert cluster.broker.asked(RequestCode.UNREGISTER_CLIENT)
        assert not producer._client.connected_addresses()
        (failed,) = await asyncio.gather(sending, return_exceptions=True)
        assert isinstance(failed, SendError) and failed.code is None, "a copy may be stored"
        assert asyncio.all_tasks() <= before


@pytest.mark.parametrize("silent", [False, True])
async def test_a_close_that_is_cancelled_commits_what_is_acknowledged(
    silent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker without a word does not keep it: its time for a request would be ten minutes."""
    if not silent:
        monkeypatch.setattr(waiting, "LEAVE_WAIT_S", 60.0)
    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, "T", 0, 3)
        consumer = consumer_of(cluster, settings=ConnectionSettings(request_timeout_ms=600_000))
        await consumer.start()
        hangs = asyncio.Event()

        async def handle(message: MessageExt) -> None:
            if message.body == b"2":
                hangs.set()
                await asyncio.Event().wait()

        running = asyncio.create_task(consumer.run(handle, concurrency=1))
        await hangs.wait()
        if silent:
            commit = RequestCode.UPDATE_CONSUMER_OFFSET
            cluster.rules.append(lambda broker, request: NoAnswer.SILENCE if request.code == commit else None)
        async with asyncio.timeout(60) as limit:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.close(), 0.1)
        assert not limit.expired()
        assert cluster.broker.asked(RequestCode.UPDATE_CONSUMER_OFFSET)
        assert cluster.broker.committed.get(("g", "T", 0)) == (0 if silent else 2), "the start, or the end"
        assert cluster.broker.asked(RequestCode.UNREGISTER_CLIENT)
        consumer.drain_timeout_ms = 50
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("in_handler", [False, True])
async def test_an_ordered_close_that_is_cancelled_unlocks(in_handler: bool, eventually: Eventually) -> None:
    """No handler is left that would go on beside the next owner's."""
    waits, events = asyncio.Event(), list[str]()

    async def wait(_: object) -> None:
        waits.set()
        try:
            await asyncio.Event().wait()
        finally:
            events.append("handler ended")

    async def handle(message: MessageExt) -> None:
        if in_handler:
            await wait(message)

    def note(broker: FakeBroker, request: RemotingCommand) -> None:
        if request.code == RequestCode.UNLOCK_BATCH_MQ:
            events.append("unlocked")

    async with FakeCluster(topics={"T": 1}) as cluster:
        cluster.rules.append(note)
        fill(cluster, "T", 0, 1)
        consumer = consumer_of(cluster, ordered=True, on_revoked=None if in_handler else wait)
        await consumer.start()
        running = asyncio.create_task(consumer.run(handle))
        await eventually(lambda: ("g", QUEUE) in cluster.broker.locks and (waits.is_set() or not in_handler))
        closing = asyncio.create_task(consumer.close())
        await waits.wait()
        await asyncio.sleep(0.05)  # span: in which it would unlock
        assert not events
        closing.cancel()
        await asyncio.gather(closing, running, return_exceptions=True)
        assert events[:2] == ["handler ended", "unlocked"]
        assert not cluster.broker.locks


async def test_an_assignment_that_is_cancelled_leaves_the_queues_read() -> None:
    told, goes_on = asyncio.Event(), asyncio.Event()

    async def listen(queues: list[MessageQueue]) -> None:
        told.set()
        await goes_on.wait()

    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, "T", 0, 1)
        options: dict[str, Any] = {"consume_from": ConsumeFrom.FIRST, "on_assigned": listen}
        async with Consumer(None, cluster.namesrv, "g", **options) as consumer:
            assigning = asyncio.create_task(consumer.assign([QUEUE]))
            await told.wait()
            assigning.cancel()
            await asyncio.sleep(0)
            goes_on.set()
            with pytest.raises(asyncio.CancelledError):
                await assigning
            assert consumer.assignment() == [QUEUE]
            assert [m.body for m in await consumer.poll(timeout_ms=60_000)] == [b"0"]


async def test_an_assignment_that_the_close_overtakes_begins_with_nothing() -> None:
    assigned, told, goes_on = list[MessageQueue](), asyncio.Event(), asyncio.Event()

    async def listen(queues: list[MessageQueue]) -> None:
        told.set()
        await goes_on.wait()

    async with FakeCluster(topics={"T": 2}) as cluster:
        options: dict[str, Any] = {"on_assigned": assigned.extend, "on_revoked": listen}
        async with Consumer(None, cluster.namesrv, "g", **options) as consumer:
            await consumer.assign([QUEUE])
            assigning = asyncio.create_task(consumer.assign([MessageQueue("T", "a", 1)]))
            await told.wait()
            told.clear()
            closing = asyncio.create_task(consumer.close())
            await told.wait()
            goes_on.set()
            await asyncio.gather(assigning, closing)
        assert assigned == [QUEUE]
