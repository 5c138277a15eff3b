"""`make bench-matrix`: effects of topics, body size, consumers and policy on a master with one slave, in 108 cells.

    python -m ringmq.loadtest.matrix --seconds 4 --minutes 60
    python -m ringmq.loadtest.matrix --plot loadtest/matrix/matrix.csv   # draws cells, measures nothing

Every cell gets a fresh pair of brokers. Cells without time left are named and not run.
"""

import argparse
import json
import shutil
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ringmq.loadtest.bench.report import machine
from ringmq.loadtest.bench.rows import Context, context_in
from ringmq.loadtest.ceiling.server import fdatasync_rate
from ringmq.loadtest.load.beforehand import announce_picture, drawn, need_packages, prepare_results
from ringmq.loadtest.load.sigterm import ended_by_sigterm
from ringmq.loadtest.load.tools import ToolError
from ringmq.loadtest.matrix.cells import Cell, Outcome, all_cells, run_cell
from ringmq.loadtest.matrix.report import read_csv, table, write_csv, write_plots
from ringmq.loadtest.stock import StockError

FORMAT = 1


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="ringmq.loadtest.matrix", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a cell's load (%(default)s)")
    parser.add_argument("--minutes", type=float, default=60.0, help="no cell begins after this (%(default)s)")
    parser.add_argument("--topics", default="", help="only these numbers of topics, comma separated")
    parser.add_argument("--bodies", default="", help="only these body sizes in bytes, comma separated")
    parser.add_argument("--folder", type=Path, default=Path("build/matrix"), help="stores and results (%(default)s)")
    parser.add_argument("--plot", type=Path, metavar="CSV", help="draw matrix.svg of this file's cells, and end")
    return parser.parse_args(arguments)


def chosen(options: argparse.Namespace) -> list[Cell]:
    """Return the cells that the options select."""
    topics = {int(text) for text in options.topics.split(",") if text}
    bodies = {int(text) for text in options.bodies.split(",") if text}
    return [
        cell
        for cell in all_cells()
        if (not topics or cell.topics in topics) and (not bodies or cell.body_bytes in bodies)
    ]


def run_matrix(context: Context, cells: Sequence[Cell], minutes: float) -> list[Outcome]:
    """Run one cell after another until the time is over. A failed cell is recorded and the rest continues."""
    deadline = time.monotonic() + 60 * minutes
    outcomes = []
    for number, cell in enumerate(cells, 1):
        if time.monotonic() > deadline:
            print(f"no time left for {len(cells) - number + 1} cells from {cell} on", file=sys.stderr, flush=True)
            break
        try:
            outcome = run_cell(context, cell)
        except (ToolError, StockError, RuntimeError, AssertionError, OSError) as error:
            outcome = Outcome(cell, False, f"{type(error).__name__}: {str(error)[:300]}", {})
        outcomes.append(outcome)
        rate = outcome.values.get("messages_per_s", 0.0)
        text = "" if outcome.correct else f"  NOT CORRECT: {outcome.note}"
        print(f"{number}/{len(cells)} {cell}: {rate:,.0f} msg/s{text}", file=sys.stderr, flush=True)
    return outcomes


def context_of(options: argparse.Namespace) -> Context:
    """Return tools, folder and lengths for these options."""
    context = context_in(options.folder, options.seconds)
    context.warmup_s = min(0.3, options.seconds / 4)
    return context


@ended_by_sigterm()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print the table, write `matrix.json`, `matrix.csv` and `matrix.svg`. Return 1 if a cell was not correct."""
    options = parse(arguments)
    if options.plot is not None:
        need_packages("--plot", "loadtest", "matplotlib")
        options.folder.mkdir(parents=True, exist_ok=True)
        write_plots(read_csv(options.plot), options.folder / "matrix.svg")
        return 0
    prepare_results(options.folder, "matrix.json", "matrix.csv", "matrix.svg")
    announce_picture(partial(print, file=sys.stderr, flush=True))
    cells = chosen(options)
    context = context_of(options)
    header = {**machine(context.folder), "seconds": options.seconds, "cells": len(cells)}
    header["fdatasync_per_s"] = fdatasync_rate(context.tools, context.folder / "disk.log")
    try:
        outcomes = [outcome.document() for outcome in run_matrix(context, cells, options.minutes)]
    finally:
        shutil.rmtree(context.folder, ignore_errors=True)
    report = {"format": FORMAT, "header": header, "cells": outcomes}
    (options.folder / "matrix.json").write_text(json.dumps(report, indent=1) + "\n")
    write_csv(outcomes, options.folder / "matrix.csv")
    has_picture = drawn(partial(write_plots, outcomes), options.folder / "matrix.svg")
    print(table(outcomes))
    print(f"{header['processor']}, {header['cpus']} CPUs, Linux {header['kernel']}, {header['file_system']}")
    written = f"matrix.json{', .csv and .svg' if has_picture else ' and .csv'} in {options.folder}"
    print(f"{header['fdatasync_per_s']:,.0f} fdatasync/s; written: {written}")
    return int(not all(outcome["correct"] for outcome in outcomes) or len(outcomes) < len(cells))
