"""Messages that were pulled and not yet taken by the application. No IO.

Queues are served in the order in which messages were put, so no queue starves. A turn delivers all waiting messages
of its queue, up to the requested number: a slow application gets more at a time instead of falling behind. An
exclusive inbox, for ordered consumption, delivers nothing of a queue while one of its messages is being handled.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ringmq.client.connections.identity import now_ms
from ringmq.client.consuming.pull_decoding import unpacked
from ringmq.client.runtimes.waiting import Signal
from ringmq.remoting.message import MessageExt
from ringmq.remoting.message_queue import MessageQueue

ALL = 1 << 62  # of a process queue's messages: a turn of an exclusive inbox


@dataclass(eq=False, slots=True)
class ProcessQueue:
    """One queue's part of the inbox: its messages, and the callback when the inbox has space."""

    queue: MessageQueue
    on_taken: Callable[[], None]
    messages: deque[MessageExt] = field(default_factory=deque)
    bytes_held: int = 0
    taken_ms: int = 0  # wall time at which messages were last taken
    epoch: int = 0  # grows when the messages that were delivered before become stale
    paused: bool = False
    busy: bool = False  # exclusive inboxes only: a message is being handled, or waits to be handled again
    handled: bool = False  # exclusive inboxes only: a handler is at work
    in_turn: bool = False  # exclusive inboxes only: the queue has a turn, and never two

    @property
    def count(self) -> int:
        """The number of messages."""
        return len(self.messages)

    def delivered(self, delivery: "Delivery") -> bool:
        """True if the delivery is this queue's."""
        return delivery.process_queue is self


@dataclass(eq=False, slots=True)
class Delivery:
    """A message that was delivered to a handler. It is stale once its queue has another epoch."""

    process_queue: ProcessQueue
    message: MessageExt
    epoch: int
    _packed: MessageExt | None = None  # `message` as it waits, while a handler has it unpacked

    @property
    def queue(self) -> MessageQueue:
        """The queue that the message was read from."""
        return self.process_queue.queue

    def unpack(self) -> None:
        """Decompress the body for a handler."""
        message = unpacked(self.message)
        if message is not self.message:
            self.message, self._packed = message, self.message

    def pack(self) -> None:
        """Forget the decompressed body: the message has to wait again."""
        if self._packed is not None:
            self.message, self._packed = self._packed, None

    @property
    def stale(self) -> bool:
        """True if the queue was given up, or reading continued elsewhere."""
        return self.epoch != self.process_queue.epoch


class Inbox:
    """All waiting messages, with bodies as stored. `count_max` and `bytes_max` are the bounds at which it is full.

    Messages that were pulled before still come in. Messages of paused queues do not count: they cannot be taken, and
    would keep the other queues from being read.
    """

    def __init__(self, *, exclusive: bool, count_max: int, bytes_max: int) -> None:
        self._arrived = Signal()
        self._exclusive = exclusive
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._turns: deque[tuple[ProcessQueue, int]] = deque()  # (process_queue, messages of one put)
        self._starved: list[ProcessQueue] = []
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

    def put(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> None:
        """Add the messages of one pull (at least one)."""
        process_queue.messages.extend(messages)
        self._account(process_queue, len(messages), sum([len(message.body) for message in messages]))
        self._offer(process_queue, len(messages))

    def take_nowait(self, count_max: int) -> tuple[ProcessQueue, list[MessageExt]] | None:
        """Take up to `count_max` messages of one queue, None without messages."""
        while self._turns:
            process_queue, turn_count = self._turns.popleft()
            process_queue.in_turn = False
            count = min(count_max, len(process_queue.messages))
            if count:
                messages = [process_queue.messages.popleft() for _ in range(count)]
                if self._exclusive:
                    self._offer_rest(process_queue)
                elif count < turn_count:
                    self._turns.appendleft((process_queue, turn_count - count))
                self._taken(process_queue, messages)
                return process_queue, messages
        return None

    def take_back(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> None:
        """Put messages of `take_nowait` back at the front: they have not reached the application."""
        process_queue.messages.extendleft(reversed(messages))
        self._account(process_queue, len(messages), sum([len(message.body) for message in messages]))
        self._offer(process_queue, len(messages))

    def claim(self) -> Delivery | None:
        """Return one message to handle, None if there is none now. `returned` must follow.

        An exclusive inbox delivers nothing else of its queue before `release`.
        """
        while self._turns:
            process_queue, turn_count = self._turns.popleft()
            process_queue.in_turn = False
            if process_queue.messages:
                message = process_queue.messages.popleft()
                if self._exclusive:
                    process_queue.busy = process_queue.handled = True
                elif turn_count > 1:
                    self._turns.appendleft((process_queue, turn_count - 1))
                self._taken(process_queue, [message])
                return Delivery(process_queue, message, process_queue.epoch)
        return None

    def returned(self, delivery: Delivery) -> None:
        """Record that the handler has ended, with any outcome."""
        if self._exclusive:
            process_queue = delivery.process_queue
            process_queue.handled = False
            if delivery.stale:
                process_queue.busy = False
                self._offer_rest(process_queue)

    def release(self, delivery: Delivery) -> None:
        """Record that the message was handled."""
        if self._exclusive and not delivery.stale:
            delivery.process_queue.busy = False
            self._offer_rest(delivery.process_queue)

    def put_back(self, delivery: Delivery) -> None:
        """Put the message back for another call, before all others of its queue."""
        if delivery.stale:
            return
        process_queue = delivery.process_queue
        process_queue.busy = False
        delivery.pack()
        process_queue.messages.appendleft(delivery.message)
        self._account(process_queue, 1, len(delivery.message.body))
        self._offer(process_queue, 1)

    def clear(self, process_queue: ProcessQueue) -> None:
        """Forget the queue's waiting messages. Delivered messages stay valid."""
        self._account(process_queue, -len(process_queue.messages), -process_queue.bytes_held)
        process_queue.messages.clear()
        self._drop_turns(process_queue)
        self._feed()

    def discard(self, process_queue: ProcessQueue) -> None:
        """Forget the queue's messages, delivered ones included.

        Called if the queue is given up or reading continues elsewhere. Deferred messages wait for a running handler.
        """
        process_queue.epoch += 1
        process_queue.busy = process_queue.handled
        self.clear(process_queue)

    def pause(self, process_queue: ProcessQueue) -> None:
        """Deliver nothing of the queue."""
        if not process_queue.paused:
            process_queue.paused = True
            self._paused_count += process_queue.count
            self._paused_bytes += process_queue.bytes_held
            self._drop_turns(process_queue)
            self._feed()

    def resume(self, process_queue: ProcessQueue) -> None:
        """Deliver the queue's messages again."""
        if process_queue.paused:
            process_queue.paused = False
            self._paused_count -= process_queue.count
            self._paused_bytes -= process_queue.bytes_held
            self._offer_rest(process_queue)

    def notify_space(self, process_queue: ProcessQueue) -> None:
        """Call the queue's `on_taken` once the inbox is no longer full."""
        if process_queue not in self._starved:
            self._starved.append(process_queue)

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

    def _offer(self, process_queue: ProcessQueue, count: int) -> None:
        if process_queue.paused or (self._exclusive and (process_queue.busy or process_queue.in_turn)):
            return
        process_queue.in_turn = self._exclusive
        self._turns.append((process_queue, ALL if self._exclusive else count))
        self._arrived.wake(1 if self._exclusive else count)

    def _offer_rest(self, process_queue: ProcessQueue) -> None:
        if process_queue.messages:
            self._offer(process_queue, len(process_queue.messages))

    def _drop_turns(self, process_queue: ProcessQueue) -> None:
        process_queue.in_turn = False
        self._turns = deque(turn for turn in self._turns if turn[0] is not process_queue)

    def _taken(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> None:
        process_queue.taken_ms = now_ms()
        self._account(process_queue, -len(messages), -sum([len(message.body) for message in messages]))
        process_queue.on_taken()
        self._feed()

    def _feed(self) -> None:
        if self._starved and not self.full:
            starved, self._starved = self._starved, []
            for process_queue in starved:
                process_queue.on_taken()

    def _account(self, process_queue: ProcessQueue, count: int, size: int) -> None:
        process_queue.bytes_held += size
        self.bytes_held += size
        self.count += count
        if process_queue.paused:
            self._paused_count += count
            self._paused_bytes += size
