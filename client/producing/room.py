"""Back-pressure: how many requests, and how many of their bytes, may be in flight. First come, first served.

A place that is given back goes straight to whoever waits longest, so that no crowd is woken for one place.
"""

from asyncio import CancelledError
from collections import deque

from ringmq.client.runtimes.runtime import Future, create_future, current

WAITED_FOR, HELD, GIVEN_BACK = range(3)


class Place:
    """What one request holds. `call` is the one that took it, where an interrupt may keep it from giving it back."""

    __slots__ = ("call", "size", "state")

    def __init__(self, size: int, call: object, state: int) -> None:
        self.size = size
        self.call = call
        self.state = state


class Room:
    """Places for requests. Both bounds hold, but one request always fits into an empty room, however large.

    An interrupt may break any method off between two steps; `forget` follows, and sets right what was left half done:
    it counts anew, and handing on is the same when it is done again.
    """

    __slots__ = ("_bytes_max", "_count_max", "_drained", "_interruptible", "_waiters", "bytes_held", "count")

    def __init__(self, count_max: int, bytes_max: int) -> None:
        if count_max < 1 or bytes_max < 1:
            raise ValueError(f"bounds must be positive, not {count_max} requests and {bytes_max} bytes")
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._waiters: deque[tuple[Future[Place], Place]] = deque()
        self._drained: list[Future[None]] = []
        self._interruptible: set[Place] = set()  # held by calls that an interrupt may break off
        self.count = 0
        self.bytes_held = 0

    def take_nowait(self, size: int) -> Place | None:
        """A place for `size` bytes if one is free and nobody waits."""
        if self._waiters or not self._fits(size):
            return None
        if current.loop is not None:
            place = Place(size, current.loop.current_task, WAITED_FOR)
            self._hold(place)
            return place
        self.count += 1
        self.bytes_held += size
        return Place(size, None, HELD)

    async def take(self, size: int) -> Place:
        """A place, waited for if need be."""
        place = self.take_nowait(size)
        if place is not None:
            return place
        place = Place(size, None if current.loop is None else current.loop.current_task, WAITED_FOR)
        waiter: Future[Place] = create_future()
        self._waiters.append((waiter, place))
        try:
            return await waiter
        except CancelledError:
            self.give_back(place)  # it may have come just before
            raise

    def give_back(self, place: Place) -> None:
        """Return a place; nothing happens when it was returned before."""
        if place.state != HELD:
            return
        place.state = GIVEN_BACK
        if place.call is not None:
            self._interruptible.discard(place)
        self.count -= 1
        self.bytes_held -= place.size
        if self._waiters or self._drained:
            self._hand_on()

    def forget(self, call: object) -> None:
        """Take back what a call has that was interrupted, wherever that was: it will not give anything back itself."""
        for waiter, place in self._waiters:
            if place.call is call:
                waiter.cancel()
        for place in self._interruptible:
            if place.call is call:
                place.state = GIVEN_BACK
        self._interruptible = {place for place in self._interruptible if place.state == HELD}
        self.count = len(self._interruptible)
        self.bytes_held = sum(place.size for place in self._interruptible)
        self._hand_on()

    async def wait_empty(self) -> None:
        """Until nobody holds or waits for a place."""
        while self.count:
            future: Future[None] = create_future()
            self._drained.append(future)
            await future

    def _hand_on(self) -> None:
        """Each one leaves the line as the last step: until then it may be handed its place once more."""
        waiters, drained = self._waiters, self._drained
        while waiters:
            waiter, place = waiters[0]
            if not waiter.cancelled() and place.state != GIVEN_BACK:
                if place.state == WAITED_FOR:
                    if not self._fits(place.size):
                        return
                    self._hold(place)
                waiter.set_result(place)
            waiters.popleft()
        while drained and not self.count:
            if not drained[-1].cancelled():
                drained[-1].set_result(None)
            drained.pop()

    def _hold(self, place: Place) -> None:
        if place.call is not None:
            self._interruptible.add(place)
        place.state = HELD
        self.count += 1
        self.bytes_held += place.size

    def _fits(self, size: int) -> bool:
        return self.count < self._count_max and (not self.count or self.bytes_held + size <= self._bytes_max)
