"""`make bench-spark`: the Spark bridge beside Parquet, stock's client and the native loader, ratios of one session."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ringmq.loadtest.bench.measurement import Measurement
from ringmq.loadtest.load.beforehand import announce_picture, drawn, need_packages, prepare_results
from ringmq.loadtest.load.sigterm import ended_by_sigterm
from ringmq.loadtest.load.tools import build_tools
from ringmq.loadtest.spark.report import document, markdown_table, print_table, write_plot
from ringmq.loadtest.spark.rows import SparkRow
from ringmq.loadtest.spark.session import compile_sources
from ringmq.loadtest.spark.table import ROWS, rows_named
from ringmq.loadtest.spark.workbench import Workbench
from ringmq.loadtest.stock import StockError

Results = dict[str, list[Measurement]]
GIB = 1 << 30
QUICK_LOG_BYTES = 16 << 20


def run_rounds(rows: Sequence[SparkRow], bench: Workbench, rounds: int, *, warm_up: bool = True) -> Results:
    """Run one round without record, for compilers and caches, then `rounds` of all rows in turn."""
    results: Results = {}
    if warm_up:
        bench.say("warm-up")
        for row in rows:
            _measure(row, bench)
    for number in range(rounds):
        bench.say(f"round {number + 1} of {rounds}")
        bench.round = number + 1
        for row in rows:
            results.setdefault(row.name, []).append(_measure(row, bench))
    return results


def _measure(row: SparkRow, bench: Workbench) -> Measurement:
    """Run a row once. Any error is recorded as a run that does not count, and the rest continues."""
    try:
        measurement = row.run(bench)
    except Exception as error:  # Spark's own errors have no common base that loadtest could name
        measurement = Measurement({}, ok=False, note=f"{type(error).__name__}: {str(error)[:300]}")
    values = measurement.values
    text = " ".join(f"{goal.metric} {values[goal.metric]:.3g}" for goal in row.goals if goal.metric in values)
    mark = "" if measurement.ok else "  (does not count)"
    bench.say(f"  {row.name:20} {text or '-':>14}{mark}  {measurement.note}")
    return measurement


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line of `python -m ringmq.loadtest.spark`."""
    parser = argparse.ArgumentParser(prog="spark_bench", description=__doc__)
    parser.add_argument("--rows", default="", help="names, comma separated: " + ", ".join(row.name for row in ROWS))
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (%(default)s)")
    parser.add_argument("--gib", type=float, default=2.0, help="GiB of log per size of body (%(default)s)")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of rows beside a broker (%(default)s)")
    parser.add_argument("--cores", type=int, default=2, help="tasks at a time (%(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("build/bench-spark"), help="stores, results (%(default)s)")
    parser.add_argument("--warm-memory", action="store_true", help="touch free memory before brokers on empty stores")
    parser.add_argument("--quick", action="store_true", help="one short round, small sizes: does it work at all?")
    parser.add_argument("--keep", action="store_true", help="leave stores and Parquet files for the next run")
    options = parser.parse_args(arguments)
    try:
        options.row_list = rows_named([name for name in options.rows.split(",") if name])
    except ValueError as error:
        parser.error(str(error))
    return options


@ended_by_sigterm()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print the table, write `bench.json`, `bench.md` and `bench.svg`.

    Return 1 if a row has no run that counts.
    """
    options = parse(arguments)
    folder: Path = options.folder.resolve()
    say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731
    log_bytes = QUICK_LOG_BYTES if options.quick else int(options.gib * GIB)
    prepare_results(folder, "bench.json", "bench.md", "bench.svg", needed_bytes=log_bytes)
    need_packages("the Spark bench", "spark", "pyspark", "pyarrow")
    announce_picture(say)
    try:
        compile_sources()
    except StockError as error:
        sys.exit(f"the Spark bench needs a JDK and the stock client: {error}")
    bench = Workbench(
        folder=folder / "data",
        tools=build_tools(),
        log_bytes=log_bytes,
        cores=options.cores,
        seconds=options.seconds,
        warm_memory=options.warm_memory,
        say=say,
    )
    rounds = options.rounds
    if options.quick:
        rounds, bench.seconds, bench.sink_messages = 1, 1.0, 5_000
    bench.folder.mkdir(parents=True, exist_ok=True)
    try:
        results = run_rounds(options.row_list, bench, rounds, warm_up=not options.quick)
    finally:
        bench.close(keep=options.keep)
    report = document(options.row_list, results, bench, rounds=rounds)
    (folder / "bench.json").write_text(json.dumps(report, indent=1) + "\n")
    (folder / "bench.md").write_text("\n".join(markdown_table(report)) + "\n")
    has_picture = drawn(partial(write_plot, report), folder / "bench.svg")
    print_table(report)
    print(f"\nwritten: bench.json{', bench.md and bench.svg' if has_picture else ' and bench.md'} in {folder}")
    silent = [row["name"] for row in report["rows"] if row["counted"] == 0]
    if silent:
        print(f"rows without a run that counts: {', '.join(silent)}")
    return 1 if silent else 0
