"""`ringmq bench`: stock RocketMQ, RingMQ and the ceiling side by side, one after another on the same CPUs."""

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from ringmq.loadtest.bench.plan import SYSTEMS, Plan
from ringmq.loadtest.bench.report import draw, table
from ringmq.loadtest.bench.rows import JAVA_SOURCE, BenchRow, Context, context_of, java_row
from ringmq.loadtest.bench.table import GROUPS, ROWS, rows_named
from ringmq.loadtest.load.beforehand import Say, prepare_results
from ringmq.loadtest.load.targets import COMMON_SETTINGS, STOCK_HEAP_MB
from ringmq.loadtest.measuring.command import Command, Options, say, split
from ringmq.loadtest.measuring.documents import Document
from ringmq.loadtest.measuring.measurement import STOCK
from ringmq.loadtest.measuring.rounds import Session
from ringmq.loadtest.stock import StockError, compile_java, java_command

QUICK = {
    "rounds": 1, "settle": 0.2, "seconds": 1.0, "warmup_s": 0.3, "idle_seconds": 2.0, "stall_s": 5.0,
    "stock_warmup_s": 2.0, "messages_max": 1_000_000, "memory_messages": 200_000, "waiting_timers": 200_000,
    "restart_bytes": 64 << 20, "link_bytes": 50_000_000, "catch_up_mb": 100.0, "idle_connections": 200,
}  # fmt: skip


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", default="", help="groups of rows, comma separated: " + ", ".join(GROUPS))
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="which to run (%(default)s)")
    parser.add_argument("--cpus", default="", help="CPUs of the servers, such as 0,1 (default: all of this process)")
    parser.add_argument("--loader-cpu", type=int, help="CPU of the loader (default: the last one)")
    parser.add_argument("--open-rate", type=float, help="messages/s of the open loop (default: half of stock's best)")
    parser.add_argument("--settle", type=float, default=3.0, help="seconds of rest before a run (%(default)s)")
    parser.add_argument("--stock-warmup", type=float, default=20.0, dest="stock_warmup_s", help="seconds (%(default)s)")
    parser.add_argument("--warm-memory", action="store_true", help="touch free memory before servers start")
    parser.add_argument("--catch-up-mb", type=float, default=2000.0, help="log that an empty slave gets (%(default)s)")


def _check(options: Options) -> None:
    options.system_list, groups = split(options.systems), split(options.only) or list(GROUPS)
    for name, unknown, known in (
        ("--only", set(groups) - set(GROUPS), GROUPS),
        ("--systems", set(options.system_list) - set(SYSTEMS), SYSTEMS),
    ):
        if unknown:
            raise ValueError(f"{name}: {', '.join(sorted(unknown))} unknown; there are {', '.join(known)}")
    options.row_list = rows_named(split(options.rows), groups)
    options.cpus = [int(cpu) for cpu in split(options.cpus)]
    options.catch_up_bytes = int(options.catch_up_mb * 1e6)


def without_java(rows: list[BenchRow], systems: list[str], folder: Path, tell: Say) -> tuple[list[BenchRow], list[str]]:
    """Return rows and systems without those that this machine's Java cannot run, and name the reason.

    Ends the command if nothing is left.
    """
    has_java_row = any(row.run is java_row for row in rows)
    if STOCK not in systems and not has_java_row:
        return rows, systems
    try:
        java_command("Main", home=folder / "java")
        if has_java_row:
            compile_java([JAVA_SOURCE], "producer")
    except (StockError, OSError) as error:
        reason = str(error).splitlines()[0]
        rows = [row for row in rows if row.run is not java_row]
        systems = [system for system in systems if system != STOCK]
        if not rows or not systems:
            sys.exit(f"nothing is left to measure without Java: {reason}")
        tell(f"without stock and the stock producer: {reason}")
    return rows, systems


def needed_bytes(rows: Sequence[BenchRow], context: Context) -> int:
    """Return the least that the largest store of these rows takes."""
    of_pair = 2 * context.catch_up_bytes
    of_rows = {"restart": context.restart_bytes, "repl-catch-up": of_pair, "repl-production": of_pair}
    return max((of_rows.get(row.name, 0) for row in rows), default=0)


def circumstances(context: Context) -> Document:
    """Return the conditions of a run."""
    return {
        **context.circumstances(),
        "flush": "ASYNC_FLUSH, row sync: SYNC_FLUSH",
        "settings": dict(COMMON_SETTINGS),
        "stock": {"version": "5.3.3", "heap_mb": STOCK_HEAP_MB, "serialization": "ROCKETMQ"},
        "best_rate": dict(context.best_rate),
    }


@contextlib.contextmanager
def _opened(options: Options) -> Iterator[Session]:
    with context_of(options) as context:
        rows, systems = without_java(options.row_list, options.system_list, context.folder, say)
        prepare_results(options.folder, needed_bytes=needed_bytes(rows, context))
        plan = Plan(context, rows, systems, options.warm_memory)
        yield Session(rows, plan.turns, options.rounds, options.settle, partial(circumstances, context))


BENCH = Command(
    "ringmq bench", __doc__, "build/bench", _opened, table, ROWS, files=("bench.json", "bench.svg"), options=_options,
    quick=QUICK, check=_check, draw=draw, lists_goals=False, conditions=(
        "servers on CPUs {server_cpus}, loader on {loader_cpu}, {rounds} round(s) of {seconds} s,\n"
        "{flush}; median +- half of the spread"
    ),
)  # fmt: skip
main = BENCH.main
