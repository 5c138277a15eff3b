"""`make bench-matrix`: effects of topics, body size, consumers and policy on a master with one slave, in 108 cells.

    python -m ringmq.loadtest.matrix --seconds 4 --minutes 60
    python -m ringmq.loadtest.matrix --plot loadtest/matrix/matrix.json   # draws cells, measures nothing

Every cell gets a fresh pair of brokers. Cells without time left are named and not run.
"""

import argparse
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from ringmq.loadtest.bench.rows import Context, context_of
from ringmq.loadtest.ceiling.server import fdatasync_rate
from ringmq.loadtest.matrix.cells import all_cells, run_cell
from ringmq.loadtest.matrix.report import draw, table, write_csv
from ringmq.loadtest.measuring.command import Command, Options, say, split
from ringmq.loadtest.measuring.documents import uncounted
from ringmq.loadtest.measuring.measurement import RINGMQ
from ringmq.loadtest.measuring.rounds import Row, Session, Turn


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, default=60.0, help="no cell begins after this (%(default)s)")
    parser.add_argument("--topics", default="", help="only these numbers of topics, comma separated")
    parser.add_argument("--bodies", default="", help="only these body sizes in bytes, comma separated")


def _check(options: Options) -> None:
    options.warmup_s = min(0.3, options.seconds / 4)
    wanted = {"topics": split(options.topics), "body_bytes": split(options.bodies)}
    options.cells = [
        cell
        for cell in all_cells()
        if all(not numbers or str(cell.place[name]) in numbers for name, numbers in wanted.items())
    ]


def turns(context: Context, cells: Sequence[Row], deadline: float, number: int) -> Generator[Turn, None, None]:
    """One cell after another until the time is over."""
    for done, cell in enumerate(cells):
        if time.monotonic() > deadline:
            say(f"no time left for {len(cells) - done} cells from {cell.name} on")
            return
        yield Turn(cell, RINGMQ, partial(run_cell, context, cell.place))


@contextmanager
def _opened(options: Options) -> Iterator[Session]:
    with context_of(options) as context:
        rate = fdatasync_rate(context.tools, context.folder / "disk.log")
        header = {"cells": len(options.cells), "fdatasync_per_s": rate}
        steps = partial(turns, context, options.cells, time.monotonic() + 60 * options.minutes)
        yield Session(options.cells, steps, header=lambda: header)


BENCH = Command(
    "ringmq.loadtest.matrix", __doc__, "build/matrix", _opened, table, rounds=None, seconds=4.0, options=_options,
    files=("matrix.json", "matrix.csv", "matrix.svg"), check=_check, draw=draw, write=write_csv, faults=uncounted,
    conditions="{fdatasync_per_s:,.0f} fdatasync/s",
)  # fmt: skip
main = BENCH.main
