"""Cases of the 5.x Python client through RocketMQ's proxy.

Arguments: host:port of the proxy, prefix of topics and groups, messages of a case (a multiple of 12). Prints one JSON
object of counts by case, as java/ProxyClient.java does.
"""

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from deliveries import Deliveries, Rule
from rocketmq import (
    ClientConfiguration,
    Credentials,
    FilterExpression,
    Message,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType

INVISIBLE_S = 30
WAIT_S = 150
QUIET_S = 5
BEYOND_INVISIBLE_S = 40
EARLY_S = 1.1
REQUEST_TIMEOUT_S = 30
POLL_S, LONG_POLL_S = 5, 20
Counts = dict[str, int]
Started = TypeVar("Started", Producer, SimpleConsumer, PushConsumer)
Result = TypeVar("Result")
checked: set[str] = set()


class Checker(TransactionChecker):
    """Answers by the body."""

    def check(self, message: Message) -> TransactionResolution:
        """The end of a transaction that its producer has not ended."""
        body = message.body.decode()
        checked.add(body)
        return TransactionResolution.COMMIT if "commit" in body else TransactionResolution.ROLLBACK


class Cases:
    """All cases, with one producer."""

    def __init__(self, endpoints: str, prefix: str, count: int) -> None:
        self.endpoints, self.prefix, self.count = endpoints, prefix, count
        topics = [prefix + name for name in ("Normal", "Transactions", "Mixed")]
        self._starts = threading.Lock()
        self.producer = self._started(lambda: Producer(self._configuration(), topics, checker=Checker()))

    def _started(self, made: Callable[[], Started]) -> Started:
        """Start a client. One starts at a time: a busy machine has no time for many."""

        def start() -> Started:
            with self._starts:
                client = made()
                client.startup()
                return client

        return patiently(start)

    def _configuration(self) -> ClientConfiguration:
        return ClientConfiguration(self.endpoints, Credentials(), request_timeout=REQUEST_TIMEOUT_S)

    def message(self, topic: str, body: str, **values: Any) -> Message:
        """A message with attributes of the client's class."""
        message = Message()
        message.topic, message.body = self.prefix + topic, body.encode()
        for name, value in values.items():
            setattr(message, name, value)
        return message

    def send(self, topic: str, messages: int, **values: Any) -> int:
        """Send messages with the same attributes."""
        for number in range(messages):
            patiently(partial(self.producer.send, self.message(topic, str(number), **values)))
        return messages

    def consumer(
        self, topic: str, group: str = "", wanted: FilterExpression | None = None, poll_s: int = POLL_S
    ) -> SimpleConsumer:
        """A simple consumer of a topic with the prefix, or of one with its whole name and a group."""
        name, group = (topic, group) if group else (self.prefix + topic, self.prefix + topic)
        subscription = {name: wanted or FilterExpression()}
        return self._started(lambda: SimpleConsumer(self._configuration(), group, subscription, await_duration=poll_s))

    def push_consumer(self, topic: str, rule: Rule) -> Deliveries:
        """What a push consumer gets that stays until the end of the program."""
        deliveries = Deliveries(rule)
        subscription = {self.prefix + topic: FilterExpression()}
        group = self.prefix + topic
        self._started(lambda: PushConsumer(self._configuration(), group, deliveries, subscription))
        return deliveries

    def simple(self, topic: str) -> Counts:
        """The group is new, and the topic has messages already."""
        sent = self.send(topic, self.count)
        consumer = self.consumer(topic)
        messages = receive(consumer, self.count, WAIT_S)
        return {
            "sent": sent,
            "received": bodies(messages),
            "acknowledged": acknowledge(consumer, messages),
            "again": bodies(receive(consumer, 1, BEYOND_INVISIBLE_S, attempt=2)),
        }

    def invisible(self) -> Counts:
        """Half of the messages come again after a second, the others after their invisible time."""
        consumer = self.consumer("Invisible")
        self.send("Invisible", self.count)
        first = receive(consumer, self.count, WAIT_S)
        for message in first[: self.count // 2]:
            consumer.change_invisible_duration(message, 1)
        again = receive(consumer, self.count, WAIT_S, attempt=2)
        return {
            "received": bodies(first),
            "second attempts": bodies(again),
            "acknowledged": acknowledge(consumer, again),
        }

    def push(self) -> Counts:
        """Every third message fails once."""
        deliveries = self.push_consumer("Push", lambda body, attempt: int(body) % 3 != 0 or attempt > 1)
        sent = self.send("Push", self.count)
        deliveries.wait(self.count + self.count // 3, WAIT_S, QUIET_S)
        return {"sent": sent, "deliveries": deliveries.total, "second attempts": deliveries.second_attempts}

    def dead_letter_consumer(self, group: str) -> SimpleConsumer:
        """The topic comes into being with the first dead letter."""
        return self.consumer(f"%DLQ%{group}", f"{group}-dead")

    def dead(self) -> Counts:
        """All messages fail until they are dead letters."""
        deliveries = self.push_consumer("Dead", lambda body, attempt: False)
        sent = self.send("Dead", self.count // 3)
        dead = consume(self.dead_letter_consumer(self.prefix + "Dead"), sent)
        return {"sent": sent, "dead": dead, "deliveries": deliveries.total}

    def fifo(self) -> Counts:
        """Of each message group, the second message fails once and the third one always."""
        groups = 3
        deliveries = self.push_consumer(
            "Fifo", lambda body, attempt: attempt > 1 if body.endswith(" 1") else not body.endswith(" 2")
        )
        for number in range(self.count):
            group, place = str(number % groups), number // groups
            patiently(partial(self.producer.send, self.message("Fifo", f"{group} {place}", message_group=group)))
        deliveries.wait(self.count + 2 * groups, WAIT_S, QUIET_S)
        seen = {"sent": self.count, "deliveries": deliveries.total, "out of order": deliveries.out_of_order()}
        return {**seen, "dead": consume(self.dead_letter_consumer(self.prefix + "Fifo"), groups)}

    def simple_fifo(self) -> Counts:
        """All messages have one message group, so that they are in one queue."""
        consumer = self.consumer("SimpleFifo")
        sent, in_order, beside = self.send("SimpleFifo", self.count // 3, message_group="one"), 0, 0
        for number in range(sent):
            messages, deadline = [], time.monotonic() + WAIT_S
            while not messages and time.monotonic() < deadline:
                messages += consumer.receive(1, 60)
            in_order += messages[0].body.decode() == str(number)
            if number == 0:
                beside = len(consumer.receive(1, INVISIBLE_S))
            acknowledge(consumer, messages)
        return {"sent": sent, "in order": in_order, "beside an open one": beside}

    def delay(self) -> Counts:
        """Messages of a time. RocketMQ gives them up to a second early."""
        consumer = self.consumer("Delay")
        due = int(time.time()) + 6
        self.send("Delay", self.count, delivery_timestamp=due)
        messages = receive(consumer, 1, WAIT_S)
        early = len(messages) if time.time() < due - EARLY_S else 0
        first = acknowledge(consumer, messages)
        return {"sent": self.count, "received": first + consume(consumer, self.count - first), "early": early}

    def recall(self) -> Counts:
        """Half of the messages are recalled before their time."""
        consumer = self.consumer("Recall")
        due, recalled = int(time.time()) + 90, 0
        for number in range(self.count):
            message = self.message("Recall", str(number), delivery_timestamp=due)
            receipt = patiently(partial(self.producer.send, message))
            if number % 2 == 0:
                self.producer.recall_message(self.prefix + "Recall", receipt.recall_handle)
                recalled += 1
        return {"sent": self.count, "recalled": recalled, "received": consume(consumer, self.count - recalled)}

    def transactions(self) -> Counts:
        """A quarter each is committed, rolled back, and left to the check with either end."""
        consumer = self.consumer("Transactions")
        kinds = ("commit", "rollback", "orphan-commit", "orphan-rollback")
        for number in range(self.count):
            kind = kinds[number % len(kinds)]
            transaction = self.producer.begin_transaction()
            self.producer.send(self.message("Transactions", f"{kind} {number}"), transaction)
            if kind == "commit":
                transaction.commit()
            elif kind == "rollback":
                transaction.rollback()
        received = consume(consumer, self.count // 2)
        deadline = time.monotonic() + WAIT_S
        while orphans_checked() < self.count // 2 and time.monotonic() < deadline:
            time.sleep(0.05)  # span: between looks at what the checker was asked
        return {"sent": self.count, "received": received, "orphans checked": orphans_checked()}

    def polls(self) -> Counts:
        """A receive waits when its message is sent."""
        consumer = self.consumer("Polls", poll_s=LONG_POLL_S)
        empty, received = len(patiently(partial(consumer.receive, 32, INVISIBLE_S))), 0
        with ThreadPoolExecutor(1) as thread:
            for number in range(self.count // 4):
                waiting = thread.submit(consumer.receive, 32, INVISIBLE_S)
                time.sleep(1)  # span: the receive begins to wait meanwhile
                self.producer.send(self.message("Polls", str(number)))
                received += acknowledge(consumer, waiting.result())
        return {"without a message": empty, "received": received}

    def renewal(self, topic: str, **values: str) -> Counts:
        """The listener takes longer than the invisible time of the proxy, which renews it."""

        def hold(body: str, attempt: int) -> bool:
            time.sleep(45)  # span: longer than the invisible time
            return True

        deliveries = self.push_consumer(topic, hold)
        sent = self.send(topic, 2, **values)
        deliveries.wait(2, WAIT_S, 60)
        return {"sent": sent, "deliveries": deliveries.total}

    def filters(self) -> Counts:
        """Tags and SQL92."""
        for number in range(self.count):
            message = self.message("Filters", str(number), tag="even" if number % 2 == 0 else "odd")
            message.add_property("number", str(number))
            self.producer.send(message)
        topic, sql = self.prefix + "Filters", f"number >= {self.count // 3}"
        tags = self.consumer(topic, self.prefix + "Tags", FilterExpression("even"))
        sql92 = self.consumer(topic, self.prefix + "Sql", FilterExpression(sql, FilterType.SQL))
        return {
            "by tag": consume(tags, self.count // 2),
            "by condition": consume(sql92, self.count - self.count // 3),
        }

    def refusals(self) -> Counts:
        """Normal messages to topics of other types, and to none."""
        refused = 0
        for topic in ("Fifo", "Delay", "Transactions", "Missing"):
            try:
                self.producer.send(self.message(topic, "a normal message"))
            except Exception:
                refused += 1
        return {"refused": refused}

    def mixed(self) -> Counts:
        """One topic for all types."""
        self.producer.send(self.message("Mixed", "normal"))
        self.producer.send(self.message("Mixed", "fifo", message_group="one"))
        self.producer.send(self.message("Mixed", "delay", delivery_timestamp=int(time.time()) + 3))
        transaction = self.producer.begin_transaction()
        self.producer.send(self.message("Mixed", "commit"), transaction)
        transaction.commit()
        return {"received": bodies(receive(self.consumer("Mixed"), 4, WAIT_S))}


def patiently(call: Callable[[], Result]) -> Result:
    """Try again if the proxy is too slow, or does not know the client, the topic or its type yet."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return call()
        except Exception:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.5)  # span: only the next try can tell


def receive(consumer: SimpleConsumer, wanted: int, seconds: float, attempt: int = 1) -> list[Message]:
    """Receive until `wanted` bodies have come at such an attempt or a later one, at most so many seconds."""
    messages: list[Message] = []
    deadline = time.monotonic() + seconds
    while bodies(messages) < wanted and time.monotonic() < deadline:
        received = patiently(partial(consumer.receive, 32, INVISIBLE_S))
        messages += [message for message in received if message.delivery_attempt >= attempt]
    return messages


def bodies(messages: list[Message]) -> int:
    """Bodies count once: a client may send a message twice that a busy machine has stored too late."""
    return len({message.body for message in messages})


def acknowledge(consumer: SimpleConsumer, messages: list[Message]) -> int:
    """Acknowledge all. Returns the number of bodies."""
    for message in messages:
        consumer.ack(message)
    return bodies(messages)


def consume(consumer: SimpleConsumer, wanted: int) -> int:
    """Receive and acknowledge until `wanted` bodies have come, then some seconds for more."""
    messages: list[Message] = []
    for enough, seconds in ((wanted, WAIT_S), (sys.maxsize, QUIET_S)):
        deadline = time.monotonic() + seconds
        while bodies(messages) < enough and time.monotonic() < deadline:
            received = patiently(partial(consumer.receive, 32, INVISIBLE_S))
            acknowledge(consumer, received)
            messages += received
    return bodies(messages)


def orphans_checked() -> int:
    """Open transactions of which the broker has asked."""
    return sum(body.startswith("orphan") for body in list(checked))


def counted(case: Callable[[], Counts]) -> Counts | str:
    """The counts of a case, or its error."""
    try:
        return case()
    except Exception as error:
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"


def main() -> None:
    """Run all cases side by side."""
    endpoints, prefix, count = sys.argv[1:]
    cases = Cases(endpoints, prefix, int(count))
    named: dict[str, Callable[[], Counts]] = {
        "simple consumer": lambda: cases.simple("Normal"),
        "topic without a type": lambda: cases.simple("Untyped"),
        "invisible time": cases.invisible,
        "push consumer": cases.push,
        "dead letters": cases.dead,
        "orderly push consumer": cases.fifo,
        "orderly simple consumer": cases.simple_fifo,
        "delay": cases.delay,
        "recall": cases.recall,
        "transactions": cases.transactions,
        "long polls": cases.polls,
        "renewal": lambda: cases.renewal("Renewal"),
        "orderly renewal": lambda: cases.renewal("RenewalFifo", message_group="one"),
        "filters": cases.filters,
        "refused sends": cases.refusals,
        "topic of mixed types": cases.mixed,
    }
    with ThreadPoolExecutor(len(named)) as threads:
        results = dict(zip(named, threads.map(counted, named.values()), strict=True))
    print(json.dumps(results), flush=True)
    os._exit(0)  # push consumers stay until here


if __name__ == "__main__":
    main()
