"""Handling messages by POP: `async with PushConsumer(...) as consumer: await consumer.run(handler)`.

The broker shares out messages, not queues, so any number of members work on any number of queues, and a slow message
holds back no other one. A message is invisible to other members while its handler runs: this one asks for more time.
"""

import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from ringmq.client.arguments import INT_MAX, check_flags, check_handler, check_kinds, check_numbers, check_optional
from ringmq.client.connections.identity import now_ms
from ringmq.client.connections.name_servers import parse_name_servers
from ringmq.client.connections.remoting_client import Deferred
from ringmq.client.consuming.consume_retry import ConsumeRetry, RejectMessage
from ringmq.client.consuming.consume_stats import ConsumeStats
from ringmq.client.consuming.consumer_admin import AdminRequests
from ringmq.client.consuming.handler_runner import HandlerRules, HandlerRunner
from ringmq.client.consuming.offsets import ConsumeFrom
from ringmq.client.consuming.subscriptions import Topics
from ringmq.client.errors import ClientClosedError, ReceiptExpiredError, RingmqError
from ringmq.client.interceptors import run_quietly
from ringmq.client.observing.observers import Observers
from ringmq.client.popping.held_messages import HeldMessages
from ringmq.client.popping.lease import LeaseRules
from ringmq.client.popping.pop_deliveries import PopDeliveries
from ringmq.client.popping.pop_inbox import PopDelivery
from ringmq.client.popping.pop_member import PopMember
from ringmq.client.popping.pop_requests import POP_MESSAGES_MAX
from ringmq.client.popping.popped_message import PoppedMessage
from ringmq.client.producer import Producer
from ringmq.client.retry import backoff_ms
from ringmq.client.runtimes.runtime import Task, create_task, sleep, when_interrupted
from ringmq.client.runtimes.waiting import stop_all
from ringmq.client.settings import ConnectionSettings
from ringmq.client.simple_consumer import DRAIN_TIMEOUT_MS, INVISIBLE_MS, INVISIBLE_MS_MAX, WAIT_MS, NackedError
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.message import MessageExt

log = logging.getLogger("ringmq.client")

CONCURRENCY = 16
HOLD_MAX_MS = 3_600_000
INVISIBLE_MS_MIN = 1000
"""A third of it is left for a renewal and its repetition."""
POPS_MAX = 4
"""Pops under way at a time. Together they ask for no more messages than there is room for."""
LINGER_S = 0.005
"""An acknowledgement waits so long for others. None waits in an ordered group, whose queue waits for it."""
REQUESTS_S = 3.0
"""A close waits so long for renewals under way, then for the last acknowledgements, then for returns."""


class PushConsumer:
    """One member of a consumer group. Use it on one event loop, as an async context manager.

    `topics`, `consume_from` (FIRST or LAST) and `ordered` are those of `SimpleConsumer`. Messages come while `run` or a
    loop asks for them: as many as handlers are free, and a few more for quick ones.

    A message belongs to this member for `invisible_ms`. It is renewed in time while its handler runs, but not beyond
    `hold_max_ms` after its pop. If the broker refuses, or does not answer in time, others get the message: the handler
    is cancelled if it is a coroutine, its result does not count, and `holds` is False.

    `close` waits `drain_timeout_ms` for handlers.
    """

    def __init__(
        self,
        topics: Topics,
        namesrv: str | Sequence[str] = "127.0.0.1:9876",
        group: str = "ringmq_consumer",
        *,
        ordered: bool = False,
        consume_from: ConsumeFrom = ConsumeFrom.LAST,
        invisible_ms: int = INVISIBLE_MS,
        hold_max_ms: int = HOLD_MAX_MS,
        drain_timeout_ms: int = DRAIN_TIMEOUT_MS,
        settings: ConnectionSettings | None = None,
    ) -> None:
        check_kinds((str, Iterable), topics=topics)
        check_kinds(ConsumeFrom, consume_from=consume_from)
        if consume_from is ConsumeFrom.TIMESTAMP:
            raise ValueError("consume_from must be FIRST or LAST: a group of POP cannot begin at a time")
        check_flags(ordered=ordered)
        check_numbers(INVISIBLE_MS_MIN, INVISIBLE_MS_MAX, invisible_ms=invisible_ms)
        check_numbers(0, INT_MAX, hold_max_ms=hold_max_ms, drain_timeout_ms=drain_timeout_ms)
        check_optional(ConnectionSettings, settings=settings)
        settings = settings or ConnectionSettings()
        name_servers = parse_name_servers(namesrv)
        self._member = PopMember(topics, name_servers, group, consume_from, settings, ordered=ordered)
        self.group = group
        self.client_id = self._member.client_id
        self.drain_timeout_ms = drain_timeout_ms
        self._started_ms = 0
        self._ordered = ordered
        self._invisible_ms = invisible_ms
        self._lease_rules = LeaseRules(invisible_ms / 1000, hold_max_ms / 1000)
        self._observers = Observers(settings, name_servers, group, Producer)
        self._interceptors = self._observers.interceptors
        self._receiving: list[Task[None]] = []
        self._watching: Task[None] | None = None
        self._runner: HandlerRunner[PopDelivery] | None = None
        self._handed_over: list[PopDelivery] = []  # to loops: acknowledged when one of them asks for the next one
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
        """Join the group. Brokers and topics that cannot be reached are found later.

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
        linger_s = 0.0 if self._ordered else LINGER_S
        self._held = HeldMessages(self.group, member.settling, self._lease_rules, linger_s, ordered=self._ordered)
        self._held.on_lost = self._abandon
        inbox = self._held.inbox
        self._observers.watch_inbox(self.group, lambda: (inbox.count, inbox.bytes_held))
        self._admin_requests = AdminRequests(
            self.group, member.client, {}, member.subscriptions, self._stats, None, self._properties,
            lambda: self._runner,
        )  # fmt: skip
        self._observers.start()
        self._started = True
        when_interrupted(self._take_back_from_loops)
        try:
            await member.join()
            self._check_started()
        except BaseException as error:  # a start that is given up leaves nothing behind
            if self._closed and isinstance(error, RingmqError):
                raise ClientClosedError("the consumer was closed while it started") from error
            await self.close(0)
            raise
        self._begin_pops()
        self._watching = create_task(self._held.watch(), name="ringmq renewals")

    async def close(self, drain_timeout_ms: int | None = None) -> None:
        """Take no more messages, drain handlers for `drain_timeout_ms`, acknowledge, leave the group.

        What no handler has begun goes back to the group at once, and so does what is unfinished after that time. Ends
        `run` and loops over this. Later calls raise `ClientClosedError`.
        """
        if not self._started:
            return
        self._started, self._closed = False, True
        timeout_s = (self.drain_timeout_ms if drain_timeout_ms is None else drain_timeout_ms) / 1000
        deadline = time.monotonic() + timeout_s
        async with AsyncExitStack() as last:  # done upwards, whatever fails or is cancelled before
            last.callback(setattr, self, "_ended", True)
            last.push_async_callback(self._observers.close)
            last.push_async_callback(lambda: self._member.close(max(REQUESTS_S, deadline - time.monotonic())))
            last.push_async_callback(self._settle_rest)
            last.push_async_callback(
                stop_all, [*self._receiving, *(() if self._watching is None else (self._watching,))]
            )
            last.callback(self._held.inbox.close)
            self._member.receiving.close()
            self._held.inbox.close()
            self._held.give_back_waiting()
            for task in self._receiving:
                task.cancel()  # an answer that comes late is given back
            if self._runner is not None:
                self._runner.stop()
                if late := await self._runner.drain(timeout_s):
                    log.warning("group %s: %d handlers had not ended after %g s", self.group, late, timeout_s)

    @property
    def closed(self) -> bool:
        """True after a call of `close`."""
        return self._closed

    # ---- messages ----

    async def run(
        self,
        handler: Callable[[MessageExt], object],
        *,
        concurrency: int = CONCURRENCY,
        timeout_ms: int | None = None,
        retry: ConsumeRetry | None = None,
    ) -> None:
        """Call `handler(message)`, up to `concurrency` at a time, until the consumer is closed.

        A message is acknowledged when its handler returns. If the handler raises (or runs longer than `timeout_ms`),
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
    ) -> HandlerRunner[PopDelivery]:
        """Return a runner for `run`. The blocking consumer runs it in threads of its own."""
        self._check_started()
        check_handler(handler)
        if self._runner is not None:
            raise RuntimeError("the consumer has a handler already")
        rules = HandlerRules(concurrency, timeout_ms, retry or ConsumeRetry(), self._ordered, broadcast=False)
        deliveries = PopDeliveries(self.group, rules, self._held)
        self._runner = HandlerRunner(handler, rules, deliveries, self.group, self._stats, self._interceptors)
        return self._runner

    def drop_runner(self) -> None:
        """Release the runner for another handler, and give back the messages that wait.

        A closing consumer retains its last runner until it has drained.
        """
        if not self._closed and self._runner is not None:
            self._runner.leave_retries()
            self._runner = None
            self._held.give_back_waiting()
            for task in self._receiving:
                task.cancel()  # polls that are under way were for these handlers
            self._begin_pops()

    def __aiter__(self) -> AsyncIterator[PoppedMessage]:
        return self

    async def __anext__(self) -> PoppedMessage:
        if (message := await self.next_message()) is None:
            raise StopAsyncIteration
        return message

    async def next_message(self) -> PoppedMessage | None:
        """Acknowledge what calls have returned so far, and return the next message. None from a closed consumer."""
        if self._closed:
            await sleep(0)  # as in `run`
            return None
        self._check_started()
        handed_over, self._handed_over = self._handed_over, []
        for done in handed_over:
            self._end_of_loop_s(done)
        held = self._held
        while (delivery := held.claim()) is None:
            if held.inbox.closed:
                return None
            await held.inbox.wait()
        try:
            for interceptor in self._interceptors:
                interceptor.before_consume(self.group, [delivery.message])
        except BaseException:
            held.put_back(delivery)
            raise
        self._handed_over.append(delivery)
        return delivery.message

    def ack(self, message: PoppedMessage) -> bool:
        """Acknowledge a message. The request follows within some ms. False if the message has ended otherwise."""
        self._check_open()
        delivery = self._found(message)
        if delivery is None or not self._held.ack(delivery):
            return False
        delivery.is_told = True
        self._tell_end(delivery, None)
        return True

    async def nack(self, message: PoppedMessage, delay_ms: int = 0) -> bool:
        """Let the group have the message after `delay_ms`. False if it has ended otherwise.

        In a handler the message is settled by that: the handler's return does not acknowledge it.
        """
        check_numbers(0, INVISIBLE_MS_MAX, delay_ms=delay_ms)
        self._check_open()
        if (delivery := self._found(message)) is None:
            return False
        delivery.is_told = True  # the handler may return before this call
        try:
            return await self._held.come_again(delivery, delay_ms)
        finally:
            self._tell_end(delivery, NackedError(f"given back, for {delay_ms} ms from now"))

    async def reject(self, message: PoppedMessage) -> bool:
        """Store the message among the dead letters of the group (`%DLQ%group`), then acknowledge it.

        False if it has ended otherwise. Raises `RingmqError` if the broker does not answer or refuses. A dead letter
        may exist then. The message is held as before, or comes again at its time if its handler has returned.
        """
        self._check_open()
        if (delivery := self._found(message)) is None:
            return False
        delivery.is_told = True  # as in `nack`
        try:
            is_rejected = await self._held.reject(delivery)
        except BaseException as error:
            delivery.is_told = delivery.is_free
            if delivery.is_free:
                self._tell_end(delivery, error)
            raise
        self._tell_end(delivery, RejectMessage())
        return is_rejected

    def holds(self, message: PoppedMessage) -> bool:
        """True while the message is this member's: it has not ended, and its time is not over. Any thread may ask."""
        check_kinds(PoppedMessage, message=message)
        return self._started_ms > 0 and self._held.find(message) is not None and message.seconds_left > 0

    # ---- inside ----

    def _begin_pops(self) -> None:
        self._receiving = [create_task(self._receive_forever(), name="ringmq pops") for _ in range(POPS_MAX)]

    async def _receive_forever(self) -> None:
        receiving, held, failures = self._member.receiving, self._held, 0
        while True:
            count = min(held.inbox.room(time.monotonic()), POP_MESSAGES_MAX)
            if count <= 0:
                await held.inbox.wait_for_room()
                continue
            began = time.monotonic()
            held.inbox.reserve(count)
            try:
                messages = await receiving.receive(count, WAIT_MS, self._invisible_ms)
                failures = 0
            except RingmqError as error:
                failures += 1
                log.info("group %s: no messages: %s", self.group, error)  # `receiving` has warned
            except Exception:  # a hook's fault, or ours, must not end the pops silently
                failures += 1
                log.exception("group %s: a pop failed; another one follows", self.group)
            finally:
                held.inbox.reserve(-count)
            if failures:
                await sleep(backoff_ms(failures, random.random()) / 1000)
                continue
            if messages:
                now = time.monotonic()
                self._stats.note_pulled(messages[0].topic, now, now - began, len(messages))
                held.take(messages)

    async def _settle_rest(self) -> None:
        """Send what is settled, and give back what is left: of loops, and of handlers that have not ended."""
        await self._held.end_renewals(REQUESTS_S)
        self._held.give_back_all()
        if left := await self._held.acks.flush(REQUESTS_S):
            log.warning("group %s: %d acknowledgements have no answer: the messages may come again", self.group, left)

    def _abandon(self, delivery: PopDelivery, error: ReceiptExpiredError) -> None:
        """Tell a handler that its message is lost."""
        if self._runner is not None:
            create_task(self._runner.abandon(delivery, error), name="ringmq lost message")
        elif delivery in self._handed_over:
            log.warning("group %s: %s", self.group, error)

    def _found(self, message: PoppedMessage) -> PopDelivery | None:
        check_kinds(PoppedMessage, message=message)
        return self._held.find(message)

    def _tell_end(self, delivery: PopDelivery, error: BaseException | None) -> None:
        """Tell interceptors of an end that the application has chosen."""
        for interceptor in self._interceptors:
            run_quietly(interceptor.after_consume, self.group, [delivery.message], error)

    def _end_of_loop_s(self, delivery: PopDelivery) -> None:
        """Acknowledge the message that a loop has moved past."""
        self._held.inbox.note_end(time.monotonic())
        if self._held.ack(delivery):
            self._tell_end(delivery, None)
        self._held.inbox.free(delivery)

    def _take_back_from_loops(self, call: object) -> None:
        """Let messages come again of which a loop may not know: an interrupt has stopped a call on its way."""
        self._handed_over.clear()
        self._held.repair(set() if self._runner is None else self._runner.claimed())

    def _serve(self, address: str, request: RemotingCommand) -> RemotingCommand | Deferred | None:
        return self._admin_requests.serve(address, request)

    def _properties(self) -> dict[str, str]:
        concurrency = 0 if self._runner is None else self._runner.rules.concurrency
        return self._member.description.properties(self._started_ms, concurrency)

    def _check_open(self) -> None:
        """Raise unless acknowledgements count: also while a close waits for handlers."""
        if self._ended or not self._closed:
            self._check_started()

    def _check_started(self) -> None:
        if not self._started:
            raise ClientClosedError("the consumer is not started or is closed")
