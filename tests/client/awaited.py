"""The blocking clients under asyncio's names, each call in a thread: one test-suite for both transports."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, Self

import pytest

from ringmq.client import blocking
from tests.client.conftest import STOCK

AT_ONCE = frozenset({"ack", "assignment", "holds", "pause", "paused", "resume"})  # not awaited in either


class Awaited:
    """A blocking client whose calls are awaited."""

    kind: Callable[..., Any]

    def __init__(self, *args: Any, **options: Any) -> None:
        self.blocking = self.kind(*args, **options)
        self._threads = ThreadPoolExecutor(64)

    async def __aenter__(self) -> Self:
        await self._in_thread(self.blocking.start)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._in_thread(self.blocking.close)

    def __getattr__(self, name: str) -> Any:
        try:
            found = getattr(self.blocking, name)
        except AttributeError:
            return getattr(self.blocking._client, name)
        return found if name in AT_ONCE or not callable(found) else partial(self._in_thread, found)

    async def _in_thread(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(function, *args, **options))


class AwaitedProducer(Awaited):
    """See `Awaited`."""

    kind = blocking.Producer

    def start(self) -> None:
        self.blocking.start()


class AwaitedTransactionProducer(AwaitedProducer):
    """See `Awaited`."""

    kind = blocking.TransactionProducer


class AwaitedConsumer(Awaited):
    """See `Awaited`."""

    kind = blocking.Consumer

    async def run(self, handler: Callable[..., Any], **options: Any) -> None:
        """Async handlers run on the test's loop, while the consumer's threads wait for them."""
        loop = asyncio.get_running_loop()

        def wait_for(message: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(handler(message), loop).result()

        plain = wait_for if inspect.iscoroutinefunction(handler) else handler
        await self._in_thread(self.blocking.run, plain, **options)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        message = await self._in_thread(next, iter(self.blocking), None)
        if message is None:
            raise StopAsyncIteration
        return message

    async def batches(self, max_messages: int = 256) -> AsyncIterator[Any]:
        batches = self.blocking.batches(max_messages)
        while messages := await self._in_thread(next, batches, None):
            yield messages


class AwaitedPushConsumer(AwaitedConsumer):
    """See `Awaited`."""

    kind = blocking.PushConsumer


class AwaitedSimpleConsumer(Awaited):
    """See `Awaited`."""

    kind = blocking.SimpleConsumer

    async def ack(self, messages: Any) -> None:
        await self._in_thread(self.blocking.ack, messages)


def client_of(client: Any) -> Any:
    """The asyncio client, of a blocking one the client inside."""
    return client.blocking._client if isinstance(client, Awaited) else client


def transports(*kinds: type[Awaited]) -> Any:
    """A fixture by which every test of a module runs over both transports: the names of `kinds` are swapped there."""

    @pytest.fixture(autouse=True, params=["asyncio", "blocking"])
    def transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        if request.param == "blocking":
            for kind in kinds:
                monkeypatch.setattr(request.module, kind.__name__.removeprefix("Awaited"), kind)

    return transport


ONLY_ASYNCIO = pytest.mark.parametrize("transport", ["asyncio"], indirect=True)
ONLY_BLOCKING = pytest.mark.parametrize("transport", ["blocking"], indirect=True)
STOCK_BY_ASYNCIO = pytest.mark.parametrize(
    ("server", "transport"),
    [("ringmq", "asyncio"), ("ringmq", "blocking"), pytest.param("stock", "asyncio", marks=STOCK.marks)],
    indirect=True,
)
"""For tests that wait seconds for a stock broker: blocking calls would wait for the same requests."""
