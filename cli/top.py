"""`ringmq top`: a broker live on a terminal, from its /metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import click

from ringmq.cli.metrics_text import Samples, fetch, parse
from ringmq.cli.output import output_option, print_line

DEFAULT_URL = "http://127.0.0.1:5557"


@click.command()
@click.option("--url", default=DEFAULT_URL, show_default=True, metavar="URL", help="The broker's metrics address.")
@click.option("--interval", type=click.FloatRange(0.2, 3600), default=2.0, show_default=True, help="Seconds.")
@click.option("--once", is_flag=True, help="One screen of one interval, then end.")
@output_option
def top(url: str, interval: float, once: bool, output: str) -> None:
    """Show rates, topics, groups with lag, workers, stages of sends and replication, live. Ends with ^C.

    A broker that ends meanwhile is waited for.
    """
    from ringmq.cli.top_view import screen, view_of

    address = url.rstrip("/").removesuffix("/metrics") + "/metrics"
    pairs = _pairs(address, interval)
    if output == "json":
        for before, now in pairs:
            print_line(view_of(before, now).as_json())
            if once:
                return
    from rich.console import Console

    console = Console()
    if once:
        console.print(screen(view_of(*next(pairs))))
        return
    try:
        _watch(console, pairs, address, interval)
    except KeyboardInterrupt:
        return


def _watch(console: Any, pairs: Iterator[tuple[Samples, Samples]], address: str, interval: float) -> None:
    """Until ^C. Raises ClickException when nothing could be shown yet."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from ringmq.cli.top_view import screen, view_of

    first = next(pairs)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        shown = screen(view_of(*first))
        live.update(shown, refresh=True)
        while True:
            try:
                for before, now in pairs:
                    shown = screen(view_of(before, now))
                    live.update(shown, refresh=True)
            except click.ClickException as error:
                live.update(Group(Text(f"no answer: {error.message}", "red"), shown), refresh=True)
                time.sleep(interval)
                pairs = _pairs(address, interval)


def _pairs(address: str, interval: float) -> Iterator[tuple[Samples, Samples]]:
    """Two scrapes after another, for ever."""
    before = _look(address)
    while True:
        time.sleep(interval)
        now = _look(address)
        yield before, now
        before = now


def _look(address: str) -> Samples:
    try:
        return parse(fetch(address), time.monotonic())
    except (OSError, ValueError) as error:
        raise click.ClickException(
            f"{address}: {error}; the broker's ready line says where its metrics are (metricsPromExporterPort)"
        ) from error
