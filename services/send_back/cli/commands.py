"""`ringmq group retry` and `ringmq group dlq`: the messages that consumers of a group have failed.

A resend is a send-back (36) of the stored message, whose limit no message reaches. So the group alone gets it again,
by its retry topic after delay level 1. A group that pops gets it at once, by the retry topic of POP (`pop_resends.py`).
The message stays where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click

from ringmq.cli.access import Access, client_options
from ringmq.cli.admin import TIMEOUT_MS, Admin, open_admin
from ringmq.cli.command_group import CommandGroup
from ringmq.cli.output import print_result, print_rows, say
from ringmq.cli.running import run
from ringmq.cli.stored_messages import (
    COLUMNS,
    Place,
    Queue,
    Stored,
    message_at,
    messages_of,
    place_of,
    print_message,
    queues_of,
)
from ringmq.remoting.client_headers import ConsumerSendMsgBackRequestHeader
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.names import DLQ_PREFIX, RETRY_PREFIX, dlq_topic, retry_topic
from ringmq.services.send_back.cli.pop_resends import PopResends, topic_of

RESEND_LEVEL = 1
NO_LIMIT = 2**31 - 1
PROGRESS_STEP = 100


def commands(name: str, in_topic: Callable[[str], str], what: str, one: str) -> click.Group:
    """The commands of one of a group's two topics. `what`: its messages in words. `one`: one of them."""

    @click.group(name, cls=CommandGroup, help=f"List, show and resend {what} of a consumer group.")
    def group() -> None: ...

    @group.command("list", help=f"List {what}, the oldest of each queue first.")
    @click.argument("group_name", metavar="GROUP")
    @click.option("--limit", type=click.IntRange(1), default=1000, show_default=True, help="At most this many.")
    @client_options
    def listmessages_of(group_name: str, limit: int, access: Access, output: str) -> None:
        rows, more = run(_list(access, in_topic(group_name), limit))
        print_rows(output, rows, COLUMNS)
        if more:
            say("there are more messages, see --limit", err=True)

    @group.command(help=f"Show {one}, with its properties and its body.")
    @click.argument("group_name", metavar="GROUP")
    @click.argument("place", metavar="BROKER:QUEUE:OFFSET", type=place_of)
    @client_options
    def show(group_name: str, place: Place, access: Access, output: str) -> None:
        found = run(_show(access, in_topic(group_name), place))
        print_message(output, found, _topic_of(found))

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
        topic = in_topic(group_name)
        count = run(_resend_all(access, topic, sender, start) if everything else _resend(access, topic, sender, places))
        verb = "would be resent" if dry_run else "were resent"
        print_result(output, {"group": group_name, "messages": count, "dryRun": dry_run}, f"{count} messages {verb}")

    return group


retry = commands(
    "retry", retry_topic, "messages that wait for a retry or had one", "a message that waits for a retry or had one"
)
dlq = commands("dlq", dlq_topic, "dead letters", "a dead letter")


def _topic_of(found: Stored) -> str:
    """The topic whose message the group has failed."""
    message = found.message
    return topic_of(message, message.topic.removeprefix(DLQ_PREFIX).removeprefix(RETRY_PREFIX))


async def _list(access: Access, topic: str, limit: int) -> tuple[list[dict[str, Any]], bool]:
    rows = list[dict[str, Any]]()
    async with open_admin(access.namesrv, access.settings) as admin:
        async for found in messages_of(admin, topic, await queues_of(admin, topic)):
            if len(rows) == limit:
                return rows, True
            rows.append(found.row(_topic_of(found)))
    return rows, False


async def _show(access: Access, topic: str, place: Place) -> Stored:
    async with open_admin(access.namesrv, access.settings) as admin:
        return await message_at(admin, topic, await queues_of(admin, topic), place)


async def _resend(access: Access, topic: str, sender: str | None, places: Iterable[Place]) -> int:
    """Resend the messages at these places, all or none. `sender`: their group, None = only count."""
    async with open_admin(access.namesrv, access.settings) as admin:
        queues = await queues_of(admin, topic)
        chosen = [await message_at(admin, topic, queues, place) for place in sorted(set(places))]
        resends = None if sender is None else Resends(admin, sender)
        for found in chosen:
            if resends is not None:
                await resends.send(found)
    return len(chosen)


async def _resend_all(access: Access, topic: str, sender: str | None, start: Place | None) -> int:
    """Resend the messages from `start` on. Each is sent when it is read, so the size of the topic does not matter."""
    async with open_admin(access.namesrv, access.settings) as admin:
        queues = [_following(queue, start) for queue in await queues_of(admin, topic)]
        total = sum(queue.end - queue.first for queue in queues)
        resends = None if sender is None else Resends(admin, sender)
        count, place = 0, None
        try:
            async for found in messages_of(admin, topic, queues):
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

    async def send(self, found: Stored) -> None:
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
