"""Receiving messages: `async with Consumer(...) as consumer: async for message in consumer: ...`.

With a handler: `await consumer.run(handler)`. The members of a group share the queues of the subscribed topics. Until
a message is acknowledged, each next owner of its queue gets it again (at least once).
"""

import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from ringmq.client.arguments import check_handler
from ringmq.client.connections.heartbeat import Heartbeats
from ringmq.client.connections.identity import new_client_id, now_ms
from ringmq.client.connections.name_servers import NameServers, RouteTable, parse_name_servers
from ringmq.client.connections.remoting_client import Deferred, RemotingClient
from ringmq.client.consuming.allocation import AllocationStrategy, allocate_averagely
from ringmq.client.consuming.commits import Commits
from ringmq.client.consuming.consume_retry import ConsumeRetry, RejectMessage
from ringmq.client.consuming.consume_stats import ConsumeStats
from ringmq.client.consuming.consumer_admin import AdminRequests
from ringmq.client.consuming.consumer_arguments import check_consumer
from ringmq.client.consuming.group_member import Assignment, GroupMember
from ringmq.client.consuming.handler_runner import HandlerRules, HandlerRunner
from ringmq.client.consuming.inbox import Delivery, Inbox, ProcessQueue
from ringmq.client.consuming.local_offsets import LocalOffsetFile, LocalOffsets, default_offset_file
from ringmq.client.consuming.lock_renewal import LockRenewer
from ringmq.client.consuming.member_description import MemberDescription
from ringmq.client.consuming.offsets import ConsumeFrom, QueueOffsets, StartRule
from ringmq.client.consuming.pull_decoding import before_damage, check_body, queue_of, unpacked_front
from ringmq.client.consuming.pull_deliveries import PullDeliveries
from ringmq.client.consuming.queue_reader import PullOptions, QueueReader, ReaderContext, read_again
from ringmq.client.consuming.send_backs import Rejects
from ringmq.client.consuming.subscriptions import Sql92, Topics, subscription, subscriptions
from ringmq.client.errors import ClientClosedError, RingmqError, RouteError
from ringmq.client.interceptors import run_quietly
from ringmq.client.namespaces import with_namespace
from ringmq.client.observing.observers import Observers
from ringmq.client.producer import Producer
from ringmq.client.runtimes.runtime import Task, create_task, gather, sleep, when_interrupted
from ringmq.client.runtimes.waiting import Signal, call_listener, finish, stop_all, wait_briefly
from ringmq.client.security.files import expanded
from ringmq.client.settings import ConnectionSettings
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.message import MessageExt
from ringmq.remoting.message_queue import MessageQueue

log = logging.getLogger("ringmq.client")

COMMIT_INTERVAL_S = 5.0
BATCH_MESSAGES_MAX = 256
CONCURRENCY = 16
DRAIN_TIMEOUT_MS = 10_000

QueueListener = Callable[[list[MessageQueue]], object]
"""A function or coroutine function that is called with queues."""


class Consumer:
    """One member of a consumer group. Use it on one event loop, as an async context manager.

    `topics` maps a topic to its expression (tags: "*", "TagA || TagB"; or `Sql92`), or names topics to be read whole.
    None subscribes to nothing: `assign` then names the queues. With `auto_ack` (the default) a request for the next
    message acknowledges the last one. Without it `ack` does, and under `run` the return of the handler. The committed
    offset of a queue is the highest one below which everything is acknowledged. Commits happen every 5 s, when a
    queue is given up, by `commit` and by `close`. The last message before a `break` needs an `ack`. `consume_from`
    (with `timestamp_ms`) applies if the group has never committed anything.

    `ordered` reads a queue only with its lock, and `run` handles one message of a queue at a time. `broadcast` gives
    every member every message. Its offsets are in `offset_file` (by default at stock's place on this host).
    `allocate` divides queues among members. `on_assigned` is called with queues before they are read, `on_revoked`
    before their last commit. `close` waits `drain_timeout_ms` for handlers.
    """

    def __init__(
        self,
        topics: Topics | None,
        namesrv: str | Sequence[str] = "127.0.0.1:9876",
        group: str = "ringmq_consumer",
        *,
        auto_ack: bool = True,
        ordered: bool = False,
        broadcast: bool = False,
        consume_from: ConsumeFrom = ConsumeFrom.LAST,
        timestamp_ms: int = 0,
        options: PullOptions | None = None,
        allocate: AllocationStrategy = allocate_averagely,
        offset_file: str | Path | None = None,
        on_assigned: QueueListener | None = None,
        on_revoked: QueueListener | None = None,
        drain_timeout_ms: int = DRAIN_TIMEOUT_MS,
        settings: ConnectionSettings | None = None,
    ) -> None:
        check_consumer(
            topics, consume_from, timestamp_ms, drain_timeout_ms, options, allocate, offset_file, settings,
            auto_ack=auto_ack, ordered=ordered, broadcast=broadcast, on_assigned=on_assigned, on_revoked=on_revoked,
        )  # fmt: skip
        self.group = group
        self.client_id = new_client_id()
        self._manual = topics is None
        with_retry = topics is not None and not broadcast
        self._subscriptions = subscriptions(topics, group, now_ms(), with_retry=with_retry)
        self._name_server_addresses = parse_name_servers(namesrv)
        self._auto_ack = auto_ack
        self._ordered = ordered
        self._broadcast = broadcast
        self._consume_from = consume_from
        self._timestamp_ms = timestamp_ms
        self._options = options or PullOptions()
        self._allocate = None if broadcast else allocate
        self._description = MemberDescription(
            group, self.client_id, self._name_server_addresses, consume_from, self._manual, ordered, broadcast
        )
        self._settings = settings or ConnectionSettings()
        scoped = with_namespace(self._settings.namespace, group)
        file = expanded(offset_file or default_offset_file(scoped), "offset_file") if broadcast else None
        self._offset_file = None if file is None else LocalOffsetFile(file)
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self.drain_timeout_ms = drain_timeout_ms
        # a last commit: one queue alone, then the others
        self._commits = Commits(group, self._offset_file, 2 * self._settings.request_timeout_ms / 1000)
        self._observers = Observers(self._settings, self._name_server_addresses, group, Producer)
        self._interceptors = self._observers.interceptors
        self._readers: dict[MessageQueue, QueueReader] = {}
        # (process_queue, its epoch, messages): to be acknowledged when the next ones are asked for
        self._handed_over: list[tuple[ProcessQueue, int, list[MessageExt]]] = []
        self._tasks: list[Task[None]] = []
        self._membership: Task[None] | None = None
        self._locks: LockRenewer | None = None
        self._runner: HandlerRunner[Delivery] | None = None
        self._assigned = self._started = self._closed = False
        self._ended = False  # a close is over: until then acknowledgements count

    # ---- life ----

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Join the group.

        Raises `OffsetFileError`, `BrokerError` (an SQL92 expression is refused), `ClientClosedError`.
        """
        if self._started:
            return
        if self._closed:
            raise ClientClosedError("a closed consumer cannot be started again; make a new one")
        self._started_ms = now_ms()
        self._stats = ConsumeStats(time.monotonic())
        self._first_assignment = Signal()
        self._open_connections()
        self._open_inbox()
        if self._offset_file is not None:
            self._offset_file.open()
        self._observers.start()
        when_interrupted(lambda call: read_again(self._readers.values()))
        self._started = True
        try:
            await self._join()
        except BaseException as error:  # a start that is given up leaves nothing behind
            if self._closed and isinstance(error, RingmqError):
                raise ClientClosedError("the consumer was closed while it started") from error
            await self.close(0)
            raise

    async def close(self, drain_timeout_ms: int | None = None) -> None:
        """Stop reading, drain handlers for `drain_timeout_ms`, commit, unlock, leave the group.

        Ends `run`, loops over this, and a `poll` that waits. Later calls raise `ClientClosedError`.
        """
        if not self._started:
            return
        self._started, self._closed = False, True
        async with AsyncExitStack() as last:  # done upwards, whatever fails or is cancelled before
            last.callback(setattr, self, "_ended", True)
            last.callback(self._first_assignment.wake)  # a `start` that waits for it
            if self._offset_file is not None:
                last.callback(self._offset_file.close)
            last.push_async_callback(self._observers.close)
            last.push_async_callback(self._client.close)
            if not self._manual:
                last.push_async_callback(self._member.leave)
            last.push_async_callback(self._heartbeats.close)
            last.push_async_callback(lambda: wait_briefly(self._commit_and_release(list(self._readers.values()))))
            last.push_async_callback(stop_all, self._tasks)
            last.push_async_callback(self._stop_pulling)
            last.callback(self._inbox.close)
            await self._end_reading(self.drain_timeout_ms if drain_timeout_ms is None else drain_timeout_ms)

    @property
    def closed(self) -> bool:
        """True after a call of `close`."""
        return self._closed

    # ---- reading ----

    async def run(
        self,
        handler: Callable[[MessageExt], object],
        *,
        concurrency: int = CONCURRENCY,
        timeout_ms: int | None = None,
        retry: ConsumeRetry | None = None,
    ) -> None:
        """Call `handler(message)`, up to `concurrency` at a time, until the consumer is closed.

        A message is processed when its handler returns. If the handler raises (or runs longer than `timeout_ms`),
        `retry` decides. Coroutine functions run on the loop, plain functions in threads. Ordered consumers handle one
        message of a queue at a time. A cancelled `run` waits `drain_timeout_ms` for its handlers.
        """
        if self._closed:
            await sleep(0)  # a caller that tries again and again leaves others their turn
            return
        runner = self.new_runner(handler, concurrency, timeout_ms, retry)
        try:
            await runner.run()
        except BaseException:
            await runner.drain(self.drain_timeout_ms / 1000)
            raise
        finally:
            self.drop_runner()

    def new_runner(
        self,
        handler: Callable[[MessageExt], object],
        concurrency: int,
        timeout_ms: int | None,
        retry: ConsumeRetry | None,
    ) -> HandlerRunner[Delivery]:
        """Return a runner for `run`. The blocking consumer runs it in threads of its own."""
        self._check_started()
        check_handler(handler)
        if self._runner is not None:
            raise RuntimeError("the consumer has a handler already")
        rules = HandlerRules(
            concurrency, timeout_ms, retry or ConsumeRetry(), self._ordered, self._broadcast, self._manual
        )
        deliveries = PullDeliveries(
            self.group, rules, self._client, self._routes, self._inbox, self._locks, self._ack_delivery, self._lose_lock
        )
        self._runner = HandlerRunner(handler, rules, deliveries, self.group, self._stats, self._interceptors)
        return self._runner

    def drop_runner(self) -> None:
        """Release the runner for another handler. A closing consumer retains its last runner until it has drained."""
        if not self._closed and self._runner is not None:
            self._runner.leave_retries()
            self._runner = None

    def __aiter__(self) -> AsyncIterator[MessageExt]:
        return self

    async def __anext__(self) -> MessageExt:
        if not (messages := await self.next_messages(1)):
            raise StopAsyncIteration
        return messages[0]

    async def batches(self, max_messages: int = BATCH_MESSAGES_MAX) -> AsyncIterator[list[MessageExt]]:
        """Yield batches of at least one message, each of one queue, until the consumer is closed."""
        while messages := await self.next_messages(max_messages):
            yield messages

    async def poll(self, max_messages: int = BATCH_MESSAGES_MAX, timeout_ms: int | None = None) -> list[MessageExt]:
        """Return up to `max_messages` of one queue, none after `timeout_ms` without a message.

        If the consumer is closed meanwhile, the result is empty. Raises `ClientClosedError` if it was closed before,
        and `BodyCrcError`, whose message counts as delivered.
        """
        self._check_started()
        return await self.next_messages(max_messages, timeout_ms)

    async def next_messages(self, max_messages: int, timeout_ms: int | None = None) -> list[MessageExt]:
        """Return what `poll` does, for loops: they end on a closed consumer, so there the result is empty."""
        if max_messages < 1:
            raise ValueError(f"max_messages must be positive, not {max_messages}")
        if self._closed:
            await sleep(0)  # as in `run`
            return []
        self._check_started()
        self._ack_handed_over()
        taken = self._take_now(max_messages) or await self._wait_for_messages(max_messages, timeout_ms)
        if taken is None:
            return []
        process_queue, waiting = taken
        front = before_damage(waiting) if self._options.check_crc else waiting
        try:
            messages = unpacked_front(front, self._options.buffered_bytes_max)
            for interceptor in self._interceptors:
                interceptor.before_consume(self.group, messages)
        except BaseException:
            self._inbox.take_back(process_queue, waiting)
            raise
        if behind := waiting[len(messages) :]:
            self._inbox.take_back(process_queue, behind)
        if self._auto_ack:
            self._handed_over.append((process_queue, process_queue.epoch, list(messages)))  # `messages` is the caller's
        check_body(messages[0])
        return messages

    def _ack_handed_over(self) -> None:
        """Acknowledge the last poll's messages. They are released before the next ones are decompressed."""
        handed_over, self._handed_over = self._handed_over, []
        for process_queue, epoch, left in handed_over:
            if process_queue.epoch == epoch:  # else their offsets may be those of other messages by now
                self.ack(left)

    def ack(self, messages: MessageExt | Iterable[MessageExt]) -> int:
        """Acknowledge messages. Return the number of open ones: not those of given-up queues or from before a seek."""
        self._check_open()
        acked: list[MessageExt] = []
        for message in (messages,) if isinstance(messages, MessageExt) else messages:
            reader = self._readers.get(queue_of(message))
            if reader is not None and reader.ack(message.queue_offset):
                acked.append(message)
        for interceptor in self._interceptors if acked else ():
            run_quietly(interceptor.after_consume, self.group, acked, None)
        return len(acked)

    async def reject(self, message: MessageExt) -> bool:
        """Store `message` among the dead letters of the group (`%DLQ%group`), then acknowledge it.

        False for a message that `ack` would not count: nothing is sent. Raises `ValueError` in broadcasting groups,
        which have no dead letters, and `RingmqError` if the broker does not answer or refuses; the message is open
        then.
        """
        self._check_started()
        if self._broadcast:
            raise ValueError(f"group {self.group} is broadcasting: its messages have no dead letter topic")
        rejected = await self._rejects.reject(self._readers.get(queue_of(message)), message)
        for interceptor in self._interceptors if rejected else ():
            run_quietly(interceptor.after_consume, self.group, [message], RejectMessage())
        return rejected

    async def commit(self) -> None:
        """Commit the current acknowledgements. Raises the first error, after all commits were tried."""
        self._check_started()
        await self._commits.now(list(self._readers.values()))

    # ---- queues and positions ----

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the topic's readable queues in its current route. Raises `RouteError` for an unknown topic."""
        self._check_started()
        route = await self._routes.fetch(topic)
        if route is None:
            raise RouteError(f"topic {topic} is not registered")
        return list(route.read_queues)

    async def assign(self, queues: Iterable[MessageQueue], expression: str | Sql92 = "*") -> None:
        """Read exactly these queues. Only without subscribed topics. A topic's first assignment sets its expression."""
        self._check_started()
        if not self._manual:
            raise ValueError("assign() is for consumers made with topics=None; this one's queues come from its group")
        wanted = dict.fromkeys(queues, False)
        for topic in {queue.topic for queue in wanted}:
            readable = await self.queues(topic)
            missing = [queue for queue in wanted if queue.topic == topic and queue not in readable]
            if missing:
                raise RouteError(f"topic {topic} has no readable {missing[0]}")
            if topic not in self._subscriptions:
                self._subscriptions[topic] = subscription(topic, expression, now_ms())
        await self._offsets.note_ends(self.group, wanted)
        await self._heartbeats.send_to_all()
        await finish(self._take_assignment(wanted))  # half of it would leave queues without a reader

    def assignment(self) -> list[MessageQueue]:
        """Return the queues that this member reads now, in order."""
        self._check_open()
        return sorted(self._readers)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop reading these queues until `resume`, or until they are given up. Raises KeyError for other queues."""
        self._check_open()
        for reader in [self._readers[queue] for queue in queues]:
            reader.pause()

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Continue with paused queues. Other queues do not change."""
        self._check_open()
        for reader in [self._readers[queue] for queue in queues]:
            reader.resume()

    def paused(self) -> list[MessageQueue]:
        """Return the assigned queues that are paused, in order."""
        self._check_open()
        return sorted(queue for queue, reader in self._readers.items() if reader.process_queue.paused)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's committed offset of a queue, None without one."""
        self._check_started()
        return await self._offsets.committed(self.group, queue)

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue reading an assigned queue at `offset`. Raises KeyError if the queue is not assigned."""
        self._check_started()
        await self._readers[queue].seek(offset)

    async def seek_to_beginning(self, queue: MessageQueue) -> None:
        """Continue at the queue's first message."""
        self._check_started()
        await self.seek(queue, await self._offsets.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue behind the queue's last message."""
        self._check_started()
        await self.seek(queue, await self._offsets.max_offset(queue))

    async def seek_to_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Continue at the first message stored at or after `timestamp_ms`."""
        self._check_started()
        await self.seek(queue, await self._offsets.search(queue, timestamp_ms))

    # ---- inside ----

    async def _join(self) -> None:
        await self._member.check_expressions(self._subscriptions.values())
        self._check_started()
        self._tasks = [
            create_task(self._routes.refresh_forever(), name="ringmq routes"),
            create_task(self._heartbeats.send_forever(), name="ringmq heartbeats"),
            create_task(self._commit_forever(), name="ringmq commits"),
        ]
        if self._locks is not None:
            self._tasks.append(create_task(self._locks.run(), name="ringmq locks"))
        if not self._manual:
            self._membership = create_task(self._member.run(), name="ringmq membership")
            while not self._assigned:
                await self._first_assignment.wait()
                self._check_started()

    def _open_connections(self) -> None:
        timeout_ms = self._settings.request_timeout_ms
        self._client = RemotingClient(self._settings, on_server_request=self._on_server_request)
        self._routes = RouteTable(NameServers(self._client, self._name_server_addresses, timeout_ms))
        self._rejects = Rejects(self._client, self._routes, self.group)
        self._heartbeats = Heartbeats(
            self._client, self._routes, lambda: self._description.heartbeat(self._subscriptions.values())
        )
        self._heartbeats.is_member = self._manual  # the others own all queues until this member has looked at them
        if self._offset_file is not None:
            self._offsets: QueueOffsets = LocalOffsets(self._client, self._routes, timeout_ms, self._offset_file)
        else:
            self._offsets = QueueOffsets(self._client, self._routes, timeout_ms)
        if self._ordered and not self._broadcast:
            self._locks = LockRenewer(self._client, self._routes, self.group, self.client_id, self._lose_lock)
        self._member = GroupMember(
            self.group, self.client_id, self._client, self._routes, self._heartbeats, lambda: list(self._subscriptions),
            lambda queues: self._offsets.look_before_joining(self.group, queues, self._context.start_rule),
            self._take_assignment, self._allocate,
        )  # fmt: skip
        self._admin_requests = AdminRequests(
            self.group, self._client, self._readers, self._subscriptions,
            self._stats, self._locks, self._properties, lambda: self._runner,
        )  # fmt: skip

    def _open_inbox(self) -> None:
        options = self._options
        self._inbox = inbox = Inbox(
            exclusive=self._ordered, count_max=options.inbox_max, bytes_max=options.inbox_bytes_max
        )
        self._observers.watch_inbox(self.group, lambda: (inbox.count, inbox.bytes_held))
        self._context = ReaderContext(
            self.group, self._client, self._routes, self._offsets, self._inbox, options,
            StartRule(self._consume_from, self._timestamp_ms, self._started_ms), self._heartbeats.send_to,
            self._stats, self._locks, own_subscription=self._manual,
        )  # fmt: skip

    async def _end_reading(self, timeout_ms: int) -> None:
        if self._membership is not None:
            await stop_all([self._membership])
        if self._runner is not None:
            self._runner.stop()
        await self._stop_pulling()
        self._inbox.close()
        if self._runner is not None and (late := await self._runner.drain(timeout_ms / 1000)):
            log.warning("group %s: %d handlers had not ended after %d ms", self.group, late, timeout_ms)
        await stop_all(self._tasks)
        await self._give_up(list(self._readers.values()))

    async def _stop_pulling(self) -> None:
        await gather(*(reader.stop_pulling() for reader in self._readers.values()))

    async def _wait_for_messages(
        self, max_messages: int, timeout_ms: int | None
    ) -> tuple[ProcessQueue, list[MessageExt]] | None:
        deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        while not self._inbox.closed:
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                await sleep(0)  # a caller that polls without a wait leaves others their turn, as in `run`
                return self._take_now(max_messages)
            await self._inbox.wait(left_s)
            if (taken := self._take_now(max_messages)) is not None:
                return taken
        return None

    def _take_now(self, max_messages: int) -> tuple[ProcessQueue, list[MessageExt]] | None:
        while (taken := self._inbox.take_nowait(max_messages)) is not None:
            queue = taken[0].queue
            if self._locks is None or self._locks.held(queue):
                return taken
            self._lose_lock(queue)  # they come again when it is ours
        return None

    async def _take_assignment(self, assignment: Assignment) -> bool:
        """Give up queues with a last commit, begin new ones. False if some wait for their handlers."""
        # a reader that has ended reads no more, so it is given up even if its queue is ours again
        revoked = [reader for queue, reader in self._readers.items() if reader.ended or queue not in assignment]
        idle = await self._end_readers(revoked)
        if idle:
            await self._give_up(idle)
        new: list[QueueReader] = []
        for queue, appeared_late in assignment.items():
            if queue not in self._readers and not self._closed:
                subscribed = self._subscriptions[queue.topic]
                reader = QueueReader(queue, subscribed, self._context, appeared_late=appeared_late)
                self._readers[queue] = reader
                new.append(reader)
                if self._locks is not None:
                    self._locks.want(queue)
        if new and self._on_assigned is not None:
            await call_listener(self._on_assigned, sorted(reader.queue for reader in new))
        for reader in new:
            if not reader.reading:  # the listener may have begun by a seek
                reader.start()
        self._assigned = True
        self._first_assignment.wake()
        return len(idle) == len(revoked)

    async def _end_readers(self, readers: list[QueueReader]) -> list[QueueReader]:
        """Stop the readers. Return those that may be given up: without a lock, or without a running handler."""
        ending = [reader for reader in readers if not reader.ended]
        await gather(*(reader.stop_pulling() for reader in ending))
        if self._runner is None or self._locks is None:
            return readers
        for reader in ending:
            reader.pause()  # or a message that waits to be tried again is handled while the lock goes
        timeout_s = self.drain_timeout_ms / 1000
        await gather(*(self._runner.wait_idle(reader.process_queue.delivered, timeout_s) for reader in ending))
        for queue in [reader.queue for reader in ending if reader.process_queue.handled]:
            log.warning("group %s: %s is another member's; it stays here until its handler ends", self.group, queue)
        return [reader for reader in readers if not reader.process_queue.handled]

    async def _give_up(self, readers: list[QueueReader]) -> None:
        """Commit queues that are not read any more for the last time."""
        if readers and self._on_revoked is not None:
            await call_listener(self._on_revoked, sorted(reader.queue for reader in readers))
        await self._commit_and_release(readers)

    async def _commit_and_release(self, readers: list[QueueReader]) -> None:
        await self._commits.last(readers)
        for reader in readers:
            self._readers.pop(reader.queue, None)
            self._inbox.discard(reader.process_queue)
        if self._locks is not None:
            await self._locks.give_back(reader.queue for reader in readers)

    async def _commit_forever(self) -> None:
        await self._commits.keep(self._readers, COMMIT_INTERVAL_S)

    def _ack_delivery(self, delivery: Delivery) -> bool:
        reader = self._readers.get(delivery.process_queue.queue)
        return reader is not None and not delivery.stale and reader.ack(delivery.message.queue_offset)

    def _lose_lock(self, queue: MessageQueue) -> None:
        if (reader := self._readers.get(queue)) is not None:
            reader.lose_lock()

    def _on_server_request(self, address: str, request: RemotingCommand) -> RemotingCommand | Deferred | None:
        if request.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            log.debug("%s says that the members of %s changed", address, request.ext_fields.get("consumerGroup"))
            self._member.trigger()
            return RemotingCommand.response_to(request, 0)
        return self._admin_requests.serve(address, request)

    def _properties(self) -> dict[str, str]:
        return self._description.properties(
            self._started_ms, 0 if self._runner is None else self._runner.rules.concurrency
        )

    def _check_open(self) -> None:
        """Raise unless acknowledgements count: also while a close waits for handlers and listeners."""
        if self._ended or not self._closed:
            self._check_started()

    def _check_started(self) -> None:
        if not self._started:
            raise ClientClosedError("the consumer is not started or is closed")
