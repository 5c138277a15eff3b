"""Back-pressure: bounds of requests, and of their bytes, in flight. First come, first served.

A returned permit goes straight to the longest waiter, so one permit wakes one waiter.
"""

from asyncio import CancelledError
from collections import deque

from ringmq.client.runtimes.runtime import Future, create_future, current

WAITED_FOR, HELD, GIVEN_BACK = range(3)


class Permit:
    """The permit of one request. `call` is its owner, in case an interrupt prevents its return."""

    __slots__ = ("call", "size", "state")

    def __init__(self, size: int, call: object, state: int) -> None:
        self.size = size
        self.call = call
        self.state = state


class InFlightLimit:
    """Permits for requests. Both bounds hold, but one request always fits into an empty limit, however large.

    An interrupt may stop any method between two steps. `forget` follows and repairs the half-done work: it counts
    again, and passing a permit on is idempotent.
    """

    __slots__ = ("_bytes_max", "_count_max", "_drained", "_interruptible", "_waiters", "bytes_held", "count")

    def __init__(self, count_max: int, bytes_max: int) -> None:
        if count_max < 1 or bytes_max < 1:
            raise ValueError(f"bounds must be positive, not {count_max} requests and {bytes_max} bytes")
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._waiters: deque[tuple[Future[Permit], Permit]] = deque()
        self._drained: list[Future[None]] = []
        self._interruptible: set[Permit] = set()  # held by calls that an interrupt may break off
        self.count = 0
        self.bytes_held = 0

    def take_nowait(self, size: int) -> Permit | None:
        """Return a permit for `size` bytes, None if none is free or others wait."""
        if self._waiters or not self._fits(size):
            return None
        if current.loop is not None:
            permit = Permit(size, current.loop.current_task, WAITED_FOR)
            self._hold(permit)
            return permit
        self.count += 1
        self.bytes_held += size
        return Permit(size, None, HELD)

    async def take(self, size: int) -> Permit:
        """Return a permit, after a wait if needed."""
        permit = self.take_nowait(size)
        if permit is not None:
            return permit
        permit = Permit(size, None if current.loop is None else current.loop.current_task, WAITED_FOR)
        waiter: Future[Permit] = create_future()
        self._waiters.append((waiter, permit))
        try:
            return await waiter
        except CancelledError:
            self.give_back(permit)  # it may have come just before
            raise

    def give_back(self, permit: Permit) -> None:
        """Return a permit to the limit. Does nothing if it was returned before."""
        if permit.state != HELD:
            return
        permit.state = GIVEN_BACK
        if permit.call is not None:
            self._interruptible.discard(permit)
        self.count -= 1
        self.bytes_held -= permit.size
        if self._waiters or self._drained:
            self._hand_on()

    def forget(self, call: object) -> None:
        """Take the permits of an interrupted call, which returns nothing itself, wherever the interrupt hit."""
        for waiter, permit in self._waiters:
            if permit.call is call:
                waiter.cancel()
        for permit in self._interruptible:
            if permit.call is call:
                permit.state = GIVEN_BACK
        self._interruptible = {permit for permit in self._interruptible if permit.state == HELD}
        self.count = len(self._interruptible)
        self.bytes_held = sum(permit.size for permit in self._interruptible)
        self._hand_on()

    async def wait_empty(self) -> None:
        """Wait until no permit is out and no caller waits."""
        while self.count:
            future: Future[None] = create_future()
            self._drained.append(future)
            await future

    def _hand_on(self) -> None:
        """Pass free permits to waiters.

        A waiter leaves the line in the last step, so an interrupt can only repeat the pass.
        """
        waiters, drained = self._waiters, self._drained
        while waiters:
            waiter, permit = waiters[0]
            if not waiter.cancelled() and permit.state != GIVEN_BACK:
                if permit.state == WAITED_FOR:
                    if not self._fits(permit.size):
                        return
                    self._hold(permit)
                waiter.set_result(permit)
            waiters.popleft()
        while drained and not self.count:
            if not drained[-1].cancelled():
                drained[-1].set_result(None)
            drained.pop()

    def _hold(self, permit: Permit) -> None:
        if permit.call is not None:
            self._interruptible.add(permit)
        permit.state = HELD
        self.count += 1
        self.bytes_held += permit.size

    def _fits(self, size: int) -> bool:
        return self.count < self._count_max and (not self.count or self.bytes_held + size <= self._bytes_max)
