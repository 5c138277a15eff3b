"""Printing results: a table for people, JSON for programs. Every command has `-o`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import click

Row = Mapping[str, Any]
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")

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
        click.echo(_json(list(rows), indent=2))
        return
    cells = [list(columns)] + [[_cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(line[at]) for line in cells) for at in range(len(columns))]
    for line in cells:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def print_result(output: str, result: Row, sentence: str) -> None:
    """Print the outcome of a change: a JSON object, or one sentence."""
    click.echo(_json(dict(result)) if output == "json" else printable(sentence))


def print_line(value: Row) -> None:
    """Print one JSON object on one line, for streams."""
    click.echo(_json(dict(value)))


def printable(text: str) -> str:
    """Return `text` with control characters but newlines as `\\xNN`.

    Any client can put them into the keys of a message, and they could drive the terminal of an operator.
    """
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def _json(value: Any, indent: int | None = None) -> str:
    """JSON of `value`. `json` itself leaves the control characters above 0x7e as they are."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return re.sub(r"[\x7f-\x9f]", lambda found: f"\\u{ord(found[0]):04x}", text)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple | set):
        return ",".join(_cell(entry) for entry in value) or "-"
    return printable(str(value)).replace("\n", "\\x0a")
