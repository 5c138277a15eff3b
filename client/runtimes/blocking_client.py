"""The base of the blocking twins: an asyncio client on a runtime of its own, without an event loop (`thread_loop`)."""

import contextlib
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from ringmq.client.errors import ClientClosedError
from ringmq.client.runtimes.runtime import Lock
from ringmq.client.runtimes.thread_loop import ThreadLoop


class _Client(Protocol):
    """An asyncio client. Entering the context starts it, leaving the context closes it."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


class _Member(_Client, Protocol):
    """An asyncio client that belongs to a group."""

    group: str
    client_id: str


C = TypeVar("C", bound=_Client)
M = TypeVar("M", bound=_Member)
T = TypeVar("T")


class BlockingClient(Generic[C]):
    """Base of the blocking twins: an asyncio client on threads of its own, from `start` to `close`."""

    def __init__(self, client: C, name: str) -> None:
        self._client = client
        self._loop = ThreadLoop(name)
        self._ending = Lock()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start the client. The first request makes connections. A consumer connects at once, to join its group."""
        self._loop.open()
        try:
            self._loop.run(self._client.__aenter__())
        except BaseException:
            with contextlib.suppress(Exception):
                self._loop.run(self._client.__aexit__(None, None, None))
            self._loop.close()
            raise

    def close(self) -> None:
        """Finish the work in progress as the asyncio client does. A loop over a consumer in another thread ends, too.

        A second call, from any thread, returns when the client is closed. It returns at once in three cases:

        * in a handler or listener of the client, for which the first close may be waiting;
        * in a signal handler that interrupted a call of this client. The client then closes in a thread of its own,
          and the interrupted call ends as if another thread had closed the client.
        """
        self._end(lambda: self._client.__aexit__(None, None, None))

    def _end(self, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Close by `end`, unless another call has closed the client before."""
        if self._loop.is_in_a_call:  # this close cannot wait: it has interrupted the call that it would wait for
            # not a daemon thread: the process must not end before the last commit
            threading.Thread(target=self._end, args=(end,), name=f"{self._loop.name} close").start()
            return
        is_over = True
        try:
            is_over = self._loop.run(self._end_once(end, waits=not self._loop.owns_this_thread))
        except ClientClosedError:
            if self._loop.is_open:
                raise
        finally:
            if is_over:
                self._loop.close()

    async def _end_once(self, end: Callable[[], Coroutine[Any, Any, None]], *, waits: bool) -> bool:
        """Run `end` once and return True if the close is over. A second close of an asyncio client returns early."""
        if self._ending.held and not waits:
            return False
        async with self._ending:
            await end()
        return True


class BlockingMember(BlockingClient[M]):
    """Base of producers and consumers."""

    def _call(self, function: Callable[..., T], *args: Any) -> T:
        """Call `function(*args)` of the client, which does not wait and says itself that the client is closed."""
        self._loop.check_process()
        return self._loop.call(function, *args)

    @property
    def group(self) -> str:
        """The group's name."""
        return self._client.group

    @property
    def client_id(self) -> str:
        """The id by which brokers and operators know this client."""
        return self._client.client_id
