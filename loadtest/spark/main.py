"""`make bench-spark`: the Spark bridge beside Parquet, stock's client and the native loader, ratios of one session."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ringmq.loadtest.load.beforehand import need_packages
from ringmq.loadtest.load.tools import build_tools
from ringmq.loadtest.measuring.command import Command, Options, say
from ringmq.loadtest.measuring.documents import Document
from ringmq.loadtest.measuring.measurement import RINGMQ
from ringmq.loadtest.measuring.plots import BLUE, RED, Bars, draw_bars
from ringmq.loadtest.measuring.rounds import Session
from ringmq.loadtest.measuring.tables import sides_table
from ringmq.loadtest.spark.session import compile_sources
from ringmq.loadtest.spark.table import ROWS
from ringmq.loadtest.spark.workbench import Workbench
from ringmq.loadtest.stock import StockError

QUICK = {"rounds": 1, "seconds": 1.0, "gib": 1 / 64, "sink_messages": 5_000}


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gib", type=float, default=2.0, help="GiB of log per size of body (%(default)s)")
    parser.add_argument("--cores", type=int, default=2, help="tasks at a time (%(default)s)")
    parser.add_argument("--warm-memory", action="store_true", help="touch free memory before brokers on empty stores")
    parser.add_argument("--keep", action="store_true", help="leave stores and Parquet files for the next run")
    parser.set_defaults(sink_messages=300_000)


def _log_bytes(options: Options) -> int:
    return int(options.gib * (1 << 30))


@contextmanager
def _opened(options: Options) -> Iterator[Session]:
    need_packages("the Spark bench", "spark", "pyspark", "pyarrow")
    try:
        compile_sources()
    except StockError as error:
        sys.exit(f"the Spark bench needs a JDK and the stock client: {error}")
    folder = options.folder.resolve() / "data"
    bench = Workbench(
        folder, build_tools(), _log_bytes(options), options.cores, options.seconds, options.sink_messages,
        options.warm_memory, say, rows=options.row_list,
    )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if not options.quick:
            bench.warm_up()
        yield Session(bench.rows, bench.turns, options.rounds, header=bench.circumstances)
    finally:
        bench.close(keep=options.keep)


def table(report: Document) -> str:
    """Return both sides of each row."""
    return sides_table(report, {"RingMQ": (RINGMQ, "ours"), "other side": (RINGMQ, "other")})


def shares_of_goals(report: Document) -> list[tuple[str, float]]:
    """Return per goal its row's title and its degree: 1 is the goal, more is better, in either direction."""
    found = []
    for row in report["rows"]:
        for goal in row["goals"]:
            sign, bound = goal["goal"][:2], float(goal["goal"][2:])
            if goal["value"]:
                reached = goal["value"] / bound if sign == ">=" else bound / goal["value"]
                name = row["title"] if goal["metric"] != "p95" else f"{row['title']}, p95"
                found.append((name, reached))
    return found


def draw(report: Document, path: Path) -> None:
    """Draw the degree of each goal. Missed goals are red."""
    shares = shares_of_goals(report)
    colors, values = (
        [BLUE if share >= 1 else RED for _, share in shares],
        [(at, s, 0.0) for at, (_, s) in enumerate(shares)],
    )
    axis = "reached, as a multiple of the goal (median; right of the line: met)"
    draw_bars(report, path, [name for name, _ in shares], [Bars("", colors, values)], axis, goal=1)


BENCH = Command(
    "spark_bench", __doc__, "build/bench-spark", _opened, table, ROWS, files=("bench.json", "bench.md", "bench.svg"),
    rounds=5, seconds=10.0, options=_options, quick=QUICK, needed_bytes=_log_bytes, draw=draw, lists_goals=False,
    conditions=(
        "local[{cores}], {log_bytes:,} bytes of log per size, page cache hot,\n"
        "{rounds} interleaved round(s); median +- half of the spread"
    ),
)  # fmt: skip
main = BENCH.main
