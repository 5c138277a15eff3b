"""The SDK for code without an event loop: blocking sockets and plain threads.

Names, arguments and errors are those of the asyncio classes, and so is the code underneath (`thread_loop`). Several
threads may share a client. So may greenlets, if gevent patched the process before the import of this module.
"""

import concurrent.futures
import inspect
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ringmq.client import cluster as async_cluster
from ringmq.client import consumer as async_consumer
from ringmq.client import producer as async_producer
from ringmq.client import push_consumer as async_push_consumer
from ringmq.client import simple_consumer as async_simple_consumer
from ringmq.client.cluster import StoreFolder
from ringmq.client.consuming.allocation import AllocationStrategy, allocate_averagely
from ringmq.client.consuming.consume_retry import ConsumeRetry
from ringmq.client.consuming.handler_runner import HandlerRunner
from ringmq.client.consuming.offsets import ConsumeFrom
from ringmq.client.consuming.queue_reader import PullOptions
from ringmq.client.consuming.subscriptions import Sql92, Topics
from ringmq.client.errors import ClientClosedError
from ringmq.client.popping.pop_requests import POP_MESSAGES_MAX
from ringmq.client.popping.popped_message import PoppedMessage
from ringmq.client.producer import QueueSelector
from ringmq.client.producing import transactions
from ringmq.client.producing.accumulator import BATCH_BYTES_MAX
from ringmq.client.producing.send_request import BodyRules, SendRequest
from ringmq.client.producing.send_result import SendResult
from ringmq.client.producing.transactions import Check, Local, TransactionResult
from ringmq.client.retry import RetryPolicy
from ringmq.client.runtimes.blocking_client import BlockingClient, BlockingMember
from ringmq.client.runtimes.runtime import bounded_gather
from ringmq.client.settings import ConnectionSettings
from ringmq.remoting.message import Message, MessageExt
from ringmq.remoting.message_queue import MessageQueue

__all__ = ["Cluster", "Consumer", "Producer", "PushConsumer", "SimpleConsumer", "TransactionProducer"]

log = logging.getLogger("ringmq.client")

H = TypeVar("H", async_consumer.Consumer, async_push_consumer.PushConsumer)

QUESTIONS_MAX = 64  # name servers and brokers should not get thousands at once


class Producer(BlockingMember[async_producer.Producer]):
    """Blocking twin of `ringmq.client.Producer`."""

    def __init__(
        self,
        namesrv: str | Sequence[str] = "127.0.0.1:9876",
        group: str = "ringmq_producer",
        *,
        retry: RetryPolicy | None = None,
        body_rules: BodyRules | None = None,
        in_flight_max: int = async_producer.IN_FLIGHT_REQUESTS_MAX,
        in_flight_bytes_max: int = async_producer.IN_FLIGHT_BYTES_MAX,
        linger_ms: int = 0,
        batch_bytes_max: int = BATCH_BYTES_MAX,
        settings: ConnectionSettings | None = None,
    ) -> None:
        client = async_producer.Producer(
            namesrv,
            group,
            retry=retry,
            body_rules=body_rules,
            in_flight_max=in_flight_max,
            in_flight_bytes_max=in_flight_bytes_max,
            linger_ms=linger_ms,
            batch_bytes_max=batch_bytes_max,
            settings=settings,
        )
        super().__init__(client, f"producer {group}")

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        sharding_key: str | None = None,
        delay: timedelta | None = None,
        deliver_at: datetime | None = None,
    ) -> SendResult:
        """Send one message and wait until it is stored."""
        return self._loop.run(
            self._client.send(
                message,
                queue=queue,
                selector=selector,
                sharding_key=sharding_key,
                delay=delay,
                deliver_at=deliver_at,
            )
        )

    def request(
        self,
        message: Message,
        timeout_ms: int = async_producer.REQUEST_TIMEOUT_MS,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        sharding_key: str | None = None,
    ) -> MessageExt:
        """Send `message` and wait for a consumer's reply."""
        return self._loop.run(
            self._client.request(message, timeout_ms, queue=queue, selector=selector, sharding_key=sharding_key)
        )

    def reply(self, request: Message, body: bytes, properties: dict[str, str] | None = None) -> SendResult:
        """Reply to a received message whose sender waits for a reply."""
        return self._loop.run(self._client.reply(request, body, properties))

    def recall(self, handle: str) -> str:
        """Recall a delayed message by its `SendResult.recall_handle`."""
        return self._loop.run(self._client.recall(handle))

    def begin_send(
        self, message: Message, *, queue: MessageQueue | None = None
    ) -> concurrent.futures.Future[SendResult]:
        """Send a message. The future gives the result or error of `send`.

        A bad message raises ValueError here. The future cannot be cancelled, and its callbacks run in a thread of
        their own.
        """
        return self.begin_request(self._call(self._client.prepare, message, queue))

    def begin_request(self, request: SendRequest) -> concurrent.futures.Future[SendResult]:
        """Send a prepared request like `begin_send`.

        Interceptors see messages only, so they do not see this request.
        """
        return self._loop.begin(self._client.send_request(request))

    def send_batch(self, messages: Sequence[Message], *, queue: MessageQueue | None = None) -> SendResult:
        """Send messages of one topic in one request."""
        return self._loop.run(self._client.send_batch(messages, queue=queue))

    def send_all(self, messages: Iterable[Message], *, pipeline: int = 256) -> list[SendResult]:
        """Send many messages, up to `pipeline` in flight. While `messages` is read, calls of other threads wait."""
        return self._loop.run(self._client.send_all(messages, pipeline=pipeline))

    def send_oneway(self, message: Message, *, queue: MessageQueue | None = None) -> None:
        """Send without an answer."""
        self._loop.run(self._client.send_oneway(message, queue=queue))

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The topic's write queues."""
        return self._loop.run(self._client.queues(topic))


class TransactionProducer(Producer):
    """Blocking twin of `ringmq.client.TransactionProducer`.

    `check` and `local` are plain functions. They run in threads of their own and may use this and other producers.
    """

    def __init__(self, *args: Any, check: Check, **options: Any) -> None:
        self._transactional = transactions.TransactionProducer(*args, check=check, **options)
        BlockingMember.__init__(self, self._transactional, f"producer {self._transactional.group}")

    def send_in_transaction(self, message: Message, local: Local) -> TransactionResult:
        """Store `message` as a half, run `local` with it, then publish or drop it."""
        return self._loop.run(self._transactional.send_in_transaction(message, local))


class _HandlingMember(BlockingMember[H]):
    """Base of consumers with handlers."""

    @property
    def closed(self) -> bool:
        """True after a call of `close`."""
        return self._client.closed

    def close(self, drain_timeout_ms: int | None = None) -> None:
        """Take no more messages, wait for running handlers, leave the group. See the asyncio consumer's `close`."""
        self._end(lambda: self._client.close(drain_timeout_ms))

    def run(
        self,
        handler: Callable[[MessageExt], object],
        *,
        concurrency: int = async_consumer.CONCURRENCY,
        timeout_ms: int | None = None,
        retry: ConsumeRetry | None = None,
    ) -> None:
        """Call `handler(message)` in `concurrency` threads until the consumer is closed.

        See the asyncio consumer's `run`. A handler that runs over `timeout_ms` has failed but cannot be ended. Its
        thread is busy until the handler returns, and its message may be handled again meanwhile. Ctrl-C waits for
        handlers as `close` does. On a closed consumer `run` returns at once.
        """
        if inspect.iscoroutinefunction(handler):
            raise TypeError("a blocking consumer needs a plain function as handler")
        if self._client.closed:  # by a signal that came just before, for example
            return
        runner = self._call(self._client.new_runner, handler, concurrency, timeout_ms, retry)
        watch = self._loop.call(self._loop.create_task, runner.watch(overdue=True))
        for number in range(concurrency):
            # as the one that runs: a close in another thread finds no thread that is not started yet
            self._loop.call(self._loop.start_thread, partial(self._handle, runner, handler), f"handler {number}")
        try:
            self._loop.run(runner.ended())
        except ClientClosedError:
            if not self._client.closed:
                raise
        except BaseException:
            self._loop.call(runner.stop)
            self._loop.run(runner.drain(self._client.drain_timeout_ms / 1000))
            raise
        finally:
            self._loop.call(watch.cancel)
            self._loop.call(self._client.drop_runner)

    def _handle(self, runner: HandlerRunner[Any], handler: Callable[[MessageExt], object]) -> None:
        """The work of one thread."""
        try:
            while (delivery := self._loop.run(runner.next())) is not None:
                failure: BaseException | None = None
                try:
                    if inspect.iscoroutine(made := handler(delivery.message)):
                        made.close()
                        raise TypeError("a blocking consumer's handler has returned a coroutine, which nobody awaits")
                except BaseException as error:
                    failure = error
                self._loop.run(runner.finish(delivery, failure))
        except ClientClosedError:
            log.debug("%s: closed before its last handler had ended", threading.current_thread().name)


class Consumer(_HandlingMember[async_consumer.Consumer]):
    """Blocking twin of `ringmq.client.Consumer`: `for message in consumer`, or `consumer.run(handler)`."""

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
        on_assigned: async_consumer.QueueListener | None = None,
        on_revoked: async_consumer.QueueListener | None = None,
        drain_timeout_ms: int = async_consumer.DRAIN_TIMEOUT_MS,
        settings: ConnectionSettings | None = None,
    ) -> None:
        client = async_consumer.Consumer(
            topics,
            namesrv,
            group,
            auto_ack=auto_ack,
            ordered=ordered,
            broadcast=broadcast,
            consume_from=consume_from,
            timestamp_ms=timestamp_ms,
            options=options,
            allocate=allocate,
            offset_file=offset_file,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            drain_timeout_ms=drain_timeout_ms,
            settings=settings,
        )
        super().__init__(client, f"consumer {group}")

    def __iter__(self) -> Iterator[MessageExt]:
        while messages := self._next_messages(1):  # of more, those behind a break would count as processed
            yield messages[0]

    def batches(self, max_messages: int = async_consumer.BATCH_MESSAGES_MAX) -> Iterator[list[MessageExt]]:
        """Yield batches of at least one message, each of one queue."""
        while messages := self._next_messages(max_messages):
            yield messages

    def poll(
        self, max_messages: int = async_consumer.BATCH_MESSAGES_MAX, timeout_ms: int | None = None
    ) -> list[MessageExt]:
        """Return up to `max_messages` of one queue, none after `timeout_ms` without a message.

        If the consumer is closed meanwhile, the result is empty. Raises `ClientClosedError` if it was closed before.
        """
        if self._client.closed:
            raise ClientClosedError("the client is closed")
        return self._next_messages(max_messages, timeout_ms)

    def _next_messages(self, max_messages: int, timeout_ms: int | None = None) -> list[MessageExt]:
        """Return what `poll` does, for loops: they end on a closed consumer, so there the result is empty."""
        try:
            return self._loop.run(self._client.next_messages(max_messages, timeout_ms))
        except ClientClosedError:
            if self._client.closed:
                return []
            raise

    def ack(self, messages: MessageExt | Iterable[MessageExt]) -> int:
        """Acknowledge messages. Return the number of those that were open."""
        return self._call(self._client.ack, messages)

    def reject(self, message: MessageExt) -> bool:
        """Store `message` among the group's dead letters. See the asyncio consumer's `reject`."""
        return self._loop.run(self._client.reject(message))

    def commit(self) -> None:
        """Commit the current acknowledgements."""
        self._loop.run(self._client.commit())

    def assignment(self) -> list[MessageQueue]:
        """Return the queues that this member reads now."""
        return self._call(self._client.assignment)

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the topic's readable queues."""
        return self._loop.run(self._client.queues(topic))

    def assign(self, queues: Iterable[MessageQueue], expression: str | Sql92 = "*") -> None:
        """Read exactly these queues from now on."""
        self._loop.run(self._client.assign(queues, expression))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop pulling and delivering messages of these queues until `resume`."""
        self._call(self._client.pause, queues)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Continue with paused queues."""
        self._call(self._client.resume, queues)

    def paused(self) -> list[MessageQueue]:
        """Return the assigned queues that are paused."""
        return self._call(self._client.paused)

    def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's committed offset of a queue."""
        return self._loop.run(self._client.committed(queue))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue reading an assigned queue at `offset`."""
        self._loop.run(self._client.seek(queue, offset))

    def seek_to_beginning(self, queue: MessageQueue) -> None:
        """Continue at the queue's first message."""
        self._loop.run(self._client.seek_to_beginning(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue behind the queue's last message."""
        self._loop.run(self._client.seek_to_end(queue))

    def seek_to_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Continue at the first message stored at or after `timestamp_ms`."""
        self._loop.run(self._client.seek_to_timestamp(queue, timestamp_ms))


class SimpleConsumer(BlockingMember[async_simple_consumer.SimpleConsumer]):
    """Blocking twin of `ringmq.client.SimpleConsumer`."""

    def __init__(
        self,
        topics: Topics,
        namesrv: str | Sequence[str] = "127.0.0.1:9876",
        group: str = "ringmq_consumer",
        *,
        ordered: bool = False,
        consume_from: ConsumeFrom = ConsumeFrom.LAST,
        drain_timeout_ms: int = async_simple_consumer.DRAIN_TIMEOUT_MS,
        settings: ConnectionSettings | None = None,
    ) -> None:
        client = async_simple_consumer.SimpleConsumer(
            topics,
            namesrv,
            group,
            ordered=ordered,
            consume_from=consume_from,
            drain_timeout_ms=drain_timeout_ms,
            settings=settings,
        )
        super().__init__(client, f"simple consumer {group}")

    @property
    def closed(self) -> bool:
        """True after a call of `close`."""
        return self._client.closed

    def close(self, drain_timeout_ms: int | None = None) -> None:
        """End the waits, wait for acknowledgements under way, leave the group. See the asyncio consumer's `close`."""
        self._end(lambda: self._client.close(drain_timeout_ms))

    def receive(
        self,
        max_messages: int = POP_MESSAGES_MAX,
        *,
        wait_ms: int = async_simple_consumer.WAIT_MS,
        invisible_ms: int = async_simple_consumer.INVISIBLE_MS,
    ) -> list[PoppedMessage]:
        """Return up to `max_messages`, none if none has come within `wait_ms`, or if the consumer is closed."""
        if self._client.closed:
            raise ClientClosedError("the client is closed")
        try:
            return self._loop.run(self._client.receive(max_messages, wait_ms=wait_ms, invisible_ms=invisible_ms))
        except ClientClosedError:
            if self._client.closed:
                return []
            raise

    def ack(self, messages: PoppedMessage | Iterable[PoppedMessage]) -> None:
        """Acknowledge messages."""
        self._loop.run(self._client.ack(messages))

    def nack(self, message: PoppedMessage, delay_ms: int = 0) -> None:
        """Give the message back: others may get it after `delay_ms`."""
        self._loop.run(self._client.nack(message, delay_ms))

    def change_invisible(self, message: PoppedMessage, invisible_ms: int) -> None:
        """Have the message come again `invisible_ms` from now on, unless it is acknowledged before."""
        self._loop.run(self._client.change_invisible(message, invisible_ms))

    def reject(self, message: PoppedMessage) -> None:
        """Store the message among the group's dead letters, then acknowledge it."""
        self._loop.run(self._client.reject(message))


class PushConsumer(_HandlingMember[async_push_consumer.PushConsumer]):
    """Blocking twin of `ringmq.client.PushConsumer`: `consumer.run(handler)`, or `for message in consumer`."""

    def __init__(
        self,
        topics: Topics,
        namesrv: str | Sequence[str] = "127.0.0.1:9876",
        group: str = "ringmq_consumer",
        *,
        ordered: bool = False,
        consume_from: ConsumeFrom = ConsumeFrom.LAST,
        invisible_ms: int = async_simple_consumer.INVISIBLE_MS,
        hold_max_ms: int = async_push_consumer.HOLD_MAX_MS,
        drain_timeout_ms: int = async_simple_consumer.DRAIN_TIMEOUT_MS,
        settings: ConnectionSettings | None = None,
    ) -> None:
        client = async_push_consumer.PushConsumer(
            topics,
            namesrv,
            group,
            ordered=ordered,
            consume_from=consume_from,
            invisible_ms=invisible_ms,
            hold_max_ms=hold_max_ms,
            drain_timeout_ms=drain_timeout_ms,
            settings=settings,
        )
        super().__init__(client, f"push consumer {group}")

    def __iter__(self) -> Iterator[PoppedMessage]:
        return iter(self._next_message, None)  # no generator: an interrupt in it would come behind the call

    def _next_message(self) -> PoppedMessage | None:
        try:
            return self._loop.run(self._client.next_message())
        except ClientClosedError:
            if self._client.closed:
                return None
            raise

    def ack(self, message: PoppedMessage) -> bool:
        """Acknowledge a message. False if it has ended otherwise."""
        return self._call(self._client.ack, message)

    def nack(self, message: PoppedMessage, delay_ms: int = 0) -> bool:
        """Let the group have the message after `delay_ms`. See the asyncio consumer's `nack`."""
        return self._loop.run(self._client.nack(message, delay_ms))

    def reject(self, message: PoppedMessage) -> bool:
        """Store the message among the group's dead letters. See the asyncio consumer's `reject`."""
        return self._loop.run(self._client.reject(message))

    def holds(self, message: PoppedMessage) -> bool:
        """True while the message is this member's: it has not ended, and its time is not over."""
        return self._client.holds(message)


class Cluster(BlockingClient[async_cluster.Cluster]):
    """Blocking twin of `ringmq.client.cluster.Cluster`. Requests about several topics go out at the same time."""

    def __init__(
        self, namesrv: str | Sequence[str], *, timeout_ms: int = 5000, settings: ConnectionSettings | None = None
    ) -> None:
        client = async_cluster.Cluster(namesrv, timeout_ms=timeout_ms, settings=settings)
        super().__init__(client, "cluster")

    def brokers(self) -> dict[str, str]:
        """Return broker name -> the address for reads."""
        return self._loop.run(self._client.brokers())

    def topics(self) -> list[str]:
        """Every registered topic."""
        return self._loop.run(self._client.topics())

    def system_topics(self, address: str) -> set[str]:
        """Return the broker's own topics."""
        return self._loop.run(self._client.system_topics(address))

    def queues(self, topics: Iterable[str]) -> list[MessageQueue]:
        """Return the readable queues of all known topics among `topics`."""

        async def queues() -> list[MessageQueue]:
            return [
                queue for found in await bounded_gather(self._client.queues, topics, QUESTIONS_MAX) for queue in found
            ]

        return self._loop.run(queues())

    def bounds(self, topics: Iterable[str]) -> dict[MessageQueue, tuple[int, int]]:
        """Return (first offset, offset behind the last message) of each readable queue of the topics."""

        async def bounds() -> dict[MessageQueue, tuple[int, int]]:
            every = await bounded_gather(self._client.bounds, topics, QUESTIONS_MAX)
            return {queue: ends for found in every for queue, ends in found.items()}

        return self._loop.run(bounds())

    def offsets_at(self, queues: Sequence[MessageQueue], timestamp_ms: int) -> dict[MessageQueue, int]:
        """Return the first offset stored at or after the time.

        If all messages are older it is the queue's end or more.
        """

        async def offset_at(queue: MessageQueue) -> int:
            return await self._client.offset_at(queue, timestamp_ms)

        async def offsets() -> dict[MessageQueue, int]:
            return dict(zip(queues, await bounded_gather(offset_at, queues, QUESTIONS_MAX), strict=True))

        return self._loop.run(offsets())

    def store_folder(self, address: str) -> StoreFolder | None:
        """Return the location of a broker's store, None if the broker does not report it."""
        return self._loop.run(self._client.store_folder(address))
