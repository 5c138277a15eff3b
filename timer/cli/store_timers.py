"""`ringmq store timers`: what waits in the files of a store that no broker needs to have open."""

from __future__ import annotations

import time
from pathlib import Path

import click

from ringmq.cli.output import print_json, print_rows, say
from ringmq.cli.store_folder import open_folder, properties_of, store_options
from ringmq.client.extras import not_installed


@click.command()
@store_options
def timers(folder: Path, config: Path | None, settings: tuple[str, ...], output: str) -> None:
    """Show what waits in the timer wheel that a stock broker has left in FOLDER, by topic.

    Nothing is written. Messages of the timer topic that stock had not put into its wheel yet are counted apart.
    """
    try:
        from ringmq.timer.report import report
    except ModuleNotFoundError as error:
        raise click.ClickException(not_installed("ringmq store timers", error.name, "broker")) from error
    from ringmq.store.config_files import ConfigFileError
    from ringmq.store.mapped_file import StoreLoadError

    found, _, _ = open_folder(folder, config, settings)
    try:
        facts, rows = report(found, properties_of(config, settings), int(time.time() * 1000))
    except PermissionError:
        raise
    except (ConfigFileError, StoreLoadError, ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error
    if output == "json":
        print_json({**facts, "topics": rows})
        return
    for name, value in facts.items():
        say(f"{name}: {value}")
    say()
    print_rows("table", rows, ["topic", "messages", "rolls", "deletes", "first_due", "last_due"])
