"""`ringmq top`: a broker live on a terminal, from its /metrics."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

import click

from ringmq.cli.arguments import Seconds
from ringmq.cli.metrics_text import Samples, fetch, parse
from ringmq.cli.output import output_option, print_line, say
from ringmq.remoting.printable import printable

DEFAULT_URL = "http://127.0.0.1:5557"


@dataclass(frozen=True, slots=True)
class Screens:
    """The functions that make a screen of two scrapes."""

    view_of: Callable[[Samples, Samples], Any]
    """Returns a view, which has `as_json`."""
    screen: Callable[..., Any]
    """Returns the screen of a view, and of a line about keys if there is one."""
    help_screen: Callable[[], Any]


def live_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add --url, --interval, --once and --output."""
    for option in (
        output_option,
        click.option("--once", is_flag=True, help="One screen of one interval, then end."),
        click.option("--interval", type=Seconds(0.2, 3600), default=2.0, show_default=True, help="Seconds."),
        click.option(
            "--url", default=DEFAULT_URL, show_default=True, metavar="URL", help="The broker's metrics address."
        ),
    ):
        command = option(command)
    return command


@click.command()
@live_options
def top(url: str, interval: float, once: bool, output: str) -> None:
    """Show rates, topics, groups with lag, workers, stages of sends and replication, live.

    The key q (or ^C) ends `top`, ? explains the screen. `top` waits for a broker that ends meanwhile.
    """
    from ringmq.cli.top_view import help_screen, screen, view_of

    show_live(Screens(view_of, screen, help_screen), url, interval, once, output)


def show_live(screens: Screens, url: str, interval: float, once: bool, output: str) -> None:
    """Run a command of screens until its end."""
    address = url.rstrip("/").removesuffix("/metrics") + "/metrics"
    pairs = _pairs(address, interval, time.sleep)
    if output == "json":
        print_line(screens.view_of(*next(pairs)).as_json())
        if not once:
            tell = functools.partial(say, err=True)
            _follow(
                pairs, address, interval, lambda *pair: print_line(screens.view_of(*pair).as_json()), tell, time.sleep
            )
        return
    from rich.console import Console

    console = Console()
    if once:
        console.print(screens.screen(screens.view_of(*next(pairs))))
        return
    try:
        _watch(screens, console, address, interval)
    except KeyboardInterrupt:
        return


def _watch(screens: Screens, console: Any, address: str, interval: float) -> None:
    """Show screens until `q` or ^C. Raises ClickException if nothing could be shown yet."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from ringmq.cli.top_keys import QuitKey, keys
    from ringmq.cli.top_view import KEYS

    with contextlib.suppress(QuitKey), keys() as waits, contextlib.ExitStack() as stack:
        pairs = _pairs(address, interval, waits.pause)
        first = next(pairs)
        live = stack.enter_context(Live(console=console, screen=True, auto_refresh=False))
        shown: Any = screens.screen(screens.view_of(*first), KEYS)
        help_is_shown = False

        def draw(content: Any) -> None:
            live.update(screens.help_screen() if help_is_shown else content, refresh=True)

        def show(before: Samples, now: Samples) -> None:
            nonlocal shown
            shown = screens.screen(screens.view_of(before, now), KEYS)
            draw(shown)

        def tell(text: str) -> None:
            draw(Group(Text(printable(text), "red"), shown))

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
    show: Callable[[Samples, Samples], None],
    tell: Callable[[str], None],
    pause: Callable[[float], None],
) -> None:
    """Show each pair of scrapes, or report why a scrape failed and try again, without end."""
    while True:
        try:
            for before, now in pairs:
                show(before, now)
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
