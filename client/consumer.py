"""Receiving: `async with Consumer(...) as consumer: async for message in consumer: ...`.

A consumer is one member of a group. The group's members share the queues of the subscribed topics; each message goes to
one of them and, as long as it is not acknowledged, again to whoever owns its queue next (at least once).
"""

import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from ringmq.client.errors import ClientClosedError
from ringmq.client.group_member import Assignment, GroupMember
from ringmq.client.heartbeat import Heartbeats
from ringmq.client.identity import new_client_id, now_ms
from ringmq.client.inbox import Inbox
from ringmq.client.interceptors import run_quietly
from ringmq.client.name_servers import NameServers, RouteTable, parse_name_servers
from ringmq.client.offsets import ConsumeFrom, QueueOffsets, StartRule
from ringmq.client.queue_reader import PullOptions, QueueReader, ReaderContext, commit_all
from ringmq.client.received import queue_of
from ringmq.client.remoting_client import RemotingClient
from ringmq.client.runtime import Event, Task, create_task, gather, sleep, timeout
from ringmq.client.settings import ConnectionSettings
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.heartbeat import ConsumerData, HeartbeatData
from ringmq.remoting.message import MessageExt
from ringmq.remoting.message_queue import MessageQueue
from ringmq.remoting.names import InvalidName, check_group, check_topic, retry_topic
from ringmq.remoting.subscription import BadSubscription, SubscriptionData, build_subscription

log = logging.getLogger("ringmq.client")

COMMIT_INTERVAL_S = 5.0
BATCH_MESSAGES_MAX = 256


class Consumer:
    """One member of a consumer group. Use it on one event loop, as an async context manager.

    `topics` maps a topic to its tag expression ("*", "TagA || TagB"), or names topics to be read whole.
    With `auto_ack` (the default) a message counts as processed when the next one is asked for; without it, `ack`
    says so. What is committed is the highest offset of each queue below which everything is acknowledged: every 5 s,
    when a queue is given away, by `commit` and by `close`.
    `consume_from` (with `timestamp_ms`) holds where the group has never committed anything.
    """

    def __init__(
        self,
        topics: str | Iterable[str] | Mapping[str, str],
        namesrv: str | Sequence[str] = "127.0.0.1:9876",
        group: str = "ringmq_consumer",
        *,
        auto_ack: bool = True,
        consume_from: ConsumeFrom = ConsumeFrom.LAST,
        timestamp_ms: int = 0,
        options: PullOptions | None = None,
        settings: ConnectionSettings | None = None,
    ) -> None:
        self.group = group
        self.client_id = new_client_id()
        self._subscriptions = _subscriptions(topics, group)
        self._name_server_addresses = parse_name_servers(namesrv)
        self._auto_ack = auto_ack
        self._consume_from = consume_from
        self._timestamp_ms = timestamp_ms
        self._options = options or PullOptions()
        self._settings = settings or ConnectionSettings()
        self._interceptors = self._settings.interceptors
        self._readers: dict[MessageQueue, QueueReader] = {}
        self._handed_over: list[MessageExt] = []  # to be acknowledged when the next ones are asked for
        self._tasks: list[Task[None]] = []
        self._assigned = Event()
        self._started = False
        self._closed = False

    # ---- life ----

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Join the group. Returns when a first assignment was computed (it may be empty)."""
        if self._started:
            return
        if self._closed:
            raise ClientClosedError("a closed consumer cannot be started again; make a new one")
        self._client = RemotingClient(self._settings, on_server_request=self._on_server_request)
        timeout_ms = self._settings.request_timeout_ms
        self._routes = RouteTable(NameServers(self._client, self._name_server_addresses, timeout_ms))
        self._heartbeats = Heartbeats(self._client, self._routes, self._describe)
        self._offsets = QueueOffsets(self._client, self._routes, timeout_ms)
        self._inbox = Inbox()
        self._context = ReaderContext(
            self.group,
            self._client,
            self._routes,
            self._offsets,
            self._inbox,
            self._options,
            StartRule(self._consume_from, self._timestamp_ms, now_ms()),
            self._heartbeats.send_to,
        )
        self._member = GroupMember(
            self.group,
            self.client_id,
            self._client,
            self._routes,
            self._heartbeats,
            lambda: list(self._subscriptions),
            self._take_assignment,
        )
        self._started = True
        self._tasks = [
            create_task(self._member.run()),
            create_task(self._routes.keep_fresh()),
            create_task(self._heartbeats.keep_sending()),
            create_task(self._keep_committing()),
        ]
        await self._assigned.wait()

    async def close(self) -> None:
        """Stop reading, commit what is acknowledged, leave the group. Loops over the consumer end."""
        if not self._started:
            return
        self._started, self._closed = False, True
        for task in self._tasks:
            task.cancel()
        await gather(*self._tasks, return_exceptions=True)
        readers = list(self._readers.values())
        await gather(*(reader.stop() for reader in readers))
        await self._commit_quietly(readers)
        self._readers.clear()
        await self._heartbeats.close()
        await self._member.leave()
        await self._client.close()
        self._inbox.close()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    # ---- reading ----

    def __aiter__(self) -> AsyncIterator[MessageExt]:
        return self

    async def __anext__(self) -> MessageExt:
        messages = await self.poll(1)
        if not messages:
            raise StopAsyncIteration
        return messages[0]

    async def batches(self, max_messages: int = BATCH_MESSAGES_MAX) -> AsyncIterator[list[MessageExt]]:
        """Batches of at least one message, each of one queue, as they come; ends when the consumer is closed."""
        while messages := await self.poll(max_messages):
            yield messages

    async def poll(self, max_messages: int = BATCH_MESSAGES_MAX, timeout_ms: int | None = None) -> list[MessageExt]:
        """Up to `max_messages` of one queue; empty after `timeout_ms` without any, or when the consumer is closed."""
        if self._closed:
            return []
        self._check_started()
        if self._handed_over:
            self.ack(self._handed_over)
            self._handed_over = []
        messages = self._inbox.take_nowait(max_messages)
        if not messages:
            try:
                async with timeout(None if timeout_ms is None else timeout_ms / 1000):
                    while not messages and not self._inbox.closed:
                        await self._inbox.wait()
                        messages = self._inbox.take_nowait(max_messages)
            except TimeoutError:
                return []
        for interceptor in self._interceptors if messages else ():
            interceptor.before_consume(self.group, messages)
        if self._auto_ack:
            self._handed_over = messages
        return messages

    def ack(self, messages: MessageExt | Iterable[MessageExt]) -> int:
        """Acknowledge messages; returns how many were open (not those of queues given away or left by a seek)."""
        acked: list[MessageExt] = []
        for message in (messages,) if isinstance(messages, MessageExt) else messages:
            for queue in queue_of(message, self.group):
                reader = self._readers.get(queue)
                if reader is not None and reader.ack(message.queue_offset):
                    acked.append(message)
                    break
        for interceptor in self._interceptors if acked else ():
            run_quietly(interceptor.after_consume, self.group, acked, None)
        return len(acked)

    async def commit(self) -> None:
        """Commit what is acknowledged now. Raises the first `RingmqError`; the rest was tried all the same."""
        self._check_started()
        errors = await commit_all(list(self._readers.values()))
        if errors:
            raise errors[0]

    # ---- positions ----

    def assignment(self) -> list[MessageQueue]:
        """The queues that this member reads now, in order."""
        return sorted(self._readers)

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on reading an assigned queue at `offset`. Raises KeyError when the queue is not assigned."""
        self._check_started()
        reader = self._readers[queue]
        self._handed_over = [m for m in self._handed_over if queue not in queue_of(m, self.group)]
        await reader.seek(offset)

    async def seek_to_beginning(self, queue: MessageQueue) -> None:
        """Go on at the queue's first message."""
        await self.seek(queue, await self._offsets.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on behind the queue's last message."""
        await self.seek(queue, await self._offsets.max_offset(queue))

    async def seek_to_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Go on at the first message stored at or after `timestamp_ms`."""
        await self.seek(queue, await self._offsets.search(queue, timestamp_ms))

    # ---- inside ----

    async def _take_assignment(self, assignment: Assignment) -> None:
        """Give up the queues that are no longer ours, with a last commit, then begin with the new ones."""
        revoked = [self._readers.pop(queue) for queue in list(self._readers) if queue not in assignment]
        await gather(*(reader.stop() for reader in revoked))
        await self._commit_quietly(revoked)
        for queue, appeared_late in assignment.items():
            if queue not in self._readers:
                reader = QueueReader(
                    queue, self._subscriptions[queue.topic], self._context, appeared_late=appeared_late
                )
                self._readers[queue] = reader
                reader.start()
        self._assigned.set()

    async def _keep_committing(self) -> None:
        while True:
            await sleep(COMMIT_INTERVAL_S)
            await self._commit_quietly(list(self._readers.values()))

    async def _commit_quietly(self, readers: list[QueueReader]) -> None:
        for error in await commit_all(readers):
            log.warning("group %s: an offset could not be committed: %s", self.group, error)

    def _on_server_request(self, address: str, request: RemotingCommand) -> RemotingCommand | None:
        if request.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            log.debug("%s says that the members of %s changed", address, request.ext_fields.get("consumerGroup"))
            self._member.trigger()
            return RemotingCommand.response_to(request, 0)
        return None

    def _describe(self) -> HeartbeatData:
        consumer = ConsumerData(
            self.group,
            consume_from_where=self._consume_from.value,
            subscriptions=list(self._subscriptions.values()),
        )
        return HeartbeatData(self.client_id, consumers=[consumer])

    def _check_started(self) -> None:
        if not self._started:
            raise ClientClosedError("the consumer is not started or is closed")


def _subscriptions(topics: str | Iterable[str] | Mapping[str, str], group: str) -> dict[str, SubscriptionData]:
    """By topic, with the group's retry topic, which every member of a clustering group subscribes to."""
    wanted = {topics: "*"} if isinstance(topics, str) else topics
    expressions = dict(wanted) if isinstance(wanted, Mapping) else dict.fromkeys(wanted, "*")
    if not expressions:
        raise ValueError("a consumer needs at least one topic")
    version = now_ms()
    try:
        check_group(group)
        for topic in expressions:
            check_topic(topic)
        subscriptions = {t: build_subscription(t, e, sub_version=version) for t, e in expressions.items()}
        retry = retry_topic(group)
        subscriptions[retry] = build_subscription(retry, "*", sub_version=version)
    except (InvalidName, BadSubscription) as error:
        raise ValueError(str(error)) from error
    return subscriptions
