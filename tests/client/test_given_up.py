"""What is given up half-way (runs, seeks, starts, sends whose hook fails) leaves nothing behind and nothing undone."""

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    SendError,
    Sql92,
)
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.client.observing.observers import Observers
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from tests.client.fake_broker import FakeBroker, FakeCluster, NoAnswer, Peer, ok, refuse

Eventually = Callable[..., Any]
QUEUE = MessageQueue("T", "a", 0)


def fill(cluster: FakeCluster, count: int) -> None:
    for i in range(count):
        cluster.broker.store(MessageExt("T", b"%d" % i, {"TAGS": "t"}))


def consumer_of(cluster: FakeCluster, **options: Any) -> Consumer:
    return Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST, **options)


def readers() -> int:
    return sum(task.get_name().startswith("read ") for task in asyncio.all_tasks())


async def test_messages_behind_a_thread_that_is_over_its_time_wait_for_it(eventually: Eventually) -> None:
    back: list[str] = []

    def take_back(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
        if request.code != RequestCode.CONSUMER_SEND_MSG_BACK:
            return None
        back.append(request.ext_fields["offset"])
        return ok(request)

    async with FakeCluster(topics={"T": 1}) as cluster, consumer_of(cluster) as consumer:
        cluster.rules.append(take_back)
        fill(cluster, 3)
        over = threading.Event()
        handled: list[int] = []

        def handle(message: MessageExt) -> None:
            if message.queue_offset == 0:
                over.wait(20)
            handled.append(message.queue_offset)

        running = asyncio.create_task(consumer.run(handle, concurrency=1, timeout_ms=100))
        await eventually(lambda: back)
        await asyncio.sleep(0.3)  # span
        over.set()
        await eventually(lambda: len(handled) == 3)
        await consumer.close()
        await running
        assert back == ["0"], "the others were never called"


LEAVES_A_HANDLER = """
import asyncio, sys, time
from ringmq.client import ConsumeFrom, Consumer

async def main(namesrv):
    begun, loop = asyncio.Event(), asyncio.get_running_loop()

    def handle(message):
        loop.call_soon_threadsafe(begun.set)
        time.sleep(600)  # span

    consumer = Consumer("T", namesrv, "g", consume_from=ConsumeFrom.FIRST, drain_timeout_ms=50)
    async with consumer:
        running = asyncio.create_task(consumer.run(handle))
        await begun.wait()
    await running

asyncio.run(main(sys.argv[1]))
"""


async def test_a_thread_that_a_close_has_left_does_not_keep_the_process() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, 1)
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", LEAVES_A_HANDLER, cluster.namesrv)
        try:
            assert await asyncio.wait_for(process.wait(), 60) == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def test_what_a_cancelled_run_had_to_try_again_is_the_next_one_s(eventually: Eventually) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, consumer_of(cluster, ordered=True) as consumer:
        fill(cluster, 2)
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
        fill(cluster, 1)
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


async def test_seeks_at_the_same_time_leave_one_reader() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, consumer_of(cluster) as consumer:
        fill(cluster, 5)
        reading = readers()
        await asyncio.gather(*(consumer.seek(QUEUE, 3) for _ in range(3)))
        assert readers() == reading
        assert [m.queue_offset for m in await consumer.poll(9, timeout_ms=5000)] == [3, 4]
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
        fill(cluster, 2)
        seeking = asyncio.create_task(consumer.seek(QUEUE, 1))
        await asyncio.sleep(0)
        seeking.cancel()
        await asyncio.gather(seeking, return_exceptions=True)
        assert [m.queue_offset for m in await consumer.poll(9, timeout_ms=5000)] == [1]


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


async def test_what_the_caller_does_with_a_batch_does_not_change_what_is_acknowledged() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, consumer_of(cluster) as consumer:
        fill(cluster, 3)
        batch = await consumer.poll(timeout_ms=5000)
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
        asyncio.timeout(20),
        Producer(cluster.namesrv, settings=settings, in_flight_max=2) as producer,
    ):
        await producer.send(Message("T", b"x"))
        fails = True
        for _ in range(5):
            with pytest.raises(LookupError):
                await producer.send(Message("T", b"y"))
        fails = False
        await producer.send(Message("T", b"z"))


def refusing(*codes: RequestCode) -> ConnectionSettings:
    """Settings whose hook lets no request of these codes go out."""

    def hook(address: str, request: RemotingCommand) -> None:
        if request.code in codes:
            raise ValueError("not this one")

    return ConnectionSettings(before_request=(hook,))


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
        fill(cluster, 1)
        assert [m.queue_offset for m in await consumer.poll(9, timeout_ms=10_000)] == [0]


@pytest.mark.parametrize("code", [RequestCode.UNLOCK_BATCH_MQ, RequestCode.UPDATE_CONSUMER_OFFSET])
async def test_a_hook_that_fails_while_a_consumer_closes_leaves_nothing_behind(code: RequestCode) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, 1)
        consumer = consumer_of(cluster, ordered=True, auto_ack=False, settings=refusing(code))
        await consumer.start()
        consumer.ack(await consumer.poll(timeout_ms=5000))
        await consumer.close()
        assert cluster.broker.asked(RequestCode.UNREGISTER_CLIENT)
        assert not consumer._client.connected_addresses()
        (other,) = {RequestCode.UNLOCK_BATCH_MQ, RequestCode.UPDATE_CONSUMER_OFFSET} - {code}
        assert cluster.broker.asked(other)


async def test_a_close_that_is_cancelled_leaves_and_lets_the_offset_file_go(tmp_path: Path) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, 1)
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
async def test_a_producer_s_close_that_is_cancelled_leaves_nothing_behind(linger_ms: int) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        before = asyncio.all_tasks()
        producer = Producer(cluster.namesrv, linger_ms=linger_ms)
        producer.start()
        await producer.send(Message("T", b"x"))
        cluster.rules.append(lambda broker, request: NoAnswer.SILENCE if request.body == b"y" else None)
        sending = asyncio.create_task(producer.send(Message("T", b"y")))
        while not any(request.body == b"y" for request in cluster.broker.requests):
            await asyncio.sleep(0.005)  # poll
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.close(), 0.1)
        assert cluster.broker.asked(RequestCode.UNREGISTER_CLIENT)
        assert not producer._client.connected_addresses()
        (failed,) = await asyncio.gather(sending, return_exceptions=True)
        assert isinstance(failed, SendError) and failed.code is None, "a copy may be stored"
        assert asyncio.all_tasks() <= before


@pytest.mark.parametrize("silent", [False, True])
async def test_a_close_that_is_cancelled_commits_what_is_acknowledged(silent: bool) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, 3)
        consumer = consumer_of(cluster)
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
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.close(), 0.1)
        assert cluster.broker.asked(RequestCode.UPDATE_CONSUMER_OFFSET)
        assert cluster.broker.committed.get(("g", "T", 0)) == (None if silent else 2)
        assert time.monotonic() - began < 2.5, "a broker without a word does not keep it"
        assert cluster.broker.asked(RequestCode.UNREGISTER_CLIENT)
        consumer.drain_timeout_ms = 50
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("in_handler", [False, True])
async def test_an_ordered_close_that_is_cancelled_unlocks(in_handler: bool) -> None:
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
        fill(cluster, 1)
        consumer = consumer_of(cluster, ordered=True, on_revoked=None if in_handler else wait)
        await consumer.start()
        running = asyncio.create_task(consumer.run(handle))
        while ("g", QUEUE) not in cluster.broker.locks or (in_handler and not waits.is_set()):
            await asyncio.sleep(0.005)  # poll
        closing = asyncio.create_task(consumer.close())
        await waits.wait()
        await asyncio.sleep(0.05)  # span
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
        fill(cluster, 1)
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
            assert [m.body for m in await consumer.poll(timeout_ms=5000)] == [b"0"]


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


async def test_a_commit_that_a_hook_stops_raises_what_it_raised_after_the_others() -> None:
    def hook(address: str, request: RemotingCommand) -> None:
        if request.code == RequestCode.UPDATE_CONSUMER_OFFSET and request.ext_fields["topic"] == "T":
            raise LookupError("no token today")

    settings = ConnectionSettings(before_request=(hook,))
    async with (
        FakeCluster(topics={"T": 1, "U": 1}) as cluster,
        Consumer(["T", "U"], cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST, settings=settings) as consumer,
    ):
        fill(cluster, 1)
        cluster.broker.store(MessageExt("U", b""))
        for _ in range(2):
            assert await consumer.poll(timeout_ms=5000)
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
        fill(cluster, 1)
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
    async with FakeCluster(topics={"T": 1}) as cluster, Producer(cluster.namesrv) as producer:
        cluster.rules.append(
            lambda _, request: NoAnswer.SILENCE if request.code == RequestCode.SEND_MESSAGE_V2 else None
        )
        began = time.monotonic()
        with pytest.raises(SendError, match="not known to be stored after 200 ms") as caught:
            await producer.request(Message("T", b"x"), timeout_ms=200)
        assert caught.value.code is None
        assert time.monotonic() - began < 2.5


async def test_who_waits_for_a_connection_that_a_close_ends_is_told_so() -> None:
    client, address = RemotingClient(ConnectionSettings()), "127.0.0.1:1"
    client._begin_connecting(address)
    client._endpoints[address].retry_at = time.monotonic() + 60  # before it begins
    asking = asyncio.create_task(client.connection(address))
    await asyncio.sleep(0.01)  # span
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
        monkeypatch.setattr(Observers, "close", lambda self: asyncio.sleep(600))  # span
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0.01)  # span
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
