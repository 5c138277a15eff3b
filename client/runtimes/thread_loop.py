"""The runtime without an event loop: blocking sockets and plain threads, which gevent may turn into greenlets.

A client's code runs in several threads, one at a time:

* in the threads that call the client: each carries its own call and sleeps during the call's waits;
* in one thread for the client's own tasks and timers;
* in one thread per connection that receives.

The running thread holds a lock (the monitor) and releases it at every wait. So the SDK's coroutines have the same
guarantee as on asyncio: no other code runs between two waits.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import heapq
import itertools
import logging
import os
import socket
import threading
import time
import weakref
from asyncio import CancelledError
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from inspect import CORO_CREATED, getcoroutinestate
from types import TracebackType
from typing import Any, Self, TypeVar

from ringmq.client.errors import ClientClosedError
from ringmq.client.runtimes.monitor import MonitorCondition, reacquire
from ringmq.client.runtimes.runtime import Future, WaitingLoop, current
from ringmq.client.runtimes.socket_transport import connect_socket
from ringmq.client.runtimes.thread_tasks import ThreadFuture, ThreadTask

log = logging.getLogger("ringmq.client")

CLOSE_WAIT_S = 2.0  # longer than a close that is cancelled takes for its last commit
TIMERS_KEPT = 100

T = TypeVar("T")


class ThreadTimer:
    """See `runtime.Timer`."""

    __slots__ = ("_loop", "callback")

    def __init__(self, loop: ThreadLoop, callback: Callable[[], object]) -> None:
        self._loop = loop
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self._loop.note_cancelled_timer()


class _Timeout:
    """See `runtime.timeout`."""

    def __init__(self, loop: ThreadLoop, seconds: float | None) -> None:
        self._loop = loop
        self._seconds = seconds
        self._timer: ThreadTimer | None = None
        self._expired = False

    async def __aenter__(self) -> Self:
        if self._seconds is not None:
            self._task = self._loop.current_task
            self._timer = self._loop.call_at(self._loop.time() + self._seconds, self._expire)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._expired and isinstance(exc, CancelledError):
            raise TimeoutError from exc

    def _expire(self) -> None:
        self._expired = True
        if self._task is not None:
            self._task.cancel()


class ThreadLoop:
    """One client's runtime, from `open` to `close`. `run` carries a call of the application in its own thread."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._begin_anew()
        self.is_the_parent_s = False  # this process is the child of a fork
        self.sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._outcomes: deque[Callable[[], None]] = deque()  # of `begin`
        self._tells_outcomes = False
        self._soon: deque[Callable[[], object]] = deque()
        self._ready: deque[ThreadTask[Any]] = deque()
        self._timers: list[tuple[float, int, ThreadTimer]] = []
        self._numbers = itertools.count()
        self._cancelled_timers = 0
        self.current_task: ThreadTask[Any] | None = None
        self.interrupt_listeners: list[Callable[[object], object]] = []

    def _begin_anew(self) -> None:
        self._monitor = threading.RLock()
        self._background = MonitorCondition(self._monitor)
        self._calls_ended = MonitorCondition(self._monitor)
        self._outcomes_came = MonitorCondition(self._monitor)
        self._calls: set[ThreadTask[Any]] = set()  # of `run` and `begin`
        self._threads: set[threading.Thread] = set()
        self._is_open = False

    # ---- from outside ----

    def check_process(self) -> None:
        """Raise ClientClosedError for a loop that was open before a fork."""
        if self.is_the_parent_s:
            raise self._not_open()

    def open(self) -> None:
        """Start the thread for tasks and timers. Raises ClientClosedError for a loop that was open before a fork."""
        self.check_process()
        if not self._is_open:
            _open_loops.add(self)
            self._is_open = True
            self.start_thread(self._run_background, "tasks")

    def detach_after_fork(self) -> None:
        """Close the sockets in the child of a fork without a shutdown: the connections are the parent's."""
        self._begin_anew()
        self.is_the_parent_s = True
        for connected in list(self.sockets):
            with contextlib.suppress(OSError):  # closed already
                os.close(connected.detach())

    def close(self) -> None:
        """Wait for calls of other threads, then stop. May be called again."""
        with self._monitor:
            if self._is_open:
                self._is_open = False
                self._calls_ended.wait_for(lambda: not self._calls, CLOSE_WAIT_S)
                for call in list(self._calls):
                    call.cancel()
                self._background.notify()
                self._calls_ended.wait_for(lambda: not self._calls, CLOSE_WAIT_S)
                self._background.notify()
                self._outcomes_came.notify()
            threads = self._threads - {threading.current_thread()}
        deadline = time.monotonic() + CLOSE_WAIT_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if not self._is_open:  # not before: a process that is forked meanwhile must know of it
            _open_loops.discard(self)

    def run(self, conversation: Coroutine[Any, Any, T]) -> T:
        """Carry `conversation` to its end in this thread. An interrupt leaves it, cancelled, to the client's thread."""
        condition = MonitorCondition(self._monitor)
        ready, waits = True, False

        def wake(_: ThreadTask[Any]) -> None:
            nonlocal ready
            ready = True
            condition.notify()

        def carry() -> T:
            nonlocal ready, waits
            left = False
            try:
                self._calls.add(task)
                while not task.done():
                    if ready:
                        ready = False
                        task.step()
                        self._run_soon()
                    else:
                        waits = True
                        condition.wait()
                        waits = False
                if task.cancelled() and not self._is_open:
                    raise ClientClosedError("the client was closed")
                return task.result()
            except BaseException as error:
                left = self._abandon(task, None if waits else error)
                raise
            finally:
                if not left:
                    self._end_call(task)

        task = ThreadTask(self, conversation, wake)
        return self._carry(carry, conversation)

    def begin(self, conversation: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Carry `conversation` to its first wait in this thread. The client's own thread continues it.

        The future cannot be cancelled. Its callbacks run in a thread of their own and may use the client.
        """
        outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
        outcome.set_running_or_notify_cancel()
        task = ThreadTask(self, conversation, self._ready.append)

        def note(_: object) -> None:
            self._end_call(task)
            self._outcomes.append(lambda: _set_outcome(outcome, task))
            self._outcomes_came.notify()

        def carry() -> concurrent.futures.Future[T]:
            if not self._tells_outcomes:
                self.start_thread(self._deliver_results, "results")
                self._tells_outcomes = True
            try:
                self._calls.add(task)
                task.add_done_callback(note)
                task.step()
                self._run_soon()
                error = task.exception() if task.done() and not task.cancelled() else None
                if error is not None and is_interrupt(error):
                    raise error
            except BaseException as interrupt:
                if not self._abandon(task, interrupt):
                    self._end_call(task)
                raise
            return outcome

        return self._carry(carry, conversation)

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Call `function(*args)`, which does not wait, with the monitor held. Works on a closed client, too."""
        return self._enter(partial(function, *args))

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Hold the monitor. At the end, work that was due "soon" is done, or passed to the client's thread."""
        outer = self._outer()
        with self._monitor:
            try:
                current.loop = self
                yield
            finally:
                current.loop = outer
                self._wake_background()

    def _enter(self, work: Callable[[], T]) -> T:
        """Call `work` with the monitor. An interrupt between a context manager and its block would leak it."""
        outer = self._outer()
        with self._monitor:
            try:
                current.loop = self
                return work()
            finally:
                current.loop = outer
                self._wake_background()

    def _carry(self, carry: Callable[[], T], conversation: Coroutine[Any, Any, Any]) -> T:
        """Call `_enter` for a conversation, which is closed at once if the loop refuses it."""

        def carry_if_open() -> T:
            if not self._is_open:
                raise self._not_open()
            return carry()

        try:
            return self._enter(carry_if_open)
        except BaseException:
            if getcoroutinestate(conversation) == CORO_CREATED:
                conversation.close()
            raise

    def _outer(self) -> WaitingLoop | None:
        if current.loop is self:
            raise RuntimeError(
                f"{self.name}: called from inside the client's own code (an interceptor or hook), which must not wait"
            )
        return current.loop

    def _not_open(self) -> ClientClosedError:
        if self.is_the_parent_s:
            return ClientClosedError("the client was started before this process was forked: make one in this process")
        return ClientClosedError("the client is not started or is closed")

    def _wake_background(self) -> None:
        if self._soon or self._ready:
            self._background.notify()

    # ---- what conversations use, by way of `runtime` ----

    def time(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    def create_future(self) -> ThreadFuture[Any]:
        """Return a future."""
        return ThreadFuture()

    def create_task(self, conversation: Coroutine[Any, Any, T]) -> ThreadTask[T]:
        """Run a conversation in the client's own thread."""
        task: ThreadTask[T] = ThreadTask(self, conversation, self._ready.append)
        self._ready.append(task)
        return task

    def call_soon(self, callback: Callable[[], object], /) -> None:
        """Call before the running thread waits or leaves."""
        self._soon.append(callback)

    def call_at(self, when: float, callback: Callable[[], object], /) -> ThreadTimer:
        """Call in the client's own thread at a time of `time()`."""
        timer = ThreadTimer(self, callback)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        if self._timers[0][2] is timer:
            self._background.notify()
        return timer

    def note_cancelled_timer(self) -> None:
        """Count a cancelled timer. Cancelled timers stay until they are due, or until they are the majority."""
        self._cancelled_timers += 1
        if self._cancelled_timers > max(TIMERS_KEPT, len(self._timers) // 2):
            self._timers = [entry for entry in self._timers if entry[2].callback is not None]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    async def sleep(self, seconds: float) -> None:
        """Wait for a time."""
        over: ThreadFuture[None] = ThreadFuture()
        timer = self.call_at(self.time() + seconds, lambda: None if over.done() else over.set_result(None))
        try:
            await over
        finally:
            timer.cancel()

    async def gather(self, awaitables: tuple[Awaitable[Any], ...], *, return_exceptions: bool) -> list[Any]:
        """See `runtime.gather`."""
        tasks = [self._ensure_task(awaitable) for awaitable in awaitables]
        first_error: ThreadFuture[None] = ThreadFuture()

        def note(task: ThreadFuture[Any]) -> None:
            failed = task.cancelled() or task.exception() is not None
            if not first_error.done() and (all(t.done() for t in tasks) or (failed and not return_exceptions)):
                first_error.set_result(None)

        for task in tasks:
            task.add_done_callback(note)
        try:
            if tasks:
                await first_error
        except CancelledError:
            for task in tasks:
                task.cancel()
            raise
        if return_exceptions:
            return [CancelledError() if t.cancelled() else t.exception() or t.result() for t in tasks]
        for task in tasks:
            if task.done() and (task.cancelled() or task.exception() is not None):
                task.result()
        return [task.result() for task in tasks]

    async def wait(self, tasks: list[Future[Any]], timeout_s: float | None) -> None:
        """See `runtime.wait`."""
        over: ThreadFuture[None] = ThreadFuture()

        def note(_: object) -> None:
            if not over.done() and all(task.done() for task in tasks):
                over.set_result(None)

        for task in tasks:
            task.add_done_callback(note)
        try:
            async with self.timeout(timeout_s):
                await over
        except TimeoutError:
            pass

    def shield(self, task: Future[T]) -> ThreadFuture[T]:
        """See `runtime.shield`."""
        outer: ThreadFuture[T] = ThreadFuture()

        def pass_on(inner: Future[T]) -> None:
            if outer.done():
                return
            if inner.cancelled():
                outer.cancel()
            elif (error := inner.exception()) is not None:
                outer.set_exception(error)
            else:
                outer.set_result(inner.result())

        task.add_done_callback(pass_on)
        return outer

    def timeout(self, seconds: float | None) -> _Timeout:
        """See `runtime.timeout`."""
        return _Timeout(self, seconds)

    def call_outside(self, function: Callable[..., Any], *args: Any) -> ThreadFuture[Any]:
        """See `runtime.call_outside`."""
        future: ThreadFuture[Any] = ThreadFuture()

        def work() -> None:
            result: Any = None
            error: BaseException | None = None
            try:
                result = function(*args)
            except BaseException as raised:
                error = raised
            with self.entered():
                if future.done():
                    return
                if error is None:
                    future.set_result(result)
                else:
                    future.set_exception(error)

        self.start_thread(work, "application")
        return future

    async def create_connection(
        self, protocol_factory: Callable[[], Any], host: str, port: int, *, ssl: Any, server_hostname: str | None
    ) -> tuple[Any, Any]:
        """Connect a blocking socket with a thread of its own and return (transport, protocol)."""
        connected: ThreadFuture[tuple[Any, Any]] = ThreadFuture()
        protocol = protocol_factory()

        def work() -> None:
            connect_socket(self, protocol, (host, port), ssl, server_hostname, connected)

        self.start_thread(work, f"{host}:{port}")
        try:
            return await connected
        except CancelledError:
            if connected.done() and not connected.cancelled():
                connected.result()[0].close()  # it had come just before
            raise

    # ---- threads ----

    @property
    def is_open(self) -> bool:
        """True between `open` and `close`."""
        return self._is_open

    @property
    def is_in_a_call(self) -> bool:
        """True if this thread is in a call of the client: in an interceptor, or in a handler of a signal."""
        return current.loop is self or bool(self._monitor._is_owned())  # type: ignore[attr-defined]

    @property
    def owns_this_thread(self) -> bool:
        """True if this thread is the client's: it works for the client, or runs a callback of the application."""
        return threading.current_thread() in self._threads

    def outside(self, work: Callable[..., T], *args: Any) -> T:
        """Call `work(*args)`, which may wait for the system, while other code of the client runs."""
        task, monitor = self.current_task, self._monitor  # a fork may bring another one
        try:
            self.current_task = None
            monitor.release()
            return work(*args)
        finally:
            try:
                reacquire(monitor)
            finally:
                self.current_task = task

    def start_thread(self, work: Callable[[], None], what: str) -> None:
        """Do `work` in a daemon thread."""

        def run() -> None:
            try:
                work()
            except Exception:
                if not self.is_the_parent_s:
                    log.exception("a thread of %s ended", self.name)
            finally:
                self._threads.discard(thread)
            if self.is_the_parent_s:  # a greenlet that came along with a fork: `threading` would fail at its end
                threading.Event().wait()

        thread = threading.Thread(target=run, name=f"ringmq {self.name} {what}", daemon=True)
        self._threads.add(thread)
        thread.start()

    def _run_background(self) -> None:
        """Run steps of tasks and due timers, until the loop is closed."""
        with self.entered():
            while self._is_open or self._calls:
                self._run_soon()
                self._run_due_timers()
                for _ in range(len(self._ready)):
                    self._run_callback(self._ready.popleft().step)
                if not self._ready and not self._soon:
                    self._background.wait(max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None)

    def _deliver_results(self) -> None:
        """Deliver results of `begin` outside the monitor: their callbacks are application code."""
        while True:
            with self.entered():
                while not self._outcomes:
                    if not self._is_open and not self._calls:
                        self._tells_outcomes = False
                        return
                    self._outcomes_came.wait()
                outcomes = list(self._outcomes)
                self._outcomes.clear()
            for tell in outcomes:
                tell()

    def _end_call(self, task: ThreadTask[Any]) -> None:
        self._calls.discard(task)
        if not self._is_open:
            for waiting in (self._calls_ended, self._background, self._outcomes_came):
                waiting.notify_all()

    def _run_soon(self) -> None:
        """Run the callbacks that are due. An interrupt repeats the current callback, so callbacks are idempotent."""
        callback: Callable[[], object] | None = None
        try:
            while self._soon:
                callback = self._soon[0]
                self._soon.popleft()
                self._run_callback(callback)
                callback = None
        except BaseException:
            if callback is not None:
                self._soon.append(callback)
            raise
        if self._ready:
            self._background.notify()

    def _run_due_timers(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            callback, timer.callback = timer.callback, None
            if callback is None:
                self._cancelled_timers -= 1
            else:
                self._run_callback(callback)

    def _run_callback(self, callback: Callable[[], object]) -> None:
        try:
            callback()
        except Exception:  # a fault of ours: what else this thread does for the client must go on
            log.exception("%s: a callback failed", self.name)

    def _ensure_task(self, awaitable: Awaitable[T]) -> ThreadFuture[T]:
        if isinstance(awaitable, ThreadFuture):
            return awaitable

        async def wait() -> T:
            return await awaitable

        return self.create_task(awaitable if isinstance(awaitable, Coroutine) else wait())

    def _abandon(self, task: ThreadTask[Any], error: BaseException | None) -> bool:
        """Carry an interrupted call to its end in the client's own thread. False if it has ended already."""
        if left := not task.done():
            task.add_done_callback(self._end_call)
            task.wake = self._ready.append
            task.cancel()
            self._ready.append(task)  # it may wait for something that was not told of it any more
        if error is not None and is_interrupt(error):
            for listener in self.interrupt_listeners:
                listener(task)
        return left


_open_loops: weakref.WeakSet[ThreadLoop] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    current.loop = None
    for loop in list(_open_loops):
        loop.detach_after_fork()
    _open_loops.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)


def is_interrupt(error: BaseException) -> bool:
    """True for Ctrl-C, the end of the program, and the end of a greenlet."""
    return not isinstance(error, Exception | CancelledError)


def _set_outcome(outcome: concurrent.futures.Future[T], task: ThreadTask[T]) -> None:
    """Deliver the task's result to a thread that waits for it."""
    error = ClientClosedError("the client was closed") if task.cancelled() else task.exception()
    if error is None:
        outcome.set_result(task.result())
    else:
        outcome.set_exception(error)
