"""`ringmq config`: check a file, show the values in use, hand them to a running broker, print the reference page."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import Any

import click

from ringmq.cli.command_group import CommandGroup
from ringmq.cli.output import output_option, print_json, print_rows, say, say_lines

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_server_option = click.option(
    "--server",
    type=click.Choice(["broker", "namesrv"]),
    default="broker",
    show_default=True,
    help="Server that the properties belong to.",
)


@click.group(cls=CommandGroup)
def config() -> None:
    """Check a configuration file, show the values in use, reload them, list all properties."""


@config.command()
@click.argument("file", type=_FILE)
@_server_option
@output_option
def check(file: Path, server: str, output: str) -> None:
    """Report every problem of FILE with its line; exit status 1 when a server would refuse it.

    Unknown names come with the nearest known one, impossible values with their range.
    """
    from ringmq.remoting.properties_check import FAIL

    problems = _problems(file, server)
    failed = any(problem.level == FAIL for problem in problems)
    if output == "json":
        found = [dataclasses.asdict(problem) for problem in problems]
        print_json({"file": str(file), "ok": not failed, "problems": found})
    else:
        for problem in problems:
            place = f"{file}:{problem.line}" if problem.line else str(file)
            say(f"{place}: {problem.level}: {problem.name or 'file'}: {_sentence(problem)}")
        fails = sum(problem.level == FAIL for problem in problems)
        say(f"{file}: {fails} to correct, {len(problems) - fails} to know" if problems else f"{file}: ok")
    sys.exit(1 if failed else 0)


def _problems(file: Path, server: str) -> list[Any]:
    from ringmq.broker.config import check as broker_check
    from ringmq.namesrv import config_check as namesrv_check
    from ringmq.remoting.properties_check import FAIL, Problem
    from ringmq.remoting.properties_text import BadProperties, parse_properties, read_properties_text

    check_lines = broker_check.check_lines if server == "broker" else namesrv_check.check_lines
    try:
        return check_lines(parse_properties(read_properties_text(file)))
    except BadProperties as error:
        return [Problem(FAIL, error.line, "", str(error))]
    except OSError as error:
        raise click.ClickException(f"{file}: cannot be read: {error.strerror}") from error


def _sentence(problem: Any) -> str:
    text = str(problem.message)
    if problem.nearest:
        text += f"; the nearest known name is {problem.nearest}"
    if problem.accepted:
        text += f"; accepted: {problem.accepted}"
    return text


@config.command()
@click.option("-c", "--config", "config_file", type=_FILE, help="broker.conf.")
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="As for `ringmq broker`; repeatable.")
@click.option("--changed", is_flag=True, help="Only values that are not the default.")
@output_option
def show(config_file: Path | None, assignments: tuple[str, ...], changed: bool, output: str) -> None:
    """Show the values that a broker started with these options here would use, and where each comes from."""
    from msgspec import structs

    from ringmq.broker.config.broker_config import ConfigError
    from ringmq.broker.config.check import effective_values
    from ringmq.broker.config.sources import read_config, read_settings

    try:
        read_config(config_file, assignments, os.environ)  # refuses what a broker would refuse
        settings, _ = read_settings(config_file, assignments, os.environ)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    rows = [structs.asdict(value) for value in effective_values(settings)]
    if changed:
        rows = [row for row in rows if row["value"] != row["default"]]
    print_rows(output, rows, ["name", "value", "place", "live"])


@config.command()
@click.option("-c", "--config", "config_file", type=_FILE, help="broker.conf.")
@click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="As for `ringmq broker`; repeatable.")
@click.option("--store", type=click.Path(file_okay=False, path_type=Path), help="Store of the running broker.")
@_server_option
@output_option
def reload(
    config_file: Path | None, assignments: tuple[str, ...], store: Path | None, server: str, output: str
) -> None:
    """Hand a changed configuration to the server that runs on this machine, and say what became of each key.

    Give the options that the server was started with, as --set what has no option here: --port N is
    --set listenPort=N, --namesrv LIST is --set namesrvAddr=LIST, --accept-unserved is --set ringmqAcceptUnserved=true.
    Exit status 0: all of it is in force; 3: some keys need a restart, the others are in force; 1: nothing was changed.
    """
    from ringmq.cli.config_reload import reload_broker, reload_namesrv

    if server == "namesrv":
        sys.exit(reload_namesrv(config_file, assignments, output))
    sys.exit(reload_broker(config_file, assignments, store, output))


@config.command()
@output_option
def reference(output: str) -> None:
    """Print every property of broker and name server: the page docs/properties.md."""
    from ringmq.broker.config import table as broker_table
    from ringmq.broker.config.fixed_values import FIXED_VALUES
    from ringmq.broker.config.stock_names import STOCK_PROPERTY_NAMES
    from ringmq.cli.config_reference import markdown
    from ringmq.namesrv import config_table as namesrv_table

    broker, namesrv = broker_table.rows(), namesrv_table.rows()
    if output == "json":
        tables = {"broker": broker, "namesrv": namesrv}
        rows = {name: [dataclasses.asdict(row) for row in table] for name, table in tables.items()}
        print_json(rows)
        return
    meaningless = STOCK_PROPERTY_NAMES - {row.name for row in broker} - FIXED_VALUES.keys()
    say_lines(markdown(broker, namesrv, FIXED_VALUES, len(meaningless)).removesuffix("\n"))
