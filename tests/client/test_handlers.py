"""Consumption by handlers, broadcasting, pauses, assigned queues: against a fake broker."""

import asyncio
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from ringmq.client import (
    BrokerError,
    ConsumeFrom,
    Consumer,
    ConsumeRetry,
    Interceptor,
    MessageExt,
    MessageQueue,
    PullOptions,
    RejectMessage,
    RouteError,
    Sql92,
)
from ringmq.client.settings import ConnectionSettings
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.flags import PullSysFlag
from ringmq.remoting.heartbeat import BROADCASTING, CONSUME_ACTIVELY, HeartbeatData
from tests.client.awaited import ONLY_ASYNCIO, ONLY_BLOCKING, AwaitedConsumer, client_of, transports
from tests.client.consuming import FAST, Eventually, fill, run_until
from tests.client.fake_broker import FakeBroker, FakeCluster, ok, refuse
from tests.waiting import until

transport = transports(AwaitedConsumer)


def consumer_of(cluster: FakeCluster, topics: Any = "T", group: str = "g", **options: Any) -> Consumer:
    return Consumer(topics, cluster.namesrv, group, consume_from=ConsumeFrom.FIRST, **options)


async def test_so_many_handlers_run_at_a_time_and_their_return_acknowledges() -> None:
    async with FakeCluster(topics={"T": 2}) as cluster, consumer_of(cluster) as consumer:
        fill(cluster, "T", 0, 40)
        fill(cluster, "T", 1, 40)
        seen: list[bytes] = []
        running = most = 0

        async def handle(message: MessageExt) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await until(lambda: most >= 5, "the others are here")
            await asyncio.sleep(0.002)  # span: in which a sixth could come
            running -= 1
            seen.append(message.body)

        await run_until(consumer, lambda: len(seen) == 80, handle, concurrency=5)
        assert most == 5
        assert cluster.broker.committed == {("g", "T", 0): 40, ("g", "T", 1): 40}


async def test_plain_functions_run_in_threads() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, consumer_of(cluster) as consumer:
        fill(cluster, "T", 0, 6)
        threads: set[str] = set()
        bodies: list[bytes] = []
        together = threading.Barrier(3)

        def handle(message: MessageExt) -> None:
            threads.add(threading.current_thread().name)
            together.wait(60)
            bodies.append(message.body)

        await run_until(consumer, lambda: len(bodies) == 6, handle, concurrency=3)
        assert threading.current_thread().name not in threads
        assert len(threads) == 3
        assert cluster.broker.committed["g", "T", 0] == 6


@ONLY_ASYNCIO
async def test_what_makes_a_coroutine_has_handled_a_message_when_that_is_over() -> None:
    """Wrapped as it may be: an object with an async __call__, a lambda around an async function."""
    bodies: list[bytes] = []

    async def handle(message: MessageExt) -> None:
        await asyncio.sleep(0)
        if message.body == b"1" and message.reconsume_times == 0:
            raise ValueError("not yet")
        bodies.append(message.body)

    class Handler:
        async def __call__(self, message: MessageExt) -> None:
            await handle(message)

    handlers: tuple[Any, ...] = (Handler(), lambda message: handle(message))
    for handler in handlers:
        bodies.clear()
        async with FakeCluster(topics={"T": 1}) as cluster, consumer_of(cluster) as consumer:
            fill(cluster, "T", 0, 3)
            await run_until(consumer, lambda: len(bodies) == 3, handler, timeout_ms=10_000, retry=FAST)
            assert sorted(bodies) == [b"0", b"1", b"2"]
            assert cluster.broker.committed["g", "T", 0] == 3


async def test_a_plain_handler_that_raises_stop_iteration_has_failed(caplog: pytest.LogCaptureFixture) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, consumer_of(cluster) as consumer:
        fill(cluster, "T", 0, 3)
        handled: list[int] = []

        def handle(message: MessageExt) -> None:
            handled.append(message.queue_offset)
            if len(handled) == 1:
                next(iter(()))

        await run_until(consumer, lambda: len(handled) == 4, handle, concurrency=1, retry=FAST)
        assert sorted(handled) == [0, 0, 1, 2]
        assert "StopIteration" in caplog.text
        assert cluster.broker.committed["g", "T", 0] == 3


@ONLY_BLOCKING
async def test_a_coroutine_that_a_blocking_handler_makes_is_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def handle(message: MessageExt) -> None:
        """Never awaited."""

    async with FakeCluster(topics={"T": 1}) as cluster, consumer_of(cluster) as consumer:
        fill(cluster, "T", 0, 1)
        await run_until(consumer, lambda: "returned a coroutine" in caplog.text, lambda message: handle(message))
        assert ("g", "T", 0) not in cluster.broker.committed or cluster.broker.committed["g", "T", 0] == 0


async def test_a_failed_message_goes_back_to_its_broker() -> None:
    back: list[dict[str, str]] = []

    def take_back(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
        if request.code != RequestCode.CONSUMER_SEND_MSG_BACK:
            return None
        back.append(request.ext_fields)
        return ok(request)

    async with FakeCluster(topics={"T": 1}) as cluster, consumer_of(cluster) as consumer:
        cluster.rules.append(take_back)
        fill(cluster, "T", 0, 10)
        handled: list[int] = []

        async def handle(message: MessageExt) -> None:
            handled.append(message.queue_offset)
            if message.queue_offset == 3:
                raise ValueError("three")
            if message.queue_offset == 4:
                raise RejectMessage
            if message.queue_offset == 5:
                await asyncio.sleep(600)  # span: its time is over before

        def done() -> bool:
            return len(handled) == 10 and {"3", "4", "5"} <= {fields["offset"] for fields in back}

        await run_until(consumer, done, handle, timeout_ms=500, retry=ConsumeRetry(max_reconsume_times=2))
        # a busy machine may let others be over their time, too
        assert {(f["offset"], f["delayLevel"], f["maxReconsumeTimes"]) for f in back} >= {
            ("3", "0", "2"),
            ("4", "-1", "2"),
            ("5", "0", "2"),
        }
        assert cluster.broker.committed["g", "T", 0] == 10


async def test_a_retry_of_a_topic_that_is_subscribed_no_more_goes_back_too(eventually: Eventually) -> None:
    back: list[dict[str, str]] = []

    def take_back(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
        if request.code != RequestCode.CONSUMER_SEND_MSG_BACK:
            return None
        back.append(request.ext_fields)
        return ok(request)

    async with FakeCluster(topics={"T": 1, "%RETRY%g": 1}) as cluster, consumer_of(cluster) as consumer:
        cluster.rules.append(take_back)
        cluster.broker.store(MessageExt("%RETRY%g", b"", {"RETRY_TOPIC": "Refunds"}, reconsume_times=1))

        async def handle(message: MessageExt) -> None:
            raise RejectMessage

        await run_until(consumer, lambda: back, handle)
        assert back[0]["delayLevel"] == "-1"
        assert cluster.broker.committed["g", "%RETRY%g", 0] == 1


async def test_no_body_gets_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, consumer_of(cluster, drain_timeout_ms=100) as consumer:
        cluster.broker.store(MessageExt("T", b"\xffsecret"))
        await run_until(consumer, lambda: "UnicodeDecodeError" in caplog.text, lambda message: message.body.decode())
        assert "secret" not in caplog.text


async def test_a_handler_that_is_late_and_one_that_waited_in_vain_are_told_apart(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, consumer_of(cluster, drain_timeout_ms=100) as consumer:
        fill(cluster, "T", 0, 2)

        async def handle(message: MessageExt) -> None:
            if message.queue_offset == 0:
                raise TimeoutError("the database said nothing")
            await asyncio.sleep(600)  # span: its time is over before

        def both_told() -> bool:
            return "TimeoutError: the database said nothing" in caplog.text and "no end after 1000 ms" in caplog.text

        await run_until(consumer, both_told, handle, timeout_ms=1000, concurrency=2)


async def test_where_the_broker_takes_nothing_back_the_client_tries_again_itself() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, consumer_of(cluster) as consumer:
        fill(cluster, "T", 0, 5)
        tries: dict[int, list[int]] = defaultdict(list)

        async def handle(message: MessageExt) -> None:
            tries[message.queue_offset].append(message.reconsume_times)
            if message.queue_offset == 2 and len(tries[2]) < 4:
                raise ValueError("not yet")

        await run_until(consumer, lambda: len(tries[2]) == 4 and len(tries) == 5, handle, retry=FAST)
        assert tries[2] == [0, 1, 2, 3]
        assert len(cluster.broker.asked(RequestCode.CONSUMER_SEND_MSG_BACK)) == 1, "it does not know the request"
        assert cluster.broker.committed["g", "T", 0] == 5


async def test_a_send_back_that_a_hook_stops_leaves_worker_and_message() -> None:
    def stop(address: str, request: RemotingCommand) -> None:
        if request.code == RequestCode.CONSUMER_SEND_MSG_BACK:
            raise ValueError("not this one")

    settings = ConnectionSettings(before_request=(stop,))
    async with FakeCluster(topics={"T": 1}) as cluster, consumer_of(cluster, settings=settings) as consumer:
        fill(cluster, "T", 0, 5)
        handled: list[int] = []

        async def handle(message: MessageExt) -> None:
            handled.append(message.queue_offset)
            if message.queue_offset == 0 and handled.count(0) < 2:
                raise ValueError("not yet")

        await run_until(consumer, lambda: {*handled} == {*range(5)} and handled.count(0) == 2, handle, retry=FAST)
        assert cluster.broker.committed["g", "T", 0] == 5


async def test_hooks_that_fail_for_a_while_end_nothing_that_a_consumer_does_by_itself(
    monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    regular = {RequestCode.HEART_BEAT, RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.LOCK_BATCH_MQ}
    fails = False
    failed: set[int] = set()

    def hook(address: str, request: RemotingCommand) -> None:
        if fails and request.code in regular:
            failed.add(request.code)
            raise ValueError("for a while")

    for place in ("connections.heartbeat.HEARTBEAT", "connections.name_servers.REFRESH", "consuming.queue_locks.RENEW"):
        monkeypatch.setattr(f"ringmq.client.{place}_INTERVAL_S", 0.02)
    settings = ConnectionSettings(before_request=(hook,))
    async with FakeCluster(topics={"T": 1}) as cluster, consumer_of(cluster, ordered=True, settings=settings):
        await eventually(lambda: cluster.broker.asked(RequestCode.LOCK_BATCH_MQ))
        fails = True
        await eventually(lambda: failed == regular)
        fails = False
        for server in (cluster.broker, cluster.name_server):
            server.requests.clear()
        await eventually(
            lambda: regular <= {r.code for server in (cluster.broker, cluster.name_server) for r in server.requests}
        )


@ONLY_ASYNCIO
async def test_a_handler_whose_own_task_was_cancelled_has_failed_and_the_worker_lives() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, consumer_of(cluster) as consumer:
        fill(cluster, "T", 0, 3)
        seen: list[int] = []

        async def handle(message: MessageExt) -> None:
            seen.append(message.queue_offset)
            if seen == [0]:
                raise asyncio.CancelledError

        await run_until(consumer, lambda: len(seen) == 4, handle, concurrency=1, retry=FAST)
        assert sorted(seen) == [0, 0, 1, 2]


async def test_close_waits_for_handlers_that_run_and_commits_what_they_did(eventually: Eventually) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, "T", 0, 100)
        consumer = consumer_of(cluster)
        await consumer.start()
        begun, ended = [], []
        gate = asyncio.Event()

        async def handle(message: MessageExt) -> None:
            begun.append(message.queue_offset)
            await gate.wait()
            ended.append(message.queue_offset)

        running = asyncio.create_task(consumer.run(handle, concurrency=4))
        await eventually(lambda: len(begun) == 4)
        closing = asyncio.create_task(consumer.close())
        await eventually(lambda: client_of(consumer)._inbox.closed)
        assert not ended and not closing.done()
        gate.set()
        await asyncio.wait_for(asyncio.gather(closing, running), 60)
        assert begun == ended == [0, 1, 2, 3]
        assert cluster.broker.committed["g", "T", 0] == 4


@ONLY_ASYNCIO
async def test_close_leaves_a_handler_that_does_not_end_in_time(eventually: Eventually) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, "T", 0, 3)
        consumer = consumer_of(cluster)
        await consumer.start()
        begun, cancelled = [], []

        async def handle(message: MessageExt) -> None:
            begun.append(message.queue_offset)
            try:
                await asyncio.sleep(600)  # span: the drain ends it
            except asyncio.CancelledError:
                cancelled.append(message.queue_offset)
                raise

        running = asyncio.create_task(consumer.run(handle, concurrency=1))
        await eventually(lambda: begun)
        await asyncio.wait_for(consumer.close(drain_timeout_ms=30), 60)
        await asyncio.wait_for(running, 60)
        assert begun == cancelled == [0]
        assert cluster.broker.committed.get(("g", "T", 0), 0) == 0


async def test_interceptors_see_what_handlers_get() -> None:
    seen: list[tuple[str, int]] = []

    class Watch(Interceptor):
        def before_consume(self, group: str, messages: Any) -> None:
            seen.append(("before", messages[0].queue_offset))

        def after_consume(self, group: str, messages: Any, error: BaseException | None) -> None:
            seen.append(("after" if error is None else "failed", messages[0].queue_offset))

    settings = ConnectionSettings(interceptors=(Watch(),))
    async with FakeCluster(topics={"T": 1}) as cluster, consumer_of(cluster, settings=settings) as consumer:
        fill(cluster, "T", 0, 2)

        async def handle(message: MessageExt) -> None:
            seen.append(("handle", message.queue_offset))
            if message.queue_offset == 1 and message.reconsume_times == 0:
                raise ValueError("once")

        await run_until(consumer, lambda: len(seen) == 9, handle, concurrency=1, retry=FAST)
    first = [("before", 0), ("handle", 0), ("after", 0)]
    assert seen == [*first, ("before", 1), ("handle", 1), ("failed", 1), ("before", 1), ("handle", 1), ("after", 1)]


@ONLY_ASYNCIO
async def test_a_cancelled_run_ends_when_its_handlers_have_ended(eventually: Eventually) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, consumer_of(cluster) as consumer:
        fill(cluster, "T", 0, 10)
        begun, ended = [], []
        gate = asyncio.Event()

        async def handle(message: MessageExt) -> None:
            begun.append(message.queue_offset)
            await gate.wait()
            ended.append(message.queue_offset)

        running = asyncio.create_task(consumer.run(handle, concurrency=2))
        await eventually(lambda: len(begun) == 2)
        running.cancel()
        for _ in range(10):  # turns in which it could end
            await asyncio.sleep(0)
        assert not running.done() and not ended
        gate.set()
        await asyncio.gather(running, return_exceptions=True)
        assert begun == ended == [0, 1]
        assert [m.queue_offset for m in await consumer.poll(1, timeout_ms=60_000)] == [2]


# ---- broadcasting ----


async def test_every_broadcasting_member_gets_all_and_goes_on_where_it_was(tmp_path: Path) -> None:
    async with FakeCluster(topics={"T": 2}) as cluster:
        fill(cluster, "T", 0, 5)
        fill(cluster, "T", 1, 5)

        async def read(name: str, count: int) -> int:
            got = 0
            path = tmp_path / name / "offsets.json"
            async with consumer_of(cluster, broadcast=True, offset_file=path, auto_ack=False) as consumer:
                assert len(consumer.assignment()) == 2
                while messages := await consumer.poll(timeout_ms=60_000 if got < count else 100):
                    got += consumer.ack(messages)
            return got

        assert await asyncio.gather(read("a", 10), read("b", 10)) == [10, 10]
        fill(cluster, "T", 0, 3)
        assert await read("a", 3) == 3
        assert cluster.broker.committed == {}
        beats = [HeartbeatData.decode(r.body) for r in cluster.broker.asked(RequestCode.HEART_BEAT)]
        assert {beat.consumers[0].message_model for beat in beats} == {BROADCASTING}
        assert {s.topic for beat in beats for s in beat.consumers[0].subscriptions} == {"T"}, "no retry topic"


async def test_a_broadcasting_member_drops_what_fails(tmp_path: Path) -> None:
    async with FakeCluster(topics={"T": 1}) as cluster:
        fill(cluster, "T", 0, 5)
        seen: list[int] = []

        async def handle(message: MessageExt) -> None:
            seen.append(message.queue_offset)
            raise ValueError("no")

        async with consumer_of(cluster, broadcast=True, offset_file=tmp_path / "o.json") as consumer:
            await run_until(consumer, lambda: len(seen) == 5, handle)
        assert seen == [0, 1, 2, 3, 4]
        assert not cluster.broker.asked(RequestCode.CONSUMER_SEND_MSG_BACK)


# ---- queues ----


async def test_a_paused_queue_gives_nothing_until_it_is_resumed() -> None:
    async with FakeCluster(topics={"T": 2}) as cluster, consumer_of(cluster) as consumer:
        paused, open_queue = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1)
        consumer.pause([paused])
        fill(cluster, "T", 0, 3)
        fill(cluster, "T", 1, 3)
        assert consumer.paused() == [paused]
        found: list[MessageExt] = []
        while messages := await consumer.poll(timeout_ms=60_000 if len(found) < 3 else 100):
            found += messages
        assert [m.queue_id for m in found] == [1, 1, 1]
        consumer.resume([paused, open_queue])
        offsets: list[int] = []
        while len(offsets) < 3:
            offsets += [m.queue_offset for m in await consumer.poll(timeout_ms=60_000)]
        assert offsets == [0, 1, 2]
        with pytest.raises(KeyError):
            consumer.pause([MessageQueue("T", "a", 9)])


async def test_no_more_is_pulled_than_the_inbox_may_hold(eventually: Eventually) -> None:
    options = PullOptions(batch_count=10, inbox_max=15)
    async with FakeCluster(topics={"T": 4}) as cluster, consumer_of(cluster, options=options) as consumer:
        for queue_id in range(4):
            fill(cluster, "T", queue_id, 100)
        total = 0
        while total < 400:
            # each of the four may have had one pull under way when the bound was reached
            assert consumer._inbox.count <= 15 + 4 * 10
            messages = await consumer.poll(7, timeout_ms=60_000)
            assert messages
            total += len(messages)


@ONLY_ASYNCIO
async def test_listeners_are_told_before_reading_and_before_the_last_commit(eventually: Eventually) -> None:
    events: list[tuple[str, list[int]]] = []

    async with FakeCluster(topics={"T": 2}) as cluster:
        fill(cluster, "T", 0, 5)
        fill(cluster, "T", 1, 5)

        async def assigned(queues: list[MessageQueue]) -> None:
            events.append(("assigned", [q.queue_id for q in queues]))
            for queue in queues:
                await consumer.seek(queue, 3)

        def revoked(queues: list[MessageQueue]) -> None:
            events.append(("revoked", [q.queue_id for q in queues]))
            consumer.ack(taken)

        consumer = consumer_of(cluster, auto_ack=False, on_assigned=assigned, on_revoked=revoked)
        taken: list[MessageExt] = []
        async with consumer:
            while len(taken) < 4:
                taken += await consumer.poll(timeout_ms=60_000)
            assert [m.queue_offset for m in taken] == [3, 4, 3, 4]
            async with consumer_of(cluster):
                await eventually(lambda: len(consumer.assignment()) == 1)
        assert events[:2] == [("assigned", [0, 1]), ("revoked", [1])]
        assert events[-1][0] == "revoked"
        assert cluster.broker.committed["g", "T", 0] == 5


async def test_assigned_queues_are_read_without_the_group(eventually: Eventually) -> None:
    async with FakeCluster(topics={"T": 4, "U": 1}) as cluster:
        for queue_id in range(4):
            fill(cluster, "T", queue_id, 3, tags="x" if queue_id % 2 else "y")
        fill(cluster, "U", 0, 2)
        async with consumer_of(cluster, topics=None, auto_ack=False) as consumer:
            queues = await consumer.queues("T")
            await consumer.assign(queues[:2], "x")
            assert consumer.assignment() == queues[:2]
            messages = await consumer.poll(timeout_ms=60_000)
            assert [m.queue_id for m in messages] == [1, 1, 1]
            assert await consumer.poll(timeout_ms=50) == []
            consumer.ack(messages)
            await consumer.assign([queues[1], *await consumer.queues("U")])
            assert {m.topic for m in await consumer.poll(timeout_ms=60_000)} == {"U"}
            with pytest.raises(RouteError, match="no readable"):
                await consumer.assign([MessageQueue("T", "a", 99)])
            with pytest.raises(RouteError, match="not registered"):
                await consumer.queues("V")
        assert cluster.broker.committed["g", "T", 1] == 3
        pulls = cluster.broker.asked(RequestCode.PULL_MESSAGE)
        assert all(int(pull.ext_fields["sysFlag"]) & PullSysFlag.SUBSCRIPTION for pull in pulls)
        assert not cluster.broker.asked(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
        beat = HeartbeatData.decode(cluster.broker.asked(RequestCode.HEART_BEAT)[-1].body)
        assert beat.consumers[0].consume_type == CONSUME_ACTIVELY


async def test_a_message_of_an_assigned_queue_that_fails_comes_again() -> None:
    def take_back(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
        return ok(request) if request.code == RequestCode.CONSUMER_SEND_MSG_BACK else None

    async with FakeCluster(topics={"T": 1}) as cluster, consumer_of(cluster, topics=None) as consumer:
        cluster.rules.append(take_back)
        fill(cluster, "T", 0, 3)
        tries: list[int] = []

        async def handle(message: MessageExt) -> None:
            tries.append(message.queue_offset)
            if message.queue_offset == 1 and tries.count(1) < 3:
                raise ValueError("not yet")

        await consumer.assign(await consumer.queues("T"))
        await run_until(consumer, lambda: tries.count(1) == 3, handle, concurrency=1, retry=FAST)
        assert not cluster.broker.asked(RequestCode.CONSUMER_SEND_MSG_BACK), "nobody reads the group's retry topic"
        assert cluster.broker.committed["g", "T", 0] == 3


async def test_a_broker_that_refuses_an_expression_ends_the_start() -> None:
    def refuse_expressions(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
        if request.code != RequestCode.CHECK_CLIENT_CONFIG:
            return None
        return refuse(request, ResponseCode.SUBSCRIPTION_PARSE_FAILED, "a > does not parse")

    async with FakeCluster(topics={"T": 1}) as cluster:
        cluster.rules.append(refuse_expressions)
        with pytest.raises(BrokerError, match="does not parse"):
            await consumer_of(cluster, {"T": Sql92("a >")}).start()


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="ordered"):
        Consumer(None, ordered=True)
    with pytest.raises(ValueError, match="offset_file"):
        Consumer("T", offset_file="x")
    with pytest.raises(ValueError, match="buffered_max"):
        PullOptions(buffered_max=0)
    with pytest.raises(ValueError, match="must not be empty"):
        Consumer({"T": Sql92("")})


@ONLY_ASYNCIO
async def test_a_consumer_has_one_handler_with_sound_bounds() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, consumer_of(cluster) as consumer:

        async def handle(message: MessageExt) -> None: ...

        for wrong in ({"concurrency": 0}, {"timeout_ms": 0}):
            with pytest.raises(ValueError, match=next(iter(wrong))):
                await consumer.run(handle, **wrong)
        first = asyncio.create_task(consumer.run(handle))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="handler already"):
            await consumer.run(handle)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        second = asyncio.create_task(consumer.run(handle))
        await asyncio.sleep(0)
        await consumer.close()
        await asyncio.wait_for(second, 60)
