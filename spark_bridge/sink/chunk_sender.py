"""Sends of chunks over one connection: some in flight at a time, in order per queue, the oldest awaited first."""

import concurrent.futures
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

from ringmq.client.blocking import Producer
from ringmq.client.producing.send_request import SendRequest
from ringmq.client.producing.send_result import SendResult, SendStatus
from ringmq.client.retry import RetryPolicy
from ringmq.spark_bridge.sink.errors import WriteError

IN_FLIGHT_MAX = 4
SEND_ATTEMPTS = 16

T = TypeVar("T")


class ChunkSender(Generic[T]):
    """Sends requests. `on_stored` is called with each note and its stored position, in the order of sending."""

    def __init__(self, namesrv: str, group: str, timeout_ms: int, on_stored: Callable[[T, SendResult], None]) -> None:
        retry = RetryPolicy(attempts=SEND_ATTEMPTS, budget_ms=timeout_ms)
        self._producer = Producer(namesrv, group, retry=retry)
        self._on_stored = on_stored
        self._in_flight: deque[tuple[T, concurrent.futures.Future[SendResult]]] = deque()

    def __enter__(self) -> Self:
        self._producer.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if exc is None:
                self.wait()
        finally:
            self._producer.close()

    def send(self, note: T, request: SendRequest) -> None:
        """Send one request, after the oldest if too many are in flight. Raises SendError of an earlier one, too."""
        while len(self._in_flight) >= IN_FLIGHT_MAX:
            self._take_oldest()
        self._in_flight.append((note, self._producer.begin_request(request)))

    def wait(self) -> None:
        """Wait until everything is stored. Raises SendError, WriteError."""
        while self._in_flight:
            self._take_oldest()

    def _take_oldest(self) -> None:
        note, future = self._in_flight.popleft()
        result = future.result()
        if result.status is not SendStatus.OK:
            raise WriteError(f"{result.queue}: stored, but its flush or its slaves timed out ({result.status.name})")
        self._on_stored(note, result)
