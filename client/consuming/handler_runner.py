"""Consumption by a handler: bounded concurrency, acknowledged when it returns, tried again when it raises.

`consume_retry` decides about a failed message. This module calls, waits and sends requests.
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

from ringmq.client.arguments import INT_MAX, check_kinds, check_numbers
from ringmq.client.connections.name_servers import RouteTable
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.client.consuming.consume_retry import ConsumeRetry, Drop, SendBack, TryHere, after_failure
from ringmq.client.consuming.consume_stats import ConsumeStats
from ringmq.client.consuming.inbox import Delivery, Inbox, ProcessQueue
from ringmq.client.consuming.lock_renewal import LockRenewer
from ringmq.client.consuming.pull_decoding import check_body
from ringmq.client.consuming.send_backs import send_back
from ringmq.client.errors import BrokerError, RingmqError
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
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.message import MessageExt

log = logging.getLogger("ringmq.client")

UNSUPPORTED_FOR_S = 60.0  # a broker that does not know send-back is not asked again so soon
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


@dataclass(frozen=True, slots=True)
class HandlerContext:
    """The parts of its consumer that a runner uses. `ack` returns True if the message was open.

    `lose_lock` is called with a queue whose lock has expired.
    """

    group: str
    client: RemotingClient
    routes: RouteTable
    inbox: Inbox
    stats: ConsumeStats
    interceptors: tuple[Interceptor, ...]
    locks: LockRenewer | None
    ack: Callable[[Delivery], bool]
    lose_lock: Callable[[ProcessQueue], None]


class HandlerRunner:
    """Passes messages of the inbox to `handler(message)`, from `run` to `stop`.

    Blocking clients run the handler in threads of their own, between `next` and `finish`.
    """

    def __init__(self, handler: Callable[[MessageExt], object], rules: HandlerRules, context: HandlerContext) -> None:
        self.rules = rules
        self._handler = handler
        self._context = context
        self._stopping = False
        self._cancelled = False
        self._workers: list[Task[None]] = []
        self._running: dict[Delivery, float] = {}  # since when
        self._settling: set[Delivery] = set()  # handled without success: a retry or send-back is under way
        self._idle = Signal()
        self._waiting: list[tuple[float, int, Delivery]] = []  # a heap: to be tried again
        self._numbers = itertools.count()
        self._sooner = Signal()
        self._unsupported: dict[str, float] = {}  # broker name -> when to ask it again

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
        self._context.inbox.wake()
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
            self._context.inbox.put_back(heapq.heappop(self._waiting)[2])

    async def wait_idle(self, process_queue: ProcessQueue, timeout_s: float) -> None:
        """Wait until no handler runs for the queue, or the time is over."""
        await self._wait_until(
            lambda: all(delivery.process_queue is not process_queue for delivery in (*self._running, *self._settling)),
            timeout_s,
        )

    async def handle_directly(self, message: MessageExt) -> BaseException | None:
        """Call the handler for one message outside the queues. Return the error that it raised."""
        try:
            await call_outside(self._handler, message)
        except Exception as error:
            return error
        return None

    async def next(self) -> Delivery | None:
        """Return a message to handle as soon as there is one, None after the last. `finish` must follow."""
        inbox, context = self._context.inbox, self._context
        while not self._stopping:
            delivery = inbox.claim()
            if delivery is None:
                if inbox.closed:
                    return None
                await inbox.wait()
                continue
            process_queue = delivery.process_queue
            if context.locks is not None and not context.locks.held(process_queue.queue):
                inbox.returned(delivery)
                context.lose_lock(process_queue)
                continue
            self._running[delivery] = time.monotonic()
            try:
                delivery.unpack()
                for interceptor in context.interceptors:
                    interceptor.before_consume(context.group, [delivery.message])
                check_body(delivery.message)
            except Exception as error:
                await self.finish(delivery, error)
                continue
            return delivery
        return None

    async def finish(self, delivery: Delivery, failure: BaseException | None) -> None:
        """Record that the handler has returned, or raised `failure`. Has no effect if its time was over before."""
        since = self._running.pop(delivery, None)
        if since is None:
            return
        context, message, now = self._context, delivery.message, time.monotonic()
        context.inbox.returned(delivery)
        self._idle.wake()
        context.stats.note_handled(delivery.process_queue.queue.topic, now, now - since, failed=failure is not None)
        for interceptor in context.interceptors:
            run_quietly(interceptor.after_consume, context.group, [message], failure)
        if failure is None:
            self._done(delivery)
            return
        self._settling.add(delivery)
        try:
            await self._failed(delivery, failure)
        except asyncio.CancelledError:  # no other inbox has the message, and the commit would wait for it
            context.inbox.put_back(delivery)
            raise
        finally:
            self._settling.discard(delivery)
            self._idle.wake()

    async def watch(self, *, overdue: bool) -> None:
        """Put failed messages back after their pause, until the owner cancels the task.

        With `overdue`, handlers over their time have failed, too.
        """
        limit_s = self.rules.timeout_ms / 1000 if overdue and self.rules.timeout_ms is not None else None
        while True:
            now = time.monotonic()
            while self._waiting and self._waiting[0][0] <= now:
                self._context.inbox.put_back(heapq.heappop(self._waiting)[2])
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
        turn = 0
        if self.rules.timeout_ms is not None:
            call = in_time(call, self.rules.timeout_ms / 1000)
        while (delivery := await self.next()) is not None:
            failure: BaseException | None = None
            try:
                await call(delivery.message)
            except asyncio.CancelledError as error:
                if self._cancelled:
                    self._running.pop(delivery, None)
                    self._context.inbox.returned(delivery)
                    self._context.inbox.put_back(delivery)
                    raise
                failure = error  # something that the handler waited for was cancelled
            except Exception as error:
                failure = error
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

    def _done(self, delivery: Delivery) -> None:
        self._context.ack(delivery)
        self._context.inbox.release(delivery)

    async def _failed(self, delivery: Delivery, error: BaseException) -> None:
        message, rules = delivery.message, self.rules
        verdict = after_failure(
            message,
            error,
            rules.retry,
            ordered=rules.ordered,
            broadcast=rules.broadcast,
            assigned=rules.assigned,
        )
        log.warning(
            "group %s: message %s of %s (offset %d, repetition %d) failed: %s",
            self._context.group,
            message.msg_id,
            delivery.process_queue.queue,
            message.queue_offset,
            message.reconsume_times,
            _one_line(error),
            exc_info=error if log.isEnabledFor(logging.DEBUG) else None,
        )
        if delivery.stale:
            return
        if isinstance(verdict, SendBack):
            if await self._send_back(delivery, verdict.delay_level):
                verdict = Drop()
            else:
                verdict = TryHere(rules.retry.local_pause_s(message.reconsume_times + 1))
        if isinstance(verdict, TryHere):
            delivery.pack()
            delivery.message.reconsume_times += 1
            self._put_back_after(delivery, verdict.pause_s)
        else:
            self._done(delivery)

    async def _send_back(self, delivery: Delivery, delay_level: int) -> bool:
        """Send the message back to its broker, which delivers it again. False if the broker refuses it."""
        context, message, broker = self._context, delivery.message, delivery.message.broker_name
        if self._unsupported.get(broker, 0.0) > time.monotonic():
            return False
        try:
            await send_back(context.client, context.routes, context.group, message, delay_level, self.rules.retry)
        except RingmqError as error:
            if isinstance(error, BrokerError) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                self._unsupported[broker] = time.monotonic() + UNSUPPORTED_FOR_S
            log.warning("group %s: message %s is tried again here: %s", context.group, message.msg_id, error)
            return False
        except Exception:  # a hook's fault, or ours, must end neither this worker nor the message's turn
            log.exception("group %s: message %s is tried again here", context.group, message.msg_id)
            return False
        return True

    def _put_back_after(self, delivery: Delivery, pause_s: float) -> None:
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
    return f"{type(error).__name__}: {text}"
