"""Back-pressure: how many requests, and how many of their bytes, may be in flight. First come, first served.

A place that is given back goes straight to whoever waits longest, so that no crowd is woken for one place.
"""

from asyncio import CancelledError
from collections import deque

from ringmq.client.runtimes.runtime import Future, create_future


class Room:
    """Places for requests. Both bounds hold, but one request always fits into an empty room, however large."""

    __slots__ = ("_bytes_max", "_count_max", "_drained", "_waiters", "bytes_held", "count")

    def __init__(self, count_max: int, bytes_max: int) -> None:
        if count_max < 1 or bytes_max < 1:
            raise ValueError(f"bounds must be positive, not {count_max} requests and {bytes_max} bytes")
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._waiters: deque[tuple[Future[None], int]] = deque()
        self._drained: list[Future[None]] = []
        self.count = 0
        self.bytes_held = 0

    def take_nowait(self, size: int) -> bool:
        """Take a place for `size` bytes if one is free and nobody waits."""
        if self._waiters or not self._fits(size):
            return False
        self.count += 1
        self.bytes_held += size
        return True

    async def take(self, size: int) -> None:
        """Take a place, waiting for it if need be."""
        if self.take_nowait(size):
            return
        waiter: Future[None] = create_future()
        self._waiters.append((waiter, size))
        try:
            await waiter
        except CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.give_back(size)  # the place had come just before the waiter was cancelled
            raise

    def give_back(self, size: int) -> None:
        """Return a place."""
        self.count -= 1
        self.bytes_held -= size
        waiters = self._waiters
        while waiters:
            waiter, wanted = waiters[0]
            if not waiter.done():
                if not self._fits(wanted):
                    return
                self.count += 1
                self.bytes_held += wanted
                waiter.set_result(None)
            waiters.popleft()
        if self.count == 0:
            for future in self._drained:
                if not future.done():
                    future.set_result(None)
            self._drained.clear()

    async def wait_empty(self) -> None:
        """Until nobody holds or waits for a place."""
        while self.count:
            future: Future[None] = create_future()
            self._drained.append(future)
            await future

    def _fits(self, size: int) -> bool:
        return self.count < self._count_max and (self.count == 0 or self.bytes_held + size <= self._bytes_max)
