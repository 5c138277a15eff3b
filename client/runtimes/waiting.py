"""Waits of a consumer that asyncio does not have, made of `runtime`'s: signals, uninterrupted work, listeners."""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from ringmq.client.runtimes.runtime import (
    Future,
    Task,
    call_outside,
    create_future,
    create_task,
    current,
    gather,
    shield,
    wait,
)

log = logging.getLogger("ringmq.client")

LEAVE_WAIT_S = 1.0

T = TypeVar("T")


class Signal:
    """Waiters, woken by number in the order of their arrival. A wake without a waiter is lost."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: deque[Future[None]] = deque()

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for a wake. False if the time was over before."""
        waiter: Future[None] = create_future()
        self._waiters.append(waiter)
        try:
            if timeout_s is None:
                await waiter
            else:
                await wait([waiter], timeout_s)
        except BaseException:
            if waiter.done() and not waiter.cancelled():
                self.wake(1)  # the wake had come just before: it is another one's
            raise
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
        return waiter.done()

    def wake(self, count: int | None = None) -> None:
        """Wake `count` waiters, or all.

        A waiter leaves the line in the last step. If an interrupt stops this, the next wake completes it.
        """
        waiters, woken = self._waiters, 0
        while waiters and (count is None or woken < count):
            waiter = waiters[0]
            if not waiter.cancelled():
                waiter.set_result(None)
                woken += 1
            waiters.popleft()


class PushedTasks:
    """Tasks for messages that brokers push, with bounds of their number and of the bytes of their bodies."""

    COUNT_MAX = 64
    BYTES_MAX = 64 << 20

    def __init__(self) -> None:
        self._sizes: dict[Task[None], int] = {}

    @property
    def full(self) -> bool:
        """True if a bound is reached. The last task may exceed the bytes by its own."""
        return len(self._sizes) >= self.COUNT_MAX or sum(self._sizes.values()) >= self.BYTES_MAX

    @property
    def fill(self) -> str:
        """Number and bytes with their limits, for a message."""
        held = sum(self._sizes.values())
        return f"{len(self._sizes)} messages of {held} bytes (limits {self.COUNT_MAX} and {self.BYTES_MAX})"

    def start(self, work: Coroutine[Any, Any, None], size: int, name: str) -> None:
        """Run `work`, which holds a body of `size` bytes."""
        task = create_task(work, name=name)
        self._sizes[task] = size
        task.add_done_callback(lambda done: self._sizes.pop(task))

    def running(self) -> list[Task[None]]:
        """Return the tasks that have not ended."""
        return list(self._sizes)


async def finish(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end even if the caller is cancelled. The cancellation follows then."""
    task = create_task(work)
    try:
        return await shield(task)
    except BaseException:
        await wait([task])
        raise


async def wait_briefly(work: Coroutine[Any, Any, object]) -> None:
    """Run `work` for a second. Unfinished work then continues in the background."""
    await wait([create_task(work)], LEAVE_WAIT_S)


async def stop_all(tasks: list[Task[None]]) -> None:
    """Cancel the tasks and wait for their end."""
    for task in tasks:
        task.cancel()
    await gather(*tasks, return_exceptions=True)


async def call_listener(listener: Callable[..., object], *args: object) -> None:
    """Call a listener of the application, which may use the client. An awaitable result is awaited.

    The call runs at once on asyncio's loop, otherwise in a thread of its own. Errors are logged. So is the
    cancellation of something that the listener waited for, which would end the caller without a word.
    """
    if current.loop is not None and not inspect.iscoroutinefunction(listener):
        await call_outside(_call_quietly, listener, args)
        return
    task = asyncio.current_task() if current.loop is None else None
    cancels = 0 if task is None else task.cancelling()
    try:
        result = listener(*args)
        if isinstance(result, Awaitable):
            await result
    except asyncio.CancelledError:
        if task is None or task.cancelling() > cancels:
            raise
        _log_failed(listener)
    except Exception:
        _log_failed(listener)


def _call_quietly(listener: Callable[..., object], args: tuple[object, ...]) -> None:
    try:
        listener(*args)
    except BaseException:  # its thread is ours: what would end one of the application ends nothing here
        _log_failed(listener)


def _log_failed(listener: Callable[..., object]) -> None:
    log.exception("%s failed", getattr(listener, "__qualname__", listener))
