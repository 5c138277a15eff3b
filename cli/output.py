"""Printing results: a table for people, JSON for programs. Every command has `-o`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

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
        click.echo(json.dumps(list(rows), ensure_ascii=False, indent=2))
        return
    cells = [list(columns)] + [[_cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(line[at]) for line in cells) for at in range(len(columns))]
    for line in cells:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def print_result(output: str, result: Row, sentence: str) -> None:
    """Print the outcome of a change: a JSON object, or one sentence."""
    click.echo(json.dumps(dict(result), ensure_ascii=False) if output == "json" else sentence)


def print_line(value: Row) -> None:
    """Print one JSON object on one line, for streams."""
    click.echo(json.dumps(dict(value), ensure_ascii=False))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple | set):
        return ",".join(_cell(entry) for entry in value) or "-"
    return str(value)
