"""Messages that were pulled and not yet taken by the application. No IO.

Shelves (one per queue) are served in the order in which messages were put, so no queue starves. A turn gives what its
queue has by now: whoever asks seldom gets more at a time instead of falling behind.
An exclusive inbox, for ordered consumption, gives out nothing of a shelf while one of its messages is being handled.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ringmq.client.connections.identity import now_ms
from ringmq.client.runtimes.waiting import Signal
from ringmq.remoting.message import MessageExt
from ringmq.remoting.message_queue import MessageQueue

ALL = 1 << 62  # of a shelf's messages: a turn of an exclusive inbox


@dataclass(eq=False, slots=True)
class Shelf:
    """One queue's part of the inbox: what it holds and whom to tell when it holds less."""

    queue: MessageQueue
    on_taken: Callable[[], None]
    messages: deque[MessageExt] = field(default_factory=deque)
    bytes_held: int = 0
    taken_ms: int = 0  # wall time at which something was last taken
    epoch: int = 0  # grows when what was given out before is of no more interest
    paused: bool = False
    busy: bool = False  # exclusive inboxes only: a message is being handled, or waits to be handled again
    handled: bool = False  # exclusive inboxes only: a handler is at work
    in_turn: bool = False  # exclusive inboxes only: it has its (one) turn

    @property
    def count(self) -> int:
        """Messages held."""
        return len(self.messages)


@dataclass(eq=False, slots=True)
class Delivery:
    """A message given out to a handler. It is stale once its shelf has another epoch."""

    shelf: Shelf
    message: MessageExt
    epoch: int

    @property
    def stale(self) -> bool:
        """The queue was given away, or reading went on elsewhere."""
        return self.epoch != self.shelf.epoch


class Inbox:
    """`count_max` and `bytes_max` say when it is full; what was pulled before that still comes in. What paused shelves
    hold does not fill it: nobody can take it, and it would keep the others from being read."""

    def __init__(self, *, exclusive: bool, count_max: int, bytes_max: int) -> None:
        self._arrived = Signal()
        self._exclusive = exclusive
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._turns: deque[tuple[Shelf, int]] = deque()  # (shelf, messages of one put)
        self._starved: list[Shelf] = []
        self.count = 0
        self.bytes_held = 0
        self._paused_count = 0
        self._paused_bytes = 0
        self.closed = False

    @property
    def full(self) -> bool:
        """Over one of its bounds: readers should pull no more."""
        count, bytes_held = self.count - self._paused_count, self.bytes_held - self._paused_bytes
        return count >= self._count_max or bytes_held >= self._bytes_max

    def put(self, shelf: Shelf, messages: list[MessageExt]) -> None:
        """Add what one pull brought (at least one message)."""
        shelf.messages.extend(messages)
        self._account(shelf, len(messages), sum([len(message.body) for message in messages]))
        self._offer(shelf, len(messages))

    def take_nowait(self, count_max: int) -> tuple[Shelf, list[MessageExt]] | None:
        """Up to `count_max` messages of one shelf; None when there are none."""
        while self._turns:
            shelf, turn_count = self._turns.popleft()
            shelf.in_turn = False
            count = min(count_max, len(shelf.messages))
            if count:
                messages = [shelf.messages.popleft() for _ in range(count)]
                if self._exclusive:
                    self._offer_rest(shelf)
                elif count < turn_count:
                    self._turns.appendleft((shelf, turn_count - count))
                self._taken(shelf, messages)
                return shelf, messages
        return None

    def take_back(self, shelf: Shelf, messages: list[MessageExt]) -> None:
        """What `take_nowait` gave has not reached the application: it comes first again."""
        shelf.messages.extendleft(reversed(messages))
        self._account(shelf, len(messages), sum([len(message.body) for message in messages]))
        self._offer(shelf, len(messages))

    def claim(self) -> Delivery | None:
        """One message to be handled, None when there is none now; `returned` must follow. Of an exclusive inbox nothing
        else comes from its shelf before `release`."""
        while self._turns:
            shelf, turn_count = self._turns.popleft()
            shelf.in_turn = False
            if shelf.messages:
                message = shelf.messages.popleft()
                if self._exclusive:
                    shelf.busy = shelf.handled = True
                elif turn_count > 1:
                    self._turns.appendleft((shelf, turn_count - 1))
                self._taken(shelf, [message])
                return Delivery(shelf, message, shelf.epoch)
        return None

    def returned(self, delivery: Delivery) -> None:
        """The handler is at its end, whatever came of it."""
        if self._exclusive:
            shelf = delivery.shelf
            shelf.handled = False
            if delivery.stale:
                shelf.busy = False
                self._offer_rest(shelf)

    def release(self, delivery: Delivery) -> None:
        """The message was handled."""
        if self._exclusive and not delivery.stale:
            delivery.shelf.busy = False
            self._offer_rest(delivery.shelf)

    def put_back(self, delivery: Delivery) -> None:
        """The message shall be handled again, before all others of its queue."""
        if delivery.stale:
            return
        shelf = delivery.shelf
        shelf.busy = False
        shelf.messages.appendleft(delivery.message)
        self._account(shelf, 1, len(delivery.message.body))
        self._offer(shelf, 1)

    def clear(self, shelf: Shelf) -> None:
        """Forget the shelf's messages; what was given out before stays of interest."""
        self._account(shelf, -len(shelf.messages), -shelf.bytes_held)
        shelf.messages.clear()
        self._drop_turns(shelf)
        self._feed()

    def discard(self, shelf: Shelf) -> None:
        """Forget the shelf's messages and those given out (its queue is another's, or reading goes on elsewhere). What
        comes next waits for a handler that is still at work."""
        shelf.epoch += 1
        shelf.busy = shelf.handled
        self.clear(shelf)

    def pause(self, shelf: Shelf) -> None:
        """Give out nothing of the shelf."""
        if not shelf.paused:
            shelf.paused = True
            self._paused_count += shelf.count
            self._paused_bytes += shelf.bytes_held
            self._drop_turns(shelf)
            self._feed()

    def resume(self, shelf: Shelf) -> None:
        """Give out the shelf's messages again."""
        if shelf.paused:
            shelf.paused = False
            self._paused_count -= shelf.count
            self._paused_bytes -= shelf.bytes_held
            self._offer_rest(shelf)

    def tell_room(self, shelf: Shelf) -> None:
        """Call the shelf's `on_taken` when the inbox is no longer full."""
        if shelf not in self._starved:
            self._starved.append(shelf)

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Until there may be something to take, or the inbox is closed; False when the time was over first."""
        return bool(self._turns) or self.closed or await self._arrived.wait(timeout_s)

    def wake(self) -> None:
        """Let everybody who waits look again."""
        self._arrived.wake()

    def close(self) -> None:
        """Wake everybody who waits; what is held may still be taken."""
        self.closed = True
        self.wake()

    def _offer(self, shelf: Shelf, count: int) -> None:
        if shelf.paused or (self._exclusive and (shelf.busy or shelf.in_turn)):
            return
        shelf.in_turn = self._exclusive
        self._turns.append((shelf, ALL if self._exclusive else count))
        self._arrived.wake(1 if self._exclusive else count)

    def _offer_rest(self, shelf: Shelf) -> None:
        if shelf.messages:
            self._offer(shelf, len(shelf.messages))

    def _drop_turns(self, shelf: Shelf) -> None:
        shelf.in_turn = False
        self._turns = deque(turn for turn in self._turns if turn[0] is not shelf)

    def _taken(self, shelf: Shelf, messages: list[MessageExt]) -> None:
        shelf.taken_ms = now_ms()
        self._account(shelf, -len(messages), -sum([len(message.body) for message in messages]))
        shelf.on_taken()
        self._feed()

    def _feed(self) -> None:
        if self._starved and not self.full:
            starved, self._starved = self._starved, []
            for shelf in starved:
                shelf.on_taken()

    def _account(self, shelf: Shelf, count: int, size: int) -> None:
        shelf.bytes_held += size
        self.bytes_held += size
        self.count += count
        if shelf.paused:
            self._paused_count += count
            self._paused_bytes += size
