"""The reader of one queue: successive long-polling pulls into the inbox, and the queue's commits.

A reader exists while its queue is assigned to this consumer. `PullCore` decides, this module waits and sends.
"""

import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from ringmq.client.connections.identity import now_ms
from ringmq.client.connections.name_servers import RouteTable
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.client.consuming.ack_window import AckWindow
from ringmq.client.consuming.consume_stats import ConsumeStats
from ringmq.client.consuming.inbox import Inbox, ProcessQueue
from ringmq.client.consuming.lock_renewal import LockRenewer
from ringmq.client.consuming.offsets import QueueOffsets, StartRule
from ringmq.client.consuming.pull_core import MISSING_MEMBER_PAUSE_S, Outcome, PullCore, PullOptions, Recovery
from ringmq.client.errors import RingmqError, RouteError
from ringmq.client.runtimes.runtime import Lock, Task, create_task, gather, sleep
from ringmq.client.runtimes.waiting import Signal, finish
from ringmq.remoting.message_queue import MessageQueue
from ringmq.remoting.subscription import SubscriptionData

__all__ = ["PullOptions", "QueueReader", "ReaderContext", "read_again"]

log = logging.getLogger("ringmq.client")

FAULT_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class ReaderContext:
    """The parts that all readers of a consumer share. `locks` are those of an ordered consumer."""

    group: str
    client: RemotingClient
    routes: RouteTable
    offsets: QueueOffsets
    inbox: Inbox
    options: PullOptions
    start_rule: StartRule
    send_heartbeat: Callable[[str], Awaitable[bool]]  # to a broker that does not know our subscription
    stats: ConsumeStats
    locks: LockRenewer | None = None
    own_subscription: bool = False


class QueueReader:
    """Pulls one queue into the inbox from `start()` to `stop_pulling()`."""

    def __init__(
        self, queue: MessageQueue, subscription: SubscriptionData, context: ReaderContext, *, appeared_late: bool
    ) -> None:
        self.queue = queue
        self.subscription = subscription
        self.process_queue = ProcessQueue(queue, self._note_room)
        self.last_pull_ms = 0
        self._core = PullCore(
            context.group,
            queue,
            subscription,
            context.options,
            own_subscription=context.own_subscription,
            namespace=context.client.settings.namespace,
        )
        self._context = context
        self._appeared_late = appeared_late
        self._room = Signal()
        self._task: Task[None] | None = None
        self._ended = False
        self._commit_turn = Lock()
        self._seek_turn = Lock()

    @property
    def window(self) -> AckWindow | None:
        """Acknowledgements, None until the start offset is known."""
        return self._core.window

    @property
    def reading(self) -> bool:
        """True between `start` and `stop_pulling`."""
        return self._task is not None

    @property
    def ended(self) -> bool:
        """True after `stop_pulling`."""
        return self._ended

    @property
    def uncommitted_offset(self) -> int | None:
        """The offset that the broker may not have yet, None if the broker has it."""
        window = self._core.window
        if window is None or (window.committable_offset == window.committed_offset and not self._commit_turn.held):
            return None
        return window.committable_offset

    def start(self, offset: int | None = None) -> None:
        """Begin at `offset`, or at the group's committed offset. Does nothing if the queue was given up meanwhile."""
        if offset is not None:
            self._core.set_position(offset)
        if self._ended:
            return
        self._task = create_task(self._run(), name=f"read {self.queue}")

    async def stop_pulling(self) -> None:
        """Stop reading for good. Waiting messages are dropped, delivered ones may still be acknowledged."""
        self._ended = True
        await self._halt()

    async def seek(self, offset: int) -> None:
        """Continue at `offset`. Messages delivered before can no longer be acknowledged."""
        async with self._seek_turn:
            try:
                await self._halt()
            finally:  # a seek that is given up must not leave the queue unread
                self._context.inbox.discard(self.process_queue)
                self.start(offset)

    async def _halt(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await gather(task, return_exceptions=True)
        self._context.inbox.clear(self.process_queue)

    def pause(self) -> None:
        """Stop pulling and delivering until `resume`."""
        self._context.inbox.pause(self.process_queue)

    def resume(self) -> None:
        """Continue after `pause`."""
        self._context.inbox.resume(self.process_queue)
        self._note_room()

    def lose_lock(self) -> None:
        """Start again at the group's offset once the lock is back: another member may have read on."""
        self._core.forget()
        self._context.inbox.discard(self.process_queue)
        if self._task is not None:
            self._task.cancel()  # its pull may be held for long
            self.start()

    def read_again(self) -> None:
        """Continue at the first message without an acknowledgement. All delivered messages come again."""
        window = self._core.window
        if window is not None and self._task is not None:
            self._context.inbox.discard(self.process_queue)
            self._task.cancel()
            self.start(window.committable_offset)

    def is_open(self, offset: int) -> bool:
        """True if the message at `offset` is delivered and not acknowledged."""
        window = self._core.window
        return window is not None and window.is_open(offset)

    def ack(self, offset: int) -> bool:
        """Acknowledge one message. False if it is not open."""
        window = self._core.window
        acked = window is not None and window.ack(offset)
        if acked:
            self._note_room()
        return acked

    async def commit(self) -> bool:
        """Commit the current offset. False if it has not changed. Raises `RingmqError`.

        Only one commit is in flight: a broker serves requests in parallel, and an older offset could overwrite a
        newer one.
        """
        async with self._commit_turn:
            window = self._core.window
            offset = None if window is None else window.take_commit()
            if window is None or offset is None:
                return False
            await finish(self._commit(window, offset))
            return True

    # ---- inside ----

    async def _commit(self, window: AckWindow, offset: int) -> None:
        try:
            await self._context.offsets.commit(self._context.group, self.queue, offset)
        except BaseException:
            window.commit_failed()
            raise

    async def _run(self) -> None:
        while True:
            try:
                await self._step()
            except Exception:  # a hook's fault, or ours, must not end the reading silently
                log.exception("reading %s failed; trying again", self.queue)
                await sleep(FAULT_PAUSE_S)

    async def _step(self) -> None:
        core, locks = self._core, self._context.locks
        try:
            if locks is not None and not locks.held(self.queue):
                await locks.wait_held(self.queue)
            epoch = self.process_queue.epoch
            if core.window is None:
                await self._find_start(epoch)
            elif self._has_room():
                await self._pull_once(epoch)
            else:
                await self._room.wait()
        except RingmqError as error:
            await self._apply_outcome(core.failed(error, random.random()), error)

    async def _find_start(self, epoch: int) -> None:
        context = self._context
        start, committed = await context.offsets.start(
            context.group, self.queue, context.start_rule, appeared_late=self._appeared_late
        )
        if start != committed and await context.offsets.commit_start(context.group, self.queue, start):
            committed = start
        if epoch == self.process_queue.epoch:
            self._core.begin(start, committed)

    def _has_room(self) -> bool:
        inbox, process_queue = self._context.inbox, self.process_queue
        if process_queue.paused or not self._core.has_room(process_queue.count, process_queue.bytes_held):
            return False
        if inbox.full:
            inbox.notify_space(process_queue)
        return not inbox.full

    def _note_room(self) -> None:
        self._room.wake()

    async def _pull_once(self, epoch: int) -> None:
        context, offset = self._context, self._core.next_offset
        address = self._address()
        asked_at = time.monotonic()
        self.last_pull_ms = now_ms()
        answer = await context.client.invoke(address, self._core.request(), context.options.timeout_ms)
        if epoch != self.process_queue.epoch:
            return  # the position has changed meanwhile
        now = time.monotonic()
        outcome = self._core.take(address, answer, offset, held_s=now - asked_at)
        if outcome.moved:
            context.inbox.discard(self.process_queue)
            await self._look_back()
        if outcome.messages:
            context.stats.note_pulled(self.queue.topic, now, now - asked_at, len(outcome.messages))
            context.inbox.put(self.process_queue, outcome.messages)
        elif outcome.pause_s:
            await self._find_suggested()
            await sleep(outcome.pause_s)

    async def _look_back(self) -> None:
        """Check the commits after a step back: the broker has lost its log's end, or has another topic of the name.

        In both cases the broker may have lost the group's committed offset, too.
        """
        window = self._core.window
        known = None if window is None else window.committed_offset
        committed = await self._context.offsets.committed(self._context.group, self.queue)
        if known is not None and (committed or 0) < known:
            self._begin_anew()

    def _begin_anew(self) -> None:
        """Begin again: the messages read so far are of a deleted topic."""
        self._core.forget()
        self._context.inbox.discard(self.process_queue)
        self._context.offsets.forget(self.queue)
        self._appeared_late = True

    async def _find_suggested(self) -> None:
        """Refresh the route if a slave suggests a master that the route lacks: the master is new, or back."""
        route = self._context.routes.known(self.queue.topic)
        members = {} if route is None else route.addresses.get(self.queue.broker_name, {})
        if self._core.suggested_broker_id not in members:
            await sleep(MISSING_MEMBER_PAUSE_S)
            await self._context.routes.fetch(self.queue.topic)

    def _address(self) -> str:
        route = self._context.routes.known(self.queue.topic)
        suggested = self._core.suggested_broker_id
        address = None if route is None else route.read_address(self.queue.broker_name, suggested)
        if address is None:
            raise RouteError(f"broker {self.queue.broker_name} of topic {self.queue.topic} is not registered")
        return address

    async def _apply_outcome(self, outcome: Outcome, error: RingmqError) -> None:
        context = self._context
        if outcome.moved:
            self._begin_anew()
        if outcome.recovery is Recovery.HEARTBEAT:
            await context.send_heartbeat(getattr(error, "address", ""))
        elif outcome.recovery is Recovery.ROUTE:
            try:
                await context.routes.fetch(self.queue.topic)
            except RingmqError as refused:
                log.info("route of topic %s could not be refreshed: %s", self.queue.topic, refused)
        await sleep(outcome.pause_s)


def read_again(readers: Iterable[QueueReader]) -> None:
    """Read again from the first open message: messages of an interrupted take may have reached no application."""
    for reader in readers:
        reader.read_again()
