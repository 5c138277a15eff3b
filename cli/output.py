"""Printing results: a table for people, JSON for programs. Every command has `-o`.

No other module of `cli` writes to the terminal. All text is made printable here, but bodies that `print_body` writes to
a pipe or a file.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from ringmq.remoting.printable import printable, printable_body, printable_json, printable_lines

Row = Mapping[str, Any]

output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Form of the result.",
)


def print_rows(output: str, rows: Sequence[Row], columns: Sequence[str]) -> None:
    """Print a JSON list of all rows' fields, or a table of `columns`."""
    if output == "json":
        print_json(list(rows))
        return
    cells = [list(columns)] + [[_cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(line[at]) for line in cells) for at in range(len(columns))]
    for line in cells:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def print_result(output: str, result: Row, sentence: str) -> None:
    """Print the outcome of a change: a JSON object, or one sentence."""
    if output == "json":
        print_line(result)
    else:
        say(sentence)


def print_line(value: Row) -> None:
    """Print one JSON object on one line, for streams."""
    click.echo(printable_json(dict(value)))


def print_json(value: Any) -> None:
    """Print one JSON value on several lines."""
    click.echo(printable_json(value, indent=2))


def say(line: str = "", *, err: bool = False) -> None:
    """Print one line for a person."""
    click.echo(printable(line), err=err)


def say_lines(text: str, *, err: bool = False) -> None:
    """Print text of our own that may have several lines."""
    click.echo(printable_lines(text), err=err)


def say_painted(line: str) -> None:
    """Print a line with escape sequences for colours. Its text was made printable before."""
    click.echo(line)


def say_again(line: str, *, is_last: bool) -> None:
    """Print a line on standard error in the place of the one before."""
    click.echo("\r" + printable(line), err=True, nl=is_last)


def print_body(body: bytes, head: str = "") -> None:
    """Print one message's body: raw to a pipe or a file, printable to a terminal. `head` is text before it."""
    if sys.stdout.isatty():
        say_body(body, head)
        return
    if head:
        click.echo(printable(head), nl=False)
    sys.stdout.flush()
    sys.stdout.buffer.write(body)
    sys.stdout.buffer.write(b"\n")


def say_body(body: bytes, head: str = "") -> None:
    """Print one message's body for a person, with its newlines and tabs."""
    click.echo(printable(head) + printable_body(body))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple | set):
        return ",".join(_cell(entry) for entry in value) or "-"
    return printable(str(value))
