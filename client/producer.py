"""Sending: `async with Producer(...) as producer: await producer.send(message)`.

Many sends may be in flight: each is a request on the broker's one connection, answers come in any order, and frames
of one loop iteration leave together. A failed send is tried again by `RetryPolicy`. Its UNIQ_KEY stays the same, so a
consumer can recognise a duplicate.
"""

import logging
import os
import random
import time
from asyncio import CancelledError
from collections import deque
from collections.abc import AsyncIterable, Callable, Iterable, Sequence, Set
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from types import TracebackType
from typing import NamedTuple, Self

from ringmq.client.arguments import LONG_MAX, check_group_name, check_numbers, check_optional
from ringmq.client.connections.connection import BrokerConnection, ResponseFuture
from ringmq.client.connections.heartbeat import Heartbeats, unregister_client
from ringmq.client.connections.identity import new_client_id, new_key_generator, now_ms
from ringmq.client.connections.name_servers import NameServers, RouteTable, parse_name_servers
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.client.connections.routes import QueueChooser, TopicRoute, queue_of_key
from ringmq.client.errors import (
    BrokerError,
    ClientClosedError,
    NotStoreOkError,
    ReplyTimeoutError,
    RequestTimeoutError,
    RingmqError,
    RouteError,
    SendError,
)
from ringmq.client.interceptors import SendScope
from ringmq.client.namespaces import with_namespace
from ringmq.client.observing.observers import Observers
from ringmq.client.producing.accumulator import BATCH_BYTES_MAX, LINGER_MS_MAX, Accumulator
from ringmq.client.producing.broker_faults import BrokerFaults
from ringmq.client.producing.in_flight_limit import InFlightLimit, Permit
from ringmq.client.producing.recall import recall_message
from ringmq.client.producing.reply_routes import ReplyRoutes
from ringmq.client.producing.request_reply import WaitingRequests, compose_reply
from ringmq.client.producing.send_request import (
    BodyRules,
    SendRequest,
    TopicHeader,
    check_message,
    delayed_message,
    prepare_batch,
    prepare_message,
)
from ringmq.client.producing.send_result import SendResult, SendStatus
from ringmq.client.retry import RetryPolicy, backoff_ms, never_left
from ringmq.client.runtimes.runtime import Task, create_task, sleep, timeout, when_interrupted
from ringmq.client.runtimes.waiting import stop_all
from ringmq.client.settings import TIMEOUT_MS_MAX, ConnectionSettings
from ringmq.remoting import properties as names
from ringmq.remoting.codes import SEND_STORED_CODES, RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand, encode_frame
from ringmq.remoting.heartbeat import HeartbeatData
from ringmq.remoting.message import Message, MessageExt
from ringmq.remoting.message_queue import MessageQueue

__all__ = ["Producer", "QueueSelector", "SendResult", "SendStatus"]

QueueSelector = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""Chooses the queue of a message from its topic's write queues."""

log = logging.getLogger("ringmq.client")

IN_FLIGHT_REQUESTS_MAX = 1024  # a broker at 10,000/s answers these in 0.1 s, half of what stock lets a send queue
IN_FLIGHT_BYTES_MAX = 64 << 20
REQUEST_TIMEOUT_MS = 3000
ROUTE_PAUSE_S = 0.1  # between looks at a route that has no broker just now


class _FirstAttempt(NamedTuple):
    """A first attempt in flight, with its permit. `started` is monotonic time."""

    permit: Permit
    request: SendRequest
    queue: MessageQueue
    address: str
    future: ResponseFuture
    started: float


class _FailedAttempt(NamedTuple):
    """The failure of a first attempt."""

    error: RingmqError
    queue: MessageQueue
    started: float


class Producer:
    """Sends messages for one producer group. Use it on one event loop, as an async context manager.

    `in_flight_max` and `in_flight_bytes_max` bound the sends without an answer. A send over the bound waits. With
    `linger_ms` a message given to `send` waits so long for others of its topic, and they travel in one request. They
    leave earlier at `batch_bytes_max` (at most the limit of `body_rules`). Each `send` still returns its own message's
    result.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] = "127.0.0.1:9876",
        group: str = "ringmq_producer",
        *,
        retry: RetryPolicy | None = None,
        body_rules: BodyRules | None = None,
        in_flight_max: int = IN_FLIGHT_REQUESTS_MAX,
        in_flight_bytes_max: int = IN_FLIGHT_BYTES_MAX,
        linger_ms: int = 0,
        batch_bytes_max: int = BATCH_BYTES_MAX,
        settings: ConnectionSettings | None = None,
    ) -> None:
        check_group_name(group)
        check_optional(RetryPolicy, retry=retry)
        check_optional(BodyRules, body_rules=body_rules)
        check_optional(ConnectionSettings, settings=settings)
        check_numbers(1, LONG_MAX, in_flight_max=in_flight_max, in_flight_bytes_max=in_flight_bytes_max)
        check_numbers(1, LONG_MAX, batch_bytes_max=batch_bytes_max)
        check_numbers(0, LINGER_MS_MAX, linger_ms=linger_ms)
        self.group = group
        self.client_id = new_client_id()
        self._name_server_addresses = parse_name_servers(namesrv)
        self._retry = retry or RetryPolicy()
        self._body_rules = body_rules or BodyRules()
        self._in_flight = InFlightLimit(in_flight_max, in_flight_bytes_max)
        self._settings = settings or ConnectionSettings()
        self._wire_group = with_namespace(self._settings.namespace, group)
        self._observers = Observers(self._settings, self._name_server_addresses, group, Producer)
        self._interceptors = self._observers.interceptors
        self._before_request = self._settings.request_hook()
        self._signer = self._settings.only_signer()
        self._faults = BrokerFaults() if self._retry.avoid_slow_brokers else None
        self._keys = new_key_generator()
        batch_bytes_max = min(batch_bytes_max, self._body_rules.body_bytes_max)
        self._accumulator = Accumulator(linger_ms, batch_bytes_max, self._send_together) if linger_ms else None
        self._requests = WaitingRequests(self.client_id, self._observers.count_reply)
        self._headers: dict[str, TopicHeader] = {}
        self._choosers: dict[str, QueueChooser] = {}
        self._tasks: list[Task[None]] = []
        self._started = False

    # ---- life ----

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def start(self) -> None:
        """Start on the event loop. The first send makes connections."""
        if self._started:
            return
        self._client = RemotingClient(self._settings, on_server_request=self._on_server_request)
        name_servers = NameServers(self._client, self._name_server_addresses, self._settings.request_timeout_ms)
        self._routes = RouteTable(name_servers)
        self._heartbeats = Heartbeats(self._client, self._routes, self._describe, masters_only=True)
        self._reply_routes = ReplyRoutes(self._client, self._routes, self._heartbeats)
        self._tasks = [create_task(self._routes.refresh_forever()), create_task(self._heartbeats.send_forever())]
        self._observers.start()
        when_interrupted(self._in_flight.forget)
        self._started = True

    async def close(self) -> None:
        """Wait for sends in flight (time-outs bound it), leave the brokers, close. If cancelled, stop waiting."""
        if not self._started:
            return
        try:
            if self._accumulator is not None:
                await self._accumulator.flush()
            self._started = False
            await self._in_flight.wait_empty()
        finally:
            self._started = False
            await self._leave()

    # ---- sending ----

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        sharding_key: str | None = None,
        delay: timedelta | None = None,
        deliver_at: datetime | None = None,
    ) -> SendResult:
        """Send one message and return its stored position. Raises `SendError`, or ValueError for a bad message.

        The message goes to `queue`, or to the choice of `selector` among the topic's write queues. With
        `sharding_key` it goes to the queue of all messages with that key, as long as the topic has as many queues.
        Otherwise the queues are taken in turn.

        Consumers get the message after `delay`, or at `deliver_at`, which has a time zone.
        """
        message = delayed_message(message, delay, deliver_at)
        if selector is not None or sharding_key is not None:
            queue = await self._select(message, queue, selector, sharding_key)
        if self._accumulator is not None and self._accumulator.takes(message):
            self._check_started()
            check_message(message, self._body_rules)
            return await self._accumulator.send(message, queue)
        return await self._send_one(self._prepared(message, queue))

    async def send_request(self, request: SendRequest) -> SendResult:
        """Send a prepared request (from `prepare`, or made by hand past interceptors) like `send`."""
        return await self._send_one(request)

    def prepare(self, message: Message, queue: MessageQueue | None = None) -> SendRequest:
        """Return the request of `send`, for `send_request`. Interceptors are called for both. Raises ValueError."""
        self._check_started()
        return self._prepared(message, queue)

    async def send_batch(self, messages: Sequence[Message], *, queue: MessageQueue | None = None) -> SendResult:
        """Send messages of one topic in one request: stored together with consecutive offsets, or not at all."""
        return await self._send_one(self._prepared_batch(messages, queue))

    async def send_all(
        self, messages: Iterable[Message] | AsyncIterable[Message], *, pipeline: int = 256
    ) -> list[SendResult]:
        """Send each message in its own request, up to `pipeline` in flight. Raises the first failure at the end."""
        if pipeline < 1:
            raise ValueError(f"pipeline must be positive, not {pipeline}")
        self._check_started()
        given = [message async for message in messages] if isinstance(messages, AsyncIterable) else messages
        return await self._send_all(given, pipeline)

    async def send_oneway(self, message: Message, *, queue: MessageQueue | None = None) -> None:
        """Send without an answer, so the outcome stays unknown. Raises `SendError` if the request could not leave."""
        self._check_started()
        request = self._prepared(message, queue)
        until, attempts = self._retry.budget_end(time.monotonic()), 0
        try:
            chosen, address = await self._target(request, None, until)
            connection = await self._client.connection_in_time(address, until, frozenset())
            await connection.wait_writable(until)
            attempts = 1
            connection.write(self._frame(request, chosen, address, self._client.next_opaque(), oneway=True))
        except RingmqError as error:
            failure = SendError(request.topic, attempts, error)
            _conclude(request, None, failure)
            raise failure from error
        except BaseException as error:
            _conclude(request, None, error)
            raise
        _conclude(request, None)

    async def request(
        self,
        message: Message,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        sharding_key: str | None = None,
    ) -> MessageExt:
        """Send `message` and wait for the reply of a consumer, `timeout_ms` in all.

        Raises `ReplyTimeoutError` without a reply, `SendError` if the message is not known to be stored.
        """
        check_numbers(1, TIMEOUT_MS_MAX, timeout_ms=timeout_ms)
        self._check_started()
        correlation_id = self._requests.mark(message, timeout_ms)
        stored = False
        try:
            async with timeout(timeout_ms / 1000):
                await self._reply_routes.open(message.topic)
                await self.send(message, queue=queue, selector=selector, sharding_key=sharding_key)
                stored = True
                return await self._requests.reply_to(correlation_id)
        except TimeoutError:
            if stored:
                raise ReplyTimeoutError(message.topic, timeout_ms) from None
            late = RingmqError(f"not known to be stored after {timeout_ms} ms, the time of the request")
            raise SendError(message.topic, 1, late) from None
        finally:
            self._requests.forget(correlation_id)

    async def reply(self, request: Message, body: bytes, properties: dict[str, str] | None = None) -> SendResult:
        """Reply to a received message. Raises ValueError if it is no request, `SendError` if its sender is gone."""
        return await self.send(compose_reply(request, body, properties))

    async def recall(self, handle: str) -> str:
        """Recall a delayed message by its `SendResult.recall_handle`. Return its UNIQ_KEY.

        Raises `BrokerError` if the broker refuses: too late, or `recallMessageEnable` is off. Raises ValueError for a
        text that is no handle.
        """
        self._check_started()
        until = self._retry.budget_end(time.monotonic())
        return await recall_message(self._client, self._routes, self.group, handle, until)

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the topic's write queues, for `queue=` (messages of one queue are in order)."""
        self._check_started()
        return (await self._routes.for_sending(topic, self._retry.budget_end(time.monotonic()))).write_queues

    # ---- inside ----

    async def _leave(self) -> None:
        leave = {"clientID": self.client_id, "producerGroup": self.group}
        async with AsyncExitStack() as last:  # upwards, also when it is cancelled
            last.push_async_callback(self._client.close)
            last.push_async_callback(unregister_client, self._client, self._routes.master_addresses(), leave)
            last.push_async_callback(self._heartbeats.close)
            last.push_async_callback(stop_all, self._tasks)
            await self._observers.close()

    def _prepared(self, message: Message, queue: MessageQueue | None = None) -> SendRequest:
        scope = SendScope(self._interceptors, self.group, (message,)) if self._interceptors else None
        try:
            request = prepare_message(message, self._keys.next_key, now_ms(), self._body_rules)
        except (TypeError, ValueError) as error:
            if scope is not None:
                scope.end(None, error)
            raise
        request.queue, request.scope = queue, scope
        return request

    def _prepared_batch(self, messages: Sequence[Message], queue: MessageQueue | None) -> SendRequest:
        scope = SendScope(self._interceptors, self.group, messages) if self._interceptors else None
        try:
            request = prepare_batch(messages, self._keys.next_key, now_ms(), self._body_rules)
        except (TypeError, ValueError) as error:
            if scope is not None:
                scope.end(None, error)
            raise
        request.queue, request.scope = queue, scope
        return request

    async def _send_together(self, messages: Sequence[Message], queue: MessageQueue | None) -> SendResult:
        request = self._prepared(messages[0], queue) if len(messages) == 1 else self._prepared_batch(messages, queue)
        return await self._send_one(request)

    async def _select(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        sharding_key: str | None,
    ) -> MessageQueue:
        if queue is not None or (selector is not None and sharding_key is not None):
            raise ValueError("give one of queue, selector and sharding_key")
        queues = await self.queues(message.topic)
        if selector is not None:
            return selector(queues, message)
        if not sharding_key:
            raise ValueError("sharding_key must not be empty")
        message.properties[names.SHARDING_KEY] = sharding_key
        return queue_of_key(queues, sharding_key)

    def _on_server_request(self, address: str, request: RemotingCommand) -> RemotingCommand | None:
        if request.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
            return self._requests.take(request)
        return None

    async def _send_one(self, request: SendRequest) -> SendResult:
        begun = self._begin_nowait(request)
        return await (self._deliver(request) if begun is None else self._finish(begun))

    async def _send_all(self, messages: Iterable[Message], pipeline: int) -> list[SendResult]:
        results: list[SendResult] = []
        waiting: deque[_FirstAttempt] = deque()
        failure: Exception | None = None

        async def finish_oldest() -> None:
            nonlocal failure
            try:
                results.append(await self._finish(waiting.popleft()))
            except SendError as error:
                failure = failure or error

        try:
            for message in messages:
                try:
                    request = self._prepared(message)
                except Exception as error:  # a bad message, or an interceptor that does not let it pass
                    failure = error
                    break
                while len(waiting) >= pipeline:
                    await finish_oldest()
                while (begun := self._begin_nowait(request)) is None and waiting:
                    await finish_oldest()
                if failure is not None:
                    if begun is not None:
                        waiting.append(begun)
                    break
                if begun is None:  # no route or connection yet: the slow way makes them for those that follow
                    results.append(await self._deliver(request))
                else:
                    waiting.append(begun)
            while waiting:
                await finish_oldest()
        finally:  # empty unless cancelled, or `messages` itself failed
            for left in waiting:
                self._in_flight.give_back(left.permit)
                _conclude(left.request, None, CancelledError())
        if failure is not None:
            raise failure
        return results

    def _begin_nowait(self, request: SendRequest) -> _FirstAttempt | None:
        """Make the first attempt if route, connection and permit are available, else return None."""
        route = self._routes.known(request.topic) if self._started else None
        if route is None:
            return None
        chosen = request.queue or self._choose(route, None)
        address = None if chosen is None else route.master_address(chosen.broker_name)
        connection = None if address is None else self._client.open_connection_to(address)
        if chosen is None or connection is None or connection.writing_paused:
            return None
        if (permit := self._in_flight.take_nowait(len(request.body))) is None:
            return None
        opaque = self._client.next_opaque()
        try:
            frame = self._frame(request, chosen, connection.address, opaque)
            future = connection.request(opaque, frame, self._retry.budget_ms)
        except BaseException as error:  # raised by a request hook
            self._in_flight.give_back(permit)
            _conclude(request, None, error)
            raise
        return _FirstAttempt(permit, request, chosen, connection.address, future, time.monotonic())

    async def _finish(self, begun: _FirstAttempt) -> SendResult:
        """Wait for a first attempt. After its failure make further attempts in the remaining time."""
        error: RingmqError
        try:
            outcome = self._outcome(begun.request, begun.queue, begun.address, await begun.future)
            if isinstance(outcome, SendResult):
                if self._faults is not None:
                    self._note_answer(begun.queue, begun.started, None)
                _conclude(begun.request, outcome)
                return outcome
            error = outcome
        except RingmqError as failed:
            error = failed
        except BaseException as stopped:
            _conclude(begun.request, None, stopped)
            raise
        finally:
            self._in_flight.give_back(begun.permit)
        self._note_answer(begun.queue, begun.started, error)
        return await self._deliver(begun.request, _FailedAttempt(error, begun.queue, begun.started))

    def _outcome(
        self, request: SendRequest, chosen: MessageQueue, address: str, answer: RemotingCommand
    ) -> SendResult | RingmqError:
        """Return the meaning of an answer: the result of the send, or the reason why another attempt may follow."""
        if request.scope is not None:
            request.scope.answered(address, answer)
        if answer.code not in SEND_STORED_CODES:
            return BrokerError(address, answer.code, answer.remark)
        result = request.result(chosen, answer)
        wants_another = self._retry.another_broker_when_not_store_ok and request.queue is None
        return NotStoreOkError(result) if wants_another and result.status is not SendStatus.OK else result

    async def _deliver(self, request: SendRequest, failed: _FailedAttempt | None = None) -> SendResult:
        """Wait for a permit, then send until the message is stored or the attempts end."""
        try:
            if failed is None:  # else a copy may be stored, as SendError says
                self._check_started()
            permit = await self._in_flight.take(len(request.body))
            try:
                result = await self._deliver_in_budget(request, failed)
            finally:
                self._in_flight.give_back(permit)
        except BaseException as error:
            _conclude(request, None, error)
            raise
        _conclude(request, result)
        return result

    async def _deliver_in_budget(self, request: SendRequest, failed_once: _FailedAttempt | None) -> SendResult:
        """Make the attempts within one time budget, which does not include the wait for a permit."""
        started, attempts = time.monotonic(), 0
        error: RingmqError | None = None
        stored: SendResult | None = None
        avoid: str | None = None
        if failed_once is not None:
            started, attempts, error = failed_once.started, 1, failed_once.error
            avoid = failed_once.queue.broker_name
        until = self._retry.budget_end(started)
        while True:
            if error is not None:
                stored = error.result if isinstance(error, NotStoreOkError) else stored
                if not self._retry.may_retry(error, attempts, (time.monotonic() - started) * 1000):
                    if stored is not None:
                        return stored
                    raise SendError(request.topic, attempts, error) from error
                await self._prepare_retry(request.topic, error, attempts, until)
            chosen: MessageQueue | None = None
            begun = time.monotonic()
            try:
                chosen, address = await self._target(request, avoid, until)
                others = self._choosers[request.topic].missing if request.queue is None else frozenset[str]()
                connection = await self._client.connection_in_time(address, until, others)
                answer = await self._attempt(request, chosen, connection, started)
                attempts += 1
                outcome = self._outcome(request, chosen, address, answer)
                if isinstance(outcome, SendResult):
                    self._note_answer(chosen, begun, None)
                    return outcome
                error = outcome
            except RingmqError as failed:
                late = chosen is None and isinstance(failed, RequestTimeoutError)  # the name servers: nothing was sent
                attempts += not (late or never_left(failed))
                error = error if late and error is not None else failed  # the one before says more
            avoid = chosen.broker_name if chosen else None
            if chosen is not None:
                self._note_answer(chosen, begun, error)

    async def _attempt(
        self, request: SendRequest, chosen: MessageQueue, connection: BrokerConnection, started: float
    ) -> RemotingCommand:
        budget_ms = self._retry.budget_ms
        if connection.writing_paused:
            await connection.wait_writable(self._retry.budget_end(started))
        elapsed_ms = int((time.monotonic() - started) * 1000)
        timeout_ms = budget_ms if elapsed_ms < budget_ms // 10 else max(100, (budget_ms - elapsed_ms) // 100 * 100)
        opaque = self._client.next_opaque()
        return await connection.request(opaque, self._frame(request, chosen, connection.address, opaque), timeout_ms)

    async def _prepare_retry(self, topic: str, error: RingmqError, attempts: int, until: float) -> None:
        """Refresh the topic's route, unless the failure does not concern it."""
        if isinstance(error, BrokerError) and error.code == ResponseCode.GO_AWAY:
            self._client.go_away(error.address)
            return
        if isinstance(error, NotStoreOkError):
            return
        if isinstance(error, BrokerError) and error.code == ResponseCode.SYSTEM_BUSY:
            await sleep(backoff_ms(attempts, random.random()) / 1000)
            if not error.is_rejection:
                return
        if isinstance(error, RouteError):
            await sleep(ROUTE_PAUSE_S)
        try:
            await self._routes.fetch(topic, until)
        except RingmqError as refused:
            log.info("route of topic %s could not be refreshed: %s", topic, refused)

    async def _target(self, request: SendRequest, avoid_broker: str | None, until: float) -> tuple[MessageQueue, str]:
        self._check_started()
        route = await self._routes.for_sending(request.topic, until)
        chosen = request.queue or self._choose(route, avoid_broker)
        address = None if chosen is None else route.master_address(chosen.broker_name)
        if chosen is None or address is None:
            raise RouteError(f"topic {request.topic}: no master is registered for queue {chosen}", may_pass=True)
        return chosen, address

    def _frame(
        self, request: SendRequest, queue: MessageQueue, address: str, opaque: int, *, oneway: bool = False
    ) -> bytes:
        header = self._headers.get(request.topic)
        if header is None:
            topic = with_namespace(self._settings.namespace, request.topic)
            header = self._headers[request.topic] = TopicHeader(self._wire_group, topic)
        if self._before_request is None or self._signer is not None:
            return header.encode(request, queue.queue_id, opaque, oneway=oneway, signer=self._signer)
        command = header.command(request, queue.queue_id, opaque, oneway=oneway)
        self._before_request(address, command)
        return encode_frame(command)

    def _choose(self, route: TopicRoute, avoid_broker: str | None) -> MessageQueue | None:
        chooser = self._choosers.get(route.topic)
        if chooser is None:
            chooser = self._choosers[route.topic] = QueueChooser(int.from_bytes(os.urandom(2), "big"))
        slow: Set[str] = frozenset() if self._faults is None else self._faults.avoided(time.monotonic())
        chosen = chooser.choose(route, avoid_broker, slow, self._client.lost)
        if chooser.missing:
            self._client.try_again(chooser.missing)
        return chosen

    def _note_answer(self, chosen: MessageQueue, since: float, error: RingmqError | None) -> None:
        if self._faults is not None:
            self._faults.note_attempt(chosen.broker_name, since, time.monotonic(), error)

    def _check_started(self) -> None:
        if not self._started:
            raise ClientClosedError("the producer is not started or is closed")

    def _describe(self) -> HeartbeatData:
        return HeartbeatData(self.client_id, producer_groups=[self.group])


def _conclude(request: SendRequest, result: SendResult | None, error: BaseException | None = None) -> None:
    if request.scope is not None:
        request.scope.end(result, error)
