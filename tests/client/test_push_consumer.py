"""The push consumer by POP beside a fake cluster, by both transports: handlers, renewals, ends of messages, order."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from ringmq.client import (
    BrokerError,
    ClientClosedError,
    ClientMetrics,
    ConnectionSettings,
    ConsumeFrom,
    ConsumeRetry,
    Interceptor,
    MessageExt,
    PoppedMessage,
    PushConsumer,
    ReceiptExpiredError,
    RejectMessage,
    RetryLater,
)
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from tests.client.awaited import ONLY_ASYNCIO, ONLY_BLOCKING, AwaitedPushConsumer, client_of, transports
from tests.client.consuming import FAST
from tests.client.fake_broker import FakeBroker, FakeCluster, NoAnswer, ok, refuse
from tests.client.fake_pops import POP_TIME_MS, REVIVE_QUEUE, FakePops, Place
from tests.waiting import until

transport = transports(AwaitedPushConsumer)
POP, ACK = RequestCode.POP_MESSAGE, RequestCode.ACK_MESSAGE
CHANGE, SEND_BACK = RequestCode.CHANGE_MESSAGE_INVISIBLETIME, RequestCode.CONSUMER_SEND_MSG_BACK
SHORT_MS = 1000
"""An invisible time that is soon over."""
LONG_MS = 10_000
"""An invisible time with nearly as much left for its renewal (`early_renewals`): a busy machine loses no message."""


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(topics={"T": 2, "U": 1}) as made:
        yield made


@pytest.fixture
def pops(cluster: FakeCluster) -> FakePops:
    return FakePops(cluster)


@pytest.fixture
def early_renewals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages are renewed after a twentieth of their time."""
    monkeypatch.setattr("ringmq.client.popping.lease.LEAD_PART", 20 / 19)


class Seen(Interceptor):
    """The deliveries and the ends that interceptors see."""

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self.ended: list[tuple[bytes, type | None]] = []

    def before_consume(self, group: str, messages: Sequence[MessageExt]) -> None:
        self.begun += [message.body for message in messages]

    def after_consume(self, group: str, messages: Sequence[MessageExt], error: BaseException | None) -> None:
        self.ended += [(message.body, None if error is None else type(error)) for message in messages]


def consumer_of(cluster: FakeCluster, topics: Any = "T", *, seen: Seen | None = None, **options: Any) -> PushConsumer:
    settings = ConnectionSettings(interceptors=() if seen is None else (seen,))
    return PushConsumer(topics, cluster.namesrv, "g", settings=settings, **options)


async def run_until(consumer: PushConsumer, done: Callable[[], object], handler: Any, **options: Any) -> None:
    """Handlers run until `done()`, then the consumer is closed and `run` has to return."""
    running = asyncio.create_task(consumer.run(handler, **options))
    await until(lambda: done() or running.done(), "the handlers have done their work")
    async with asyncio.timeout(60):
        await consumer.close()
        await running
    assert done(), "the run has ended before"


def places(count: int, queue_id: int = 0) -> list[Place]:
    return [("T", queue_id, offset) for offset in range(count)]


def answers(code: int, answer: RemotingCommand | NoAnswer | Callable[[RemotingCommand], Any]) -> Any:
    """A rule for requests of one code."""

    def rule(broker: FakeBroker, request: RemotingCommand) -> Any:
        if request.code != code:
            return None
        return answer(request) if callable(answer) else answer

    return rule


def popped(pops: FakePops, count: int, invisible_ms: int = SHORT_MS) -> list[PoppedMessage]:
    """Messages of one pop."""
    messages = []
    for offset in range(count):
        message = PoppedMessage("T", b"x", queue_offset=offset, broker_name="a")
        message.receipt = message.receipt._replace(offset=offset, broker_name="a", start_offset=offset)
        message.expires_at = time.monotonic() + invisible_ms / 1000
        messages.append(message)
        pops.given["T", 0, offset] = "a", MessageExt("T", b"x", queue_offset=offset)
    return messages


# ---- handlers ----


async def test_so_many_handlers_run_at_a_time_and_their_return_acknowledges(
    cluster: FakeCluster, pops: FakePops
) -> None:
    for number in range(100):
        pops.store(b"%d" % number, queue_id=number % 2)
    handled: list[bytes] = []
    running = most = 0

    async def handle(message: MessageExt) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await until(lambda: most >= 8, "the others are here")
        await asyncio.sleep(0.001)  # span: in which a ninth could come
        running -= 1
        handled.append(message.body)

    async with consumer_of(cluster) as consumer:
        await run_until(consumer, lambda: len(handled) == 100, handle, concurrency=8)
    assert sorted(pops.acked) == sorted(places(50) + places(50, 1))
    assert most == 8


async def test_plain_functions_run_in_threads(cluster: FakeCluster, pops: FakePops) -> None:
    threads: set[int] = set()
    together = threading.Barrier(3)

    def handle(message: MessageExt) -> None:
        together.wait(60)
        threads.add(threading.get_ident())

    async with consumer_of(cluster) as consumer:
        for number in range(3):
            pops.store(b"%d" % number)
        await run_until(consumer, lambda: len(threads) == 3, handle, concurrency=3)
    assert sorted(pops.acked) == places(3)


async def test_handlers_that_hang_ask_for_nothing(cluster: FakeCluster, pops: FakePops) -> None:
    free, begun = asyncio.Event(), 0

    async def handle(message: MessageExt) -> None:
        nonlocal begun
        begun += 1
        await free.wait()

    async with consumer_of(cluster) as consumer:
        running = asyncio.create_task(consumer.run(handle, concurrency=4))
        for number in range(40):
            pops.store(b"%d" % number)
        await until(lambda: begun == 4, "all handlers run")
        await until(lambda: not pops.held, "the poll is over")
        assert len(pops.given) == 4  # the other 36 are free for other members
        free.set()
        await until(lambda: len(pops.acked) == 40, "all are handled")
        await consumer.close()
        await running


async def test_a_loop_acknowledges_what_it_moves_past(cluster: FakeCluster, pops: FakePops) -> None:
    seen = Seen()
    for number in range(3):
        pops.store(b"%d" % number)
    bodies: list[bytes] = []
    async with consumer_of(cluster, seen=seen) as consumer:
        async for message in consumer:
            bodies.append(message.body)
            if message.body == b"2":
                break
    assert bodies == [b"0", b"1", b"2"]
    assert sorted(pops.acked) == places(2)
    assert set(pops.changed) == {(("T", 0, 2), 0)}  # the last one goes back, twice if a poll that is given up gets it
    assert seen.begun == bodies
    assert seen.ended == [(b"0", None), (b"1", None)]


async def test_a_loop_ends_with_a_close(cluster: FakeCluster, pops: FakePops) -> None:
    async with consumer_of(cluster) as consumer:
        waiting = asyncio.create_task(anext(consumer, None))
        await until(lambda: pops.held, "a poll waits")
        await consumer.close()
        assert await waiting is None


async def test_loops_that_wait_together_leave_no_message_open(cluster: FakeCluster, pops: FakePops) -> None:
    async with consumer_of(cluster) as consumer:
        waiting = [asyncio.create_task(anext(consumer, None)) for _ in range(2)]
        await until(lambda: client_of(consumer)._held.inbox._askers == 2, "both wait")
        for number in range(2):
            pops.store(b"%d" % number)
        await asyncio.gather(*waiting)
        third = asyncio.create_task(anext(consumer, None))
        await until(lambda: len(pops.acked) == 2, "both are acknowledged")
        await consumer.close()
        await third
    assert sorted(pops.acked) == places(2)


async def test_messages_can_be_settled_by_hand(cluster: FakeCluster, pops: FakePops) -> None:
    cluster.rules.append(answers(SEND_BACK, ok))
    seen = Seen()
    for body in (b"ack", b"nack", b"reject"):
        pops.store(body)
    async with consumer_of(cluster, seen=seen) as consumer:
        first = await anext(consumer)
        assert consumer.holds(first)
        assert consumer.ack(first)
        assert not consumer.ack(first)
        assert not consumer.holds(first)
        second = await anext(consumer)
        assert await consumer.nack(second, 7000)
        assert not await consumer.nack(second)
        third = await anext(consumer)
        assert await consumer.reject(third)
        assert not await consumer.reject(third)
    assert sorted(pops.acked) == [("T", 0, 0), ("T", 0, 2)]
    assert pops.changed == [(("T", 0, 1), 7000)]
    assert [name for _, name in seen.ended] == [None, seen.ended[1][1], RejectMessage]
    assert seen.ended[1][1] is not None
    (rejected,) = cluster.broker.asked(SEND_BACK)
    assert (rejected.ext_fields["delayLevel"], rejected.ext_fields["maxReconsumeTimes"]) == ("-1", "0")


# ---- failures ----


@pytest.mark.parametrize(
    ("error", "delay_ms"), [(ValueError("no"), 10_000), (RetryLater(1), 1000), (RetryLater(18), 7_200_000)]
)
async def test_a_failed_message_comes_again_later(
    cluster: FakeCluster, pops: FakePops, caplog: pytest.LogCaptureFixture, error: Exception, delay_ms: int
) -> None:
    caplog.set_level(logging.INFO, "ringmq.client")
    seen = Seen()
    pops.store(b"bad")

    async def handle(message: MessageExt) -> None:
        raise error

    async with consumer_of(cluster, seen=seen) as consumer:
        await run_until(consumer, lambda: f"comes again in {delay_ms} ms" in caplog.text, handle)
    assert "(topic T, broker a, queue 0, offset 0) failed at attempt 1: " in caplog.text
    assert pops.changed == [(("T", 0, 0), delay_ms)]
    assert pops.acked == []
    assert seen.ended == [(b"bad", type(error))]


@pytest.mark.parametrize("reconsume_times", [0, 16, 17])
async def test_a_message_is_rejected_or_has_come_too_often(
    cluster: FakeCluster, pops: FakePops, caplog: pytest.LogCaptureFixture, reconsume_times: int
) -> None:
    cluster.rules.append(answers(SEND_BACK, ok))
    pops.store(b"bad").reconsume_times = reconsume_times
    handled = 0

    async def handle(message: MessageExt) -> None:
        nonlocal handled
        handled += 1
        raise RejectMessage if reconsume_times == 0 else ValueError("no")

    async with consumer_of(cluster) as consumer:
        await run_until(consumer, lambda: "is in %DLQ%g now" in caplog.text, handle)
    assert (len(cluster.broker.asked(SEND_BACK)), len(pops.acked)) == (1, 1)
    assert "attempt 1: RejectMessage\n" in caplog.text or reconsume_times
    assert pops.changed == []
    assert handled == (reconsume_times <= 16)


async def test_a_dead_letter_that_cannot_be_stored_is_tried_again(cluster: FakeCluster, pops: FakePops) -> None:
    cluster.rules.append(answers(SEND_BACK, lambda request: refuse(request, ResponseCode.SYSTEM_ERROR, "disk full")))
    pops.store(b"bad")

    async def handle(message: MessageExt) -> None:
        raise RejectMessage

    async with consumer_of(cluster) as consumer:
        await run_until(consumer, lambda: pops.changed, handle, retry=ConsumeRetry(local_first_ms=2000))
    assert pops.changed == [(("T", 0, 0), 2000)]
    assert pops.acked == []


@pytest.mark.parametrize(("error", "faulty"), [(ValueError("no"), CHANGE), (RejectMessage(), SEND_BACK)])
async def test_a_hook_s_fault_ends_no_worker(
    cluster: FakeCluster, pops: FakePops, caplog: pytest.LogCaptureFixture, error: Exception, faulty: int
) -> None:
    def hook(address: str, request: RemotingCommand) -> None:
        if request.code == faulty:
            raise LookupError("no credentials now")

    async def handle(message: MessageExt) -> None:
        if message.body == b"bad":
            raise error

    pops.store(b"bad")
    settings = ConnectionSettings(before_request=(hook,))
    async with PushConsumer("T", cluster.namesrv, "g", settings=settings) as consumer:
        running = asyncio.create_task(consumer.run(handle, concurrency=1))
        await until(lambda: "no credentials now" in caplog.text, "the hook has failed")
        pops.store(b"good")
        await until(lambda: pops.acked, "the only worker goes on")
        await consumer.close()
        await running
    assert pops.acked == [("T", 0, 1)]


async def test_a_handler_may_settle_its_message_itself(cluster: FakeCluster, pops: FakePops) -> None:
    seen = Seen()
    pops.store(b"later")
    consumer = consumer_of(cluster, seen=seen)

    async def handle(message: Any) -> None:
        await consumer.nack(message, 5000)

    async with consumer:
        await run_until(consumer, lambda: seen.ended, handle)
    assert pops.changed == [(("T", 0, 0), 5000)]
    assert pops.acked == []
    assert len(seen.ended) == 1


@ONLY_ASYNCIO
@pytest.mark.parametrize(
    "settle",
    [lambda consumer, message: consumer.nack(message, 5000), lambda consumer, message: consumer.reject(message)],
)
async def test_a_settlement_that_its_handler_does_not_await_is_told_once(
    cluster: FakeCluster, pops: FakePops, settle: Any
) -> None:
    asked: list[tuple[FakeBroker, RemotingCommand]] = []

    def hold(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | NoAnswer | None:
        if request.code not in (CHANGE, SEND_BACK):
            return None
        if request not in [held for _, held in asked]:
            asked.append((broker, request))
            return NoAnswer.SILENCE
        return ok(request) if request.code == SEND_BACK else None

    cluster.rules.insert(0, hold)
    seen, tasks = Seen(), []
    pops.store(b"later")
    consumer = consumer_of(cluster, seen=seen)

    async def handle(message: Any) -> None:
        tasks.append(asyncio.create_task(settle(consumer, message)))
        await until(lambda: asked, "the request is under way")

    async with consumer:
        running = asyncio.create_task(consumer.run(handle))
        await until(lambda: asked and not client_of(consumer)._runner._running, "the handler has returned")
        assert seen.ended == []
        cluster.serve(asked[0][0], asked[0][0].peers[0], asked[0][1])
        assert await tasks[0] is True
        await consumer.close()
        await running
    assert [name for name, _ in seen.ended] == [b"later"]
    assert seen.ended[0][1] is not None


@ONLY_ASYNCIO
async def test_a_failed_rejection_behind_its_handler_holds_no_message(cluster: FakeCluster, pops: FakePops) -> None:
    """It would be renewed for an hour. So it comes again at its time, and interceptors learn of the failure."""
    asked: list[RemotingCommand] = []

    def hold(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | NoAnswer | None:
        if request.code != SEND_BACK:
            return None
        if request in asked:
            return refuse(request, ResponseCode.NO_PERMISSION, "not yet")
        asked.append(request)
        return NoAnswer.SILENCE

    cluster.rules.insert(0, hold)
    seen, tasks = Seen(), []
    pops.store(b"bad")
    consumer = consumer_of(cluster, seen=seen)

    async def handle(message: Any) -> None:
        tasks.append(asyncio.create_task(consumer.reject(message)))
        await until(lambda: asked, "the request is under way")

    async with consumer:
        running = asyncio.create_task(consumer.run(handle))
        await until(lambda: asked and not client_of(consumer)._runner._running, "the handler has returned")
        cluster.serve(cluster.broker, cluster.broker.peers[0], asked[0])
        with pytest.raises(BrokerError, match="not yet"):
            await tasks[0]
        assert len(client_of(consumer)._held._leases) == 0
        await consumer.close()
        await running
    assert seen.ended == [(b"bad", BrokerError)]
    assert pops.acked == []


@ONLY_ASYNCIO
async def test_a_failed_rejection_leaves_the_message_to_its_handler(cluster: FakeCluster, pops: FakePops) -> None:
    cluster.rules.insert(0, answers(SEND_BACK, lambda request: refuse(request, ResponseCode.NO_PERMISSION, "no")))
    seen = Seen()
    pops.store(b"bad")
    consumer = consumer_of(cluster, seen=seen)

    async def handle(message: Any) -> None:
        with pytest.raises(BrokerError):
            await consumer.reject(message)
        assert client_of(consumer).holds(message)

    async with consumer:
        await run_until(consumer, lambda: pops.acked, handle)
    assert seen.ended == [(b"bad", None)]


async def test_a_handler_over_its_time_has_failed(cluster: FakeCluster, pops: FakePops) -> None:
    pops.store(b"slow")
    over = asyncio.Event()

    async def handle(message: MessageExt) -> None:
        await over.wait()

    async with consumer_of(cluster) as consumer:
        running = asyncio.create_task(consumer.run(handle, timeout_ms=50))
        await until(lambda: pops.changed, "the message comes again")
        over.set()
        await consumer.close()
        await running
    assert pops.changed == [(("T", 0, 0), 10_000)]
    assert pops.acked == []


# ---- time ----


@pytest.mark.usefixtures("early_renewals")
async def test_a_message_is_renewed_while_its_handler_runs(cluster: FakeCluster, pops: FakePops) -> None:
    pops.store(b"slow")

    async def handle(message: PoppedMessage) -> None:
        await until(lambda: len(pops.changed) == 2, "it is renewed")

    async with consumer_of(cluster, invisible_ms=LONG_MS) as consumer:
        await run_until(consumer, lambda: pops.acked, handle)
    assert pops.changed == [(("T", 0, 0), LONG_MS)] * 2
    (ack,) = cluster.broker.asked(ACK)
    renewed = f"0 {POP_TIME_MS + 5} {LONG_MS} {REVIVE_QUEUE + 1} 0 a 0 0"
    assert ack.ext_fields["extraInfo"] == renewed
    assert cluster.broker.asked(CHANGE)[1].ext_fields["extraInfo"] == renewed


@pytest.mark.usefixtures("early_renewals")
async def test_an_end_waits_for_the_renewal_that_is_under_way(cluster: FakeCluster, pops: FakePops) -> None:
    """The old receipt would acknowledge nothing: the broker has given a new one."""
    pops.store(b"slow")
    asked: list[tuple[FakeBroker, RemotingCommand]] = []

    def hold(broker: FakeBroker, request: RemotingCommand) -> NoAnswer | None:
        if request.code != CHANGE or request in [held for _, held in asked]:
            return None
        asked.append((broker, request))
        return NoAnswer.SILENCE

    cluster.rules.insert(0, hold)

    async def handle(message: MessageExt) -> None:
        await until(lambda: asked, "the renewal is under way")

    async with consumer_of(cluster, invisible_ms=LONG_MS) as consumer:
        running = asyncio.create_task(consumer.run(handle))
        await until(lambda: asked and not client_of(consumer)._runner._running, "the handler has ended")
        assert not cluster.broker.asked(ACK)
        broker, request = asked[0]
        cluster.serve(broker, broker.peers[0], request)
        await until(lambda: pops.acked, "the message is acknowledged")
        await consumer.close()
        await running
    assert f" {POP_TIME_MS + 5} " in cluster.broker.asked(ACK)[0].ext_fields["extraInfo"]


async def test_a_lost_message_s_handler_is_told_and_its_result_is_void(
    cluster: FakeCluster, pops: FakePops, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.rules.insert(0, answers(CHANGE, lambda request: refuse(request, ResponseCode.NO_MESSAGE, "gone")))
    seen = Seen()
    pops.store(b"slow")
    consumer = consumer_of(cluster, seen=seen, invisible_ms=SHORT_MS)
    free = threading.Event()
    noted: list[bool] = []

    def handle(message: Any) -> None:
        while client_of(consumer).holds(message) and not free.is_set():
            time.sleep(0.01)  # span: a handler at work, which asks at each step
        noted.append(client_of(consumer).holds(message))

    async with consumer:
        running = asyncio.create_task(consumer.run(handle))
        await until(lambda: noted, "the handler is told")
        pops.store(b"next")
        free.set()
        await until(lambda: len(noted) == 2, "the worker goes on")
        await consumer.close()
        await running
    assert noted[0] is False
    assert ("T", 0, 0) not in pops.acked
    assert seen.ended[0] == (b"slow", ReceiptExpiredError)
    assert "slow" not in caplog.text


@pytest.mark.usefixtures("early_renewals")
async def test_a_message_is_not_held_beyond_its_time_while_its_renewal_has_no_answer(
    cluster: FakeCluster, pops: FakePops, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringmq.client.push_consumer.REQUESTS_S", 0.1)
    cluster.rules.insert(0, answers(CHANGE, NoAnswer.SILENCE))
    pops.store(b"slow")
    settings = ConnectionSettings(request_timeout_ms=600_000)
    consumer = PushConsumer("T", cluster.namesrv, "g", invisible_ms=3000, drain_timeout_ms=100, settings=settings)
    async with consumer:
        message = await anext(consumer)
        await until(lambda: cluster.broker.asked(CHANGE), "the renewal is under way")
        await until(lambda: not consumer.holds(message), "its time is over")
        async with asyncio.timeout(60):  # a close does not wait for the answer either
            await consumer.close()


@ONLY_ASYNCIO
@pytest.mark.parametrize("hold_max_ms", [0, 3_600_000])
async def test_a_coroutine_is_cancelled_when_its_message_is_lost(
    cluster: FakeCluster, pops: FakePops, hold_max_ms: int
) -> None:
    """The broker refuses, or the time is over: a message that is not renewed beyond a bound."""
    if hold_max_ms:
        cluster.rules.insert(0, answers(CHANGE, lambda request: refuse(request, ResponseCode.NO_MESSAGE, "gone")))
    pops.store(b"stuck")
    outcomes: list[str] = []

    async def handle(message: MessageExt) -> None:
        if message.body == b"next":
            task = asyncio.current_task()
            assert task is not None
            outcomes.append(f"next {task.cancelling()}")
            return
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            outcomes.append("cancelled")
            raise

    async with consumer_of(cluster, invisible_ms=SHORT_MS, hold_max_ms=hold_max_ms) as consumer:
        running = asyncio.create_task(consumer.run(handle, concurrency=1))
        await until(lambda: outcomes, "the handler is cancelled")
        pops.store(b"next")
        await until(lambda: len(outcomes) == 2, "its worker goes on")
        await consumer.close()
        await running
    assert outcomes == ["cancelled", "next 0"]
    assert pops.acked == [("T", 0, 1)]
    asked = [int(request.ext_fields["invisibleTime"]) for request in cluster.broker.asked(CHANGE)]
    assert set(asked) == ({SHORT_MS} if hold_max_ms else set()), "it is not ours to give back"


@ONLY_ASYNCIO
@pytest.mark.usefixtures("early_renewals")
@pytest.mark.parametrize("is_renewed", [True, False])
async def test_a_handler_is_told_of_the_end_of_its_time_before_the_answer_to_its_renewal(
    cluster: FakeCluster, pops: FakePops, is_renewed: bool
) -> None:
    """The answer comes later. A broker that has renewed the message gets it back: no member works on it."""
    asked: list[tuple[FakeBroker, RemotingCommand]] = []
    seen = Seen()

    def hold(broker: FakeBroker, request: RemotingCommand) -> NoAnswer | RemotingCommand | None:
        if request.code != CHANGE or int(request.ext_fields["invisibleTime"]) == 0:
            return None
        if request not in [held for _, held in asked]:
            asked.append((broker, request))
            return NoAnswer.SILENCE
        return None if is_renewed else refuse(request, ResponseCode.NO_MESSAGE, "gone")

    cluster.rules.insert(0, hold)
    pops.store(b"slow")
    settings = ConnectionSettings(request_timeout_ms=600_000, interceptors=(seen,))
    ends: list[float] = []

    async def handle(message: PoppedMessage) -> None:
        if not ends:
            ends.append(message.expires_at)
            await asyncio.Event().wait()

    async with PushConsumer("T", cluster.namesrv, "g", invisible_ms=SHORT_MS, settings=settings) as consumer:
        running = asyncio.create_task(consumer.run(handle))
        await until(lambda: seen.ended, "the handler is told")
        assert time.monotonic() >= ends[0]
        assert seen.ended == [(b"slow", ReceiptExpiredError)]
        broker, request = asked[0]
        cluster.serve(broker, broker.peers[0], request)
        await until(lambda: pops.acked if is_renewed else not client_of(consumer)._held._renewals, "it is answered")
        await consumer.close()
        await running
    assert [end for end in seen.ended if end[1]] == [(b"slow", ReceiptExpiredError)]
    assert ((("T", 0, 0), 0) in pops.changed) == is_renewed


@pytest.mark.usefixtures("early_renewals")
async def test_a_renewal_without_an_answer_is_repeated(cluster: FakeCluster, pops: FakePops) -> None:
    refused: list[RemotingCommand] = []

    def once(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
        if request.code != CHANGE or refused:
            return None
        refused.append(request)
        return refuse(request, ResponseCode.SYSTEM_ERROR, "busy")

    cluster.rules.insert(0, once)
    pops.store(b"slow")

    async def handle(message: MessageExt) -> None:
        await until(lambda: pops.changed, "it is renewed")

    async with consumer_of(cluster, invisible_ms=LONG_MS) as consumer:
        await run_until(consumer, lambda: pops.acked, handle)
    assert refused
    assert pops.changed == [(("T", 0, 0), LONG_MS)]


@pytest.mark.usefixtures("early_renewals")
@ONLY_ASYNCIO
async def test_a_message_that_waits_for_long_goes_to_other_members(cluster: FakeCluster, pops: FakePops) -> None:
    """It came while a handler asked, and the handler has another one now."""
    free = asyncio.Event()

    async def handle(message: MessageExt) -> None:
        await free.wait()

    async with consumer_of(cluster, ["T", "U"], invisible_ms=LONG_MS) as consumer:
        running = asyncio.create_task(consumer.run(handle, concurrency=1))
        await until(lambda: cluster.broker.asked(POP), "a handler asks")
        held = client_of(consumer)._held
        messages = popped(pops, 2, LONG_MS)
        held.take(messages)
        await until(lambda: (("T", 0, 1), 0) in pops.changed, "the second one is given back")
        assert held.find(messages[0]) is not None
        free.set()
        await consumer.close()
        await running


# ---- the end ----


async def test_a_close_waits_for_handlers_and_gives_the_rest_back(cluster: FakeCluster, pops: FakePops) -> None:
    begun: list[bytes] = []
    free = asyncio.Event()

    async def handle(message: MessageExt) -> None:
        begun.append(message.body)
        await free.wait()

    async with consumer_of(cluster) as consumer:
        running = asyncio.create_task(consumer.run(handle, concurrency=2))
        for number in range(2):
            pops.store(b"%d" % number)
        await until(lambda: len(begun) == 2, "the handlers run")
        closing = asyncio.create_task(consumer.close())
        await until(lambda: client_of(consumer).closed, "the close has begun")
        pops.store(b"late")
        free.set()
        await closing
        await running
    assert sorted(pops.acked) == places(2)
    assert pops.changed == []
    assert b"late" not in begun


async def test_what_does_not_end_in_time_is_given_back(
    cluster: FakeCluster, pops: FakePops, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ringmq.client")
    begun, free = asyncio.Event(), asyncio.Event()

    async def handle(message: MessageExt) -> None:
        begun.set()
        await free.wait()

    pops.store(b"stuck")
    async with consumer_of(cluster, drain_timeout_ms=100) as consumer:
        running = asyncio.create_task(consumer.run(handle))
        await begun.wait()
        await consumer.close()
        free.set()
        await running
    assert set(pops.changed) == {(("T", 0, 0), 0)}  # twice, if a poll that is given up gets it
    assert pops.acked == []
    assert "group g: a wait of 0.1 s at most for 1 handlers" in caplog.text
    assert "1 handlers had not ended" in caplog.text


@ONLY_ASYNCIO
async def test_a_cancelled_run_gives_back_and_another_one_may_follow(cluster: FakeCluster, pops: FakePops) -> None:
    begun: list[bytes] = []

    async def hang(message: MessageExt) -> None:
        begun.append(message.body)
        await asyncio.Event().wait()

    async def handle(message: MessageExt) -> None:
        begun.append(message.body)

    async with consumer_of(cluster, drain_timeout_ms=50) as consumer:
        running = asyncio.create_task(consumer.run(hang, concurrency=1))
        pops.store(b"first")
        await until(lambda: begun, "the handler runs")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await until(lambda: pops.changed == [(("T", 0, 0), 0)], "the message is given back")
        assert not pops.held  # no poll holds messages for no handler
        await run_until(consumer, lambda: pops.acked, handle)
    assert begun == [b"first", b"first"]


async def test_calls_after_a_close(cluster: FakeCluster, pops: FakePops) -> None:
    pops.store(b"one")
    async with consumer_of(cluster) as consumer:
        message = await anext(consumer)
    assert await anext(consumer, None) is None
    await consumer.run(lambda message: None)
    with pytest.raises(ClientClosedError):
        consumer.ack(message)
    with pytest.raises(ClientClosedError):
        await consumer.nack(message)


# ---- order ----


async def test_messages_of_a_queue_are_handled_in_their_order(cluster: FakeCluster, pops: FakePops) -> None:
    for number in range(20):
        for queue_id in (0, 1):
            pops.store(b"%d" % number, queue_id=queue_id)
    handled: dict[int, list[int]] = {0: [], 1: []}
    running: set[int] = set()
    failed: list[int] = []

    async def handle(message: MessageExt) -> None:
        assert message.queue_id not in running
        running.add(message.queue_id)
        await asyncio.sleep(0)
        running.discard(message.queue_id)
        if message.body == b"7" and len(failed) < 4 and message.reconsume_times < 2:
            failed.append(message.queue_id)
            raise ValueError("not yet")
        handled[message.queue_id].append(int(message.body))

    async with consumer_of(cluster, ordered=True) as consumer:
        await run_until(consumer, lambda: sum(map(len, handled.values())) == 40, handle, retry=FAST)
    assert handled == {0: list(range(20)), 1: list(range(20))}
    assert sorted(failed) == [0, 0, 1, 1]
    assert sorted(pops.acked) == sorted(places(20) + places(20, 1))
    assert all(request.ext_fields["order"] == "true" for request in cluster.broker.asked(POP))


@ONLY_ASYNCIO
async def test_a_queue_goes_on_behind_a_message_that_a_cancelled_run_has_acknowledged(
    cluster: FakeCluster, pops: FakePops
) -> None:
    consumer = consumer_of(cluster, ordered=True, drain_timeout_ms=50)
    handled: list[bytes] = []

    async def hang(message: Any) -> None:
        assert consumer.ack(message)
        await asyncio.Event().wait()

    async def handle(message: MessageExt) -> None:
        handled.append(message.body)

    pops.store(b"first")
    async with consumer:
        running = asyncio.create_task(consumer.run(hang))
        await until(lambda: pops.acked, "the first one is acknowledged")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        pops.store(b"second")
        await run_until(consumer, lambda: len(pops.acked) == 2, handle)
    assert handled == [b"second"]
    assert pops.acked == places(2)


@ONLY_ASYNCIO
async def test_messages_behind_one_that_comes_again_are_given_back(cluster: FakeCluster, pops: FakePops) -> None:
    handled: list[int] = []
    consumer = consumer_of(cluster, ordered=True)

    async def handle(message: Any) -> None:
        handled.append(message.queue_offset)
        await consumer.nack(message, 5000)

    async with consumer:
        running = asyncio.create_task(consumer.run(handle, concurrency=1))
        await until(lambda: cluster.broker.asked(POP), "a handler asks")
        client_of(consumer)._held.take(popped(pops, 3))
        await until(lambda: len(pops.changed) >= 3, "all three have ended")
        await consumer.close()
        await running
    assert handled[0] == 0
    assert {(("T", 0, 0), 5000), (("T", 0, 1), 0), (("T", 0, 2), 0)} <= set(pops.changed)


@ONLY_ASYNCIO
async def test_an_ordered_message_whose_batch_is_another_member_s_is_lost(cluster: FakeCluster, pops: FakePops) -> None:
    """Brokers answer zeros to its renewal, without an error."""
    cluster.rules.insert(0, answers(CHANGE, lambda request: ok(request, popTime=0, invisibleTime=0, reviveQid=0)))
    pops.store(b"stuck")
    lost = asyncio.Event()

    async def handle(message: MessageExt) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            lost.set()

    async with consumer_of(cluster, ordered=True, invisible_ms=SHORT_MS) as consumer:
        await run_until(consumer, lost.is_set, handle)
    assert pops.acked == []


@ONLY_ASYNCIO
async def test_the_loss_of_an_ordered_message_that_waits_is_logged(
    cluster: FakeCluster, pops: FakePops, caplog: pytest.LogCaptureFixture
) -> None:
    """Its renewal is refused while the message before it is handled. The one behind it goes back."""

    def refuse_second(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
        is_second = request.code == CHANGE and request.ext_fields["offset"] == "1"
        return refuse(request, ResponseCode.NO_MESSAGE, "gone") if is_second else None

    cluster.rules.insert(0, refuse_second)
    free = asyncio.Event()

    async def handle(message: MessageExt) -> None:
        await free.wait()

    async with consumer_of(cluster, ordered=True, invisible_ms=SHORT_MS) as consumer:
        running = asyncio.create_task(consumer.run(handle, concurrency=1))
        await until(lambda: cluster.broker.asked(POP), "a handler asks")
        client_of(consumer)._held.take(popped(pops, 3))
        await until(lambda: (("T", 0, 2), 0) in pops.changed, "the third one is given back")
        free.set()
        await consumer.close()
        await running
    assert "queue 0, offset 1" in caplog.text
    assert "gone" in caplog.text


@ONLY_ASYNCIO
@pytest.mark.parametrize("ordered", [False, True])
async def test_the_loss_of_a_message_that_no_handler_has_begun_is_logged(
    cluster: FakeCluster, pops: FakePops, caplog: pytest.LogCaptureFixture, ordered: bool
) -> None:
    """The process was too busy for its renewal."""
    async with consumer_of(cluster, ordered=ordered) as consumer:
        (late,) = popped(pops, 1, invisible_ms=0)
        held = client_of(consumer)._held
        held.take([late])
        assert held.claim() is None
    assert "queue 0, offset 0" in caplog.text


# ---- arguments, observers ----


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"consume_from": ConsumeFrom.TIMESTAMP}, ValueError, "FIRST or LAST"),
        ({"invisible_ms": 999}, ValueError, "invisible_ms must be 1000 to"),
        ({"hold_max_ms": -1}, ValueError, "hold_max_ms"),
        ({"broadcast": True}, TypeError, "broadcast"),
        ({"offset_file": "x"}, TypeError, "offset_file"),
        ({"topics": None}, TypeError, "topics must be"),
    ],
)
@ONLY_ASYNCIO
def test_settings_without_a_meaning_are_refused_by_name(
    options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        PushConsumer(**{"topics": "T", **options})


async def test_metrics_and_operators_see_the_handlers(cluster: FakeCluster, pops: FakePops) -> None:
    metrics = ClientMetrics()
    pops.store(b"good")
    pops.store(b"bad")

    async def handle(message: MessageExt) -> None:
        if message.body == b"bad":
            raise ValueError("no")

    consumer = PushConsumer("T", cluster.namesrv, "g", settings=ConnectionSettings(metrics=metrics))
    async with consumer:
        running = asyncio.create_task(consumer.run(handle, concurrency=7))
        await until(lambda: pops.acked and pops.changed, "both are handled")
        gauge = metrics.snapshot().gauges["ringmq_client_inbox_messages"]
        cluster.broker.ask("g", RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "g", "clientId": "c"})
        await until(lambda: cluster.broker.answers, "the member answers an operator")
        await consumer.close()
        await running
    found = metrics.snapshot()
    consumed = "ringmq_client_consumed_messages_total"
    assert (found.counter(consumed, "T", "g", "ok"), found.counter(consumed, "T", "g", "failed")) == (1, 1)
    assert gauge == {("g",): 0}, "both have left the inbox"
    assert found.gauges["ringmq_client_inbox_messages"] == {}, "a closed consumer has none"
    info = cluster.broker.answers[0].body.decode()
    assert '"PROP_THREADPOOL_CORE_SIZE":"7"' in info
    assert "CONSUME_POP" in info


@ONLY_BLOCKING
async def test_blocking_handlers_are_plain_functions(cluster: FakeCluster, pops: FakePops) -> None:
    async def handle(message: MessageExt) -> None:
        raise AssertionError("nobody awaits it")

    async with consumer_of(cluster) as consumer:
        with pytest.raises(TypeError, match="plain function"):
            consumer.blocking.run(handle)  # type: ignore[attr-defined]


async def test_pops_go_on_after_a_broker_that_does_not_answer(
    cluster: FakeCluster, pops: FakePops, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ringmq.client")
    refused: list[RemotingCommand] = []

    def twice(broker: FakeBroker, request: RemotingCommand) -> RemotingCommand | None:
        if request.code != POP or len(refused) == 2:
            return None
        refused.append(request)
        return refuse(request, ResponseCode.NO_PERMISSION, "not yet")

    cluster.rules.insert(0, twice)
    pops.store(b"one")
    async with consumer_of(cluster) as consumer:
        await run_until(consumer, lambda: pops.acked, lambda message: None)
    assert "no messages: " in caplog.text
