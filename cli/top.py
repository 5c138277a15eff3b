"""`ringmq top`: a broker live on a terminal, from its /metrics."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from http.client import HTTPException
from typing import TYPE_CHECKING, Any

import click

from ringmq.cli.metrics_text import Samples, fetch, parse
from ringmq.cli.output import output_option, print_line

if TYPE_CHECKING:
    from ringmq.cli.top_view import View

DEFAULT_URL = "http://127.0.0.1:5557"


@click.command()
@click.option("--url", default=DEFAULT_URL, show_default=True, metavar="URL", help="The broker's metrics address.")
@click.option("--interval", type=click.FloatRange(0.2, 3600), default=2.0, show_default=True, help="Seconds.")
@click.option("--once", is_flag=True, help="One screen of one interval, then end.")
@output_option
def top(url: str, interval: float, once: bool, output: str) -> None:
    """Show rates, topics, groups with lag, workers, stages of sends and replication, live. Ends with ^C.

    `top` waits for a broker that ends meanwhile.
    """
    from ringmq.cli.top_view import screen, view_of

    address = url.rstrip("/").removesuffix("/metrics") + "/metrics"
    pairs = _pairs(address, interval)
    if output == "json":
        print_line(view_of(*next(pairs)).as_json())
        if not once:
            tell = functools.partial(click.echo, err=True)
            _follow(pairs, address, interval, lambda view: print_line(view.as_json()), tell)
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
    """Show screens until ^C. Raises ClickException if nothing could be shown yet."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from ringmq.cli.top_view import screen, view_of

    first = next(pairs)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        shown = screen(view_of(*first))
        live.update(shown, refresh=True)

        def show(view: View) -> None:
            nonlocal shown
            shown = screen(view)
            live.update(shown, refresh=True)

        def tell(text: str) -> None:
            live.update(Group(Text(text, "red"), shown), refresh=True)

        _follow(pairs, address, interval, show, tell)


def _follow(
    pairs: Iterator[tuple[Samples, Samples]],
    address: str,
    interval: float,
    show: Callable[[View], None],
    tell: Callable[[str], None],
) -> None:
    """Show each pair of scrapes, or report why a scrape failed and try again, without end."""
    from ringmq.cli.top_view import view_of

    while True:
        try:
            for before, now in pairs:
                show(view_of(before, now))
        except click.ClickException as error:
            tell(f"no answer: {error.message}")
            time.sleep(interval)
            pairs = _pairs(address, interval)


def _pairs(address: str, interval: float) -> Iterator[tuple[Samples, Samples]]:
    """Yield successive pairs of scrapes, without end."""
    before = _look(address)
    while True:
        time.sleep(interval)
        now = _look(address)
        yield before, now
        before = now


def _look(address: str) -> Samples:
    try:
        return parse(fetch(address), time.monotonic())
    except (OSError, ValueError, HTTPException) as error:
        raise click.ClickException(
            f"{address}: {error}; the broker's ready line says where its metrics are (metricsPromExporterPort)"
        ) from error
