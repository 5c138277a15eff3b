"""`ringmq timer`: messages that wait for a time."""

from __future__ import annotations

import time
from typing import Any

import click

from ringmq.cli.access import Access, client_options
from ringmq.cli.admin import Admin, open_admin
from ringmq.cli.command_group import CommandGroup
from ringmq.cli.output import print_rows, say
from ringmq.cli.running import run
from ringmq.cli.top import Screens, live_options, show_live
from ringmq.timer.cli import messages
from ringmq.timer.cli.messages import QUERY_MAX, RECALLED, WAITING, TimerFound

COLUMNS = ("state", "topic", "due", "dueInMs", "key", "uniqueKey", "rolls", "broker")


@click.group(cls=CommandGroup)
def timer() -> None:
    """See messages that wait for a time, and recall them."""


@timer.command()
@live_options
def top(url: str, interval: float, once: bool, output: str) -> None:
    """Show what waits, by time to delivery and by topic, lateness of the last minute and full slots, live.

    The key q (or ^C) ends `top`, ? explains the numbers.
    """
    from ringmq.timer.cli.view import help_screen, screen, view_of

    show_live(Screens(view_of, screen, help_screen), url, interval, once, output)


@timer.command()
@click.argument("key")
@click.option("--cluster", help="Only this cluster.")
@client_options
def show(key: str, cluster: str | None, access: Access, output: str) -> None:
    """Find messages with KEY, a client's key or the unique key: state, time, handle."""
    rows = run(_show(access, cluster, key))
    print_rows(output, rows, COLUMNS)
    if len(rows) >= QUERY_MAX:
        say(f"older ones may be missing: a query answers the newest {QUERY_MAX} records", err=True)


@timer.command()
@click.argument("key")
@click.option("--cluster", help="Only this cluster.")
@click.option("--all", "takes_all", is_flag=True, help="All waiting messages with KEY.")
@client_options
def recall(key: str, cluster: str | None, takes_all: bool, access: Access, output: str) -> None:
    """Withdraw the message with KEY, a client's key or the unique key.

    The message is deleted at its time. A recall that comes less than one timerPrecisionMs before the time may be late.
    """
    print_rows(output, run(_recall(access, cluster, key, takes_all)), COLUMNS)


async def _show(access: Access, cluster: str | None, key: str) -> list[dict[str, Any]]:
    async with open_admin(access.namesrv, access.settings) as admin:
        return [row for _, row in await _found(admin, cluster, key)]


async def _recall(access: Access, cluster: str | None, key: str, takes_all: bool) -> list[dict[str, Any]]:
    async with open_admin(access.namesrv, access.settings) as admin:
        waiting = [(one, row) for one, row in await _found(admin, cluster, key) if row["state"] == WAITING]
        messages.only_waiting([row for _, row in waiting], key, takes_all)
        await messages.recall_all(admin.client, [one for one, _ in waiting])
        for _, row in waiting:
            row["state"] = RECALLED
        return [row for _, row in waiting]


async def _found(admin: Admin, cluster: str | None, key: str) -> list[tuple[TimerFound, dict[str, Any]]]:
    """Messages and their rows, the earliest first. Raises `RingmqError`."""
    found: list[tuple[TimerFound, dict[str, Any]]] = []
    brokers = (await admin.cluster_info()).brokers
    names = {data.master_addr: name for name, data in brokers.items()}
    now_ms = time.time_ns() // 1_000_000
    for address in await admin.masters(cluster):
        timers = await messages.find_timers(admin.client, address, names.get(address, address), key)
        for one in messages.own(timers, admin.namespace):
            delivered = one.due_ms <= now_ms and await messages.is_delivered(admin.client, one)
            found.append((one, one.row(one.state(delivered, now_ms), now_ms, admin.namespace)))
    return sorted(found, key=lambda pair: pair[0].due_ms)
