"""Runs, starts and hooks that are given up half-way leave nothing behind and nothing undone."""

import asyncio
import sys
import threading
import time

import pytest

from ringmq.client import (
    ClientClosedError,
    ConnectionSettings,
    ConsumeFrom,
    Consumer,
    ConsumeRetry,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    RetryPolicy,
    SendError,
)
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.client.observing.observers import Observers
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from tests.client.consuming import Eventually, consumer_of, fill
from tests.client.fake_broker import FakeBroker, FakeCluster, NoAnswer, Peer, ok, refuse


async def test_messages_behind_a_thread_that_is_over_its_time_wait_for_it(eventually: Eventually) -> None:
    back: list[str] = []

    def take_back(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
        if request.code != RequestCode.CONSUMER_SEND_MSG_BACK:
            return None
        back.append(request.ext_fields["offset"])
        return ok(request)

    async with FakeCluster(topics={"T": 1}) as cluster, consumer_of(cluster) as consumer:
        cluster.rules.append(take_back)
        fill(cluster, "T", 0, 3)
        over = threading.Event()
        handled: list[int] = []

        def handle(message: MessageExt) -> None:
            if message.queue_offset == 0:
                over.wait(60)
            handled.append(message.queue_offset)

        running = asyncio.create_task(consumer.run(handle, concurrency=1, timeout_ms=100))
        await eventually(lambda: back)
        await asyncio.sleep(0.3)  # span: in which the others would be over their time, if they were called
        assert (back, handled) == (["0"], []), "the others were never called"
        over.set()
        await eventually(lambda: {*handled} == {0, 1, 2})
        await consumer.close()
        await running


LEAVES_A_HANDLER = """
import asyncio, sys, time
from ringmq.client import ConsumeFrom, Consumer

async def main(namesrv):
    begun, loop = asyncio.Event(), asyncio.get_running_loop()

    def handle(message):
        loop.call_soon_threadsafe(begun.set)
        time.sleep(600)  # span: the drain ends before

    consumer = Consumer("T", namesrv, "g", consume_from=ConsumeFrom.FIRST, drain_timeout_ms=50)
    async with consumer:
        running = asyncio.create_task(consumer.run(handle))
        await begun.wait()
    await running

asyncio.run(main(sys.argv[1]))
"""


async def test_a_thread_that_a_close_has_left_does_not_keep_the_process() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, "T", 0, 1)
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", LEAVES_A_HANDLER, cluster.namesrv)
        try:
            assert await asyncio.wait_for(process.wait(), 60) == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def test_what_a_cancelled_run_had_to_try_again_is_the_next_one_s(eventually: Eventually) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, consumer_of(cluster, ordered=True) as consumer:
        fill(cluster, "T", 0, 2)
        failed: list[int] = []
        handled: list[int] = []

        async def fail(message: MessageExt) -> None:
            failed.append(message.queue_offset)
            raise ValueError("not now")

        async def handle(message: MessageExt) -> None:
            handled.append(message.queue_offset)

        running = asyncio.create_task(consumer.run(fail, retry=ConsumeRetry(suspend_ms=600_000)))
        await eventually(lambda: failed)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        running = asyncio.create_task(consumer.run(handle))
        await eventually(lambda: len(handled) == 2)
        await consumer.close()
        await running
        assert handled == [0, 1]


async def test_what_was_on_its_way_back_when_a_run_was_cancelled_is_the_next_one_s(eventually: Eventually) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, consumer_of(cluster, drain_timeout_ms=50) as consumer:
        cluster.rules.append(lambda broker, request: NoAnswer.SILENCE if is_back(request) else None)
        fill(cluster, "T", 0, 1)
        handled: list[int] = []

        async def fail(message: MessageExt) -> None:
            raise ValueError("not now")

        async def handle(message: MessageExt) -> None:
            handled.append(message.queue_offset)

        running = asyncio.create_task(consumer.run(fail))
        await eventually(lambda: cluster.broker.asked(RequestCode.CONSUMER_SEND_MSG_BACK))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        running = asyncio.create_task(consumer.run(handle))
        await eventually(lambda: handled)
        await consumer.close()
        await running
        assert cluster.broker.committed["g", "T", 0] == 1


async def test_what_the_caller_does_with_a_batch_does_not_change_what_is_acknowledged() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, "T", 0, 3)  # before the consumer begins, so that all come together
        async with consumer_of(cluster) as consumer:
            batch = await consumer.poll(timeout_ms=60_000)
            assert len(batch) == 3
            while batch:
                batch.pop()
            assert await consumer.poll(timeout_ms=50) == []
            await consumer.commit()
            assert cluster.broker.committed["g", "T", 0] == 3


async def test_a_hook_that_fails_costs_no_place() -> None:
    fails = False

    def hook(address: str, request: RemotingCommand) -> None:
        if fails and request.code == RequestCode.SEND_MESSAGE_V2:
            raise LookupError("no token today")

    settings = ConnectionSettings(before_request=(hook,))
    async with (
        FakeCluster(topics={"T": 1}) as cluster,
        asyncio.timeout(60),
        Producer(cluster.namesrv, settings=settings, in_flight_max=2) as producer,
    ):
        await producer.send(Message("T", b"x"))
        fails = True
        for _ in range(5):
            with pytest.raises(LookupError):
                await producer.send(Message("T", b"y"))
        fails = False
        await producer.send(Message("T", b"z"))


@pytest.mark.parametrize(
    ("code", "refusal"),
    [
        (RequestCode.GET_ROUTEINFO_BY_TOPIC, ResponseCode.SYSTEM_ERROR),
        (RequestCode.HEART_BEAT, ResponseCode.SUBSCRIPTION_NOT_EXIST),
    ],
)
async def test_a_hook_that_fails_while_a_queue_s_reader_recovers_does_not_end_it(
    code: RequestCode, refusal: ResponseCode, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringmq.client.consuming.queue_reader.FAULT_PAUSE_S", 0.01)
    failing: set[int] = set()
    failed: list[int] = []

    def hook(address: str, request: RemotingCommand) -> None:
        if request.code in failing and request.ext_fields.get("topic", "T") == "T":
            failed.append(request.code)
            raise ValueError("no token today")

    def refuse_pulls(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
        return refuse(request, refusal, "not now") if request.code == RequestCode.PULL_MESSAGE else None

    settings = ConnectionSettings(before_request=(hook,))
    async with FakeCluster(topics={"T": 1}) as cluster, consumer_of(cluster, settings=settings) as consumer:
        failing.add(code)
        cluster.rules.append(refuse_pulls)
        parked, cluster.broker.parked = cluster.broker.parked, []
        for peer, request in parked:
            cluster.serve(cluster.broker, peer, request)
        await eventually(lambda: failed)
        cluster.rules.clear()
        failing.clear()
        fill(cluster, "T", 0, 1)
        assert [m.queue_offset for m in await consumer.poll(9, timeout_ms=60_000)] == [0]


async def test_a_commit_that_a_hook_stops_raises_what_it_raised_after_the_others() -> None:
    def hook(address: str, request: RemotingCommand) -> None:
        if request.code == RequestCode.UPDATE_CONSUMER_OFFSET and request.ext_fields["topic"] == "T":
            raise LookupError("no token today")

    settings = ConnectionSettings(before_request=(hook,))
    async with (
        FakeCluster(topics={"T": 1, "U": 1}) as cluster,
        Consumer(["T", "U"], cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST, settings=settings) as consumer,
    ):
        fill(cluster, "T", 0, 1)
        cluster.broker.store(MessageExt("U", b""))
        for _ in range(2):
            assert await consumer.poll(timeout_ms=60_000)
        await consumer.poll(timeout_ms=0)
        with pytest.raises(LookupError):
            await consumer.commit()
        assert cluster.broker.committed["g", "U", 0] == 1


class LateCluster(FakeCluster):
    """Takes its time for what comes back."""

    def serve(self, broker: FakeBroker, peer: Peer, request: RemotingCommand, *, hold: bool = True) -> None:
        late_s = 0.3 if request.code == RequestCode.CONSUMER_SEND_MSG_BACK else 0.0
        later = super().serve
        asyncio.get_running_loop().call_later(late_s, lambda: later(broker, peer, request, hold=hold))


async def test_close_waits_for_what_goes_back_to_its_broker(eventually: Eventually) -> None:
    async with LateCluster(topics={"T": 1}) as cluster, consumer_of(cluster) as consumer:
        cluster.rules.append(lambda broker, request: ok(request) if is_back(request) else None)
        fill(cluster, "T", 0, 1)
        failed: list[int] = []

        async def fail(message: MessageExt) -> None:
            failed.append(message.queue_offset)
            raise ValueError("not today")

        running = asyncio.create_task(consumer.run(fail, concurrency=1))
        await eventually(lambda: failed)
        await consumer.close()
        await running
        assert cluster.broker.committed["g", "T", 0] == 1


def is_back(request: RemotingCommand) -> bool:
    return request.code == RequestCode.CONSUMER_SEND_MSG_BACK


async def test_a_request_ends_in_its_time_whatever_the_send_does() -> None:
    retry = RetryPolicy(budget_ms=600_000)
    async with FakeCluster(topics={"T": 1}) as cluster, Producer(cluster.namesrv, retry=retry) as producer:
        cluster.rules.append(
            lambda _, request: NoAnswer.SILENCE if request.code == RequestCode.SEND_MESSAGE_V2 else None
        )
        async with asyncio.timeout(60):
            with pytest.raises(SendError, match="not known to be stored after 200 ms") as caught:
                await producer.request(Message("T", b"x"), timeout_ms=200)
        assert caught.value.code is None


async def test_who_waits_for_a_connection_that_a_close_ends_is_told_so() -> None:
    client, address = RemotingClient(ConnectionSettings()), "127.0.0.1:1"
    client._begin_connecting(address)
    client._endpoints[address].retry_at = time.monotonic() + 600  # before it begins
    asking = asyncio.create_task(client.connection(address))
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(ClientClosedError):
        await asking


async def test_a_producers_close_that_is_cancelled_leaves_nothing_running(
    eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        producer = Producer(cluster.namesrv)
        producer.start()
        await producer.send(Message("T", b"x"))
        waits = asyncio.Event()

        async def wait(_: Observers) -> None:
            waits.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(Observers, "close", wait)
        closing = asyncio.create_task(producer.close())
        await waits.wait()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert all(task.done() for task in producer._tasks)
        assert cluster.broker.asked(RequestCode.UNREGISTER_CLIENT)
        await eventually(lambda: not cluster.broker.peers)


async def test_a_consumer_that_is_not_started_says_so_to_who_seeks() -> None:
    consumer, queue = Consumer("T", "127.0.0.1:1", "g"), MessageQueue("T", "a", 0)
    for seeking in (
        consumer.seek_to_beginning(queue),
        consumer.seek_to_end(queue),
        consumer.seek_to_timestamp(queue, 1),
    ):
        with pytest.raises(ClientClosedError):
            await seeking
