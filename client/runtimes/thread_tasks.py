"""Futures and tasks of a `ThreadLoop`. No IO, no threads: callers hold the loop's monitor."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Coroutine, Generator
from inspect import CORO_SUSPENDED, getcoroutinestate
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")


class ThreadFuture(Generic[T]):
    """A result in the future, see `runtime.Future`. Callers hold the monitor."""

    __slots__ = ("_callbacks", "_cancelled", "_done", "_exception", "_result")

    def __init__(self) -> None:
        self._callbacks: list[Callable[[Any], object]] = []
        self._done = self._cancelled = False
        self._result: Any = None
        self._exception: BaseException | None = None

    def done(self) -> bool:
        return self._done

    def cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> bool:
        if self._done:
            return False
        self._cancelled = True
        self._finish()
        return True

    def result(self) -> T:
        if self._cancelled:
            raise CancelledError
        if self._exception is not None:
            raise self._exception
        result: T = self._result
        return result

    def exception(self) -> BaseException | None:
        if self._cancelled:
            raise CancelledError
        return self._exception

    def set_result(self, result: T, /) -> None:
        self._result = result
        self._finish()

    def set_exception(self, exception: BaseException, /) -> None:
        self._exception = exception
        self._finish()

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None:
        if self._done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def __await__(self) -> Generator[Any, None, T]:
        if not self._done:
            yield self
        return self.result()

    def _finish(self) -> None:
        """Finish the future. If an interrupt stops this, `set_result` may be called once more and continues."""
        self._done = True
        callbacks = self._callbacks
        while callbacks:
            callbacks[0](self)
            del callbacks[0]


class TaskLoop(Protocol):
    """The loop of a task."""

    current_task: ThreadTask[Any] | None
    """The task that makes a step now."""


class ThreadTask(ThreadFuture[T]):
    """A coroutine in progress. `wake` is called when it can make a step, and the woken thread calls `step`."""

    __slots__ = ("_coroutine", "_loop", "_must_cancel", "_waiting_for", "wake")

    def __init__(
        self, loop: TaskLoop, coroutine: Coroutine[Any, Any, T], wake: Callable[[ThreadTask[Any]], None]
    ) -> None:
        super().__init__()
        self._loop = loop
        self._coroutine = coroutine
        self._waiting_for: ThreadFuture[Any] | None = None
        self._must_cancel = False
        self.wake = wake

    def cancel(self) -> bool:
        if self._done:
            return False
        if self._waiting_for is None or not self._waiting_for.cancel():
            self._must_cancel = True
        return True

    def step(self) -> None:
        """Run up to the next wait. A second call after one wake does nothing.

        Raises an interrupt that comes before the coroutine runs. The task is not done then.
        """
        if self._done or (self._waiting_for is not None and not self._waiting_for.done()):
            return
        loop, self._waiting_for = self._loop, None
        before, loop.current_task = loop.current_task, self
        try:
            if self._must_cancel:
                self._must_cancel = False
                waited = self._coroutine.throw(CancelledError())
            else:
                waited = self._coroutine.send(None)
        except StopIteration as ended:
            self.set_result(ended.value)
        except CancelledError:
            super().cancel()
        except BaseException as error:
            if getcoroutinestate(self._coroutine) == CORO_SUSPENDED:  # an interrupt, in front of the step
                raise
            self.set_exception(error)
        else:
            self._waiting_for = waited
            if self._must_cancel and waited.cancel():
                self._must_cancel = False
            waited.add_done_callback(self._note_ready)
        finally:
            loop.current_task = before

    def _note_ready(self, _: object) -> None:
        self.wake(self)
