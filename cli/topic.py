"""`ringmq topic`: list, create, delete, route, status, a message, groups with their lag."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import click

from ringmq.cli import lag
from ringmq.cli.access import Access, client_options
from ringmq.cli.admin import ROUTE_WAIT_S, Admin, no_route, open_admin
from ringmq.cli.arguments import pairs
from ringmq.cli.command_group import CommandGroup
from ringmq.cli.output import print_result, print_rows, say
from ringmq.cli.running import run
from ringmq.cli.stored_messages import Place, Stored, message_at, place_of, print_message, queues_of
from ringmq.client.errors import RouteError
from ringmq.remoting.config_beans import TopicConfig
from ringmq.remoting.flags import Perm
from ringmq.remoting.names import DLQ_PREFIX, RETRY_PREFIX, check_topic, is_system_topic
from ringmq.remoting.route import TopicRouteData

CONCURRENT_ROUTES = 64
NEW_TOPIC_QUEUES = 8


@click.group(cls=CommandGroup)
def topic() -> None:
    """List, create, delete and inspect topics."""


@topic.command("list")
@click.option("-a", "--all", "everything", is_flag=True, help="System, retry and dead-letter topics, too.")
@client_options
def list_topics(everything: bool, access: Access, output: str) -> None:
    """Topics with their brokers and queues."""
    rows = run(_list(access, everything))
    print_rows(output, rows, ["topic", "brokers", "readQueues", "writeQueues", "perm"])


@topic.command()
@click.argument("name")
@click.option("-q", "--queues", type=click.IntRange(1, 65535), help=f"Queues per broker; new: {NEW_TOPIC_QUEUES}.")
@click.option("--read-queues", type=click.IntRange(0, 65535), help="Read queues, if not --queues.")
@click.option("--write-queues", type=click.IntRange(0, 65535), help="Write queues, if not --queues.")
@click.option("--perm", type=click.IntRange(0, 7), help="4 read, 2 write, 6 both; new: 6.")
@click.option("--order/--no-order", default=None, help="An order topic or not; new: not.")
@click.option("--attribute", "attributes", multiple=True, metavar="KEY=VALUE", help="Such as message.type=NORMAL.")
@click.option("--cluster", help="Only this cluster.")
@click.option("--broker", metavar="HOST:PORT", help="Only this broker.")
@client_options
def create(name: str, access: Access, output: str, cluster: str | None, broker: str | None, **settings: Any) -> None:
    """Create a topic on all brokers, or change it. A change keeps what no option names, on each broker."""
    named: dict[str, Any] = {field: settings[field] for field in ("perm", "order") if settings[field] is not None}
    for field, option in (("read_queue_nums", "read_queues"), ("write_queue_nums", "write_queues")):
        queues = settings["queues"] if settings[option] is None else settings[option]
        if queues is not None:
            named[field] = queues
    named["attributes"] = pairs(settings["attributes"], "--attribute", "KEY=VALUE")  # brokers keep the others
    made = run(_create(access, name, named, cluster, broker))
    brokers_of: dict[int, list[str]] = {}
    for address, config in made.items():
        brokers_of.setdefault(config.write_queue_nums, []).append(address)
    having = [f"{queues} queues on {', '.join(brokers)}" for queues, brokers in brokers_of.items()]
    print_result(
        output,
        {
            "topic": name,
            "readQueues": _of_all(config.read_queue_nums for config in made.values()),
            "writeQueues": _of_all(config.write_queue_nums for config in made.values()),
            "perm": _of_all(config.perm for config in made.values()),
            "brokers": list(made),
        },
        f"topic {name} has {', '.join(having)}",
    )


@topic.command()
@click.argument("name")
@click.option("--cluster", help="Only in this cluster.")
@client_options
def delete(name: str, cluster: str | None, access: Access, output: str) -> None:
    """Delete a topic and its messages from all brokers."""
    run(_delete(access, name, cluster))
    print_result(output, {"topic": name, "deleted": True}, f"topic {name} is deleted")


@topic.command()
@click.argument("name")
@client_options
def route(name: str, access: Access, output: str) -> None:
    """Show a topic's brokers and queues."""
    rows = run(_route(access, name))
    print_rows(output, rows, ["cluster", "broker", "addresses", "readQueues", "writeQueues", "perm"])


@topic.command()
@click.argument("name")
@click.argument("place", metavar="BROKER:QUEUE:OFFSET", type=place_of)
@client_options
def show(name: str, place: Place, access: Access, output: str) -> None:
    """Show a stored message, with its properties and its body."""
    found = run(_show(access, name, place))
    print_message(output, found, found.message.topic)


@topic.command()
@click.argument("name")
@client_options
def status(name: str, access: Access, output: str) -> None:
    """The offsets of a topic's queues."""
    rows = run(_status(access, name))
    print_rows(output, rows, ["broker", "queueId", "minOffset", "maxOffset", "messages", "lastUpdateMs"])


@topic.command()
@click.argument("name")
@client_options
def groups(name: str, access: Access, output: str) -> None:
    """The groups that consume a topic, with their lag in messages and in ms."""
    rows = run(_groups(access, name))
    print_rows(output, rows, ["group", "members", "consumeType", *lag.COLUMNS])


async def _list(access: Access, everything: bool) -> list[dict[str, Any]]:
    async with open_admin(access.namesrv, access.settings) as admin:
        names = [name for name in await admin.topics() if everything or not _is_hidden(name)]
        hidden = set() if everything else await _server_names(admin)
        names = [name for name in names if name not in hidden]
        limit = asyncio.Semaphore(CONCURRENT_ROUTES)

        async def fetch(name: str) -> dict[str, Any]:
            async with limit:
                return _summary(name, await admin.route(name) or TopicRouteData())

        return list(await asyncio.gather(*[fetch(name) for name in names]))


async def _server_names(admin: Admin) -> set[str]:
    """Return the names of clusters and brokers, which have topics of the same names."""
    info = await admin.cluster_info()
    return set(info.clusters) | set(info.brokers) | {f"{cluster}_REPLY_TOPIC" for cluster in info.clusters}


def _is_hidden(name: str) -> bool:
    return is_system_topic(name) or name.startswith((RETRY_PREFIX, DLQ_PREFIX))


def _summary(name: str, found: TopicRouteData) -> dict[str, Any]:
    queues = found.queue_datas
    return {
        "topic": name,
        "brokers": sorted(queue.broker_name for queue in queues),
        "readQueues": sum(queue.read_queue_nums for queue in queues),
        "writeQueues": sum(queue.write_queue_nums for queue in queues),
        "perm": sorted({_perm(queue.perm) for queue in queues}),
    }


async def _create(
    access: Access, name: str, named: dict[str, Any], cluster: str | None, broker: str | None
) -> dict[str, TopicConfig]:
    """Return the topic's configuration by broker. `named`: the fields that are not kept."""
    check_topic(name)
    async with open_admin(access.namesrv, access.settings) as admin:
        made: dict[str, TopicConfig] = {}
        for address in [broker] if broker else await admin.masters(cluster):
            known = await admin.topic_on(address, name) or TopicConfig(name, NEW_TOPIC_QUEUES, NEW_TOPIC_QUEUES)
            made[address] = replace(known, **named)
        if not await admin.put_topic(name, made):
            say(
                f"the name servers have no route to {name} after {ROUTE_WAIT_S:.0f} s; clients find it "
                "when its brokers have registered: see their logs for errors of name servers",
                err=True,
            )
        return made


def _of_all(values: Iterable[int]) -> int | list[int]:
    """The value of all brokers. If they differ, a list in the order of the brokers."""
    listed = list(values)
    return listed[0] if len(set(listed)) == 1 else listed


async def _delete(access: Access, name: str, cluster: str | None) -> None:
    async with open_admin(access.namesrv, access.settings) as admin:
        had_route = await admin.route(name) is not None
        await admin.delete_topic(name, cluster)  # in any case: a broker may have a topic that it has not registered
        if not had_route:
            raise RouteError(
                f"topic {name} has no route: no registered broker has it, so nothing is known to be deleted; "
                "see ringmq topic list for names"
            )


async def _route(access: Access, name: str) -> list[dict[str, Any]]:
    async with open_admin(access.namesrv, access.settings) as admin:
        found = await admin.route(name)
        if found is None:
            raise RouteError(no_route(name))
    brokers = {broker.broker_name: broker for broker in found.broker_datas}
    return [
        {
            "cluster": brokers[queue.broker_name].cluster,
            "broker": queue.broker_name,
            "addresses": [f"{i}={addr}" for i, addr in sorted(brokers[queue.broker_name].broker_addrs.items())],
            "readQueues": queue.read_queue_nums,
            "writeQueues": queue.write_queue_nums,
            "perm": _perm(queue.perm),
        }
        for queue in sorted(found.queue_datas, key=lambda queue: queue.broker_name)
        if queue.broker_name in brokers
    ]


async def _show(access: Access, name: str, place: Place) -> Stored:
    async with open_admin(access.namesrv, access.settings) as admin:
        if await admin.route(name) is None:
            raise RouteError(no_route(name))
        return await message_at(admin, name, await queues_of(admin, name, place), place)


async def _status(access: Access, name: str) -> list[dict[str, Any]]:
    async with open_admin(access.namesrv, access.settings) as admin:
        stats = await admin.topic_stats(name)
    return [
        {
            "broker": queue.broker_name,
            "queueId": queue.queue_id,
            "minOffset": entry.min_offset,
            "maxOffset": entry.max_offset,
            "messages": entry.max_offset - entry.min_offset,
            "lastUpdateMs": entry.last_update_ms or None,
        }
        for queue, entry in sorted(stats.offsets.items())
    ]


async def _groups(access: Access, name: str) -> list[dict[str, Any]]:
    async with open_admin(access.namesrv, access.settings) as admin:
        listed = await admin.groups_on(name)
        known = await admin.groups()
        names = [group for group in listed if group in known]  # brokers list the topic's own name, too
        lags = await lag.lags(admin, names, name)
        members = await lag.members_of(admin, names)
        return [{"group": group, **members[group], **lags[group]} for group in names]


def _perm(perm: int) -> str:
    return ("R" if perm & Perm.READ else "-") + ("W" if perm & Perm.WRITE else "-")
