"""`ringmq transaction`: the half messages that wait for the end of their transactions."""

from __future__ import annotations

import time
from typing import Any

import click

from ringmq.cli.access import Access, client_options
from ringmq.cli.admin import open_admin
from ringmq.cli.command_group import CommandGroup
from ringmq.cli.output import print_rows, say
from ringmq.cli.running import run
from ringmq.client.namespaces import without_namespace
from ringmq.services.transactions.cli.open_halves import READ_MAX, read_open

COLUMNS = ("topic", "producerGroup", "ageMs", "checks", "key", "transactionId", "broker", "halfOffset")


@click.group(cls=CommandGroup)
def transaction() -> None:
    """Inspect open transactions."""


@transaction.command("list")
@click.option("--topic", help="Only half messages of this topic.")
@click.option("--producer-group", help="Only half messages of this producer group.")
@click.option("--cluster", help="Only this cluster.")
@click.option(
    "--limit", type=click.IntRange(1), default=1000, show_default=True, help="At most this many, oldest first."
)
@client_options
def list_open(
    topic: str | None, producer_group: str | None, cluster: str | None, limit: int, access: Access, output: str
) -> None:
    """Half messages of open transactions, the oldest first: age, checks, producer group."""
    rows, left = run(_list(access, cluster))
    wanted = {"topic": topic, "producerGroup": producer_group}
    rows = [row for row in rows if all(value in (None, row[name]) for name, value in wanted.items())]
    print_rows(output, rows[:limit], COLUMNS)
    if len(rows) > limit:
        say(f"{len(rows) - limit} more open transactions, see --limit", err=True)
    if left:
        say(f"{left} records were not read: at most {READ_MAX} of each topic and broker", err=True)


def own_rows(rows: list[dict[str, Any]], namespace: str) -> list[dict[str, Any]]:
    """The rows of a namespace with the names that its clients use."""
    if not namespace:
        return rows
    own = []
    for row in rows:
        topic, group = row["topic"] or "", row["producerGroup"] or ""
        inner = without_namespace(namespace, topic)
        if inner != topic:
            own.append({**row, "topic": inner, "producerGroup": without_namespace(namespace, group)})
    return own


async def _list(access: Access, cluster: str | None) -> tuple[list[dict[str, Any]], int]:
    rows: list[dict[str, Any]] = []
    left = 0
    async with open_admin(access.namesrv, access.settings) as admin:
        brokers = (await admin.cluster_info()).brokers
        names = {data.master_addr: name for name, data in brokers.items()}
        for address in await admin.masters(cluster):
            found = await read_open(admin.client, address, names.get(address, address), time.time_ns() // 1_000_000)
            rows += own_rows(found.rows, admin.namespace)
            left += found.left
    rows.sort(key=lambda row: -row["ageMs"])
    return rows, left
