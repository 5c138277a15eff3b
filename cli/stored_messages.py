"""Messages that brokers have stored, by their places: for commands that list or show them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import click

from ringmq.cli.admin import TIMEOUT_MS, Admin
from ringmq.cli.message_body import body_fields, plain_body
from ringmq.cli.output import print_line, say, say_body
from ringmq.cli.queue_pages import pull_page
from ringmq.client.errors import BrokerError
from ringmq.client.namespaces import without_namespace
from ringmq.remoting import properties
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.message import MessageExt, decode_messages

COLUMNS = ("broker", "queueId", "offset", "topic", "reconsumeTimes", "key", "bornMs", "bytes")
_NOTHING_THERE = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED)


class Place(NamedTuple):
    """The place of a message. Commands work in the order of places."""

    broker: str
    queue_id: int
    offset: int

    def __str__(self) -> str:
        """BROKER:QUEUE:OFFSET, as `--message` takes it."""
        return f"{self.broker}:{self.queue_id}:{self.offset}"


def place_of(text: str) -> Place:
    """Read BROKER:QUEUE:OFFSET. Raises click.BadParameter."""
    broker, *numbers = text.rsplit(":", 2)
    if not broker or len(numbers) != 2 or not all(number.isascii() and number.isdecimal() for number in numbers):
        raise click.BadParameter(f"{text!r} is no BROKER:QUEUE:OFFSET, such as broker-a:0:17")
    return Place(broker, int(numbers[0]), int(numbers[1]))


class Queue(NamedTuple):
    """A queue, and the offsets of its messages at the start of the command."""

    broker: str
    address: str
    queue_id: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Stored:
    """A message with its broker's name and address."""

    broker: str
    address: str
    message: MessageExt
    namespace: str = ""

    @property
    def place(self) -> Place:
        """The place of the message."""
        return Place(self.broker, self.message.queue_id, self.message.queue_offset)

    def row(self, topic: str) -> dict[str, Any]:
        """The row of a table. `topic`: to show, by its name on the wire."""
        message = self.message
        return {
            "broker": self.broker,
            "queueId": message.queue_id,
            "offset": message.queue_offset,
            "topic": without_namespace(self.namespace, topic),
            "reconsumeTimes": message.reconsume_times,
            "key": message.properties.get(properties.KEYS),
            "bornMs": message.born_timestamp_ms,
            "bytes": len(message.body),  # as stored
        }


def print_message(output: str, found: Stored, topic: str) -> None:
    """Print a message with its body, which is the only value that may have several lines. `topic`: to show."""
    body = plain_body(found.message)
    details = {**found.row(topic), "properties": dict(found.message.properties)}
    if output == "json":
        print_line(details | body_fields(body))
        return
    for key, value in details.items():
        say(f"{key}: {value}")
    say_body(body, "body: ")


async def queues_of(admin: Admin, topic: str, at: Place | None = None) -> list[Queue]:
    """The queues of a topic in the order of their places. With `at`, the queue of this place alone."""
    route = await admin.route(topic)
    if route is None:
        return []
    addresses = {broker.broker_name: broker.any_addr for broker in route.broker_datas}
    found = []
    for queues in sorted(route.queue_datas, key=lambda queues: queues.broker_name):
        address = addresses.get(queues.broker_name)
        for queue_id in range(queues.read_queue_nums if address else 0):
            assert address is not None
            if at is not None and (queues.broker_name, queue_id) != at[:2]:
                continue
            fields = {"topic": topic, "queueId": str(queue_id)}
            first, end = [
                int((await admin.client.call(address, code, fields, timeout_ms=TIMEOUT_MS)).ext_fields["offset"])
                for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
            ]
            found.append(Queue(queues.broker_name, address, queue_id, first, end))
    return found


async def messages_of(admin: Admin, topic: str, queues: Iterable[Queue]) -> AsyncIterator[Stored]:
    """The messages of these queues, in pages."""
    for broker, address, queue_id, first, end in queues:
        offset = first
        while offset < end:
            answer = await pull_page(admin.client, address, topic, offset, queue_id)
            if answer.code == ResponseCode.SUCCESS:
                for message in decode_messages(answer.body):
                    if message.queue_offset < end:
                        yield Stored(broker, address, message, admin.namespace)
            elif answer.code not in (*_NOTHING_THERE, ResponseCode.PULL_RETRY_IMMEDIATELY):
                raise BrokerError(address, answer.code, answer.remark)
            offset = max(offset + 1, int(answer.ext_fields.get("nextBeginOffset", "0")))


async def message_at(admin: Admin, topic: str, queues: Iterable[Queue], place: Place) -> Stored:
    """The message at a place. Raises ValueError if there is none."""
    queue = next((one for one in queues if (one.broker, one.queue_id) == place[:2]), None)
    if queue is None:
        raise ValueError(f"topic {topic} has no message {place}: no such queue, see ringmq topic status {topic}")
    if queue.first <= place.offset < queue.end:
        at = queue._replace(first=place.offset, end=place.offset + 1)
        async for found in messages_of(admin, topic, [at]):
            if found.message.queue_offset == place.offset:  # not the record of a batch that has it inside
                return found
    held = f"offsets {queue.first} to {queue.end - 1}" if queue.first < queue.end else "no messages"
    raise ValueError(f"topic {topic} has no message {place}: the queue has {held}")
