"""`ringmq group retry` and `ringmq group dlq`: the messages that consumers of a group have failed.

A resend is a send-back (36) of the stored message, whose limit no message reaches. So the group alone gets it again,
by its retry topic after delay level 1. A group that pops gets it at once, by the retry topic of POP (`pop_resends.py`).
The message stays where it is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import click

from ringmq.cli.access import Access, client_options
from ringmq.cli.admin import TIMEOUT_MS, Admin, open_admin
from ringmq.cli.command_group import CommandGroup
from ringmq.cli.message_body import body_fields, plain_body
from ringmq.cli.output import print_line, print_result, print_rows, say, say_body
from ringmq.cli.queue_pages import pull_page
from ringmq.cli.running import run
from ringmq.client.errors import BrokerError
from ringmq.client.namespaces import without_namespace
from ringmq.remoting import properties
from ringmq.remoting.client_headers import ConsumerSendMsgBackRequestHeader
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.message import MessageExt, decode_messages
from ringmq.remoting.names import DLQ_PREFIX, RETRY_PREFIX, dlq_topic, retry_topic
from ringmq.services.send_back.cli.pop_resends import PopResends, topic_of

RESEND_LEVEL = 1
NO_LIMIT = 2**31 - 1
PROGRESS_STEP = 100
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
        raise click.BadParameter(f"{text!r} is no BROKER:QUEUE:OFFSET, see the command list")
    return Place(broker, int(numbers[0]), int(numbers[1]))


class Queue(NamedTuple):
    """A queue, and the offsets of its messages at the start of the command."""

    broker: str
    address: str
    queue_id: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Failed:
    """A message with its broker's name and address."""

    broker: str
    address: str
    message: MessageExt
    namespace: str = ""

    @property
    def place(self) -> Place:
        """The place of the message."""
        return Place(self.broker, self.message.queue_id, self.message.queue_offset)

    def row(self) -> dict[str, Any]:
        """The row of a table."""
        message = self.message
        wire_group = message.topic.removeprefix(DLQ_PREFIX).removeprefix(RETRY_PREFIX)
        return {
            "broker": self.broker,
            "queueId": message.queue_id,
            "offset": message.queue_offset,
            "topic": without_namespace(self.namespace, topic_of(message, wire_group)),
            "reconsumeTimes": message.reconsume_times,
            "key": message.properties.get(properties.KEYS),
            "bornMs": message.born_timestamp_ms,
            "bytes": len(message.body),  # as stored
        }


def commands(name: str, topic_of: Callable[[str], str], what: str, one: str) -> click.Group:
    """The commands of one of a group's two topics. `what`: its messages in words. `one`: one of them."""

    @click.group(name, cls=CommandGroup, help=f"List, show and resend {what} of a consumer group.")
    def group() -> None: ...

    @group.command("list", help=f"List {what}, the oldest of each queue first.")
    @click.argument("group_name", metavar="GROUP")
    @click.option("--limit", type=click.IntRange(1), default=1000, show_default=True, help="At most this many.")
    @client_options
    def list_messages(group_name: str, limit: int, access: Access, output: str) -> None:
        rows, more = run(_list(access, topic_of(group_name), limit))
        print_rows(output, rows, COLUMNS)
        if more:
            say("there are more messages, see --limit", err=True)

    @group.command(help=f"Show {one}, with its properties and its body.")
    @click.argument("group_name", metavar="GROUP")
    @click.argument("place", metavar="BROKER:QUEUE:OFFSET", type=place_of)
    @client_options
    def show(group_name: str, place: Place, access: Access, output: str) -> None:
        _print(output, run(_show(access, topic_of(group_name), place)))

    @group.command(help=f"Have {what} delivered to the group again, after delay level {RESEND_LEVEL}; to pops at once.")
    @click.argument("group_name", metavar="GROUP")
    @click.option(
        "--message",
        "places",
        multiple=True,
        metavar="BROKER:QUEUE:OFFSET",
        type=place_of,
        help="This one; may be repeated.",
    )
    @click.option("--all", "everything", is_flag=True, help="All messages.")
    @click.option(
        "--from",
        "start",
        metavar="BROKER:QUEUE:OFFSET",
        type=place_of,
        help="With --all: go on here, where an earlier resend has ended.",
    )
    @click.option("--dry-run", is_flag=True, help="Count, resend nothing.")
    @client_options
    def resend(
        group_name: str,
        places: tuple[Place, ...],
        everything: bool,
        start: Place | None,
        dry_run: bool,
        access: Access,
        output: str,
    ) -> None:
        if bool(places) == everything:
            raise click.UsageError("name messages by --message, or give --all")
        if start is not None and not everything:
            raise click.UsageError("--from needs --all")
        sender = None if dry_run else group_name
        topic = topic_of(group_name)
        count = run(_resend_all(access, topic, sender, start) if everything else _resend(access, topic, sender, places))
        verb = "would be resent" if dry_run else "were resent"
        print_result(output, {"group": group_name, "messages": count, "dryRun": dry_run}, f"{count} messages {verb}")

    return group


retry = commands(
    "retry", retry_topic, "messages that wait for a retry or had one", "a message that waits for a retry or had one"
)
dlq = commands("dlq", dlq_topic, "dead letters", "a dead letter")


def _print(output: str, found: Failed) -> None:
    """Print a message with its body, which is the only value that may have several lines."""
    body = plain_body(found.message)
    details = {**found.row(), "properties": dict(found.message.properties)}
    if output == "json":
        print_line(details | body_fields(body))
        return
    for key, value in details.items():
        say(f"{key}: {value}")
    say_body(body, "body: ")


async def _queues(admin: Admin, topic: str) -> list[Queue]:
    """The queues of a topic in the order of their places."""
    route = await admin.route(topic)
    if route is None:
        return []
    addresses = {broker.broker_name: broker.any_addr for broker in route.broker_datas}
    found = []
    for queues in sorted(route.queue_datas, key=lambda queues: queues.broker_name):
        address = addresses.get(queues.broker_name)
        for queue_id in range(queues.read_queue_nums if address else 0):
            assert address is not None
            fields = {"topic": topic, "queueId": str(queue_id)}
            first, end = [
                int((await admin.client.call(address, code, fields, timeout_ms=TIMEOUT_MS)).ext_fields["offset"])
                for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
            ]
            found.append(Queue(queues.broker_name, address, queue_id, first, end))
    return found


async def _messages(admin: Admin, topic: str, queues: Iterable[Queue]) -> AsyncIterator[Failed]:
    """The messages of these queues, in pages."""
    for broker, address, queue_id, first, end in queues:
        offset = first
        while offset < end:
            answer = await pull_page(admin.client, address, topic, offset, queue_id)
            if answer.code == ResponseCode.SUCCESS:
                for message in decode_messages(answer.body):
                    if message.queue_offset < end:
                        yield Failed(broker, address, message, admin.namespace)
            elif answer.code not in (*_NOTHING_THERE, ResponseCode.PULL_RETRY_IMMEDIATELY):
                raise BrokerError(address, answer.code, answer.remark)
            offset = max(offset + 1, int(answer.ext_fields.get("nextBeginOffset", "0")))


async def _at(admin: Admin, topic: str, queues: Iterable[Queue], place: Place) -> Failed:
    """The message at a place. Raises ValueError if there is none."""
    broker, queue_id, offset = place
    at = [
        queue._replace(first=offset, end=offset + 1)
        for queue in queues
        if (queue.broker, queue.queue_id) == (broker, queue_id) and queue.first <= offset < queue.end
    ]
    async for found in _messages(admin, topic, at):
        return found
    raise ValueError(f"topic {topic} has no message {place}, see the command list")


async def _list(access: Access, topic: str, limit: int) -> tuple[list[dict[str, Any]], bool]:
    rows = list[dict[str, Any]]()
    async with open_admin(access.namesrv, access.settings) as admin:
        async for found in _messages(admin, topic, await _queues(admin, topic)):
            if len(rows) == limit:
                return rows, True
            rows.append(found.row())
    return rows, False


async def _show(access: Access, topic: str, place: Place) -> Failed:
    async with open_admin(access.namesrv, access.settings) as admin:
        return await _at(admin, topic, await _queues(admin, topic), place)


async def _resend(access: Access, topic: str, sender: str | None, places: Iterable[Place]) -> int:
    """Resend the messages at these places, all or none. `sender`: their group, None = only count."""
    async with open_admin(access.namesrv, access.settings) as admin:
        queues = await _queues(admin, topic)
        chosen = [await _at(admin, topic, queues, place) for place in sorted(set(places))]
        resends = None if sender is None else Resends(admin, sender)
        for found in chosen:
            if resends is not None:
                await resends.send(found)
    return len(chosen)


async def _resend_all(access: Access, topic: str, sender: str | None, start: Place | None) -> int:
    """Resend the messages from `start` on. Each is sent when it is read, so the size of the topic does not matter."""
    async with open_admin(access.namesrv, access.settings) as admin:
        queues = [_following(queue, start) for queue in await _queues(admin, topic)]
        total = sum(queue.end - queue.first for queue in queues)
        resends = None if sender is None else Resends(admin, sender)
        count, place = 0, None
        try:
            async for found in _messages(admin, topic, queues):
                place = found.place
                if resends is not None:
                    await resends.send(found)
                count, place = count + 1, place._replace(offset=place.offset + 1)
                if count % PROGRESS_STEP == 0:
                    say(f"{count} of {total}", err=True)
        except BaseException:  # Ctrl-C, too
            if place is not None and sender is not None:
                say(f"{count} messages were resent; go on with --all --from {place}", err=True)
            raise
    return count


def _following(queue: Queue, start: Place | None) -> Queue:
    """The part of the queue from this place on."""
    if start is None or (queue.broker, queue.queue_id) > start[:2]:
        return queue
    is_before = (queue.broker, queue.queue_id) < start[:2]
    return queue._replace(first=queue.end if is_before else max(queue.first, min(start.offset, queue.end)))


class Resends:
    """Has a group get failed messages again, by the topic that its members read."""

    def __init__(self, admin: Admin, group: str) -> None:
        self._admin, self._group, self._to_pops = admin, group, PopResends(admin, group)

    async def send(self, found: Failed) -> None:
        """Resend one message. Raises `RingmqError`."""
        if await self._to_pops.send(found.address, found.message):
            return
        header = ConsumerSendMsgBackRequestHeader(
            offset=found.message.commit_log_offset, group=self._group, delay_level=RESEND_LEVEL,
            origin_msg_id=found.message.msg_id, origin_topic=found.message.topic, unit_mode=False,
            max_reconsume_times=NO_LIMIT,
        )  # fmt: skip
        fields = header.encode()
        code = RequestCode.CONSUMER_SEND_MSG_BACK
        await self._admin.client.call(found.address, code, fields, timeout_ms=TIMEOUT_MS)
