"""`ringmq topic`: list, create, delete, route, status."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from ringmq.cli.access import Access, client_options
from ringmq.cli.admin import ROUTE_WAIT_S, Admin, no_route, open_admin
from ringmq.cli.arguments import pairs
from ringmq.cli.output import print_result, print_rows
from ringmq.cli.running import run
from ringmq.client.errors import RouteError
from ringmq.remoting.config_beans import TopicConfig
from ringmq.remoting.flags import Perm
from ringmq.remoting.names import DLQ_PREFIX, RETRY_PREFIX, check_topic, is_system_topic
from ringmq.remoting.route import TopicRouteData

CONCURRENT_ROUTES = 64


@click.group()
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
@click.option("-q", "--queues", type=click.IntRange(1, 65535), default=8, show_default=True, help="Queues per broker.")
@click.option("--read-queues", type=click.IntRange(0, 65535), help="Read queues, if not --queues.")
@click.option("--write-queues", type=click.IntRange(0, 65535), help="Write queues, if not --queues.")
@click.option("--perm", type=click.IntRange(0, 7), default=6, show_default=True, help="4 read, 2 write, 6 both.")
@click.option("--order", is_flag=True, help="An order topic.")
@click.option("--attribute", "attributes", multiple=True, metavar="KEY=VALUE", help="Such as message.type=NORMAL.")
@click.option("--cluster", help="Only this cluster.")
@click.option("--broker", metavar="HOST:PORT", help="Only this broker.")
@client_options
def create(name: str, access: Access, output: str, cluster: str | None, broker: str | None, **settings: Any) -> None:
    """Create a topic on all brokers, or change it."""
    queues = settings["queues"]
    config = TopicConfig(
        name,
        queues if settings["read_queues"] is None else settings["read_queues"],
        queues if settings["write_queues"] is None else settings["write_queues"],
        settings["perm"],
        order=settings["order"],
        attributes=pairs(settings["attributes"], "--attribute", "KEY=VALUE"),
    )
    brokers = run(_create(access, config, cluster, broker))
    print_result(
        output,
        {"topic": name, "readQueues": config.read_queue_nums, "writeQueues": config.write_queue_nums}
        | {"perm": config.perm, "brokers": brokers},
        f"topic {name} has {config.write_queue_nums} queues on {', '.join(brokers)}",
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
@client_options
def status(name: str, access: Access, output: str) -> None:
    """The offsets of a topic's queues."""
    rows = run(_status(access, name))
    print_rows(output, rows, ["broker", "queueId", "minOffset", "maxOffset", "messages", "lastUpdateMs"])


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


async def _create(access: Access, config: TopicConfig, cluster: str | None, broker: str | None) -> list[str]:
    check_topic(config.topic_name)
    async with open_admin(access.namesrv, access.settings) as admin:
        addresses = [broker] if broker else await admin.masters(cluster)
        if not await admin.create_topic(config, addresses):
            click.echo(
                f"the name servers have no route to {config.topic_name} after {ROUTE_WAIT_S:.0f} s; clients find it "
                "when its brokers have registered: see their logs for errors of name servers",
                err=True,
            )
        return addresses


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


def _perm(perm: int) -> str:
    return ("R" if perm & Perm.READ else "-") + ("W" if perm & Perm.WRITE else "-")
