"""`PushConsumer` of the 5.x client over the blocking consumer; the other consumers are refused by name."""

import abc
import threading
from collections.abc import Mapping
from enum import Enum
from typing import Any

from ringmq.client.blocking import Consumer as BlockingConsumer
from ringmq.client.consuming.queue_reader import PullOptions
from ringmq.client.consuming.subscriptions import Sql92
from ringmq.client.errors import RingmqError
from ringmq.client.rocketmq5.client import Client, client_exception
from ringmq.client.rocketmq5.configuration import ClientConfiguration, FilterExpression, FilterType
from ringmq.client.rocketmq5.exception import IllegalArgumentException, IllegalStateException, UnsupportedException
from ringmq.client.rocketmq5.model import Message
from ringmq.remoting.message import MessageExt

__all__ = [
    "ConsumeResult",
    "LitePushConsumer",
    "LiteSimpleConsumer",
    "MessageListener",
    "PushConsumer",
    "SimpleConsumer",
]

THREADS = 20


class ConsumeResult(Enum):
    """What a listener returns."""

    SUCCESS = 0
    FAILURE = 1


class MessageListener(metaclass=abc.ABCMeta):
    """The application's part of a `PushConsumer`."""

    @abc.abstractmethod
    def consume(self, message: Message) -> ConsumeResult:
        """Process a message; FAILURE, or an exception, has it delivered again."""


class _ConsumeFailedError(Exception):
    """The listener returned FAILURE."""


class PushConsumer(Client):
    """Gives every message to the listener, on threads of its own. `subscription` maps topics to filters.

    `fifo` keeps the order of each message group; the 5.x client is told so by the group's settings at the server.
    """

    def __init__(
        self,
        client_configuration: ClientConfiguration,
        consumer_group: str,
        message_listener: MessageListener,
        subscription: Mapping[str, FilterExpression],
        max_cache_message_count: int = 1024,
        max_cache_message_size: int = 64 * 1024 * 1024,
        consumption_thread_count: int = THREADS,
        tls_enable: bool = False,
        *,
        fifo: bool = False,
    ) -> None:
        super().__init__(client_configuration, tls_enable)
        if not message_listener:
            raise IllegalArgumentException("message_listener should not be null")
        if not subscription:
            raise IllegalArgumentException("subscription should not be null")
        self.consumer_group = consumer_group
        self.fifo = fifo
        self._listener = message_listener
        self._subscription = dict(subscription)
        self._threads = consumption_thread_count
        self._options = PullOptions(buffered_max=max_cache_message_count, buffered_bytes_max=max_cache_message_size)

    def __str__(self) -> str:
        return f"PUSH_CONSUMER:{self.consumer_group}, client_id:{self.client_id}"

    def subscribe(self, topic: str, filter_expression: FilterExpression | None = None) -> None:
        """Read this topic, too: the consumer leaves its group and joins it again. Raises `ClientException` when that
        fails, and reads what it read before."""
        self._resubscribe({**self._subscription, topic: filter_expression or FilterExpression()})

    def unsubscribe(self, topic: str) -> None:
        """Read this topic no more."""
        left = {name: wanted for name, wanted in self._subscription.items() if name != topic}
        if not left:
            raise IllegalArgumentException(f"{topic} is the only topic: shut the consumer down instead")
        self._resubscribe(left)

    def _resubscribe(self, subscription: dict[str, FilterExpression]) -> None:
        if not self.is_running:
            raise IllegalStateException("unable to change the subscription because consumer is not running")
        before = self._subscription
        self._stop()
        try:
            self._subscription = subscription
            self._start()
        except Exception:
            self._subscription = before
            self._start_again()
            raise

    def _start_again(self) -> None:
        try:
            self._start()
        except Exception:
            self._is_running = False  # `startup` may try once more
            raise

    def _start(self) -> None:
        topics: dict[str, str | Sql92] = {
            topic: Sql92(wanted.expression) if wanted.filter_type == FilterType.SQL else wanted.expression
            for topic, wanted in self._subscription.items()
        }
        try:
            consumer = BlockingConsumer(
                topics,
                self.client_configuration.endpoints,
                self.consumer_group,
                ordered=self.fifo,
                options=self._options,
                settings=self._settings,
            )
            consumer.start()
        except (RingmqError, ValueError) as error:
            raise client_exception(error) from error
        self._consumer = consumer
        self._runner = threading.Thread(
            target=consumer.run,
            args=(self._handle,),
            kwargs={"concurrency": self._threads},
            name=f"consume {self.consumer_group}",
            daemon=True,
        )
        self._runner.start()

    def _stop(self) -> None:
        self._consumer.close()
        if threading.current_thread() is not self._runner:
            self._runner.join()

    def _handle(self, stored: MessageExt) -> None:
        if self._listener.consume(Message.received(stored)) is not ConsumeResult.SUCCESS:
            raise _ConsumeFailedError("the listener returned no SUCCESS")


class SimpleConsumer:
    """Receive, acknowledge and hide messages one by one: that is POP, which RingMQ does not serve yet."""

    def __init__(self, *args: Any, **options: Any) -> None:
        raise UnsupportedException(
            "SimpleConsumer needs POP (receive, ack and change_invisible_duration of single messages), which RingMQ "
            "does not serve yet; use ringmq.client.blocking.Consumer(..., auto_ack=False) with poll() and ack(), "
            "or PushConsumer"
        )


class LitePushConsumer:
    """Lite topics are not there."""

    def __init__(self, *args: Any, **options: Any) -> None:
        raise UnsupportedException("LitePushConsumer needs lite topics, which RingMQ does not have; use PushConsumer")


class LiteSimpleConsumer:
    """Lite topics are not there."""

    def __init__(self, *args: Any, **options: Any) -> None:
        raise UnsupportedException(
            "LiteSimpleConsumer needs lite topics and POP, which RingMQ does not have; use PushConsumer"
        )
