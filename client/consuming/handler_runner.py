"""Calls of a handler: bounded concurrency, threads or coroutines, time-outs, and the end of all of them.

A runner does not know how messages come to its consumer, or what follows a success or a failure: `Deliveries` does.
"""

import asyncio
import heapq
import inspect
import itertools
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from ringmq.client.arguments import INT_MAX, check_kinds, check_numbers
from ringmq.client.consuming.consume_retry import ConsumeRetry
from ringmq.client.consuming.consume_stats import ConsumeStats
from ringmq.client.consuming.pull_decoding import check_body
from ringmq.client.interceptors import Interceptor, run_quietly
from ringmq.client.runtimes.runtime import (
    Task,
    call_outside,
    create_task,
    sleep,
    wait,
    without_stop_iteration,
)
from ringmq.client.runtimes.waiting import Signal
from ringmq.remoting.message import MessageExt
from ringmq.remoting.message_queue import MessageQueue

log = logging.getLogger("ringmq.client")

LEFT_AFTER_S = 1.0  # for cancelled handlers to end
TURN_MESSAGES = 32  # handled by one worker before others of the event loop have a turn


@dataclass(frozen=True, slots=True)
class HandlerRules:
    """The rules for calls of a handler. `timeout_ms` None means no limit."""

    concurrency: int
    timeout_ms: int | None
    retry: ConsumeRetry
    ordered: bool
    broadcast: bool
    assigned: bool = False  # the queues, by hand

    def __post_init__(self) -> None:
        check_numbers(1, INT_MAX, concurrency=self.concurrency)
        if self.timeout_ms is not None:
            check_numbers(1, INT_MAX, timeout_ms=self.timeout_ms)
        check_kinds(ConsumeRetry, retry=self.retry)


class Delivered(Protocol):
    """A message on its way through a handler. `queue` is the queue that it was read from."""

    @property
    def message(self) -> MessageExt:
        """The message as the handler gets it."""

    @property
    def queue(self) -> MessageQueue:
        """The topic is a retry topic for a message that came again."""


D = TypeVar("D", bound=Delivered)


class Deliveries(Protocol[D]):
    """The messages of one consumer, as a runner takes and settles them."""

    @property
    def closed(self) -> bool:
        """True if the last message was claimed."""

    async def wait(self) -> None:
        """Wait until there may be a message, or a call of `wake`."""

    def wake(self) -> None:
        """End all waits."""

    def claim(self) -> D | None:
        """Return a message to handle, None if there is none now. `returned` must follow."""

    def unpack(self, delivery: D) -> None:
        """Prepare the message for its handler."""

    def returned(self, delivery: D) -> None:
        """Record that the handler has ended, with any outcome."""

    def is_settled(self, delivery: D) -> bool:
        """True if the application has settled the message while it handled it, and interceptors know of it."""

    def done(self, delivery: D) -> None:
        """Acknowledge a message that was handled."""

    async def failed(self, delivery: D, error: BaseException) -> float | None:
        """Settle a message whose handler raised `error`.

        Return a pause in s if this runner has to try it again, else None. `put_back` follows the pause.
        """

    def put_back(self, delivery: D) -> None:
        """Offer the message again, before others of its queue."""


class HandlerRunner(Generic[D]):
    """Passes messages to `handler(message)`, from `run` to `stop`.

    Blocking clients run the handler in threads of their own, between `next` and `finish`.
    """

    def __init__(
        self,
        handler: Callable[[MessageExt], object],
        rules: HandlerRules,
        deliveries: Deliveries[D],
        group: str,
        stats: ConsumeStats,
        interceptors: tuple[Interceptor, ...],
    ) -> None:
        self.rules = rules
        self._handler = handler
        self._deliveries = deliveries
        self._group = group
        self._stats = stats
        self._interceptors = interceptors
        self._stopping = False
        self._cancelled = False
        self._workers: list[Task[None]] = []
        self._running: dict[D, float] = {}  # since when
        self._calls: dict[D, asyncio.Task[Any]] = {}  # the worker that waits for the handler
        self._settling: set[D] = set()  # handled without success: a retry or send-back is under way
        self._idle = Signal()
        self._waiting: list[tuple[float, int, D]] = []  # a heap: to be tried again
        self._numbers = itertools.count()
        self._sooner = Signal()

    async def run(self) -> None:
        """Run until `stop`. A caller that is cancelled has to `drain`.

        Coroutine functions run on the loop, plain ones in threads, which cannot be ended. A worker whose handler is
        over its time continues when the handler returns.
        """
        self._workers = [
            create_task(self._work(number), name="ringmq handler") for number in range(self.rules.concurrency)
        ]
        watch = create_task(self.watch(overdue=False), name="ringmq retries")
        try:
            await wait(self._workers)
            for worker in self._workers:
                if not worker.cancelled():
                    worker.result()  # raises a fault of ours
        finally:
            self.stop()
            watch.cancel()

    def stop(self) -> None:
        """Take no further messages."""
        self._stopping = True
        self._deliveries.wake()
        self._idle.wake()

    async def ended(self) -> None:
        """Wait until the runner is stopped and no handler runs."""
        while not self._stopping or ((self._running or self._settling) and not self._cancelled):
            await self._idle.wait()

    async def drain(self, timeout_s: float) -> int:
        """Wait for running handlers. Return the number of those that were abandoned.

        After `timeout_s`, or when this call is cancelled, the remaining handlers are abandoned, and cancelled if
        possible.
        """
        if self._running:
            log.info("group %s: a wait of %g s at most for %d handlers", self._group, timeout_s, len(self._running))
        try:
            await self._wait_until(lambda: not self._running and not self._settling, timeout_s)
        finally:
            late = len(self._running)
            self._cancelled = True
            self._idle.wake()
            for worker in self._workers:
                worker.cancel()
        await wait(self._workers, LEFT_AFTER_S)
        return late

    def leave_retries(self) -> None:
        """Leave the messages that wait for a repetition to the next handler."""
        while self._waiting:
            self._deliveries.put_back(heapq.heappop(self._waiting)[2])

    def claimed(self) -> set[D]:
        """Return the messages that handlers have, or that wait for a repetition."""
        return {*self._running, *self._settling, *(delivery for _, _, delivery in self._waiting)}

    async def wait_idle(self, concerns: Callable[[D], bool], timeout_s: float) -> None:
        """Wait until no handler runs for a delivery that `concerns` is true of, or the time is over."""
        await self._wait_until(
            lambda: not any(concerns(delivery) for delivery in (*self._running, *self._settling)), timeout_s
        )

    async def handle_directly(self, message: MessageExt) -> BaseException | None:
        """Call the handler for one message outside the queues. Return the error that it raised."""
        try:
            await call_outside(self._handler, message)
        except Exception as error:
            return error
        return None

    async def next(self) -> D | None:
        """Return a message to handle as soon as there is one, None after the last. `finish` must follow."""
        deliveries = self._deliveries
        while not self._stopping:
            delivery = deliveries.claim()
            if delivery is None:
                if deliveries.closed:
                    return None
                await deliveries.wait()
                continue
            self._running[delivery] = time.monotonic()
            try:
                deliveries.unpack(delivery)
                for interceptor in self._interceptors:
                    interceptor.before_consume(self._group, [delivery.message])
                check_body(delivery.message)
            except Exception as error:
                await self.finish(delivery, error)
                continue
            return delivery
        return None

    async def finish(self, delivery: D, failure: BaseException | None) -> None:
        """Record that the handler has returned, or raised `failure`. Has no effect if its time was over before."""
        since = self._running.pop(delivery, None)
        if since is None:
            return
        message, now = delivery.message, time.monotonic()
        self._deliveries.returned(delivery)
        self._idle.wake()
        self._stats.note_handled(delivery.queue.topic, now, now - since, failed=failure is not None)
        if self._deliveries.is_settled(delivery):
            self._deliveries.done(delivery)
            return
        for interceptor in self._interceptors:
            run_quietly(interceptor.after_consume, self._group, [message], failure)
        if failure is None:
            self._deliveries.done(delivery)
            return
        self._settling.add(delivery)
        try:
            await self._failed(delivery, failure)
        except asyncio.CancelledError:  # no other consumer has the message, and a commit would wait for it
            self._deliveries.put_back(delivery)
            raise
        finally:
            self._settling.discard(delivery)
            self._idle.wake()

    async def abandon(self, delivery: D, error: BaseException) -> None:
        """Let a message fail while its handler runs. A coroutine is cancelled, a thread runs on.

        Has no effect if no handler runs for the message.
        """
        if delivery in self._running and (worker := self._calls.get(delivery)) is not None:
            worker.cancel()
        await self.finish(delivery, error)

    async def watch(self, *, overdue: bool) -> None:
        """Put failed messages back after their pause, until the owner cancels the task.

        With `overdue`, handlers over their time have failed, too.
        """
        limit_s = self.rules.timeout_ms / 1000 if overdue and self.rules.timeout_ms is not None else None
        while True:
            now = time.monotonic()
            while self._waiting and self._waiting[0][0] <= now:
                self._deliveries.put_back(heapq.heappop(self._waiting)[2])
            pause_s = self._waiting[0][0] - now if self._waiting else None
            if limit_s is not None:
                for delivery in [found for found, since in self._running.items() if now - since >= limit_s]:
                    await self.finish(delivery, _out_of_time(limit_s))
                pause_s = min(limit_s / 4, 1.0, *(() if pause_s is None else (pause_s,)))
            await self._sooner.wait(pause_s)

    # ---- inside ----

    async def _work(self, number: int) -> None:
        if inspect.iscoroutinefunction(self._handler):
            await self._call_each(self._handler, None)
            return
        thread = _InThread(self._handler, f"ringmq handler {number}")
        try:
            await self._call_each(thread.call, thread)
        finally:
            thread.end()

    async def _call_each(self, call: Callable[[MessageExt], Awaitable[object]], thread: "_InThread | None") -> None:
        turn, worker = 0, asyncio.current_task()
        assert worker is not None
        if self.rules.timeout_ms is not None:
            call = in_time(call, self.rules.timeout_ms / 1000)
        while (delivery := await self.next()) is not None:
            failure: BaseException | None = None
            self._calls[delivery] = worker
            try:
                await call(delivery.message)
            except asyncio.CancelledError as error:
                if self._cancelled:
                    self._running.pop(delivery, None)
                    self._deliveries.returned(delivery)
                    self._deliveries.put_back(delivery)
                    raise
                failure = error  # something that the handler waited for was cancelled, or it was abandoned
            except Exception as error:
                failure = error
            finally:
                del self._calls[delivery]
                if worker.cancelling() and not self._cancelled:
                    worker.uncancel()  # the message was abandoned, not the worker
            await self.finish(delivery, failure)
            if thread is not None:
                await thread.wait_free()
            turn += 1
            if turn % TURN_MESSAGES == 0:
                await sleep(0)

    async def _wait_until(self, condition: Callable[[], bool], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition() and (left_s := deadline - time.monotonic()) > 0:
            await self._idle.wait(left_s)

    async def _failed(self, delivery: D, error: BaseException) -> None:
        message = delivery.message
        log.warning(
            "group %s: message %s (topic %s, broker %s, queue %d, offset %d) failed at attempt %d: %s",
            self._group,
            message.msg_id,
            *delivery.queue,
            message.queue_offset,
            message.reconsume_times + 1,
            _one_line(error),
            exc_info=error if log.isEnabledFor(logging.DEBUG) else None,
        )
        pause_s = await self._deliveries.failed(delivery, error)
        if pause_s is not None:
            self._put_back_after(delivery, pause_s)

    def _put_back_after(self, delivery: D, pause_s: float) -> None:
        due = time.monotonic() + pause_s
        heapq.heappush(self._waiting, (due, next(self._numbers), delivery))
        self._sooner.wake()


class _InThread:
    """A handler, called in a thread of its own.

    The thread is a daemon, so an abandoned handler does not block the exit.
    """

    def __init__(self, handler: Callable[[MessageExt], object], name: str) -> None:
        self._handler = without_stop_iteration(handler)
        self._name = name
        self._thread: threading.Thread | None = None
        self._calls: SimpleQueue[tuple[Future[object], MessageExt] | None] = SimpleQueue()
        self._running: Future[object] | None = None

    async def call(self, message: MessageExt) -> object:
        """Return the handler's result or raise its error.

        A coroutine as result (of a lambda around an async function, say) is awaited: the message is handled only
        after it.
        """
        if self._thread is None:
            thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            thread.start()
            self._thread = thread
        self._running = Future()
        self._calls.put((self._running, message))
        result = await asyncio.wrap_future(self._running)
        return await result if inspect.isawaitable(result) else result

    def end(self) -> None:
        """End the thread after the running call."""
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            future, message = call
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = self._handler(message)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

    async def wait_free(self) -> None:
        """Wait until the last call has ended, even if its own waiter is gone."""
        if self._running is not None and not self._running.done():
            end = asyncio.wrap_future(self._running)
            try:
                await asyncio.wait([end])
            finally:
                if not end.cancel() and not end.cancelled():
                    end.exception()  # seen: the call has failed already, by its time


def in_time(
    call: Callable[[MessageExt], Awaitable[object]], timeout_s: float
) -> Callable[[MessageExt], Awaitable[object]]:
    """Return `call`, cancelled with a TimeoutError after `timeout_s`."""

    async def limited(message: MessageExt) -> object:
        try:
            async with asyncio.timeout(timeout_s) as limit:
                return await call(message)
        except TimeoutError as error:
            if not limit.expired():
                raise  # the handler's own
            raise _out_of_time(timeout_s) from error

    return limited


def _out_of_time(timeout_s: float) -> TimeoutError:
    return TimeoutError(f"no end after {round(1000 * timeout_s)} ms")


def _one_line(error: BaseException) -> str:
    """Return one line for the log. The repr is unsuitable: that of a UnicodeDecodeError has the whole body."""
    try:
        text = " ".join(str(error).split())
    except Exception:
        text = "(it has no text)"
    name = type(error).__name__
    return f"{name}: {text}" if text else name
