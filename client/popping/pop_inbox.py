"""Popped messages that wait for a handler, and how many more to ask for. No IO.

Other consumers cannot get a message that waits here, so few wait: as many as handlers ask for, and those that quick
handlers will have begun within a tenth of a second. A consumer whose handlers all hang asks for nothing.

In an ordered inbox one message of a queue is handled at a time, in the order of the queue.
"""

from collections import deque
from collections.abc import Set
from dataclasses import dataclass, field

from ringmq.client.consuming.pull_decoding import queue_of
from ringmq.client.popping.lease import Lease
from ringmq.client.popping.popped_message import PoppedMessage
from ringmq.client.runtimes.runtime import Task
from ringmq.client.runtimes.waiting import Signal
from ringmq.remoting.message_queue import MessageQueue

AHEAD_S = 0.1
AHEAD_MAX = 64
SLOTS_MAX = 64
"""After so many tenths of a second without an end nothing is left of the mean."""
BYTES_MAX = 16 << 20
"""Bodies that wait here. While there are more, no further pop begins."""


@dataclass(eq=False, slots=True)
class _Line:
    """The messages of one queue in an ordered inbox. `is_busy`: one of them is handled."""

    waiting: "deque[PopDelivery]" = field(default_factory=deque)
    is_busy: bool = False


@dataclass(eq=False, slots=True)
class PopDelivery:
    """A popped message on its way through a handler. `renewal` is the request for more time that is under way.

    `is_told`: the application settles the message itself, and interceptors learn of it by that. `is_free`: no handler
    and no loop has the message any more.
    """

    message: PoppedMessage
    lease: Lease
    line: _Line | None = None
    renewal: Task[None] | None = None
    is_told: bool = False
    is_free: bool = False

    @property
    def queue(self) -> MessageQueue:
        """The queue that the message lies in."""
        return queue_of(self.message)


class HandledRate:
    """The ends of handlers in a tenth of a second: a mean in which each tenth counts half as much as the next one.

    A single tenth would tell members with equal handlers apart: by chance one has an end in it, and another has none.
    """

    def __init__(self) -> None:
        self._slot = self._count = 0
        self._mean = 0.0

    def note(self, now: float) -> None:
        """Count one."""
        self._move_to(now)
        self._count += 1

    def mean(self, now: float) -> int:
        """Return the mean of the whole tenths before now, rounded down."""
        self._move_to(now)
        return int(self._mean)

    def _move_to(self, now: float) -> None:
        slot = int(now / AHEAD_S)
        if slot != self._slot:
            passed = min(max(slot - self._slot, 1), SLOTS_MAX)
            self._mean = (self._mean + self._count) / 2**passed
            self._slot, self._count = slot, 0


class PopInbox:
    """Waiting messages. Claims are in the order of arrival, in an ordered inbox by queue."""

    def __init__(self, *, ordered: bool) -> None:
        self._ordered = ordered
        self._waiting: deque[PopDelivery] = deque()  # not ordered
        self._lines: dict[MessageQueue, _Line] = {}  # ordered
        self._turns: deque[_Line] = deque()  # ordered: with a message that may be claimed
        self._arrived = Signal()
        self._room_changed = Signal()
        self._rate = HandledRate()
        self._askers = 0
        self._asked = 0
        self.count = 0
        self.bytes_held = 0
        self.closed = False

    # ---- handlers ----

    async def wait(self) -> bool:
        """Wait until there may be a message, or the inbox is closed. Meanwhile there is room for one more."""
        if self.closed or self._claimable:
            return True
        self._askers += 1
        self._room_changed.wake()
        try:
            return await self._arrived.wait()
        finally:
            self._askers -= 1

    def claim(self) -> PopDelivery | None:
        """Return a message to handle, None if there is none now. `free` or `put_back` must follow."""
        delivery = self._claim_of_line() if self._ordered else self._claim_first()
        if delivery is not None:
            self._account(delivery, -1)
        return delivery

    def note_end(self, now: float) -> None:
        """Count the end of a handler: quick handlers have more messages wait for them."""
        self._rate.note(now)

    def free(self, delivery: PopDelivery) -> None:
        """Let the next message of an ordered queue have its turn: this one has ended."""
        delivery.is_free = True
        if (line := delivery.line) is None:
            return
        line.is_busy = False
        if line.waiting:
            self._offer(line)
        elif self._lines.get(delivery.queue) is line:
            del self._lines[delivery.queue]

    # ---- messages ----

    def put(self, deliveries: list[PopDelivery]) -> None:
        """Add the messages of one pop, in their order."""
        for delivery in deliveries:
            self._account(delivery, 1)
        if not self._ordered:
            self._waiting.extend(deliveries)
            self._arrived.wake(len(deliveries))
            return
        for delivery in deliveries:
            queue = delivery.queue
            if (line := self._lines.get(queue)) is None:
                line = self._lines[queue] = _Line()
            delivery.line = line
            line.waiting.append(delivery)
            self._offer(line)

    def put_back(self, delivery: PopDelivery) -> None:
        """Let a claimed message wait again, before all others of its queue."""
        self._account(delivery, 1)
        if (line := delivery.line) is not None:
            line.waiting.appendleft(delivery)
            line.is_busy = False
            self._offer(line)
        else:
            self._waiting.appendleft(delivery)
            self._arrived.wake(1)

    def take_out(self, delivery: PopDelivery) -> bool:
        """Remove a waiting message. False if it does not wait."""
        waiting = self._waiting if delivery.line is None else delivery.line.waiting
        if delivery not in waiting:
            return False
        waiting.remove(delivery)
        self._account(delivery, -1)
        return True

    def take_all(self) -> list[PopDelivery]:
        """Remove all waiting messages."""
        found = list(self._waiting)
        for line in self._lines.values():
            found += line.waiting
            line.waiting.clear()
        self._waiting.clear()
        self._turns.clear()
        for delivery in found:
            self._account(delivery, -1)
        return found

    def take_behind(self, delivery: PopDelivery) -> list[PopDelivery]:
        """Remove the messages behind one of an ordered inbox, which is not done. Its queue begins anew."""
        line = delivery.line
        if line is None:
            return []
        if self._lines.get(delivery.queue) is line:
            del self._lines[delivery.queue]
        found = list(line.waiting)
        line.waiting.clear()
        for behind in found:
            self._account(behind, -1)
        return found

    def repair(self, claimed: Set[PopDelivery]) -> set[PopDelivery]:
        """Complete what an interrupt has stopped between two steps: counts, turns, wakes. Return what waits.

        `claimed` are those that handlers have.
        """
        busy = [delivery.line for delivery in claimed]
        waiting = set(self._waiting)
        self._turns.clear()
        for line in self._lines.values():
            waiting.update(line.waiting)
            line.is_busy = line in busy
            if line.waiting:
                self._offer(line)
        self.count = len(waiting)
        self.bytes_held = sum(len(delivery.message.body) for delivery in waiting)
        self._arrived.wake(self.count)
        self._room_changed.wake()
        return waiting

    def close(self) -> None:
        """End all waits."""
        self.closed = True
        self.wake()
        self._room_changed.wake()

    def wake(self) -> None:
        """Wake all waiters of `wait` to check again."""
        self._arrived.wake()

    # ---- pops ----

    def room(self, now: float) -> int:
        """Return the number of messages that the next pop may ask for, at most. 0: wait for room."""
        if self.closed or self.bytes_held >= BYTES_MAX:
            return 0
        ahead = min(self._rate.mean(now), AHEAD_MAX)
        if self._ordered:
            # messages behind the first one of a queue give no handler work
            is_needed = self._askers > len(self._turns) or (ahead > 0 and not self._turns)
            return max(1, ahead) if is_needed and not self._asked else 0
        room = self._askers + ahead - self.count - self._asked
        if room <= 0 or (self._askers <= self.count and 2 * room < ahead):
            return 0  # small pops cost as much as large ones
        return room

    def reserve(self, count: int) -> None:
        """Keep room for the messages of a pop that begins (a negative number: of one that has ended)."""
        self._asked += count
        if count < 0:
            self._room_changed.wake()

    async def wait_for_room(self) -> None:
        """Wait until `room` may have another answer."""
        await self._room_changed.wait()

    # ---- inside ----

    @property
    def _claimable(self) -> bool:
        return bool(self._turns if self._ordered else self._waiting)

    def _claim_first(self) -> PopDelivery | None:
        return self._waiting.popleft() if self._waiting else None

    def _claim_of_line(self) -> PopDelivery | None:
        while self._turns:
            line = self._turns.popleft()
            if line.waiting and not line.is_busy:
                line.is_busy = True
                return line.waiting.popleft()
        return None

    def _offer(self, line: _Line) -> None:
        if not line.is_busy and line not in self._turns:
            self._turns.append(line)
            self._arrived.wake(1)

    def _account(self, delivery: PopDelivery, sign: int) -> None:
        self.count += sign
        self.bytes_held += sign * len(delivery.message.body)
        if sign < 0:
            self._room_changed.wake()
