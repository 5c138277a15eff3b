"""Back-pressure: how many requests, and how many of their bytes, may be in flight. First come, first served.

A place that is given back goes straight to whoever waits longest, so that no crowd is woken for one place.
"""

from asyncio import CancelledError
from collections import deque

from ringmq.client.runtimes.runtime import Future, create_future, current


class Place:
    """What one request holds. `holder` is the call that took it, where an interrupt may keep it from giving it back."""

    __slots__ = ("holder", "size")

    def __init__(self, size: int, holder: object) -> None:
        self.size = size
        self.holder = holder


class Room:
    """Places for requests. Both bounds hold, but one request always fits into an empty room, however large."""

    __slots__ = ("_bytes_max", "_count_max", "_drained", "_held", "_waiters", "bytes_held")

    def __init__(self, count_max: int, bytes_max: int) -> None:
        if count_max < 1 or bytes_max < 1:
            raise ValueError(f"bounds must be positive, not {count_max} requests and {bytes_max} bytes")
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._waiters: deque[tuple[Future[Place], int, object]] = deque()
        self._drained: list[Future[None]] = []
        self._held: set[Place] = set()
        self.bytes_held = 0

    @property
    def count(self) -> int:
        """Places held."""
        return len(self._held)

    def take_nowait(self, size: int) -> Place | None:
        """A place for `size` bytes if one is free and nobody waits."""
        if self._waiters or not self._fits(size):
            return None
        return self._hold(size, _running_call())

    async def take(self, size: int) -> Place:
        """A place, waited for if need be."""
        place = self.take_nowait(size)
        if place is not None:
            return place
        waiter: Future[Place] = create_future()
        self._waiters.append((waiter, size, _running_call()))
        try:
            return await waiter
        except CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.give_back(waiter.result())  # the place had come just before the waiter was cancelled
            raise

    def give_back(self, place: Place) -> None:
        """Return a place; nothing happens when it was returned before."""
        if place in self._held:
            self._held.remove(place)
            self.bytes_held -= place.size
            self._hand_on()

    def forget(self, call: object) -> None:
        """Take back what a call has that was interrupted, wherever that was: it will not give anything back itself."""
        for waiter, _, holder in self._waiters:
            if holder is call:
                waiter.cancel()
        self._held = {place for place in self._held if place.holder is not call}
        self.bytes_held = sum(place.size for place in self._held)
        self._hand_on()

    async def wait_empty(self) -> None:
        """Until nobody holds or waits for a place."""
        while self._held:
            future: Future[None] = create_future()
            self._drained.append(future)
            await future

    def _hand_on(self) -> None:
        waiters = self._waiters
        while waiters:
            waiter, wanted, holder = waiters[0]
            if not waiter.done():
                if not self._fits(wanted):
                    return
                waiter.set_result(self._hold(wanted, holder))
            waiters.popleft()
        if not self._held:
            for future in self._drained:
                if not future.done():
                    future.set_result(None)
            self._drained.clear()

    def _hold(self, size: int, holder: object) -> Place:
        place = Place(size, holder)
        self._held.add(place)
        self.bytes_held += size
        return place

    def _fits(self, size: int) -> bool:
        return len(self._held) < self._count_max and (not self._held or self.bytes_held + size <= self._bytes_max)


def _running_call() -> object:
    """On asyncio's loop an interrupt cancels a task, which gives back what it has."""
    return None if current.loop is None else current.loop.current_task
