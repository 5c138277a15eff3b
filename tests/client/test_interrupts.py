"""Ctrl-C in a blocking client: wherever it comes, the monitor is whose it should be."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ringmq.client import ClientClosedError, ConsumeFrom, Message, MessageExt, MessageQueue, blocking
from ringmq.client.popping.lease import Use
from ringmq.client.producing.in_flight_limit import InFlightLimit
from ringmq.client.runtimes import runtime, thread_loop
from ringmq.client.runtimes.monitor import MonitorCondition
from ringmq.client.runtimes.thread_loop import ThreadLoop
from ringmq.remoting.codes import RequestCode
from tests.client.blocked_threads import wait_blocked
from tests.client.fake_pops import FakePops
from tests.client.threaded_cluster import threaded_cluster
from tests.waiting import wait_until


async def later(value: int) -> int:
    await runtime.sleep(0.01)
    return value


@contextlib.contextmanager
def interrupted_when(waits: threading.Event) -> Iterator[None]:
    """Ctrl-C when `waits` is set; the block raises it."""

    def interrupt() -> None:
        waits.wait(60)
        wait_blocked(threading.main_thread())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupt_leaves_the_client_whole() -> None:
    def interrupt_when_it_waits() -> None:
        wait_until(lambda: len(cluster.broker.asked(RequestCode.PULL_MESSAGE)) >= 2, "both queues are asked")
        wait_blocked(threading.main_thread())
        os.kill(os.getpid(), signal.SIGINT)

    with threaded_cluster(topics={"T": 2}) as cluster, blocking.Consumer("T", cluster.namesrv, "g") as consumer:
        threading.Thread(target=interrupt_when_it_waits).start()
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job's is ignored
        try:
            with pytest.raises(KeyboardInterrupt):
                consumer.poll()
        finally:
            signal.signal(signal.SIGINT, before)
        with blocking.Producer(cluster.namesrv) as producer:
            producer.send(Message("T", b"x"))
        assert [m.body for m in consumer.poll(timeout_ms=60_000)] == [b"x"]


def test_a_call_that_was_interrupted_comes_to_its_end_before_the_loop_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_loop, "CLOSE_WAIT_S", 60.0)
    told = []

    async def closing() -> None:
        try:
            waits.set()
            await runtime.sleep(600)
        finally:
            await runtime.sleep(0.05)
            told.append("last commit")

    loop, waits = ThreadLoop("test"), threading.Event()
    loop.open()

    with interrupted_when(waits):
        loop.run(closing())
    loop.close()
    assert told == ["last commit"]


class Interrupted:
    """An RLock whose next `interrupts` acquisitions are broken off, as by Ctrl-C or a greenlet's end."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.interrupts = 0
        self.interrupt_released = False

    def acquire(self, *args: Any) -> bool:
        if self.interrupts:
            self.interrupts -= 1
            raise KeyboardInterrupt
        return self._lock.acquire(*args)

    __enter__ = acquire

    def release(self) -> None:
        self._lock.release()
        if self.interrupt_released:
            self.interrupt_released = False
            raise KeyboardInterrupt

    def __exit__(self, *_: object) -> None:
        self.release()

    def _release_save(self) -> None:
        self.release()

    def _acquire_restore(self, _: object) -> None:
        self.acquire()

    def _is_owned(self) -> bool:
        return bool(self._lock._is_owned())  # type: ignore[attr-defined]


def interrupt_the_next(monitor: Interrupted, what: str) -> None:
    monitor.interrupts, monitor.interrupt_released = (2, False) if what == "acquire" else (0, True)


@pytest.mark.parametrize("what", ["acquire", "release"])
def test_an_interrupt_beside_the_monitor_waits_until_it_is_ours(what: str) -> None:
    loop, monitor = ThreadLoop("interrupted"), Interrupted()
    loop._monitor = monitor  # type: ignore[assignment]
    with loop.entered():
        if what == "release":
            interrupt_the_next(monitor, what)
        with pytest.raises(KeyboardInterrupt):
            loop.outside(interrupt_the_next, monitor, "acquire")
        assert monitor._is_owned()
    condition = MonitorCondition(monitor)
    with monitor:
        interrupt_the_next(monitor, what)
        with pytest.raises(KeyboardInterrupt):
            condition.wait(0.001)
        assert monitor._is_owned()
    assert not monitor._is_owned()


def test_an_interrupt_where_a_call_begins_leaves_the_client_usable() -> None:
    def interrupt(frame: Any, event: str, argument: object) -> None:
        if event == "c_return" and argument is next and frame.f_code.co_filename == contextlib.__file__:
            sys.setprofile(None)
            raise KeyboardInterrupt

    loop = ThreadLoop("interrupted")
    loop.open()
    for call in (lambda: loop.run(later(1)), lambda: loop.call(int), lambda: loop.begin(later(1)).result(60)):
        sys.setprofile(interrupt)
        try:
            call()
        except KeyboardInterrupt:
            assert loop.run(later(2)) == 2, "while the traceback still holds on to the interrupted call"
        finally:
            sys.setprofile(None)
    loop.close()


class InterruptAt:
    """Ctrl-C at the n-th line (or bytecode) that this thread runs of some files; those of others do not count."""

    def __init__(self, number: int, *files: str, event: str = "line") -> None:
        self._left = number
        self._files = files
        self._event = event
        self.happened = False

    def __enter__(self) -> "InterruptAt":
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: Any, event: str, argument: object) -> Any:
        if not frame.f_code.co_filename.endswith(self._files):
            return None
        frame.f_trace_opcodes = self._event == "opcode"
        if event == self._event:
            self._left -= 1
            if self._left == 0:
                self.happened = True
                raise KeyboardInterrupt
        return self._trace


SENDING = (
    "client/producer.py", "producing/in_flight_limit.py", "producing/send_request.py", "runtimes/thread_tasks.py",
    "connections/connection.py", "connections/remoting_client.py", "runtimes/socket_transport.py",
)  # fmt: skip
CALLS: dict[str, Callable[[blocking.Producer], object]] = {
    "send": lambda producer: producer.send(Message("T", b"x")),
    "send_all": lambda producer: producer.send_all([Message("T", b"x") for _ in range(3)], pipeline=2),
    "begin_send": lambda producer: producer.begin_send(Message("T", b"x")).result(60),
}


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("call", CALLS)
def test_an_interrupt_at_any_line_of_a_send_holds_nobody_up(call: str) -> None:
    """It is raised, keeps no permit, and the next send goes out at once."""
    with threaded_cluster(topics={"T": 2}) as cluster, blocking.Producer(cluster.namesrv, in_flight_max=2) as producer:
        CALLS[call](producer)
        limit, number = producer._client._in_flight, 0
        while True:
            number += 1
            interrupt = InterruptAt(number, *SENDING)
            with contextlib.suppress(KeyboardInterrupt), interrupt:
                CALLS[call](producer)
                assert not interrupt.happened, f"line {number}: the interrupt was swallowed"
            if not interrupt.happened:
                break
            wait_until(lambda: limit.count == limit.bytes_held == 0, f"line {number}: nothing is held")
            producer.send(Message("T", b"y"))
        assert number > 50


@pytest.mark.parametrize("closing", [False, True])
def test_an_interrupt_at_any_bytecode_of_giving_back_hands_the_place_on(closing: bool) -> None:
    """Whoever waits for it in another thread goes on, and so does who waits for the last of them."""

    async def next_one() -> None:
        limit.give_back(await limit.take(10))

    async def giving_back() -> None:
        permit = await limit.take(10)
        other.start()
        while not (limit._drained if closing else limit._waiters):
            await runtime.sleep(0.001)  # poll
        with interrupt:
            limit.give_back(permit)

    loop, number, happened = ThreadLoop("test"), 0, True
    loop.open()
    while happened:
        number, limit = number + 1, InFlightLimit(1, 100)
        loop.interrupt_listeners[:] = [limit.forget]
        waits = limit.wait_empty if closing else next_one
        other = threading.Thread(target=lambda waits=waits: loop.run(waits()), daemon=True)  # type: ignore[misc]
        interrupt = InterruptAt(number, "producing/in_flight_limit.py", "runtimes/thread_tasks.py", event="opcode")
        with contextlib.suppress(KeyboardInterrupt):
            loop.run(giving_back())
        other.join(60)
        assert not other.is_alive(), f"bytecode {number}"
        assert (limit.count, limit.bytes_held, len(limit._waiters)) == (0, 0, 0), f"bytecode {number}"
        happened = interrupt.happened
    loop.close()
    assert number > 50


TAKING = (
    "client/blocking.py", "client/consumer.py", "consuming/inbox.py", "consuming/queue_reader.py",
    "runtimes/thread_tasks.py",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_an_interrupt_at_any_line_of_a_poll_loses_no_message() -> None:
    """What did not reach the application comes again, whoever goes on polling."""
    with threaded_cluster(topics={"T": 1}) as cluster:
        with blocking.Producer(cluster.namesrv) as producer:
            producer.send_batch([Message("T", b"x") for _ in range(1000)])
        with blocking.Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST) as consumer:
            (message,) = consumer.poll(1, 20_000)
            seen, number = [message.queue_offset], 0
            while True:
                number += 1
                interrupt = InterruptAt(number, *TAKING)
                with contextlib.suppress(KeyboardInterrupt), interrupt:
                    seen += [message.queue_offset for message in consumer.poll(1, 20_000)]
                seen += [message.queue_offset for message in consumer.poll(1, 20_000)]
                if not interrupt.happened:
                    break
            assert number > 30
            assert set(seen) == set(range(max(seen) + 1))


def test_an_assignment_that_is_interrupted_leaves_the_queues_read() -> None:
    told, goes_on = threading.Event(), threading.Event()

    def listen(queues: list[MessageQueue]) -> None:
        told.set()
        goes_on.wait(60)

    with threaded_cluster(topics={"T": 1}) as cluster:
        with blocking.Producer(cluster.namesrv) as producer:
            producer.send(Message("T", b"x"))
        options: dict[str, Any] = {"consume_from": ConsumeFrom.FIRST, "on_assigned": listen}
        with blocking.Consumer(None, cluster.namesrv, "g", **options) as consumer:
            with interrupted_when(told):
                consumer.assign([MessageQueue("T", "a", 0)])
            goes_on.set()
            assert [m.body for m in consumer.poll(timeout_ms=60_000)] == [b"x"]


def test_an_ordered_close_that_is_interrupted_unlocks() -> None:
    told, over = threading.Event(), threading.Event()

    def listen(queues: list[MessageQueue]) -> None:
        told.set()
        over.wait(60)

    with threaded_cluster(topics={"T": 1}) as cluster:
        consumer = blocking.Consumer("T", cluster.namesrv, "g", ordered=True, on_revoked=listen)
        consumer.start()
        wait_until(lambda: cluster.broker.locks, "the queue is locked")
        with interrupted_when(told):
            consumer.close()
        wait_until(lambda: not cluster.broker.locks, "the queue is unlocked")
        over.set()
        consumer.close()


class ClosedAt(InterruptAt):
    """A signal handler that closes a client at the n-th line that this thread runs of some files."""

    def __init__(self, client: blocking.Producer, number: int, *files: str) -> None:
        super().__init__(number, *files)
        self._client = client

    def _trace(self, frame: Any, event: str, argument: object) -> Any:
        try:
            return super()._trace(frame, event, argument)
        except KeyboardInterrupt:
            self._client.close()
            return None


CALLING = ("client/blocking.py", "runtimes/thread_loop.py", "runtimes/monitor.py", "producing/in_flight_limit.py")


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_a_signal_handler_closes_a_client_at_any_line_of_a_send() -> None:
    """The send comes to its end: stored, or refused because the client is closed. Then the client is closed."""
    number, happened, refused = 0, True, 0
    with threaded_cluster(topics={"T": 1}) as cluster:
        while happened:
            number += 1
            producer = blocking.Producer(cluster.namesrv)
            producer.start()
            closes = ClosedAt(producer, number, *CALLING)
            try:
                with closes:
                    producer.send(Message("T", b"x"))
            except ClientClosedError:
                refused += 1
            happened = closes.happened
            if happened:
                wait_until(lambda: not producer._loop.is_open, f"line {number}: the client is closed")  # noqa: B023
            producer.close()
            wait_until(lambda: not closing_threads(), f"line {number}: the close is over")
    assert number > 50
    assert 0 < refused < number


def closing_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.endswith(" close")]


@contextlib.contextmanager
def closed_by_sigterm(consumer: blocking.Consumer, when: threading.Event) -> Iterator[None]:
    """SIGTERM, whose handler closes the consumer, when `when` is set."""

    def terminate() -> None:
        when.wait(60)
        wait_blocked(threading.main_thread())
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=terminate).start()
    before = signal.signal(signal.SIGTERM, lambda *_: consumer.close())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_signal_handler_that_closes_its_consumer_ends_a_run() -> None:
    """`run` returns when its handlers have ended; what they handled is committed when the consumer is left."""
    handling, begun, handled = threading.Event(), [], []

    def handle(message: MessageExt) -> None:
        begun.append(message.queue_offset)
        if len(begun) == 2:
            handling.set()
        wait_until(lambda: consumer.closed, "the signal has come")
        handled.append(message.queue_offset)

    with threaded_cluster(topics={"T": 1}) as cluster:
        with blocking.Producer(cluster.namesrv) as producer:
            producer.send_batch([Message("T", b"x") for _ in range(50)])
        with blocking.Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST) as consumer:
            with closed_by_sigterm(consumer, handling):
                consumer.run(handle, concurrency=2)
            assert consumer.closed
        assert len(handled) >= 2
        assert cluster.broker.committed["g", "T", 0] == max(handled) + 1 == len(handled)
        consumer.run(handle)  # a signal that came before: there is nothing to do
        wait_until(lambda: not closing_threads(), "the close is over")


def test_a_signal_handler_that_closes_its_consumer_ends_a_loop_over_it() -> None:
    seen, waits = [], threading.Event()
    with threaded_cluster(topics={"T": 1}) as cluster:
        with blocking.Producer(cluster.namesrv) as producer:
            producer.send_batch([Message("T", b"x") for _ in range(5)])
        consumer = blocking.Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST)
        with consumer, closed_by_sigterm(consumer, waits):
            for message in consumer:
                seen.append(message.queue_offset)
                if len(seen) == 5:
                    waits.set()
        assert cluster.broker.committed["g", "T", 0] == len(seen) == 5


POPPING = (
    "client/blocking.py", "client/push_consumer.py", "popping/held_messages.py", "popping/pop_inbox.py",
    "popping/lease.py", "runtimes/thread_tasks.py",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("ordered", [False, True])
def test_an_interrupt_at_any_line_of_a_loop_by_pop_loses_no_message(ordered: bool) -> None:
    """A message that did not reach the application is not acknowledged, and none is renewed without a user."""

    def held_and_used() -> tuple[int, int]:
        held = consumer._client._held
        renewed = [delivery for delivery in held._leases if delivery.lease.use is not Use.SETTLED]
        return len(renewed), held.inbox.count + len(consumer._client._handed_over)

    with threaded_cluster(topics={"T": 1}) as cluster:
        pops = FakePops(cluster)
        for number in range(400):
            pops.store(b"%d" % number)
        with blocking.PushConsumer("T", cluster.namesrv, "g", ordered=ordered) as consumer:
            messages = iter(consumer)
            seen, number = [next(messages).queue_offset], 0
            while True:
                number += 1
                interrupt = InterruptAt(number, *POPPING)
                with contextlib.suppress(KeyboardInterrupt), interrupt:
                    seen.append(next(messages).queue_offset)
                seen.append(next(messages).queue_offset)
                held, used = consumer._call(held_and_used)
                assert held == used, f"line {number}"
                if not interrupt.happened:
                    break
            assert number > 30
        assert {offset for _, _, offset in pops.acked} <= set(seen)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_an_interrupt_at_any_line_of_a_step_ends_the_call_in_its_order() -> None:
    """The blocks behind a wait run with the monitor: they wake other calls."""
    begun: list[int] = []
    ended: list[tuple[int, bool]] = []

    async def waits(number: int) -> None:
        begun.append(number)
        try:
            await runtime.sleep(0.001)
        finally:
            ended.append((number, loop._monitor._is_owned()))

    loop, number, happened = ThreadLoop("test"), 0, True
    loop.open()
    while happened:
        number += 1
        interrupt = InterruptAt(number, "runtimes/thread_tasks.py")
        with contextlib.suppress(KeyboardInterrupt), interrupt:
            loop.run(waits(number))
        wait_until(lambda: len(ended) == len(begun), f"line {number}: the call ends")
        happened = interrupt.happened
    loop.close()
    assert number > 20
    assert ended == [(found, True) for found in begun]
