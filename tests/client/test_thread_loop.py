"""The runtime without an event loop: its waits mean what asyncio's mean, its threads keep out of each other's way."""

import asyncio
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from ringmq.client import (
    BrokerError,
    ClientClosedError,
    ConnectError,
    ConnectionSettings,
    Interceptor,
    Message,
    RequestTimeoutError,
    RetryPolicy,
    SendError,
    blocking,
)
from ringmq.client.connections import remoting_client
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.client.consuming.local_offsets import OffsetFileError
from ringmq.client.runtimes import runtime, socket_transport, thread_loop
from ringmq.client.runtimes.thread_loop import ThreadLoop
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand, encode_frame
from tests.client.fake_broker import FakeBroker, FakeCluster, NoAnswer, Peer
from tests.client.scripted_broker import ScriptedBroker
from tests.client.test_gevent import SlowCluster
from tests.client.threaded_cluster import threaded_cluster
from tests.waiting import wait_until

Drive = Callable[[Callable[[], Awaitable[Any]]], Any]


@pytest.fixture(params=["asyncio", "threads"])
def drive(request: pytest.FixtureRequest) -> Iterator[Drive]:
    """Runs a conversation in one of the two runtimes."""

    async def within(body: Callable[[], Awaitable[Any]]) -> Any:
        return await body()

    if request.param == "asyncio":
        yield lambda body: asyncio.run(within(body))
        return
    loop = ThreadLoop("test")
    loop.open()
    yield lambda body: loop.run(within(body))
    loop.close()
    wait_until(lambda: not threads_of("ringmq test"), "the threads of the loop have ended")


def threads_of(name: str) -> list[str]:
    return [thread.name for thread in threading.enumerate() if name in thread.name]


async def later(value: int, seconds: float = 0.01) -> int:
    await runtime.sleep(seconds)
    if value < 0:
        raise ValueError(str(value))
    return value


def test_gather_keeps_the_order_and_passes_errors_on(drive: Drive) -> None:
    async def body() -> None:
        assert await runtime.gather(later(1, 0.05), later(2), later(3, 0)) == [1, 2, 3]
        assert await runtime.gather() == []
        with pytest.raises(ValueError, match="-2"):
            await runtime.gather(later(1, 600), later(-2))
        some = await runtime.gather(later(1), later(-2), return_exceptions=True)
        assert some[0] == 1
        assert isinstance(some[1], ValueError)
        assert await runtime.bounded_gather(later, range(20), 3) == list(range(20))

    drive(body)


def test_a_time_out_ends_its_block_only(drive: Drive) -> None:
    async def body() -> None:
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            async with runtime.timeout(0.05):
                await runtime.sleep(600)
        async with runtime.timeout(600):
            await runtime.sleep(0.01)
        async with runtime.timeout(None):
            await runtime.sleep(0)
        assert 0.05 <= time.monotonic() - began < 60

    drive(body)


def test_cancelling_reaches_the_wait_and_shielded_work_goes_on(drive: Drive) -> None:
    async def body() -> None:
        seen: list[str] = []
        begun, goes_on = runtime.Event(), runtime.Event()

        async def work() -> str:
            await goes_on.wait()
            seen.append("done")
            return "result"

        async def wait_for(task: runtime.Task[str]) -> str:
            begun.set()
            try:
                return await runtime.shield(task)
            finally:
                seen.append("left")

        inner = runtime.create_task(work())
        outer = runtime.create_task(wait_for(inner))
        await begun.wait()
        outer.cancel()
        await runtime.wait([outer])
        assert outer.cancelled()
        assert seen == ["left"]
        goes_on.set()
        assert await inner == "result"
        await runtime.wait([runtime.create_task(later(1, 600))], timeout=0.02)
        before_start = runtime.create_task(later(1))
        before_start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await before_start

    drive(body)


def test_events_and_locks(drive: Drive) -> None:
    async def body() -> None:
        event, lock, order = runtime.Event(), runtime.Lock(), []

        async def one(number: int) -> None:
            await event.wait()
            async with lock:
                order.append(number)
                await runtime.sleep(0)
                order.append(number)

        tasks = [runtime.create_task(one(number)) for number in range(5)]
        await runtime.sleep(0.01)
        assert order == []
        event.set()
        tasks[2].cancel()
        await runtime.wait(tasks)
        assert order[::2] == order[1::2]
        assert len(order) >= 8
        async with lock:
            assert event.is_set()

    drive(body)


def test_application_code_may_take_its_time(drive: Drive) -> None:
    async def body() -> None:
        async def asynchronous(value: int) -> int:
            return await later(value)

        gate = threading.Event()
        asked = runtime.create_task(runtime.call_outside(gate.wait, 60))  # slow application code
        await runtime.sleep(0.01)
        gate.set()
        assert await asked, "the loop goes on meanwhile"
        assert await runtime.call_outside(asynchronous, 7) == 7
        with pytest.raises(ZeroDivisionError):
            await runtime.call_outside(divmod, 1, 0)

    drive(body)


def test_requests_go_out_and_come_back(drive: Drive) -> None:
    with threaded_cluster(topics={"T": 2}) as cluster:

        async def body() -> None:
            client = RemotingClient(ConnectionSettings())
            fields = {"topic": "T"}
            answers = await runtime.gather(
                *(client.call(cluster.namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, fields) for _ in range(50))
            )
            assert len({answer.body for answer in answers}) == 1
            assert len(cluster.name_server.peers) == 1
            with pytest.raises(BrokerError, match="no topic route"):
                await client.call(cluster.namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "9999"})
            with pytest.raises(ConnectError):
                await client.call("127.0.0.1:1", RequestCode.HEART_BEAT)
            await client.close()

        cluster.auto_create = False
        drive(body)


class TogetherCluster(FakeCluster):
    """Serves sends when `together` of them have come."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.together = 1
        self._held: list[Callable[[], None]] = []

    def serve(self, broker: FakeBroker, peer: Peer, request: RemotingCommand, *, hold: bool = True) -> None:
        if request.code != RequestCode.SEND_MESSAGE_V2:
            super().serve(broker, peer, request, hold=hold)
            return
        self._held.append(partial(super().serve, broker, peer, request, hold=hold))
        if len(self._held) >= self.together:
            for serve in self._held:
                serve()
            self._held.clear()


def test_many_threads_have_requests_in_flight_on_one_connection() -> None:
    """The broker answers none before it has all."""
    with (
        threaded_cluster(kind=TogetherCluster, topics={"T": 2}) as cluster,
        blocking.Producer(cluster.namesrv) as producer,
    ):
        producer.send(Message("T", b"first"))
        cast(TogetherCluster, cluster).together = 20
        results: list[Any] = []
        threads = [
            threading.Thread(target=lambda n=n: results.append(producer.send(Message("T", b"%d" % n))))
            for n in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(100)
        assert len({result.message_id for result in results}) == 20
        assert len(cluster.broker.peers) == 1


def test_what_other_threads_wait_for_ends_with_the_client() -> None:
    def silent(_: FakeBroker, request: RemotingCommand) -> NoAnswer | None:
        return NoAnswer.SILENCE if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC else None

    with threaded_cluster() as cluster:
        cluster.rules.append(silent)
        questions = blocking.Cluster(cluster.namesrv, timeout_ms=600_000)
        questions.start()
        errors: list[BaseException] = []

        def ask() -> None:
            try:
                questions.queues(["T"])
            except Exception as error:
                errors.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        wait_until(lambda: cluster.name_server.asked(RequestCode.GET_ROUTEINFO_BY_TOPIC), "the question is asked")
        questions.close()
        thread.join(60)
        assert len(errors) == 1
        with pytest.raises(ClientClosedError):
            questions.queues(["T"])


def test_an_interceptor_that_calls_its_own_client_is_told_so() -> None:
    class Nested(Interceptor):
        def before_send(self, group: str, messages: Sequence[Message]) -> object:
            return producer.send(Message("T", b"again"))

    with threaded_cluster(topics={"T": 2}) as cluster:
        settings = ConnectionSettings(interceptors=(Nested(),))
        producer = blocking.Producer(cluster.namesrv, settings=settings)
        with producer, pytest.raises(RuntimeError, match="must not wait"):
            producer.send(Message("T", b"x"))


def test_a_server_that_takes_nothing_is_given_up(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_transport, "STALL_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as stalled:
        address = f"127.0.0.1:{stalled.getsockname()[1]}"

        async def body() -> None:
            client = RemotingClient()
            request = RemotingCommand.request(RequestCode.HEART_BEAT, {}, bytes(14 << 20))
            with pytest.raises(ConnectError, match=r"took nothing|timed out"):
                await client.invoke(address, request, 60_000)

        drive(body)


def test_a_server_that_takes_nothing_keeps_nobody_over_the_time_of_the_request(drive: Drive) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stalled:
        address = f"127.0.0.1:{stalled.getsockname()[1]}"

        async def body() -> None:
            client = RemotingClient()
            for size in (14 << 20, 1):  # the second one finds no room at all
                with pytest.raises((RequestTimeoutError, ConnectError), match=r"within 300 ms|does not take"):
                    await client.invoke(address, RemotingCommand.request(RequestCode.HEART_BEAT, {}, bytes(size)), 300)
            stalled.close()  # resets what nobody has accepted
            while client.connected_addresses():
                await runtime.sleep(0.01)  # poll

        drive(body)


@pytest.mark.parametrize("words", [None, b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_server_that_closes_what_it_accepts_is_asked_ever_more_rarely(
    drive: Drive, monkeypatch: pytest.MonkeyPatch, words: bytes | None
) -> None:
    failures: list[int] = []

    def note(count: int, jitter: float) -> float:
        failures.append(count)
        return 1.0

    monkeypatch.setattr(remoting_client, "backoff_ms", note)
    with ScriptedBroker(lambda _: words) as broker:

        async def body() -> None:
            client = RemotingClient()
            for _ in range(6):
                with pytest.raises(ConnectError):
                    await client.call(broker.address, RequestCode.HEART_BEAT)

        drive(body)
    assert len(failures) >= 5  # the last connection may not have ended yet
    assert failures == list(range(1, len(failures) + 1))


def test_faults_in_callbacks_end_neither_thread_nor_waits(caplog: pytest.LogCaptureFixture) -> None:
    def broken(address: str, request: RemotingCommand) -> RemotingCommand | None:
        raise LookupError("a fault of ours")

    with threaded_cluster(topics={"T": 2}) as cluster:
        loop = ThreadLoop("faulty")
        loop.open()
        loop.open()  # has no effect the second time

        async def body() -> None:
            client = RemotingClient(on_server_request=broken)
            runtime.running_loop().call_soon(lambda: 1 // 0)
            runtime.running_loop().call_at(0, lambda: 1 // 0)
            await runtime.sleep(0.01)
            cluster.rules.append(notify)
            with pytest.raises(ConnectError, match="a fault of ours"):
                await client.call(cluster.namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
            cluster.rules.remove(notify)
            await client.call(cluster.namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
            await client.close()

        def notify(broker: FakeBroker, request: RemotingCommand) -> NoAnswer:
            push = RemotingCommand.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True)
            for peer in broker.peers:
                peer.transport.write(encode_frame(push))
            return NoAnswer.SILENCE

        loop.run(body())
        loop.close()
    assert sum("a callback failed" in record.message for record in caplog.records) == 2


def test_a_send_begun_goes_on_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_loop, "CLOSE_WAIT_S", 60.0)
    from ringmq.client.producing.send_request import BodyRules, prepare_message

    with threaded_cluster(topics={"T": 2}) as cluster:
        producer = blocking.Producer(cluster.namesrv, retry=RetryPolicy(attempts=1))
        producer.start()
        requests = [prepare_message(Message("T", b"x"), str, 0, BodyRules()) for _ in range(20)]
        begun = [producer.begin_request(request) for request in requests]
        producer.close()
        assert [future.result(0).status.name for future in begun] == ["OK"] * 20
        with pytest.raises(ClientClosedError):
            producer.begin_request(requests[0])


def test_interceptors_see_a_send_begun() -> None:
    class Seen(Interceptor):
        def __init__(self) -> None:
            self.said: list[object] = []

        def before_send(self, group: str, messages: Sequence[Message]) -> object:
            messages[0].properties["seen"] = "yes"
            return "scope"

        def after_send(self, scope: object, messages: Any, result: Any, error: Any) -> None:
            self.said.append((scope, messages[0].body, None if result is None else result.status.name, type(error)))

    seen = Seen()
    with threaded_cluster(topics={"T": 2}) as cluster:
        producer = blocking.Producer(cluster.namesrv, settings=ConnectionSettings(interceptors=(seen,)))
        with producer:
            queue = producer.queues("T")[1]
            assert producer.begin_send(Message("T", b"x"), queue=queue).result(60).queue == queue
            with pytest.raises(ValueError, match="topic"):
                producer.begin_send(Message("no topic", b"y"))
        with pytest.raises(ClientClosedError):
            producer.begin_send(Message("T", b"z"))
        assert cluster.broker.queues["T", 1][0].properties["seen"] == "yes"
    assert seen.said == [("scope", b"x", "OK", type(None)), ("scope", b"y", None, ValueError)]


def test_errors_reach_the_thread_that_called() -> None:
    with threaded_cluster(topics={"T": 2}) as cluster:
        cluster.rules.append(lambda broker, request: NoAnswer.CLOSE if request.code == 310 else None)
        policy = RetryPolicy(attempts=2)
        with blocking.Producer(cluster.namesrv, retry=policy) as producer, pytest.raises(SendError) as caught:
            producer.send(Message("T", b"x"))
        assert caught.value.attempts == 2


def test_callbacks_of_a_send_begun_may_use_the_client() -> None:
    from ringmq.client.producing.send_request import BodyRules, prepare_message

    stored: list[str] = []
    told = threading.Event()

    def chain(_: object) -> None:
        stored.append(producer.send(Message("T", b"next")).status.name)
        told.set()

    with threaded_cluster(kind=SlowCluster, topics={"T": 2}) as cluster, blocking.Producer(cluster.namesrv) as producer:
        begun = producer.begin_request(prepare_message(Message("T", b"x"), str, 0, BodyRules()))
        begun.add_done_callback(chain)
        assert told.wait(60)
        assert stored == ["OK"]


def test_a_send_begun_cannot_be_taken_back() -> None:
    from ringmq.client.producing.send_request import BodyRules, prepare_message

    with threaded_cluster(kind=SlowCluster, topics={"T": 2}) as cluster, blocking.Producer(cluster.namesrv) as producer:
        begun = producer.begin_request(prepare_message(Message("T", b"x"), str, 0, BodyRules()))
        assert not begun.cancel()
        assert begun.result(60).status.name == "OK"
        producer.begin_request(prepare_message(Message("T", b"y"), str, 0, BodyRules())).result(60)


def test_a_start_that_fails_leaves_no_thread(tmp_path: Path) -> None:
    (tmp_path / "offsets.json").write_text("{")
    with threaded_cluster(topics={"T": 2}) as cluster:
        path = tmp_path / "offsets.json"
        consumer = blocking.Consumer("T", cluster.namesrv, "failing", broadcast=True, offset_file=path)
        with pytest.raises(OffsetFileError):
            consumer.start()
    wait_until(lambda: not threads_of("consumer failing"), "the threads of the consumer have ended")


@pytest.mark.parametrize("kind", [blocking.Producer, blocking.Cluster, partial(blocking.Consumer, "T")])
def test_a_client_may_be_closed_again(kind: Callable[[str], Any]) -> None:
    with threaded_cluster(topics={"T": 2}) as cluster:
        client = kind(cluster.namesrv)
        client.close()  # never started
        client.start()
        client.close()
        client.close()


@pytest.mark.parametrize("kind", [blocking.Producer, partial(blocking.Consumer, "T")])
def test_two_threads_that_close_a_client_both_see_it_closed(
    kind: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(_: FakeBroker, request: RemotingCommand) -> NoAnswer | None:
        return NoAnswer.SILENCE if request.code == RequestCode.UNREGISTER_CLIENT else None

    monkeypatch.setattr(thread_loop, "CLOSE_WAIT_S", 0.1)
    told: list[str] = []

    def close() -> None:
        try:
            client.close()
            told.append("closed" if client._client._client.connected_addresses() == [] else "left open")
        except Exception as error:
            told.append(repr(error))

    with threaded_cluster(topics={"T": 2}) as cluster, blocking.Producer(cluster.namesrv) as other:
        client = kind(cluster.namesrv)
        client.start()
        if isinstance(client, blocking.Producer):
            client.send(Message("T", b"x"))
        cluster.rules.append(slow)
        closing = [threading.Thread(target=close) for _ in range(3)]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join(60)
        assert told == ["closed"] * 3
        cluster.rules.remove(slow)
        other.send(Message("T", b"y"))


def test_a_consumer_may_be_closed_while_its_handlers_are_started(monkeypatch: pytest.MonkeyPatch) -> None:
    starting, closed = threading.Event(), threading.Event()
    start = threading.Thread.start

    def slow_start(thread: threading.Thread) -> None:
        if "handler" in thread.name:
            starting.set()
            closed.wait(0.5)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", slow_start)
    with threaded_cluster(topics={"T": 1}) as cluster:
        consumer = blocking.Consumer("T", cluster.namesrv, "g")
        consumer.start()
        running = threading.Thread(target=consumer.run, args=(print,), kwargs={"concurrency": 1}, daemon=True)
        running.start()
        assert starting.wait(60)
        try:
            consumer.close()
        finally:
            closed.set()
        running.join(60)
        assert not running.is_alive()


def test_a_handler_that_closes_its_consumer_does_not_wait_for_the_close_that_waits_for_it() -> None:
    handling, closing = threading.Event(), threading.Event()

    def handle(_: Any) -> None:
        handling.set()
        assert closing.wait(60)
        wait_until(lambda: consumer._client.closed, "the close is under way")
        consumer.close()

    with threaded_cluster(topics={"T": 1}) as cluster, blocking.Producer(cluster.namesrv) as producer:
        consumer = blocking.Consumer("T", cluster.namesrv, "g", drain_timeout_ms=600_000)
        consumer.start()
        running = threading.Thread(target=lambda: consumer.run(handle, concurrency=2))
        running.start()
        producer.send(Message("T", b"x"))
        assert handling.wait(60)
        closing.set()
        consumer.close()
        running.join(60)
        assert not running.is_alive()
