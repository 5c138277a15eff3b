"""Messages that were pulled and not yet taken by the application. No IO."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ringmq.client.runtime import Future, create_future
from ringmq.remoting.message import MessageExt


@dataclass(eq=False, slots=True)
class Shelf:
    """One queue's part of the inbox: what it holds and whom to tell when it holds less."""

    on_taken: Callable[[], None]
    messages: deque[MessageExt] = field(default_factory=deque)
    bytes_held: int = 0

    @property
    def count(self) -> int:
        """Messages held."""
        return len(self.messages)


class Inbox:
    """Shelves are served in the order in which messages were put, a whole pull at a time, so no queue starves."""

    def __init__(self) -> None:
        self._turns: deque[tuple[Shelf, int]] = deque()  # (shelf, messages of one put)
        self._waiters: deque[Future[None]] = deque()
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def put(self, shelf: Shelf, messages: list[MessageExt]) -> None:
        """Add what one pull brought (at least one message)."""
        shelf.messages.extend(messages)
        shelf.bytes_held += sum([len(message.body) for message in messages])
        self._turns.append((shelf, len(messages)))
        self._wake()

    def take_nowait(self, count_max: int) -> list[MessageExt]:
        """Up to `count_max` messages, all of one queue; empty when there are none."""
        while self._turns:
            shelf, turn_count = self._turns[0]
            count = min(count_max, turn_count, len(shelf.messages))
            if count == turn_count or not shelf.messages:
                self._turns.popleft()
            else:
                self._turns[0] = (shelf, turn_count - count)
            if count:
                messages = [shelf.messages.popleft() for _ in range(count)]
                shelf.bytes_held -= sum([len(message.body) for message in messages])
                shelf.on_taken()
                return messages
        return []

    def discard(self, shelf: Shelf) -> None:
        """Forget the shelf's messages (its queue was given away, or reading goes on elsewhere)."""
        shelf.messages.clear()
        shelf.bytes_held = 0
        self._turns = deque(turn for turn in self._turns if turn[0] is not shelf)

    async def wait(self) -> None:
        """Until there may be something to take, or the inbox is closed."""
        while not self._turns and not self._closed:
            waiter: Future[None] = create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    def close(self) -> None:
        """Wake everybody who waits; what is held may still be taken."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
