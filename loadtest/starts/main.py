"""`make bench-starts`: modules and processor time of the imports of each process, and of a start of `ringmq serve`.

A start lasts from exec to the line `ready` and is counted over all processes. With `--old`, each round measures another
checkout first, so that a slow minute of the machine meets both.
"""

import argparse
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from ringmq.loadtest.measuring.command import Command, Options
from ringmq.loadtest.measuring.documents import Document
from ringmq.loadtest.measuring.rounds import Row, Session, Turn
from ringmq.loadtest.measuring.tables import Column, points_table
from ringmq.loadtest.starts.rows import ENTRIES, START, imported, started

COLUMNS = (Column("modules", "modules"), Column("of RingMQ", "own"), Column("CPU ms", "cpu_ms"))
START_COLUMNS = (
    Column("wall s", "wall_s", "{:.2f}"),
    Column("CPU s", "cpu_s", "{:.2f}"),
    Column("of which rounds differ", "cpu_s spread", "{:.2f}"),
)
Checkouts = Mapping[str, Mapping[str, str]]
"""The environment of each."""


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--old", type=Path, help="folder that holds the package `ringmq` of another checkout")


def turns(checkouts: Checkouts, folder: Path, number: int) -> Generator[Turn, None, None]:
    """The start and the imports of each checkout, above the time of an interpreter that imports nothing."""
    for name, environment in checkouts.items():
        bare_ms = imported("pass", environment).values["cpu_ms"]
        yield Turn(START, name, partial(started, folder, environment))
        for entry, statements in ENTRIES.items():
            yield Turn(_row(entry), name, partial(imported, statements, environment, bare_ms))


def _row(entry: str) -> Row:
    return Row(entry, entry, "cpu_ms", "ms", ())


@contextmanager
def _opened(options: Options) -> Iterator[Session]:
    old = {str(options.old): {"PYTHONPATH": str(options.old)}} if options.old else {}
    checkouts: Checkouts = {**old, "this checkout": {}}
    for environment in checkouts.values():  # compiles the modules
        for statements in ENTRIES.values():
            imported(statements, environment)
    yield Session([START, *map(_row, ENTRIES)], partial(turns, checkouts, options.folder / "stores"), options.rounds)


def tables(report: Document) -> str:
    """Return both tables of each checkout: medians of the rounds."""
    start, *rows = report["rows"]
    parts = []
    for name in start["systems"]:
        imports = points_table(["Process"], COLUMNS, [([row["name"]], row) for row in rows], name)
        starts = points_table(["Start"], START_COLUMNS, [([start["name"]], start)], name)
        parts.append(f"\n{name}\n\n{imports}\n{starts}")
    return "\n".join(parts)


BENCH = Command("make bench-starts", __doc__, "build/starts", _opened, tables, rounds=5, seconds=None, options=_options)
main = BENCH.main
