"""`Producer` of the 4.x clients over the blocking one."""

import ctypes
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, TypeVar

from ringmq.client.blocking import Producer as BlockingProducer
from ringmq.client.blocking import TransactionProducer as BlockingTransactionProducer
from ringmq.client.errors import RingmqError, SendError
from ringmq.client.producer import SendResult as StoredAt
from ringmq.client.producing.send_request import BodyRules
from ringmq.client.producing.transactions import TransactionState
from ringmq.client.retry import RetryPolicy
from ringmq.client.rocketmq4.connecting import Connecting, close_dropped
from ringmq.client.rocketmq4.exceptions import (
    ProducerException,
    ProducerSendAsyncFailed,
    ProducerSendOnewayFailed,
    ProducerSendOrderlyFailed,
    ProducerSendSyncFailed,
    ProducerStartFailed,
)
from ringmq.client.rocketmq4.messages import Message, ReceivedMessage, SendResult, TransactionStatus, send_result
from ringmq.remoting import message as wire
from ringmq.remoting.message_queue import MessageQueue

log = logging.getLogger("ringmq.client")

TIMEOUT_MS = 3000


QueueSelector = Callable[[int, ReceivedMessage, Any], int]
"""(number of queues, message, address of the C int `arg`) -> the queue's place."""
T = TypeVar("T")


def hashing_queue_selector(mq_size: int, msg: ReceivedMessage, arg: Any) -> int:
    """The int behind `arg`, modulo the number of queues."""
    number: int = ctypes.cast(arg, ctypes.POINTER(ctypes.c_int))[0]
    return number % mq_size


class Producer(Connecting):
    """Sends messages. The second argument is `orderly` (2.0.0) or, as a number, `timeout` (0.4.4); in ms.

    Every send may go to a chosen queue here, so `orderly` changes nothing.
    """

    def __init__(
        self,
        group_id: str | bytes,
        orderly: bool | int | None = False,
        timeout: int | None = None,
        compress_level: int | None = None,
        max_message_size: int | None = None,
    ) -> None:
        super().__init__(group_id)
        if orderly is not None and not isinstance(orderly, bool):  # 0.4.4: (group_id, timeout, compress_level, ...)
            timeout, compress_level, max_message_size = orderly, timeout, compress_level
        self._timeout_ms = timeout or TIMEOUT_MS
        self._compress_level = compress_level
        self._max_message_bytes = max_message_size
        self._running: BlockingProducer | None = None

    def __del__(self) -> None:
        running: BlockingProducer | None = getattr(self, "_running", None)
        if running is not None:
            close_dropped(running.close)

    def set_timeout(self, timeout: int) -> None:
        """How long a send may take with all its attempts, in ms."""
        self._timeout_ms = timeout

    def set_compress_level(self, level: int) -> None:
        """zlib's level for bodies over 4 KiB, 1 to 9."""
        self._compress_level = level

    def set_max_message_size(self, max_size: int) -> None:
        """The largest body, in bytes."""
        self._max_message_bytes = max_size

    def start(self) -> None:
        """Begin. Raises `ProducerStartFailed`."""
        if self._running is not None:
            return
        try:
            self._rules = self._body_rules()
            self._running = self._open(self._name_servers())
            self._running.start()
        except (ValueError, TypeError, RingmqError) as error:
            self._running = None
            raise ProducerStartFailed(str(error)) from error

    def shutdown(self) -> None:
        """Wait for what is under way, take leave of the brokers. May be called again."""
        running, self._running = self._running, None
        if running is not None:
            running.close()

    # ---- sending ----

    def send_sync(self, msg: Message) -> SendResult:
        """Send and wait until the message is stored. Raises `ProducerSendSyncFailed`."""
        return self._send(ProducerSendSyncFailed, lambda producer: producer.send(msg.to_send()))

    def send_batch(self, msgs: Sequence[Message]) -> SendResult:
        """Send messages of one topic in one request. Raises `ProducerSendSyncFailed`."""
        assert len(msgs) > 0, "Batch message length should be greater than 0"
        return self._send(ProducerSendSyncFailed, lambda producer: producer.send_batch([msg.to_send() for msg in msgs]))

    def send_oneway(self, msg: Message) -> None:
        """Send without an answer. Raises `ProducerSendOnewayFailed` when the message could not leave."""
        self._do(ProducerSendOnewayFailed, lambda producer: producer.send_oneway(msg.to_send()))

    def send_async(
        self,
        msg: Message,
        success_callback: Callable[[SendResult], object] | None,
        exception_callback: Callable[[ProducerSendAsyncFailed], object] | None,
    ) -> None:
        """Send and return at once; one of the callbacks is called later, on a thread of the client."""

        def ended(future: Future[StoredAt]) -> None:
            error = future.exception()
            if error is None:
                if success_callback is not None:
                    success_callback(send_result(future.result()))
                return
            failed = _async_failed(error)
            if exception_callback is None:
                log.error("message for %s was not stored: %s", msg.to_send().topic, error)
            else:
                exception_callback(failed)

        def begin(producer: BlockingProducer) -> None:
            producer.begin_send(msg.to_send()).add_done_callback(ended)

        self._do(ProducerException, begin)

    def send_orderly(
        self,
        msg: Message,
        arg: int,
        retry_times: int = 3,
        queue_selector: QueueSelector = hashing_queue_selector,
    ) -> SendResult:
        """Send to the queue that the selector chooses. Raises `ProducerSendOrderlyFailed`.

        How often is `retry_times` here once for all: failed sends are tried again within the time-out.
        """
        return self._send(
            ProducerSendOrderlyFailed,
            lambda producer: producer.send(
                sent := msg.to_send(), queue=_select(producer.queues(sent.topic), sent, arg, queue_selector)
            ),
        )

    def send_oneway_orderly(
        self, msg: Message, arg: int, queue_selector: QueueSelector = hashing_queue_selector
    ) -> None:
        """Send to the queue that the selector chooses, without an answer. Raises `ProducerSendOnewayFailed`."""
        self._do(
            ProducerSendOnewayFailed,
            lambda producer: producer.send_oneway(
                sent := msg.to_send(), queue=_select(producer.queues(sent.topic), sent, arg, queue_selector)
            ),
        )

    def send_orderly_with_sharding_key(self, msg: Message, sharding_key: str | bytes) -> SendResult:
        """Messages with one key go to one queue. Raises `ProducerSendOrderlyFailed`."""
        key = sharding_key.decode() if isinstance(sharding_key, bytes) else sharding_key
        return self._send(ProducerSendOrderlyFailed, lambda producer: producer.send(msg.to_send(), sharding_key=key))

    # ---- inside ----

    def _open(self, namesrv: str) -> BlockingProducer:
        return BlockingProducer(namesrv, self._group, **self._options())

    def _options(self) -> dict[str, Any]:
        retry = RetryPolicy(budget_ms=self._timeout_ms)
        return {"retry": retry, "body_rules": self._rules, "settings": self._settings()}

    def _body_rules(self) -> BodyRules:
        rules = BodyRules()
        if self._compress_level is not None:
            rules = replace(rules, compression_level=self._compress_level)
        if self._max_message_bytes is not None:
            rules = replace(rules, body_bytes_max=self._max_message_bytes)
        return rules

    def _send(self, failed: type[ProducerException], send: Callable[[BlockingProducer], StoredAt]) -> SendResult:
        return send_result(self._do(failed, send))

    def _do(self, failed: type[ProducerException], work: Callable[[BlockingProducer], T]) -> T:
        producer = self._running
        if producer is None:
            raise failed("the producer is not started, or is shut down")
        try:
            return work(producer)
        except (ValueError, RingmqError) as error:
            raise failed(str(error)) from error


class TransactionMQProducer(Producer):
    """Sends messages that are published, or dropped, by what a local transaction came to.

    `checker_callback(message)` is asked by the broker how one ended whose end it was not told.
    """

    def __init__(
        self,
        group_id: str | bytes,
        checker_callback: Callable[[ReceivedMessage], TransactionStatus],
        user_args: object = None,
        timeout: int | None = None,
        compress_level: int | None = None,
        max_message_size: int | None = None,
    ) -> None:
        super().__init__(group_id, False, timeout, compress_level, max_message_size)
        self._checker = checker_callback

    def send_message_in_transaction(
        self,
        message: Message,
        local_execute: Callable[[ReceivedMessage, Any], TransactionStatus],
        user_args: object = None,
    ) -> SendResult:
        """Store the message as a half, run `local_execute(message, user_args)`, publish or drop it by what that
        returns; an exception counts as UNKNOWN. Raises `ProducerSendSyncFailed`."""

        def local(half: wire.Message) -> TransactionState:
            return TransactionState[TransactionStatus(local_execute(ReceivedMessage(half), user_args)).name]

        def send(producer: BlockingProducer) -> StoredAt:
            assert isinstance(producer, BlockingTransactionProducer)  # `_open` made it
            return producer.send_in_transaction(message.to_send(), local).sent

        return self._send(ProducerSendSyncFailed, send)

    def _open(self, namesrv: str) -> BlockingProducer:
        checker = self._checker  # and not all of this object, which may be dropped

        def check(half: wire.MessageExt) -> TransactionState:
            return TransactionState[TransactionStatus(checker(ReceivedMessage(half))).name]

        return BlockingTransactionProducer(namesrv, self._group, check=check, **self._options())


def _select(queues: Sequence[MessageQueue], message: wire.Message, arg: int, selector: QueueSelector) -> MessageQueue:
    """Selectors were given the address of a C int, and read it with ctypes."""
    number = ctypes.c_int(arg)
    place = selector(len(queues), ReceivedMessage(message), ctypes.addressof(number))
    if not 0 <= place < len(queues):
        raise ValueError(f"the selector chose queue {place} of {len(queues)}")
    return queues[place]


def _async_failed(error: BaseException) -> ProducerSendAsyncFailed:
    code = error.code if isinstance(error, SendError) and error.code is not None else 0
    failed = ProducerSendAsyncFailed(str(error), code, __file__, 0, type(error).__name__)
    failed.__cause__ = error
    return failed
