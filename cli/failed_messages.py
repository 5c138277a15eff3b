"""`ringmq group retry` and `ringmq group dlq`: the messages that consumers of a group have failed.

A resend is a send-back (36) of the stored message, whose limit no message reaches. So the group alone gets it again,
by its retry topic after delay level 1. The message stays where it is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import click

from ringmq.cli.access import Access, client_options
from ringmq.cli.admin import TIMEOUT_MS, Admin, open_admin
from ringmq.cli.open_halves import pull_page
from ringmq.cli.output import print_result, print_rows
from ringmq.cli.running import run
from ringmq.client.errors import BrokerError
from ringmq.client.namespaces import without_namespace
from ringmq.remoting import properties
from ringmq.remoting.client_headers import ConsumerSendMsgBackRequestHeader
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.message import MessageExt, decode_messages
from ringmq.remoting.names import dlq_topic, retry_topic

RESEND_LEVEL = 1
NO_LIMIT = 2**31 - 1
PROGRESS_STEP = 100
COLUMNS = ("broker", "queueId", "offset", "topic", "reconsumeTimes", "key", "bornMs", "bytes")
_NOTHING_THERE = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED)


@dataclass(frozen=True, slots=True)
class Failed:
    """A message with its broker's name and address."""

    broker: str
    address: str
    message: MessageExt
    namespace: str = ""

    @property
    def place(self) -> str:
        """BROKER:QUEUE:OFFSET, as `--message` takes it."""
        return f"{self.broker}:{self.message.queue_id}:{self.message.queue_offset}"

    def row(self) -> dict[str, Any]:
        """The row of a table."""
        message = self.message
        return {
            "broker": self.broker,
            "queueId": message.queue_id,
            "offset": message.queue_offset,
            "topic": without_namespace(self.namespace, message.properties.get(properties.RETRY_TOPIC, message.topic)),
            "reconsumeTimes": message.reconsume_times,
            "key": message.properties.get(properties.KEYS),
            "bornMs": message.born_timestamp_ms,
            "bytes": len(message.body),
        }


def commands(name: str, topic_of: Callable[[str], str], what: str) -> click.Group:
    """The commands of one of a group's two topics. `what`: its messages in words."""

    @click.group(name, help=f"List, show and resend {what} of a consumer group.")
    def group() -> None: ...

    @group.command("list", help=f"List {what}, the oldest of each queue first.")
    @click.argument("group_name", metavar="GROUP")
    @click.option("--limit", type=click.IntRange(1), default=1000, show_default=True, help="At most this many.")
    @client_options
    def list_messages(group_name: str, limit: int, access: Access, output: str) -> None:
        rows, more = run(_list(access, topic_of(group_name), limit))
        print_rows(output, rows, COLUMNS)
        if more:
            click.echo("there are more messages, see --limit", err=True)

    @group.command(help=f"Show one of {what} with its properties.")
    @click.argument("group_name", metavar="GROUP")
    @click.argument("place", metavar="BROKER:QUEUE:OFFSET")
    @client_options
    def show(group_name: str, place: str, access: Access, output: str) -> None:
        found = run(_show(access, topic_of(group_name), place))
        body = found.message.body.decode("utf-8", "backslashreplace")
        details = {**found.row(), "properties": dict(found.message.properties), "body": body}
        lines = "\n".join(f"{key}: {value}" for key, value in details.items())
        print_result(output, details, lines)

    @group.command(help=f"Have {what} delivered to the group again, after delay level {RESEND_LEVEL}.")
    @click.argument("group_name", metavar="GROUP")
    @click.option(
        "--message", "places", multiple=True, metavar="BROKER:QUEUE:OFFSET", help="This one; may be repeated."
    )
    @click.option("--all", "everything", is_flag=True, help="All messages.")
    @click.option("--dry-run", is_flag=True, help="Count, resend nothing.")
    @client_options
    def resend(
        group_name: str, places: tuple[str, ...], everything: bool, dry_run: bool, access: Access, output: str
    ) -> None:
        if bool(places) == everything:
            raise click.UsageError("name messages by --message, or give --all")
        count = run(_resend(access, group_name, topic_of(group_name), set(places), dry_run))
        verb = "would be resent" if dry_run else "were resent"
        print_result(output, {"group": group_name, "messages": count, "dryRun": dry_run}, f"{count} messages {verb}")

    return group


retry = commands("retry", retry_topic, "messages that wait for a retry or had one")
dlq = commands("dlq", dlq_topic, "dead letters")


async def _messages(admin: Admin, topic: str) -> AsyncIterator[Failed]:
    """All messages that the topic has at the start of the command."""
    route = await admin.route(topic)
    if route is None:
        return
    addresses = {broker.broker_name: broker.any_addr for broker in route.broker_datas}
    for queues in route.queue_datas:
        address = addresses.get(queues.broker_name)
        for queue_id in range(queues.read_queue_nums if address else 0):
            assert address is not None
            fields = {"topic": topic, "queueId": str(queue_id)}
            answer = await admin.client.call(address, RequestCode.GET_MAX_OFFSET, fields, timeout_ms=TIMEOUT_MS)
            offset, end = 0, int(answer.ext_fields["offset"])
            while offset < end:
                answer = await pull_page(admin.client, address, topic, offset, queue_id)
                if answer.code == ResponseCode.SUCCESS:
                    for message in decode_messages(answer.body):
                        if message.queue_offset < end:
                            yield Failed(queues.broker_name, address, message, admin.namespace)
                elif answer.code not in (*_NOTHING_THERE, ResponseCode.PULL_RETRY_IMMEDIATELY):
                    raise BrokerError(address, answer.code, answer.remark)
                offset = max(offset + 1, int(answer.ext_fields.get("nextBeginOffset", "0")))


async def _list(access: Access, topic: str, limit: int) -> tuple[list[dict[str, Any]], bool]:
    rows = list[dict[str, Any]]()
    async with open_admin(access.namesrv, access.settings) as admin:
        async for found in _messages(admin, topic):
            if len(rows) == limit:
                return rows, True
            rows.append(found.row())
    return rows, False


async def _show(access: Access, topic: str, place: str) -> Failed:
    async with open_admin(access.namesrv, access.settings) as admin:
        async for found in _messages(admin, topic):
            if found.place == place:
                return found
    raise ValueError(f"topic {topic} has no message {place}, see the command list")


async def _resend(access: Access, group: str, topic: str, places: set[str], dry_run: bool) -> int:
    count, missing = 0, set(places)
    async with open_admin(access.namesrv, access.settings) as admin:
        chosen = [found async for found in _messages(admin, topic) if not places or found.place in places]
        missing -= {found.place for found in chosen}
        if missing:
            raise ValueError(f"topic {topic} has no message {min(missing)}, see the command list; none was resent")
        for found in chosen:
            if not dry_run:
                await _send_back(admin, group, found)
            count += 1
            if count % PROGRESS_STEP == 0:
                click.echo(f"{count} of {len(chosen)}", err=True)
    return count


async def _send_back(admin: Admin, group: str, found: Failed) -> None:
    header = ConsumerSendMsgBackRequestHeader(
        offset=found.message.commit_log_offset, group=group, delay_level=RESEND_LEVEL,
        origin_msg_id=found.message.msg_id, origin_topic=found.message.topic, unit_mode=False,
        max_reconsume_times=NO_LIMIT,
    )  # fmt: skip
    fields = header.encode()
    await admin.client.call(found.address, RequestCode.CONSUMER_SEND_MSG_BACK, fields, timeout_ms=TIMEOUT_MS)
