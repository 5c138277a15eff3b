"""Reading one queue: long-polling pulls one after another, flow control, acknowledgements.

A reader exists while its queue is assigned to this consumer. It alone owns the queue's `AckWindow`.
"""

import logging
import random
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from ringmq.client.ack_window import AckWindow
from ringmq.client.errors import BrokerError, RequestTimeoutError, RingmqError, RouteError
from ringmq.client.inbox import Inbox, Shelf
from ringmq.client.name_servers import RouteTable
from ringmq.client.offsets import QueueOffsets, StartRule
from ringmq.client.received import read_messages
from ringmq.client.remoting_client import RemotingClient
from ringmq.client.retry import backoff_ms
from ringmq.client.runtime import Event, Lock, Task, create_task, gather, shield, sleep, wait
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.flags import PullSysFlag
from ringmq.remoting.message_queue import MessageQueue
from ringmq.remoting.route import MASTER_ID
from ringmq.remoting.subscription import SubscriptionData

log = logging.getLogger("ringmq.client")

FLOW_CONTROL_PAUSE_S = 0.02  # what RocketMQ's client waits after 215
EMPTY_ANSWER_PAUSE_S = 0.05  # a server that answers "nothing" at once instead of holding is not asked in a tight loop
HELD_AT_LEAST_S = 0.005
MISSING_MEMBER_PAUSE_S = 0.5  # before the name server is asked for a member that a broker names
UNKNOWN_SUBSCRIPTION_CODES = frozenset(
    {
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    }
)


@dataclass(frozen=True, slots=True)
class PullOptions:
    """Bounds per queue. Times in ms. `unacked_max` bounds what is delivered and not acknowledged."""

    batch_count: int = 32
    suspend_ms: int = 15_000
    timeout_ms: int = 30_000
    buffered_max: int = 1000
    buffered_bytes_max: int = 16 << 20
    unacked_max: int = 100_000


@dataclass(frozen=True, slots=True)
class ReaderContext:
    """What all readers of a consumer share."""

    group: str
    client: RemotingClient
    routes: RouteTable
    offsets: QueueOffsets
    inbox: Inbox
    options: PullOptions
    start_rule: StartRule
    send_heartbeat: Callable[[str], Awaitable[bool]]  # to a broker that does not know our subscription


class QueueReader:
    """Pulls one queue into the inbox from `start()` to `stop()`."""

    def __init__(
        self, queue: MessageQueue, subscription: SubscriptionData, context: ReaderContext, *, appeared_late: bool
    ) -> None:
        self.queue = queue
        self.subscription = subscription
        self.window: AckWindow | None = None  # None until the start offset is known
        self._context = context
        self._appeared_late = appeared_late
        self._shelf = Shelf(self._note_room)
        self._room = Event()
        self._next_offset = -1
        self._suggested_broker_id = MASTER_ID
        self._failures = 0
        self._task: Task[None] | None = None
        self._commit_turn = Lock()
        self._unacked_warned = False

    def start(self, offset: int | None = None) -> None:
        """Begin to read at `offset`, or where the group left off."""
        if offset is not None:
            self._set_position(offset)
        self._task = create_task(self._run(), name=f"read {self.queue}")

    async def stop(self) -> None:
        """Read no more; what is buffered is dropped. The window stays for a last commit."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await gather(task, return_exceptions=True)
        self._context.inbox.discard(self._shelf)

    async def seek(self, offset: int) -> None:
        """Go on reading at `offset`; messages delivered before can no longer be acknowledged."""
        await self.stop()
        self.start(offset)

    def ack(self, offset: int) -> bool:
        """Acknowledge one message; False when it is not open."""
        acked = self.window is not None and self.window.ack(offset)
        if acked:
            self._note_room()
        return acked

    async def commit(self) -> bool:
        """Tell the broker how far the group is; False when that did not change. Raises `RingmqError`."""
        async with self._commit_turn:
            offset = None if self.window is None else self.window.take_commit()
            if self.window is None or offset is None:
                return False
            call = create_task(self._context.offsets.commit(self._context.group, self.queue, offset))
            try:
                await shield(call)
                return True
            except BaseException:
                # a broker serves requests in parallel: an older offset still under way could overwrite a newer one
                await wait([call])
                if call.cancelled() or call.exception() is not None:
                    self.window.commit_failed()
                raise

    # ---- the loop ----

    async def _run(self) -> None:
        while True:
            try:
                if self.window is None:
                    await self._find_start()
                await self._wait_for_room()
                await self._pull_once()
                self._failures = 0
            except RingmqError as error:
                await self._recover(error)
            except Exception:
                log.exception("reading %s failed; trying again", self.queue)
                await sleep(1.0)

    async def _find_start(self) -> None:
        context = self._context
        start, committed = await context.offsets.start(
            context.group, self.queue, context.start_rule, appeared_late=self._appeared_late
        )
        self._next_offset = start
        self.window = AckWindow(start, committed)

    async def _wait_for_room(self) -> None:
        while not self._has_room():
            self._room.clear()
            await self._room.wait()

    def _has_room(self) -> bool:
        options, shelf = self._context.options, self._shelf
        assert self.window is not None
        if self.window.open_count - shelf.count >= options.unacked_max:
            if not self._unacked_warned:
                self._unacked_warned = True
                log.warning("%s: %d messages are not acknowledged; no more are read", self.queue, options.unacked_max)
            return False
        return shelf.count < options.buffered_max and shelf.bytes_held < options.buffered_bytes_max

    def _note_room(self) -> None:
        self._room.set()

    async def _pull_once(self) -> None:
        context, options, offset = self._context, self._context.options, self._next_offset
        address = self._address()
        asked_at = time.monotonic()
        request = RemotingCommand.request(
            RequestCode.PULL_MESSAGE,
            {
                "consumerGroup": context.group,
                "topic": self.queue.topic,
                "queueId": str(self.queue.queue_id),
                "queueOffset": str(offset),
                "maxMsgNums": str(options.batch_count),
                "sysFlag": str(int(PullSysFlag.SUSPEND)),
                "commitOffset": "0",
                "suspendTimeoutMillis": str(options.suspend_ms),
                "subscription": self.subscription.sub_string,
                "subVersion": str(self.subscription.sub_version),
                "expressionType": self.subscription.expression_type,
            },
        )
        answer = await context.client.invoke(address, request, options.timeout_ms)
        held = time.monotonic() - asked_at >= HELD_AT_LEAST_S
        await self._take_answer(address, answer, offset, held=held)

    async def _take_answer(self, address: str, answer: RemotingCommand, offset: int, *, held: bool) -> None:
        assert self.window is not None
        code = answer.code
        self._heed_suggestion(answer)
        if code == ResponseCode.SUCCESS:
            next_offset = self._header_offset(address, answer)
            messages = read_messages(answer.body, self.queue, offset, self.subscription)
            self.window.deliver([message.queue_offset for message in messages], next_offset)
            self._next_offset = next_offset
            if messages:
                self._context.inbox.put(self._shelf, messages)
        elif code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY):
            next_offset = self._header_offset(address, answer)
            if next_offset > offset:
                self.window.deliver((), next_offset)
                self._next_offset = next_offset
            elif not held:
                await self._find_suggested()
                await sleep(EMPTY_ANSWER_PAUSE_S)
        elif code == ResponseCode.PULL_OFFSET_MOVED:
            next_offset = self._header_offset(address, answer)
            log.warning("%s: offset %d does not exist, going on at %d", self.queue, offset, next_offset)
            self._context.inbox.discard(self._shelf)
            self._set_position(next_offset)
            if next_offset == offset and not held:
                await sleep(EMPTY_ANSWER_PAUSE_S)
        elif code == ResponseCode.FLOW_CONTROL:
            await sleep(FLOW_CONTROL_PAUSE_S)
        else:
            raise BrokerError(address, code, answer.remark)

    def _heed_suggestion(self, answer: RemotingCommand) -> None:
        """Every answer to a pull says which member of the broker's group to ask next."""
        suggested = (answer.ext_fields or {}).get("suggestWhichBrokerId", "")
        if suggested.isdecimal():
            self._suggested_broker_id = int(suggested)

    async def _find_suggested(self) -> None:
        """A slave that has nothing sends us to its master: one that our route lacks is new, or back."""
        route = self._context.routes.known(self.queue.topic)
        members = {} if route is None else route.addresses.get(self.queue.broker_name, {})
        if self._suggested_broker_id in members:
            return
        await sleep(MISSING_MEMBER_PAUSE_S)
        await self._context.routes.fetch(self.queue.topic)

    def _header_offset(self, address: str, answer: RemotingCommand) -> int:
        try:
            return int(answer.ext_fields["nextBeginOffset"])
        except (KeyError, ValueError):
            raise BrokerError(address, answer.code, "pull answer without nextBeginOffset") from None

    def _set_position(self, offset: int) -> None:
        self._next_offset = offset
        if self.window is None:
            self.window = AckWindow(offset)
        else:
            self.window.seek(offset)

    def _address(self) -> str:
        route = self._context.routes.known(self.queue.topic)
        address = None if route is None else route.read_address(self.queue.broker_name, self._suggested_broker_id)
        if address is None:
            raise RouteError(f"broker {self.queue.broker_name} of topic {self.queue.topic} is not registered")
        return address

    async def _recover(self, error: RingmqError) -> None:
        """After a failed pull: make the broker know us, or look where it is now, and wait a little."""
        self._suggested_broker_id = MASTER_ID
        self._failures += 1
        if isinstance(error, BrokerError) and error.code in UNKNOWN_SUBSCRIPTION_CODES:
            log.info("%s: %s; sending a heartbeat", self.queue, error)
            await self._context.send_heartbeat(error.address)
        elif not isinstance(error, RequestTimeoutError):
            log.warning("%s: %s", self.queue, error)
            try:
                await self._context.routes.fetch(self.queue.topic)
            except RingmqError as refused:
                log.info("route of topic %s could not be refreshed: %s", self.queue.topic, refused)
        await sleep(backoff_ms(self._failures, random.random()) / 1000)


async def commit_all(readers: Iterable[QueueReader]) -> list[RingmqError]:
    """Commit every reader; returns what failed. Brokers at the same time, and of each broker's topic one queue alone
    before the others: where a group's very first offsets arrive in parallel, stock 5.3 keeps only some of them (two
    threads each make the group's table)."""
    tables: dict[tuple[str, str], list[QueueReader]] = defaultdict(list)
    for reader in readers:
        tables[reader.queue.topic, reader.queue.broker_name].append(reader)
    errors = await gather(*(_commit_table(table) for table in tables.values()))
    return [error for some in errors for error in some]


async def _commit_table(readers: list[QueueReader]) -> list[RingmqError]:
    errors: list[RingmqError] = []
    rest = list(readers)
    told = False
    while rest and not told:
        try:
            told = await rest.pop().commit()
        except RingmqError as error:
            errors.append(error)
    for result in await gather(*(reader.commit() for reader in rest), return_exceptions=True):
        if isinstance(result, RingmqError):
            errors.append(result)
        elif isinstance(result, BaseException):
            raise result
    return errors
