"""`ringmq top`: a broker live on a terminal, from its /metrics."""

from __future__ import annotations

import contextlib
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
    """Show rates, topics, groups with lag, workers, stages of sends and replication, live.

    The key q (or ^C) ends `top`, ? explains the screen. `top` waits for a broker that ends meanwhile.
    """
    from ringmq.cli.top_view import screen, view_of

    address = url.rstrip("/").removesuffix("/metrics") + "/metrics"
    pairs = _pairs(address, interval, time.sleep)
    if output == "json":
        print_line(view_of(*next(pairs)).as_json())
        if not once:
            tell = functools.partial(click.echo, err=True)
            _follow(pairs, address, interval, lambda view: print_line(view.as_json()), tell, time.sleep)
        return
    from rich.console import Console

    console = Console()
    if once:
        console.print(screen(view_of(*next(pairs))))
        return
    try:
        _watch(console, address, interval)
    except KeyboardInterrupt:
        return


def _watch(console: Any, address: str, interval: float) -> None:
    """Show screens until `q` or ^C. Raises ClickException if nothing could be shown yet."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from ringmq.cli.top_keys import QuitKey, keys
    from ringmq.cli.top_view import KEYS, help_screen, screen, view_of

    with contextlib.suppress(QuitKey), keys() as waits, contextlib.ExitStack() as stack:
        pairs = _pairs(address, interval, waits.pause)
        first = next(pairs)
        live = stack.enter_context(Live(console=console, screen=True, auto_refresh=False))
        shown: Any = screen(view_of(*first), KEYS)
        help_is_shown = False

        def draw(content: Any) -> None:
            live.update(help_screen() if help_is_shown else content, refresh=True)

        def show(view: View) -> None:
            nonlocal shown
            shown = screen(view, KEYS)
            draw(shown)

        def tell(text: str) -> None:
            draw(Group(Text(text, "red"), shown))

        def on_help(wanted: bool) -> None:
            nonlocal help_is_shown
            help_is_shown = wanted
            draw(shown)

        waits.on_help = on_help
        draw(shown)
        _follow(pairs, address, interval, show, tell, waits.pause)


def _follow(
    pairs: Iterator[tuple[Samples, Samples]],
    address: str,
    interval: float,
    show: Callable[[View], None],
    tell: Callable[[str], None],
    pause: Callable[[float], None],
) -> None:
    """Show each pair of scrapes, or report why a scrape failed and try again, without end."""
    from ringmq.cli.top_view import view_of

    while True:
        try:
            for before, now in pairs:
                show(view_of(before, now))
        except click.ClickException as error:
            tell(f"no answer: {error.message}")
            pause(interval)
            pairs = _pairs(address, interval, pause)


def _pairs(address: str, interval: float, pause: Callable[[float], None]) -> Iterator[tuple[Samples, Samples]]:
    """Yield successive pairs of scrapes, without end."""
    before = _poll(address)
    while True:
        pause(interval)
        now = _poll(address)
        yield before, now
        before = now


def _poll(address: str) -> Samples:
    try:
        return parse(fetch(address), time.monotonic())
    except (OSError, ValueError, HTTPException) as error:
        raise click.ClickException(
            f"{address}: {error}; the broker's ready line says where its metrics are (metricsPromExporterPort): "
            "give that as --url, or start a broker with ringmq serve"
        ) from error
