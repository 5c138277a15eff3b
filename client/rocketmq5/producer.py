"""`Producer` of the 5.x client over the blocking one."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, TypeVar
from zlib import crc32

from ringmq.client.blocking import Producer as BlockingProducer
from ringmq.client.blocking import TransactionProducer as BlockingTransactionProducer
from ringmq.client.connections.routes import queue_of_key
from ringmq.client.errors import RingmqError
from ringmq.client.producer import SendResult
from ringmq.client.producing.send_request import BodyRules
from ringmq.client.producing.transactions import TransactionState
from ringmq.client.retry import RetryPolicy
from ringmq.client.rocketmq5.client import Client, client_exception
from ringmq.client.rocketmq5.configuration import ClientConfiguration
from ringmq.client.rocketmq5.exception import IllegalArgumentException, IllegalStateException
from ringmq.client.rocketmq5.model import Message, SendReceipt
from ringmq.client.rocketmq5.transactions import STATES, Transaction, TransactionChecker, TransactionResolution
from ringmq.remoting import message as wire
from ringmq.remoting.message_queue import MessageQueue

__all__ = ["Producer", "Transaction", "TransactionChecker", "TransactionResolution"]

T = TypeVar("T")


class Producer(Client):
    """Sends messages: plain ones, those of a message group in order, delayed ones where the broker has timers."""

    DEFAULT_MAX_SEND_ATTEMPTS = 3
    DEFAULT_MAX_BODY_SIZE = 4 * 1024 * 1024
    GROUP = "rocketmq5_producer"

    def __init__(
        self,
        client_configuration: ClientConfiguration,
        topics: Iterable[str] | None = None,
        checker: TransactionChecker | None = None,
        tls_enable: bool = False,
    ) -> None:
        super().__init__(client_configuration, tls_enable)
        self.topics = set(topics or ())
        self._checker = checker
        self._open_transactions: set[Transaction] = set()
        self._noting = threading.Lock()  # several threads may send, and one ends
        rules = BodyRules(body_bytes_max=self.DEFAULT_MAX_BODY_SIZE)
        retry = RetryPolicy(self.DEFAULT_MAX_SEND_ATTEMPTS, int(client_configuration.request_timeout * 1000))
        options: dict[str, Any] = {"retry": retry, "body_rules": rules, "settings": self._settings}
        namesrv, group = client_configuration.endpoints, self._group()
        try:
            if checker is None:
                self._producer = BlockingProducer(namesrv, group, **options)
            else:
                self._producer = BlockingTransactionProducer(namesrv, group, check=self._check, **options)
        except ValueError as error:
            raise IllegalArgumentException(str(error)) from error

    def __str__(self) -> str:
        return f"PRODUCER client_id:{self.client_id}"

    def send(self, message: Message, transaction: Transaction | None = None) -> SendReceipt:
        """Send and wait until the message is stored: as a half that nobody sees until the `transaction` is committed,
        if there is one. Raises `ClientException`."""

        def send() -> SendReceipt:
            sent = message.to_send()
            if transaction is not None:
                return self._send_half(message, sent, transaction)
            return _receipt(message, self._producer.send(sent, sharding_key=message.message_group))

        return self._do(send)

    def send_async(self, message: Message) -> "Future[SendReceipt]":
        """Begin to send; the future gives what `send` returns or raises."""

        def begin() -> Future[SendReceipt]:
            sent = message.to_send()
            queue: MessageQueue | None = None
            if message.message_group is not None:
                queue = queue_of_key(self._producer.queues(sent.topic), message.message_group)
            return _then(self._producer.begin_send(sent, queue=queue), lambda result: _receipt(message, result))

        return self._do(begin)

    def recall_message(self, topic: str, recall_handle: str) -> str:
        """Take back a delayed message that was not delivered yet; its id. Raises `ClientException`."""
        return self._do(lambda: self._producer.recall(topic, recall_handle))

    def recall_message_async(self, topic: str, recall_handle: str) -> "Future[str]":
        """The same on a thread of its own."""
        future: Future[str] = Future()

        def recall() -> None:
            try:
                future.set_result(self.recall_message(topic, recall_handle))
            except Exception as error:
                future.set_exception(error)

        threading.Thread(target=recall, name="recall", daemon=True).start()
        return future

    def begin_transaction(self) -> Transaction:
        """A transaction for one `send`. Raises `IllegalStateException`, or without a checker
        `IllegalArgumentException`."""
        if not self.is_running:
            raise IllegalStateException("unable to begin transaction because producer is not running")
        if self._checker is None:
            raise IllegalArgumentException("Transaction checker should not be null.")
        return Transaction()

    def _send_half(self, message: Message, sent: wire.Message, transaction: Transaction) -> SendReceipt:
        """The half's queue is the broker's own, so the receipt names none."""
        producer = self._producer
        if not isinstance(producer, BlockingTransactionProducer):
            raise IllegalArgumentException("Transaction checker should not be null.")
        message.message_id = transaction.run(lambda local: producer.send_in_transaction(sent, local))
        with self._noting:
            self._open_transactions = {known for known in self._open_transactions if not known.has_ended}
            self._open_transactions.add(transaction)
        return SendReceipt(message.message_id, message.message_id, MessageQueue(sent.topic, "", -1), -1)

    def _check(self, half: wire.MessageExt) -> TransactionState:
        assert self._checker is not None
        return STATES[TransactionResolution(self._checker.check(Message.received(half)))]

    def _group(self) -> str:
        """Brokers ask any producer of the group about a transaction, so applications must not share one."""
        if self._checker is None:
            return self.GROUP
        if not self.topics:
            raise IllegalArgumentException("a producer with a transaction checker needs its topics")
        return f"{self.GROUP}_{crc32(' '.join(sorted(self.topics)).encode()):08x}"

    def _do(self, work: Callable[[], T]) -> T:
        if not self.is_running:
            raise IllegalStateException("producer is not running now.")
        try:
            return work()
        except (RingmqError, ValueError) as error:
            raise client_exception(error) from error

    def _start(self) -> None:
        self._producer.start()

    def _stop(self) -> None:
        with self._noting:
            left = list(self._open_transactions)
        for transaction in left:
            transaction.leave_open()
        self._producer.close()


def _receipt(message: Message, result: SendResult) -> SendReceipt:
    message.message_id = result.message_id
    return SendReceipt(result.message_id, None, result.queue, result.queue_offset, result.recall_handle)


def _then(first: "Future[SendResult]", use: Callable[[SendResult], SendReceipt]) -> "Future[SendReceipt]":
    """A future of what `use` makes of the result; errors become the 5.x client's."""
    second: Future[SendReceipt] = Future()
    second.set_running_or_notify_cancel()

    def ended(future: "Future[SendResult]") -> None:
        error = future.exception()
        if error is None:
            second.set_result(use(future.result()))
        elif isinstance(error, Exception):
            raised = client_exception(error)
            raised.__cause__ = error
            second.set_exception(raised)
        else:
            second.set_exception(error)

    first.add_done_callback(ended)
    return second
