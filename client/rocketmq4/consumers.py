"""`PushConsumer` and `PullConsumer` of the 4.x clients over the blocking consumer."""

import logging
import threading
from collections.abc import Callable, Iterator

from ringmq.client.blocking import Cluster
from ringmq.client.blocking import Consumer as BlockingConsumer
from ringmq.client.errors import RingmqError
from ringmq.client.rocketmq4.connecting import Connecting, close_dropped
from ringmq.client.rocketmq4.exceptions import (
    ConsumerException,
    PullConsumerFetchMessageFailed,
    PullConsumerFetchMQFailed,
    PullConsumerStartFailed,
    PushConsumerStartFailed,
)
from ringmq.client.rocketmq4.ffi import MessageModel
from ringmq.client.rocketmq4.messages import ConsumeStatus, ReceivedMessage
from ringmq.remoting.message import MessageExt
from ringmq.remoting.message_queue import MessageQueue
from ringmq.remoting.subscription import SubscriptionData, build_subscription

log = logging.getLogger("ringmq.client")

THREADS = 16
PULL_TIMEOUT_MS = 20_000

Callback = Callable[[ReceivedMessage], ConsumeStatus | None]
"""What it returns decides in 2.0.0 (`ConsumeStatus`); in 0.4.4 every return is a success, an exception a failure."""


class _ConsumeLaterError(Exception):
    """The callback returned RECONSUME_LATER."""


class PushConsumer(Connecting):
    """Calls a function for every message, on threads of its own, from `start` to `shutdown`."""

    def __init__(
        self,
        group_id: str | bytes,
        orderly: bool = False,
        message_model: MessageModel = MessageModel.CLUSTERING,
    ) -> None:
        super().__init__(group_id)
        self._orderly = orderly
        self._callbacks: dict[str, Callback] = {}
        self._expressions: dict[str, str] = {}
        self._threads = THREADS
        self._running: BlockingConsumer | None = None
        self.set_message_model(message_model)

    def set_message_model(self, model: MessageModel) -> None:
        """CLUSTERING: one member of the group gets a message; BROADCASTING: each of them."""
        self._model = MessageModel(model)

    def set_thread_count(self, thread_count: int) -> None:
        """How many messages are processed at a time (an ordered consumer: one of each queue)."""
        if thread_count < 1:
            raise ConsumerException(f"thread_count must be positive, not {thread_count}")
        self._threads = thread_count

    def set_message_batch_max_size(self, max_size: int) -> None:
        """Of no effect: callbacks get one message at a time, in those clients, too."""

    def set_instance_name(self, name: str | bytes) -> None:
        """Of no effect: every client has an id of its own."""

    def subscribe(self, topic: str | bytes, callback: Callback, expression: str | bytes = "*") -> None:
        """Call `callback` for the topic's messages whose tag the expression names (`TagA || TagB`, `*`). Before
        `start`. Each topic has its own callback here; those clients called the last one for all."""
        name = topic if isinstance(topic, str) else topic.decode()
        self._expressions[name] = expression if isinstance(expression, str) else expression.decode()
        self._callbacks[name] = callback

    def start(self) -> None:
        """Join the group and begin. Raises `PushConsumerStartFailed`."""
        if self._running is not None:
            return
        try:
            consumer = BlockingConsumer(
                self._expressions,
                self._name_servers(),
                self._group,
                ordered=self._orderly,
                broadcast=self._model is MessageModel.BROADCASTING,
                settings=self._settings(),
            )
            consumer.start()
        except (ValueError, RingmqError) as error:
            raise PushConsumerStartFailed(str(error)) from error
        self._running = consumer
        self._runner = threading.Thread(target=self._run, args=(consumer,), name=f"consume {self._group}", daemon=True)
        self._runner.start()

    def shutdown(self) -> None:
        """Let the callbacks that run finish, commit, leave the group. May be called again."""
        running, self._running = self._running, None
        if running is not None:
            running.close()
            if threading.current_thread() is not self._runner:
                self._runner.join()

    def _run(self, consumer: BlockingConsumer) -> None:
        consumer.run(self._handle, concurrency=self._threads)

    def _handle(self, message: MessageExt) -> None:
        status = self._callbacks[message.topic](ReceivedMessage(message))
        if status is ConsumeStatus.RECONSUME_LATER:  # and no number that equals it
            raise _ConsumeLaterError("RECONSUME_LATER")


class PullConsumer(Connecting):
    """Reads a topic from the first message on, queue by queue; where it is, it knows as long as the process lives."""

    offset_table: dict[str, int] = {}  # noqa: RUF012  # of all objects of the process, as in 0.4.4

    def __init__(self, group_id: str | bytes) -> None:
        super().__init__(group_id)
        self._running: tuple[BlockingConsumer, Cluster] | None = None

    def __del__(self) -> None:
        for client in getattr(self, "_running", None) or ():
            close_dropped(client.close)

    def start(self) -> None:
        """Begin. Raises `PullConsumerStartFailed`."""
        if self._running is not None:
            return
        try:
            namesrv, settings = self._name_servers(), self._settings()
            consumer = BlockingConsumer(None, namesrv, self._group, auto_ack=False, settings=settings)
            cluster = Cluster(namesrv, settings=settings)
        except ValueError as error:
            raise PullConsumerStartFailed(str(error)) from error
        try:
            consumer.start()
            cluster.start()
        except RingmqError as error:
            consumer.close()
            raise PullConsumerStartFailed(str(error)) from error
        self._running = consumer, cluster

    def shutdown(self) -> None:
        """End. May be called again."""
        running, self._running = self._running, None
        for client in running or ():
            client.close()

    def get_message_queue_offset(self, mq: MessageQueue) -> int:
        """Where `pull` goes on with a queue."""
        return self.offset_table.get(_key(mq), 0)

    def set_message_queue_offset(self, mq: MessageQueue, offset: int) -> None:
        """Let `pull` go on there."""
        self.offset_table[_key(mq)] = offset

    def pull(self, topic: str | bytes, expression: str | bytes = "*", max_num: int = 32) -> Iterator[ReceivedMessage]:
        """Every message that there is and was not given before, `max_num` at a time; ends when there are no more.

        Raises `PullConsumerFetchMQFailed` and `PullConsumerFetchMessageFailed`.
        """
        name = topic if isinstance(topic, str) else topic.decode()
        tags = expression if isinstance(expression, str) else expression.decode()
        subscription = build_subscription(name, tags)
        for queue in sorted(self._bounds(name)):
            yield from self._pull_queue(queue, subscription, max_num)

    def _pull_queue(
        self, queue: MessageQueue, subscription: SubscriptionData, max_num: int
    ) -> Iterator[ReceivedMessage]:
        """Tags are compared here, so that the last offset of the queue is seen whatever its tag is."""
        consumer, _ = self._open()
        while True:
            first, end = self._bounds(queue.topic)[queue]
            at = max(first, self.get_message_queue_offset(queue))
            if at >= end:
                self.set_message_queue_offset(queue, at)
                return
            try:
                consumer.assign([queue])
                consumer.seek(queue, at)
                while at < end:
                    messages = consumer.poll(max_num, timeout_ms=PULL_TIMEOUT_MS)
                    if not messages:
                        raise PullConsumerFetchMessageFailed(f"{queue} gave nothing at {at}, its end is {end}")
                    for message in messages:
                        at = message.queue_offset + 1
                        self.set_message_queue_offset(queue, at)
                        if subscription.matches_tags(message.tags):
                            yield ReceivedMessage(message)
                    consumer.ack(messages)  # so many may be open, no more
            except (RingmqError, KeyError) as error:
                raise PullConsumerFetchMessageFailed(f"{queue} at {at}: {error}") from error

    def _bounds(self, topic: str) -> dict[MessageQueue, tuple[int, int]]:
        _, cluster = self._open()
        try:
            bounds = cluster.bounds([topic])
        except (ValueError, RingmqError) as error:
            raise PullConsumerFetchMQFailed(f"topic {topic}: {error}") from error
        if not bounds:
            raise PullConsumerFetchMQFailed(f"topic {topic} has no route")
        return bounds

    def _open(self) -> tuple[BlockingConsumer, Cluster]:
        if self._running is None:
            raise PullConsumerFetchMQFailed("the consumer is not started, or is shut down")
        return self._running


def _key(mq: MessageQueue) -> str:
    return f"{mq.topic}@{mq.broker_name}@{mq.queue_id}"
