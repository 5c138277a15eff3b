"""Users that produce, consume, do both, or consume too slowly.

Each user has clients, and so connections, of its own over the blocking SDK. Locust has patched sockets and threads
before the import of this module, so a waiting user delays no other.

Request events, all named by the topic: `send` and `send_batch` (until the broker has stored it), `pull` (from the
request until messages arrive), `end_to_end` (from the send to the arrival, by the sender's clock in the message).
"""

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

from locust import User, constant_throughput, task

from ringmq.client import ConsumeFrom
from ringmq.client.blocking import Consumer, Producer
from ringmq.client.errors import RingmqError
from ringmq.loadtest.locust.thresholds import SLOW_SUFFIX
from ringmq.remoting.message import Message, MessageExt

SENT_AT = "LOADTEST_SENT_AT_US"  # property: wall clock of the sender
POLL_MESSAGES_MAX = 32
POLL_TIMEOUT_MS = 1000
MIXED_POLL_TIMEOUT_MS = 50
MIXED_POLLS_MAX = 16  # behind one request to send: messages come in as many pieces as they were sent in
BATCH_SHARE = 10  # one of so many requests is a batch


class RingmqUser(User):
    """Base of all users, with the options of `locustfile.py`."""

    abstract = True

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        self.options = environment.parsed_options
        self.topic: str = self.options.topic
        self._body = os.urandom(self.options.body_bytes)
        self._pace = constant_throughput(self.options.rate) if self.options.rate else None

    def wait_time(self) -> float:
        """Return the wait by which a user begins `--rate` tasks a second. 0 means one after another."""
        return 0.0 if self._pace is None else float(self._pace(self))

    def fire(self, event: str, name: str, took_s: float, size_bytes: int, error: BaseException | None = None) -> None:
        """Report one request to locust."""
        self.environment.events.request.fire(
            request_type=event,
            name=name,
            response_time=1000 * took_s,
            response_length=size_bytes,
            exception=error,
            context={},
        )

    @contextlib.contextmanager
    def measured(self, event: str, size_bytes: int) -> Iterator[None]:
        """Report the block as one request. Errors of the SDK count as its failure, others are raised, too."""
        began = time.perf_counter()
        try:
            yield
        except Exception as error:
            self.fire(event, self.topic, time.perf_counter() - began, 0, error)
            if not isinstance(error, RingmqError):
                raise
        else:
            self.fire(event, self.topic, time.perf_counter() - began, size_bytes)

    def message(self) -> Message:
        """Return a new message with its creation time."""
        return Message(self.topic, self._body, {SENT_AT: str(time.time_ns() // 1000)})

    def open_producer(self) -> Producer:
        """Return a started producer."""
        producer = Producer(self.options.namesrv, f"{self.options.group}-producer")
        producer.start()
        return producer

    def open_consumer(self, group: str) -> Consumer:
        """Return a started consumer that begins at the end."""
        consumer = Consumer(self.topic, self.options.namesrv, group, consume_from=ConsumeFrom.LAST)
        consumer.start()
        return consumer

    def send_some(self, producer: Producer, number: int) -> None:
        """Send a message, or now and then a batch."""
        if number % BATCH_SHARE or self.options.batch < 2:
            with self.measured("send", len(self._body)):
                producer.send(self.message())
        else:
            batch = [self.message() for _ in range(self.options.batch)]
            with self.measured("send_batch", len(batch) * len(self._body)):
                producer.send_batch(batch)

    def poll(self, consumer: Consumer, max_messages: int, timeout_ms: int, suffix: str = "") -> int:
        """Take the waiting messages and return their number. An empty poll is not reported."""
        began = time.perf_counter()
        try:
            messages = consumer.poll(max_messages, timeout_ms)
        except RingmqError as error:
            self.fire("pull", self.topic + suffix, time.perf_counter() - began, 0, error)
            return 0
        if messages:
            size_bytes = sum(len(message.body) for message in messages)
            self.fire("pull", self.topic + suffix, time.perf_counter() - began, size_bytes)
            self._report_arrivals(messages, suffix)
        return len(messages)

    def _report_arrivals(self, messages: Sequence[MessageExt], suffix: str) -> None:
        now_us = time.time_ns() // 1000
        for message in messages:
            sent_at = message.properties.get(SENT_AT, "")
            sent_us = int(sent_at) if sent_at.isdecimal() else 1000 * message.born_timestamp_ms
            self.fire("end_to_end", self.topic + suffix, max(0, now_us - sent_us) / 1e6, len(message.body))


class ProduceUser(RingmqUser):
    """Sends messages. One of ten requests is a batch."""

    weight = 4

    def on_start(self) -> None:
        """Connect."""
        self._producer = self.open_producer()
        self._requests = 0

    def on_stop(self) -> None:
        """Disconnect."""
        self._producer.close()

    @task
    def produce(self) -> None:
        """Send one request."""
        self._requests += 1
        self.send_some(self._producer, self._requests)


class ConsumeUser(RingmqUser):
    """A member of the group `--group`. Members share the queues of the topic."""

    weight = 2

    def on_start(self) -> None:
        """Join the group."""
        self._consumer = self.open_consumer(self.options.group)

    def on_stop(self) -> None:
        """Leave the group."""
        self._consumer.close()

    def wait_time(self) -> float:
        """Return no wait: this user waits in its polls."""
        return 0.0

    @task
    def consume(self) -> None:
        """Take the waiting messages."""
        self.poll(self._consumer, POLL_MESSAGES_MAX, POLL_TIMEOUT_MS)


class MixedUser(RingmqUser):
    """Sends, and takes waiting messages for the group `--group`-mixed."""

    weight = 1

    def on_start(self) -> None:
        """Connect both."""
        self._producer = self.open_producer()
        self._consumer = self.open_consumer(f"{self.options.group}-mixed")
        self._requests = 0

    def on_stop(self) -> None:
        """Disconnect both."""
        self._producer.close()
        self._consumer.close()

    @task
    def produce_and_consume(self) -> None:
        """Send one request, then take the waiting messages."""
        self._requests += 1
        self.send_some(self._producer, self._requests)
        timeout_ms = MIXED_POLL_TIMEOUT_MS
        for _ in range(MIXED_POLLS_MAX):
            if not self.poll(self._consumer, POLL_MESSAGES_MAX, timeout_ms):
                break
            timeout_ms = 0


class SlowConsumeUser(RingmqUser):
    """A member of the group `--group`-slow that takes one message in `--slow-ms` and falls behind."""

    weight = 1

    def on_start(self) -> None:
        """Join the group."""
        self._consumer = self.open_consumer(f"{self.options.group}-slow")

    def on_stop(self) -> None:
        """Leave the group."""
        self._consumer.close()

    def wait_time(self) -> float:
        """Return no wait: this user waits after each message."""
        return 0.0

    @task
    def consume(self) -> None:
        """Take one message, and wait a long time."""
        if self.poll(self._consumer, 1, POLL_TIMEOUT_MS, SLOW_SUFFIX):
            time.sleep(self.options.slow_ms / 1000)
