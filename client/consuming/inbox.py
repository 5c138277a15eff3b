"""Messages that were pulled and not yet taken by the application. No IO.

Queues are served in the order in which messages were put, so no queue starves. A turn delivers all waiting messages
of its queue, up to the requested number: a slow application gets more at a time instead of falling behind. An
exclusive inbox, for ordered consumption, delivers nothing of a queue while one of its messages is being handled.
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
    """One queue's part of the inbox: its messages, and the callback when the inbox has space."""

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
        """The number of messages."""
        return len(self.messages)


@dataclass(eq=False, slots=True)
class Delivery:
    """A message that was delivered to a handler. It is stale once its queue has another epoch."""

    shelf: Shelf
    message: MessageExt
    epoch: int

    @property
    def stale(self) -> bool:
        """True if the queue was given up, or reading continued elsewhere."""
        return self.epoch != self.shelf.epoch


class Inbox:
    """All waiting messages. `count_max` and `bytes_max` are the bounds at which the inbox is full.

    Messages that were pulled before still come in. Messages of paused queues do not count: they cannot be taken, and
    would keep the other queues from being read.
    """

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
        """True if a bound is reached: readers should stop pulling."""
        count, bytes_held = self.count - self._paused_count, self.bytes_held - self._paused_bytes
        return count >= self._count_max or bytes_held >= self._bytes_max

    def put(self, shelf: Shelf, messages: list[MessageExt]) -> None:
        """Add the messages of one pull (at least one)."""
        shelf.messages.extend(messages)
        self._account(shelf, len(messages), sum([len(message.body) for message in messages]))
        self._offer(shelf, len(messages))

    def take_nowait(self, count_max: int) -> tuple[Shelf, list[MessageExt]] | None:
        """Take up to `count_max` messages of one queue, None without messages."""
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
        """Put messages of `take_nowait` back at the front: they have not reached the application."""
        shelf.messages.extendleft(reversed(messages))
        self._account(shelf, len(messages), sum([len(message.body) for message in messages]))
        self._offer(shelf, len(messages))

    def claim(self) -> Delivery | None:
        """Return one message to handle, None if there is none now. `returned` must follow.

        An exclusive inbox delivers nothing else of its queue before `release`.
        """
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
        """Record that the handler has ended, with any outcome."""
        if self._exclusive:
            shelf = delivery.shelf
            shelf.handled = False
            if delivery.stale:
                shelf.busy = False
                self._offer_rest(shelf)

    def release(self, delivery: Delivery) -> None:
        """Record that the message was handled."""
        if self._exclusive and not delivery.stale:
            delivery.shelf.busy = False
            self._offer_rest(delivery.shelf)

    def put_back(self, delivery: Delivery) -> None:
        """Put the message back for another call, before all others of its queue."""
        if delivery.stale:
            return
        shelf = delivery.shelf
        shelf.busy = False
        shelf.messages.appendleft(delivery.message)
        self._account(shelf, 1, len(delivery.message.body))
        self._offer(shelf, 1)

    def clear(self, shelf: Shelf) -> None:
        """Forget the queue's waiting messages. Delivered messages stay valid."""
        self._account(shelf, -len(shelf.messages), -shelf.bytes_held)
        shelf.messages.clear()
        self._drop_turns(shelf)
        self._feed()

    def discard(self, shelf: Shelf) -> None:
        """Forget the queue's messages, delivered ones included.

        Called if the queue is given up or reading continues elsewhere. Later messages wait for a running handler.
        """
        shelf.epoch += 1
        shelf.busy = shelf.handled
        self.clear(shelf)

    def pause(self, shelf: Shelf) -> None:
        """Deliver nothing of the queue."""
        if not shelf.paused:
            shelf.paused = True
            self._paused_count += shelf.count
            self._paused_bytes += shelf.bytes_held
            self._drop_turns(shelf)
            self._feed()

    def resume(self, shelf: Shelf) -> None:
        """Deliver the queue's messages again."""
        if shelf.paused:
            shelf.paused = False
            self._paused_count -= shelf.count
            self._paused_bytes -= shelf.bytes_held
            self._offer_rest(shelf)

    def tell_room(self, shelf: Shelf) -> None:
        """Call the queue's `on_taken` once the inbox is no longer full."""
        if shelf not in self._starved:
            self._starved.append(shelf)

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until there may be a message, or the inbox is closed. False if the time was over before."""
        return bool(self._turns) or self.closed or await self._arrived.wait(timeout_s)

    def wake(self) -> None:
        """Wake all waiters to check again."""
        self._arrived.wake()

    def close(self) -> None:
        """Wake all waiters. Waiting messages may still be taken."""
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
