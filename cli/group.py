"""`ringmq group`: list, create, delete, reset, progress, members, and the messages that its consumers have failed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from ringmq.cli import lag
from ringmq.cli.access import Access, client_options
from ringmq.cli.admin import no_group, no_route, open_admin
from ringmq.cli.command_group import CommandGroup
from ringmq.cli.guest_commands import add_commands
from ringmq.cli.output import print_result, print_rows, say
from ringmq.cli.running import run
from ringmq.remoting.config_beans import SubscriptionGroupConfig
from ringmq.remoting.names import SYSTEM_GROUPS, check_group


@click.group(cls=CommandGroup)
def group() -> None:
    """List, create, delete and inspect consumer groups."""


add_commands(group, "group")


@group.command("list")
@click.option("-a", "--all", "everything", is_flag=True, help="System groups, too.")
@click.option("--lag", "with_lag", is_flag=True, help="Messages not consumed, those in flight, ms of the oldest.")
@client_options
def list_groups(everything: bool, with_lag: bool, access: Access, output: str) -> None:
    """Groups and how many members are connected."""
    rows = run(_list(access, everything, with_lag))
    columns = ["group", "members", "consumeType", "messageModel", "retryMaxTimes", "enabled"]
    print_rows(output, rows, [*columns, *(lag.COLUMNS if with_lag else ())])


@group.command()
@click.argument("name")
@click.option("--retry-max-times", type=click.IntRange(0), help="Retries before the DLQ; new: 16.")
@click.option("--retry-queues", type=click.IntRange(0, 65535), help="Queues of the retry topic; new: 1.")
@click.option("--broadcast/--no-broadcast", default=None, help="Broadcasting is allowed or not; new: allowed.")
@click.option("--orderly/--no-orderly", default=None, help="Consumed in order or not; new: not.")
@click.option("--disabled/--enabled", default=None, help="Pulls are refused or served; new: served.")
@click.option("--cluster", help="Only this cluster.")
@client_options
def create(name: str, access: Access, output: str, cluster: str | None, **settings: Any) -> None:
    """Create a group on all brokers, or change it. A change keeps what no option names, on each broker."""
    fields = {
        "consume_enable": None if settings["disabled"] is None else not settings["disabled"],
        "consume_broadcast_enable": settings["broadcast"],
        "consume_message_orderly": settings["orderly"],
        "retry_queue_nums": settings["retry_queues"],
        "retry_max_times": settings["retry_max_times"],
    }
    brokers = run(_create(access, name, {field: v for field, v in fields.items() if v is not None}, cluster))
    print_result(output, {"group": name, "brokers": brokers}, f"group {name} is on {', '.join(brokers)}")


@group.command()
@click.argument("name")
@click.option("--keep-offsets", is_flag=True, help="Keep the group's offsets.")
@click.option("--cluster", help="Only in this cluster.")
@client_options
def delete(name: str, keep_offsets: bool, cluster: str | None, access: Access, output: str) -> None:
    """Delete a group with its retry and dead-letter topics."""
    run(_delete(access, name, not keep_offsets, cluster))
    print_result(output, {"group": name, "deleted": True}, f"group {name} is deleted")


@group.command()
@click.argument("name")
@click.argument("topic")
@click.option(
    "--to", "begin", required=True, metavar="first|last|MS",
    help="The oldest messages, the end, or the first ones that are not older; a time is in ms since 1970.",
)  # fmt: skip
@client_options
def reset(name: str, topic: str, begin: str, access: Access, output: str) -> None:
    """Let a group go on elsewhere in TOPIC: its next pulls and pops begin there."""
    rows = run(_reset(access, name, topic, _time_of(begin)))
    print_rows(output, rows, ["topic", "broker", "queueId", "consumerOffset"])


@group.command()
@click.argument("name")
@click.option("--topic", help="Only this topic.")
@client_options
def progress(name: str, topic: str | None, access: Access, output: str) -> None:
    """Show a group's progress in each queue: its lag in messages and in time."""
    rows, total = run(_progress(access, name, topic))
    columns = ["topic", "broker", "queueId", "brokerOffset", "consumerOffset", *lag.COLUMNS, "lastConsumedMs"]
    print_rows(output, rows, columns)
    if output == "table":
        oldest = f", the oldest message is {total['lagMs'] / 1000:.1f} s old" if total["lagMs"] else ""
        say(f"total lag {total['lag']}, {total['inFlight']} in flight{oldest}")


@group.command()
@click.argument("name")
@client_options
def members(name: str, access: Access, output: str) -> None:
    """The members that are connected now."""
    rows = run(_members(access, name))
    print_rows(output, rows, ["clientId", "clientAddr", "language", "version"])


async def _list(access: Access, everything: bool, with_lag: bool) -> list[dict[str, Any]]:
    async with open_admin(access.namesrv, access.settings) as admin:
        groups = {
            name: config for name, config in (await admin.groups()).items() if everything or name not in SYSTEM_GROUPS
        }
        members = await lag.members_of(admin, groups)
        found = await lag.lags(admin, groups) if with_lag else {}
        return [
            {
                "group": name,
                **members[name],
                "retryMaxTimes": config.retry_max_times,
                "enabled": config.consume_enable,
                **found.get(name, {}),
            }
            for name, config in groups.items()
        ]


async def _create(access: Access, name: str, named: dict[str, Any], cluster: str | None) -> list[str]:
    """Return the brokers. `named`: the fields that are not kept."""
    check_group(name)
    async with open_admin(access.namesrv, access.settings) as admin:
        addresses = await admin.masters(cluster)
        for address in addresses:
            known = await admin.group_on(address, name) or SubscriptionGroupConfig(name)
            named["attributes"] = {}  # a request names changes of attributes: none keeps them
            await admin.create_group(replace(known, **named), [address])
        return addresses


async def _delete(access: Access, name: str, clean_offset: bool, cluster: str | None) -> None:
    async with open_admin(access.namesrv, access.settings) as admin:
        existed = name in await admin.groups()
        await admin.delete_group(name, clean_offset, cluster)  # in any case: there may be offsets without a group
        if not existed:
            raise ValueError(f"{no_group(name)}; nothing but offsets can have been deleted")


def _time_of(text: str) -> int:
    """The time in ms. -1: the end of each queue."""
    if text in ("first", "last"):
        return 0 if text == "first" else -1
    if not text.isascii() or not text.isdecimal() or len(text) > 15:
        raise click.BadParameter(f"{text!r} is neither first nor last nor a time in ms", param_hint="--to")
    return int(text)


async def _reset(access: Access, name: str, topic: str, timestamp_ms: int) -> list[dict[str, Any]]:
    async with open_admin(access.namesrv, access.settings) as admin:
        if name not in await admin.groups():
            raise ValueError(no_group(name))
        offsets = await admin.reset_offsets(name, topic, timestamp_ms)
    return [
        {
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queueId": queue.queue_id,
            "consumerOffset": offset,
        }
        for queue, offset in sorted(offsets.items())
    ]


async def _progress(access: Access, name: str, topic: str | None) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A row for each queue, and the fields of all queues together."""
    async with open_admin(access.namesrv, access.settings) as admin:
        stats = await admin.progress(name, topic)
        if not stats.offsets:
            if name not in await admin.groups():
                raise ValueError(no_group(name))
            if topic and await admin.route(topic) is None:
                raise ValueError(no_route(topic))
            raise ValueError(f"group {name} has consumed nothing yet" + (f" of topic {topic}" if topic else ""))
        delays = await lag.delays_of(admin, name, stats)
    rows = [
        {
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queueId": queue.queue_id,
            "brokerOffset": entry.broker_offset,
            "consumerOffset": entry.consumer_offset,
            "lag": entry.lag,
            "inFlight": lag.in_flight(entry),
            "lagMs": delays.get(queue),
            "lastConsumedMs": entry.last_ms or None,
        }
        for queue, entry in sorted(stats.offsets.items())
    ]
    return rows, lag.sums(stats, delays)


async def _members(access: Access, name: str) -> list[dict[str, Any]]:
    async with open_admin(access.namesrv, access.settings) as admin:
        online = await admin.connections(name)
        if online is None and name not in await admin.groups():
            raise ValueError(no_group(name))
    if online is None:
        raise ValueError(f"group {name} has no member online")
    return [
        {
            "clientId": connection.client_id,
            "clientAddr": connection.client_addr,
            "language": connection.language,
            "version": connection.version_desc,
        }
        for connection in sorted(online.connections, key=lambda connection: connection.client_id)
    ]
