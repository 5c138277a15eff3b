"""Receiving by POP: `messages = await consumer.receive()`, then `await consumer.ack(messages)`.

The broker shares out messages, not queues, so any number of members work on any number of queues. A received message
is invisible to others for a time. Without an acknowledgement it comes again after that (at least once).
"""

import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

from ringmq.client.arguments import INT_MAX, check_flags, check_kinds, check_numbers, check_optional
from ringmq.client.connections.identity import now_ms
from ringmq.client.connections.name_servers import parse_name_servers
from ringmq.client.connections.remoting_client import Deferred
from ringmq.client.consuming.consume_retry import RejectMessage
from ringmq.client.consuming.consume_stats import ConsumeStats
from ringmq.client.consuming.consumer_admin import AdminRequests
from ringmq.client.consuming.offsets import ConsumeFrom
from ringmq.client.consuming.subscriptions import Topics
from ringmq.client.errors import ClientClosedError, RingmqError
from ringmq.client.interceptors import run_quietly
from ringmq.client.observing.observers import Observers
from ringmq.client.popping.pop_member import PopMember
from ringmq.client.popping.pop_requests import POP_MESSAGES_MAX
from ringmq.client.popping.popped_message import PoppedMessage
from ringmq.client.producer import Producer
from ringmq.client.runtimes.runtime import sleep
from ringmq.client.settings import ConnectionSettings
from ringmq.remoting.command import RemotingCommand

WAIT_MS = 15_000
WAIT_MS_MAX = 3_600_000
"""RingMQ's broker waits no longer."""
INVISIBLE_MS = 60_000
INVISIBLE_MS_MAX = 30 * 24 * 3_600_000
"""RingMQ's broker takes no longer time."""
DRAIN_TIMEOUT_MS = 10_000


class NackedError(Exception):
    """Given to interceptors for a message that `nack` has returned to the group."""


class SimpleConsumer:
    """One member of a consumer group. Use it on one event loop, as an async context manager. Many tasks may share it.

    `topics` maps a topic to its expression (tags: "*", "TagA || TagB"; or `Sql92`), or names topics to be read whole.
    `consume_from` (FIRST or LAST) applies to queues of which the group has never received anything. LAST begins with
    the last message that is stored, or with the first one of a young queue.

    With `ordered` the broker gives a queue's messages in their order: nothing of a queue while messages of the last
    `receive` are neither acknowledged nor over their time. All members of a group must have the same.

    `close` waits `drain_timeout_ms` for acknowledgements that are under way.
    """

    def __init__(
        self,
        topics: Topics,
        namesrv: str | Sequence[str] = "127.0.0.1:9876",
        group: str = "ringmq_consumer",
        *,
        ordered: bool = False,
        consume_from: ConsumeFrom = ConsumeFrom.LAST,
        drain_timeout_ms: int = DRAIN_TIMEOUT_MS,
        settings: ConnectionSettings | None = None,
    ) -> None:
        check_kinds((str, Iterable), topics=topics)
        check_kinds(ConsumeFrom, consume_from=consume_from)
        if consume_from is ConsumeFrom.TIMESTAMP:
            raise ValueError("consume_from must be FIRST or LAST: a group of POP cannot begin at a time")
        check_flags(ordered=ordered)
        check_numbers(0, INT_MAX, drain_timeout_ms=drain_timeout_ms)
        check_optional(ConnectionSettings, settings=settings)
        settings = settings or ConnectionSettings()
        name_servers = parse_name_servers(namesrv)
        self._member = PopMember(topics, name_servers, group, consume_from, settings, ordered=ordered)
        self.group = group
        self.client_id = self._member.client_id
        self.drain_timeout_ms = drain_timeout_ms
        self._observers = Observers(settings, name_servers, group, Producer)
        self._interceptors = self._observers.interceptors
        self._started = self._closed = False
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
        """Join the group. Brokers and topics that cannot be reached are found later, by `receive`.

        Raises `BrokerError` (an SQL92 expression is refused), `ClientClosedError`.
        """
        if self._started:
            return
        if self._closed:
            raise ClientClosedError("a closed consumer cannot be started again; make a new one")
        member = self._member
        self._started_ms = now_ms()
        self._stats = ConsumeStats(time.monotonic())
        member.open(self._serve)
        self._admin_requests = AdminRequests(
            self.group, member.client, {}, member.subscriptions, self._stats, None, self._properties, lambda: None
        )
        self._observers.start()
        self._started = True
        try:
            await member.join()
        except BaseException as error:  # a start that is given up leaves nothing behind
            if self._closed and isinstance(error, RingmqError):
                raise ClientClosedError("the consumer was closed while it started") from error
            await self.close(0)
            raise

    async def close(self, drain_timeout_ms: int | None = None) -> None:
        """End the waits of `receive`, wait for acknowledgements under way, leave the group.

        Messages that are not acknowledged come again after their time. Later calls raise `ClientClosedError`.
        """
        if not self._started:
            return
        self._started, self._closed = False, True
        self._member.receiving.close()
        try:
            await self._member.close((self.drain_timeout_ms if drain_timeout_ms is None else drain_timeout_ms) / 1000)
        finally:
            self._ended = True
            await self._observers.close()

    @property
    def closed(self) -> bool:
        """True after a call of `close`."""
        return self._closed

    # ---- messages ----

    async def receive(
        self, max_messages: int = POP_MESSAGES_MAX, *, wait_ms: int = WAIT_MS, invisible_ms: int = INVISIBLE_MS
    ) -> list[PoppedMessage]:
        """Return up to `max_messages` (1 to 32), none if none has come within `wait_ms`, or if the consumer is closed.

        Others do not get them for `invisible_ms`. A cancelled call takes no message: those on their way to it come
        again at once. Raises `RingmqError` if no broker of the topics has answered, `BrokerError` for a refusal.
        """
        check_numbers(1, POP_MESSAGES_MAX, max_messages=max_messages)
        check_numbers(0, WAIT_MS_MAX, wait_ms=wait_ms)
        check_numbers(1, INVISIBLE_MS_MAX, invisible_ms=invisible_ms)
        self._check_started()
        began = time.monotonic()
        messages = await self._member.receiving.receive(max_messages, wait_ms, invisible_ms)
        if not messages:
            await sleep(0)  # a caller that asks without a wait leaves others their turn
            return []
        try:
            for interceptor in self._interceptors:
                interceptor.before_consume(self.group, messages)
        except BaseException:
            self._member.settling.begin_give_back(messages)
            raise
        now = time.monotonic()
        self._stats.note_pulled(messages[0].topic, now, now - began, len(messages))
        return messages

    async def ack(self, messages: PoppedMessage | Iterable[PoppedMessage]) -> None:
        """Acknowledge messages, by one request for each broker that takes batches, as RocketMQ does from 5.0 on.

        Raises `ReceiptExpiredError` for messages whose time was over: these acknowledgements may have had no effect.
        Other `RingmqError`s: messages of that broker come again, or another call acknowledges them.
        """
        self._check_open()
        done = [messages] if isinstance(messages, PoppedMessage) else list(messages)
        for message in done:
            check_kinds(PoppedMessage, message=message)
        if done:
            await self._member.settling.ack(done)
        self._note_consumed(done, None)

    async def nack(self, message: PoppedMessage, delay_ms: int = 0) -> None:
        """Give the message back: others may get it after `delay_ms`. Raises like `change_invisible`."""
        await self.change_invisible(message, delay_ms)
        self._note_consumed([message], NackedError(f"given back, for {delay_ms} ms from now"))

    async def change_invisible(self, message: PoppedMessage, invisible_ms: int) -> None:
        """Have the message come again `invisible_ms` from now on, unless it is acknowledged before.

        `message.receipt` changes. So one `ack`, `nack` or `change_invisible` of a message runs at a time. Raises
        `ReceiptExpiredError` if the message's time is over.
        """
        check_kinds(PoppedMessage, message=message)
        check_numbers(0, INVISIBLE_MS_MAX, invisible_ms=invisible_ms)
        self._check_open()
        await self._member.settling.change_invisible(message, invisible_ms)

    async def reject(self, message: PoppedMessage) -> None:
        """Store the message among the dead letters of the group (`%DLQ%group`), then acknowledge it.

        After an error the message comes again, and a dead letter may exist.
        """
        check_kinds(PoppedMessage, message=message)
        self._check_open()
        await self._member.settling.reject(message)
        self._note_consumed([message], RejectMessage())

    # ---- inside ----

    def _note_consumed(self, messages: list[PoppedMessage], error: BaseException | None) -> None:
        for interceptor in self._interceptors if messages else ():
            run_quietly(interceptor.after_consume, self.group, messages, error)

    def _serve(self, address: str, request: RemotingCommand) -> RemotingCommand | Deferred | None:
        return self._admin_requests.serve(address, request)

    def _properties(self) -> dict[str, str]:
        return self._member.description.properties(self._started_ms, 0)

    def _check_open(self) -> None:
        """Raise unless acknowledgements count: also while a close waits."""
        if self._ended or not self._closed:
            self._check_started()

    def _check_started(self) -> None:
        if not self._started:
            raise ClientClosedError("the consumer is not started or is closed")
