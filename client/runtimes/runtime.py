"""The waits of the SDK. Its conversations with brokers are coroutines that wait by these functions alone.

So the same code runs in two ways: on asyncio's event loop, or over blocking sockets in plain threads (`thread_loop`).
Each function applies to the current runtime: a `ThreadLoop` that runs this thread's code now, else asyncio. Names and
meanings are asyncio's, and cancellation is `asyncio.CancelledError` in both. In both, no other code of the same
client runs between two waits, so state needs no locks. No IO here.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from contextlib import AbstractAsyncContextManager
from threading import local
from types import TracebackType
from typing import Any, Protocol, TypeVar, overload

S = TypeVar("S")
T = TypeVar("T")


class Future(Protocol[T]):
    """The common methods of asyncio's futures and those of a `ThreadLoop`."""

    def done(self) -> bool:
        """True if there is a result, an error or a cancellation."""

    def cancelled(self) -> bool:
        """True if the future was cancelled."""

    def cancel(self) -> bool:
        """Ask for cancellation. False if the future is done."""

    def result(self) -> T:
        """Return the result, or raise the error."""

    def exception(self) -> BaseException | None:
        """Return the error, None without one."""

    def set_result(self, result: T, /) -> None:
        """Finish with a result."""

    def set_exception(self, exception: BaseException, /) -> None:
        """Finish with an error."""

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None:
        """Call `callback` with this future when it is done."""

    def __await__(self) -> Generator[Any, None, T]: ...


class Task(Future[T], Protocol[T]):
    """A conversation that runs by itself."""


class Timer(Protocol):
    """A call in the future."""

    def cancel(self) -> None:
        """Cancel the call."""


class Loop(Protocol):
    """The methods of an event loop that connections use."""

    def time(self) -> float:
        """Return monotonic seconds."""

    def create_future(self) -> Any:
        """Return a `Future` of this loop."""

    def call_soon(self, callback: Callable[[], object], /) -> object:
        """Call before this loop waits again."""

    def call_at(self, when: float, callback: Callable[[], object], /) -> Timer:
        """Call at a time of `time()`."""

    async def create_connection(
        self, protocol_factory: Callable[[], Any], host: str, port: int, *, ssl: Any, server_hostname: str | None
    ) -> tuple[Any, Any]:
        """Connect and return (transport, protocol)."""


class WaitingLoop(Loop, Protocol):
    """A loop that is not asyncio's. The functions of this module lead to its methods of the same name."""

    interrupt_listeners: list[Callable[[object], object]]

    @property
    def current_task(self) -> object:
        """The task that makes a step now, None outside of tasks."""

    def create_task(self, conversation: Coroutine[Any, Any, T]) -> Task[T]:
        """Run a conversation."""

    async def sleep(self, seconds: float) -> None:
        """Wait for a time."""

    async def gather(self, awaitables: tuple[Awaitable[Any], ...], *, return_exceptions: bool) -> list[Any]:
        """Wait for all of them."""

    async def wait(self, tasks: list[Future[Any]], timeout_s: float | None) -> None:
        """Wait until all are done or the time is over."""

    def shield(self, task: Future[T]) -> Future[T]:
        """Return a future whose cancellation does not reach the task."""

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        """Bound the time of a block."""

    def call_outside(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """Call in a thread of the application."""


class Current(local):
    """The loop whose code this thread (or greenlet) runs now (`ThreadLoop`), None for asyncio."""

    loop: WaitingLoop | None = None


current = Current()


def running_loop() -> Loop:
    """Return the loop that runs this code."""
    return current.loop or asyncio.get_running_loop()


def create_future() -> Any:
    """Return a `Future` of the running loop."""
    return running_loop().create_future()


def create_task(conversation: Coroutine[Any, Any, T], *, name: str | None = None) -> Task[T]:
    """Run `conversation` as a task."""
    loop = current.loop
    return asyncio.create_task(conversation, name=name) if loop is None else loop.create_task(conversation)


def when_interrupted(listener: Callable[[object], object]) -> None:
    """Call `listener(call)` if an interrupt stops a call in its own code, where `finally` is too late or too early.

    A waiting call is cancelled instead. Asyncio has no such interrupts: there all of them cancel.
    """
    if current.loop is not None:
        current.loop.interrupt_listeners.append(listener)


async def sleep(seconds: float) -> None:
    """Wait for a time."""
    if current.loop is None:
        await asyncio.sleep(seconds)
    else:
        await current.loop.sleep(seconds)


@overload
async def gather(*awaitables: Awaitable[T]) -> list[T]: ...


@overload
async def gather(*awaitables: Awaitable[T], return_exceptions: bool) -> list[T | BaseException]: ...


async def gather(*awaitables: Awaitable[Any], return_exceptions: bool = False) -> list[Any]:
    """Wait for all of them at the same time. Return results in the given order."""
    if current.loop is None:
        return await asyncio.gather(*awaitables, return_exceptions=return_exceptions)
    return await current.loop.gather(awaitables, return_exceptions=return_exceptions)


async def bounded_gather(ask: Callable[[S], Awaitable[T]], subjects: Iterable[S], at_once: int) -> list[T]:
    """Call `ask` with every subject, `at_once` at a time. Return answers in order. The first error ends it."""
    indexed = list(subjects)
    answers: list[Any] = [None] * len(indexed)
    rest = iter(range(len(indexed)))

    async def work() -> None:
        for index in rest:
            answers[index] = await ask(indexed[index])

    await gather(*(work() for _ in range(min(at_once, len(indexed)))))
    return answers


async def wait(tasks: Iterable[Future[Any]], timeout: float | None = None) -> None:
    """Wait until all are done, with any outcome, or the time is over."""
    pending = [task for task in tasks if not task.done()]
    if not pending:
        return
    if current.loop is None:
        await asyncio.wait(pending, timeout=timeout)  # type: ignore[type-var]  # asyncio's own futures
    else:
        await current.loop.wait(pending, timeout)


async def shield(task: Future[T]) -> T:
    """Return the task's result. A waiter that gives up does not stop the task."""
    return await (asyncio.shield(task) if current.loop is None else current.loop.shield(task))


def timeout(seconds: float | None) -> AbstractAsyncContextManager[object]:
    """Cancel the block at the end of the time, and turn that into a TimeoutError. None: no limit."""
    return asyncio.timeout(seconds) if current.loop is None else current.loop.timeout(seconds)


async def call_outside(function: Callable[..., Any], *args: Any) -> Any:
    """Return the result of application code, which may be slow and may use the same client.

    An async function is awaited. Any other function runs in a thread of its own, and asyncio awaits an awaitable
    result.
    """
    if inspect.iscoroutinefunction(function):
        return await function(*args)
    function = without_stop_iteration(function)
    if current.loop is None:
        result = await asyncio.to_thread(function, *args)
        return await result if inspect.isawaitable(result) else result
    return await current.loop.call_outside(function, *args)


def without_stop_iteration(function: Callable[..., T]) -> Callable[..., T]:
    """Return `function` with RuntimeError instead of StopIteration, as async functions have it.

    asyncio's futures accept no StopIteration, and a waiter would wait for ever.
    """

    def called(*args: Any) -> T:
        try:
            return function(*args)
        except StopIteration as error:
            raise RuntimeError(f"{getattr(function, '__qualname__', function)} raised StopIteration") from error

    return called


class Event:
    """A flag to wait for."""

    __slots__ = ("_is_set", "_waiters")

    def __init__(self) -> None:
        self._is_set = False
        self._waiters: list[Future[None]] = []

    def is_set(self) -> bool:
        """True if the flag is set."""
        return self._is_set

    def set(self) -> None:
        """Set the flag and wake all waiters."""
        self._is_set = True
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def clear(self) -> None:
        """Clear the flag."""
        self._is_set = False

    async def wait(self) -> None:
        """Wait until the flag is set."""
        if self._is_set:
            return
        waiter: Future[None] = create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)


class Lock:
    """A lock in the order of arrival: `async with lock`."""

    __slots__ = ("_waiters", "held")

    def __init__(self) -> None:
        self.held = False
        self._waiters: deque[Future[None]] = deque()

    async def __aenter__(self) -> None:
        if not self.held:
            self.held = True
            return
        waiter: Future[None] = create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._pass_on()  # the turn had come just before
            raise

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)  # the lock stays held, by the next one
                return
        self.held = False
