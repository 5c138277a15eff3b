"""What the SDK waits with. Its conversations with brokers are coroutines that wait by these functions alone, so that
the same code runs in two ways: on asyncio's event loop, or over blocking sockets in plain threads (`thread_loop`).

Each function takes its place in the runtime it is called from: a `ThreadLoop` that runs this thread's code now, else
asyncio. Names and meanings are asyncio's; cancellation is `asyncio.CancelledError` in both. Between two waits nobody
else of the same client runs, in both: state needs no locks. No IO here.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from contextlib import AbstractAsyncContextManager
from threading import local
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from ringmq.client.runtimes.thread_loop import ThreadLoop

S = TypeVar("S")
T = TypeVar("T")


class Future(Protocol[T]):
    """What asyncio's futures and those of a `ThreadLoop` have in common."""

    def done(self) -> bool:
        """Whether a result, an error or a cancellation is there."""

    def cancelled(self) -> bool:
        """Whether it was cancelled."""

    def cancel(self) -> bool:
        """Ask for cancellation; False when it is done already."""

    def result(self) -> T:
        """The result; raises what was set as error."""

    def exception(self) -> BaseException | None:
        """The error, if there is one."""

    def set_result(self, result: T, /) -> None:
        """Done, with a result."""

    def set_exception(self, exception: BaseException, /) -> None:
        """Done, with an error."""

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None:
        """Call it with this future when it is done."""

    def __await__(self) -> Generator[Any, None, T]: ...


class Task(Future[T], Protocol[T]):
    """A conversation that goes on by itself."""


class Timer(Protocol):
    """A call that will be made."""

    def cancel(self) -> None:
        """Do not make it."""


class Loop(Protocol):
    """What connections use of an event loop."""

    def time(self) -> float:
        """Monotonic seconds."""

    def create_future(self) -> Any:
        """A `Future` of this loop."""

    def call_soon(self, callback: Callable[[], object], /) -> object:
        """Call before this loop waits again."""

    def call_at(self, when: float, callback: Callable[[], object], /) -> Timer:
        """Call at a time of `time()`."""

    async def create_connection(
        self, protocol_factory: Callable[[], Any], host: str, port: int, *, ssl: Any, server_hostname: str | None
    ) -> tuple[Any, Any]:
        """Connect; (transport, protocol)."""


class Current(local):
    """The `ThreadLoop` whose code this thread (or greenlet) runs now; None: asyncio's."""

    loop: ThreadLoop | None = None


current = Current()


def running_loop() -> Loop:
    """The loop that runs this code."""
    return current.loop or asyncio.get_running_loop()


def create_future() -> Any:
    """A `Future` of the running loop."""
    return running_loop().create_future()


def create_task(conversation: Coroutine[Any, Any, T], *, name: str | None = None) -> Task[T]:
    """Let `conversation` go on by itself."""
    loop = current.loop
    return asyncio.create_task(conversation, name=name) if loop is None else loop.create_task(conversation)


def when_interrupted(listener: Callable[[object], object]) -> None:
    """Call `listener(call)` when an interrupt broke a call off in its own code, at any place of it, where `finally` may
    be too late or too early; one that waits is cancelled. Asyncio has no such interrupts: there they all cancel."""
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
    """Wait for all of them at the same time; results in the given order."""
    if current.loop is None:
        return await asyncio.gather(*awaitables, return_exceptions=return_exceptions)
    return await current.loop.gather(awaitables, return_exceptions=return_exceptions)


async def each(ask: Callable[[S], Awaitable[T]], subjects: Iterable[S], at_once: int) -> list[T]:
    """`ask` about every subject, `at_once` at a time; answers in order. The first error ends it."""
    indexed = list(subjects)
    answers: list[Any] = [None] * len(indexed)
    rest = iter(range(len(indexed)))

    async def work() -> None:
        for index in rest:
            answers[index] = await ask(indexed[index])

    await gather(*(work() for _ in range(min(at_once, len(indexed)))))
    return answers


async def wait(tasks: Iterable[Future[Any]], timeout: float | None = None) -> None:
    """Until all are done, whatever came of them, or the time is over."""
    pending = [task for task in tasks if not task.done()]
    if not pending:
        return
    if current.loop is None:
        await asyncio.wait(pending, timeout=timeout)  # type: ignore[type-var]  # asyncio's own futures
    else:
        await current.loop.wait(pending, timeout)


async def shield(task: Future[T]) -> T:
    """The task's result; who gives up waiting for it does not stop it."""
    return await (asyncio.shield(task) if current.loop is None else current.loop.shield(task))


def timeout(seconds: float | None) -> AbstractAsyncContextManager[object]:
    """Cancels the block when the time is over, and makes it a TimeoutError. None: no limit."""
    return asyncio.timeout(seconds) if current.loop is None else current.loop.timeout(seconds)


async def call_outside(function: Callable[..., Any], *args: Any) -> Any:
    """The result of application code that may take its time and may use the same client: an async function is awaited,
    any other is called in a thread of its own; what asyncio can await of that one's result, it does."""
    if inspect.iscoroutinefunction(function):
        return await function(*args)
    function = without_stop_iteration(function)
    if current.loop is None:
        result = await asyncio.to_thread(function, *args)
        return await result if inspect.isawaitable(result) else result
    return await current.loop.call_outside(function, *args)


def without_stop_iteration(function: Callable[..., T]) -> Callable[..., T]:
    """`function`, with a RuntimeError in the place of StopIteration, as async functions have it: asyncio's futures take
    none, and who waits for one would wait for ever."""

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
        """Whether the flag is up."""
        return self._is_set

    def set(self) -> None:
        """Raise the flag; all who wait go on."""
        self._is_set = True
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def clear(self) -> None:
        """Take the flag down."""
        self._is_set = False

    async def wait(self) -> None:
        """Until the flag is up."""
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
    """One at a time, in the order of coming: `async with lock`."""

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
