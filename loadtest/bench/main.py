"""`ringmq bench`: stock RocketMQ, RingMQ and the ceiling side by side, one after another on the same CPUs."""

import argparse
import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from ringmq.loadtest.bench.measurement import CEILING, RINGMQ, STOCK, Measurement
from ringmq.loadtest.bench.report import document, print_table, write_plot
from ringmq.loadtest.bench.rows import JAVA_SOURCE, Context, Row, context_in, java_row
from ringmq.loadtest.bench.table import GROUPS, ROWS, rows_named
from ringmq.loadtest.bench.warm_memory import touch_free_memory
from ringmq.loadtest.bench.warm_up import warm_up
from ringmq.loadtest.load.beforehand import announce_picture, drawn, prepare_results
from ringmq.loadtest.load.sigterm import ended_by_sigterm
from ringmq.loadtest.load.targets import RingmqTarget, StockTarget, Target
from ringmq.loadtest.load.tools import ToolError
from ringmq.loadtest.stock import StockError, compile_java, java_command

SYSTEMS = (STOCK, RINGMQ, CEILING) if find_spec("ringmq.loadtest.ceiling") else (STOCK, RINGMQ)
SETTLE_S = 3.0
Results = dict[str, dict[str, list[Measurement]]]  # row -> system -> runs
Say = Callable[[str], None]


def say(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)


@dataclass
class Plan:
    """The rows, systems and rounds of a run."""

    rows: Sequence[Row]
    systems: Sequence[str] = SYSTEMS
    rounds: int = 3
    settle_s: float = SETTLE_S
    warm_memory: bool = False
    say: Say = say
    results: Results = field(default_factory=dict)


def run_bench(plan: Plan, context: Context) -> Results:
    """Run rounds, each system in turn.

    A failed row is recorded as a run that does not count, and the rest continues.
    """
    for number in range(plan.rounds):
        plan.say(f"round {number + 1} of {plan.rounds}")
        for system in plan.systems:
            if system == CEILING:
                _run_ceiling(plan, context)
            else:
                _run_broker(plan, context, system)
                _run_alone(plan, context, system)
    return plan.results


def _run_alone(plan: Plan, context: Context, system: str) -> None:
    for row in plan.rows:
        if row.alone is not None and system in row.systems:
            _settle(plan)
            _warm_memory(plan)
            _record(plan, row, system, partial(row.alone, context, system))


def _run_broker(plan: Plan, context: Context, system: str) -> None:
    rows = [row for row in plan.rows if row.run is not None and system in row.systems]
    groups: list[tuple[dict[str, str], int]] = []
    for row in rows:
        if (dict(row.settings), row.slaves) not in groups:
            groups.append((dict(row.settings), row.slaves))
    for settings, slaves in groups:
        chosen = [row for row in rows if (dict(row.settings), row.slaves) == (settings, slaves)]
        _warm_memory(plan)
        try:
            target = _start(context, system, settings, slaves)
        except (StockError, RuntimeError, OSError) as error:
            for row in chosen:
                _add(plan, row, system, Measurement({}, ok=False, note=f"{system} did not start: {str(error)[:300]}"))
            continue
        with contextlib.closing(target):
            if system == STOCK:
                warm_up(context, target, context.stock_warmup_s)
            for row in chosen:
                run = row.run
                assert run is not None
                _settle(plan)
                _record(plan, row, system, partial(run, context, target))


def _start(context: Context, system: str, settings: dict[str, str], slaves: int) -> Target:
    folder = context.folder / system
    if slaves:  # a row of replication, which a checkout alone has
        from ringmq.loadtest.replication.pairs import start_pair

        return start_pair(system, folder, settings, context.cpus)
    if system == STOCK:
        return StockTarget(folder, settings, context.cpus)
    return RingmqTarget(folder, settings, context.cpus)


def _run_ceiling(plan: Plan, context: Context) -> None:
    from ringmq.loadtest.ceiling.measure import measure_ceiling  # a checkout alone has it

    for row in plan.rows:
        if row.ceiling is not None:
            _settle(plan)
            _record(plan, row, CEILING, partial(measure_ceiling, context, dict(row.ceiling)))


def _warm_memory(plan: Plan) -> None:
    if plan.warm_memory:
        touch_free_memory()


def _settle(plan: Plan) -> None:
    os.sync()
    time.sleep(plan.settle_s)


def _record(plan: Plan, row: Row, system: str, measure: Callable[[], Measurement]) -> None:
    try:
        measurement = measure()
    except (ToolError, StockError, RuntimeError, AssertionError, OSError, KeyError) as error:
        measurement = Measurement({}, ok=False, note=f"{type(error).__name__}: {str(error)[:300]}")
    _add(plan, row, system, measurement)


def _add(plan: Plan, row: Row, system: str, measurement: Measurement) -> None:
    plan.results.setdefault(row.name, {}).setdefault(system, []).append(measurement)
    value = measurement.values.get(row.metric)
    text = "-" if value is None else f"{value:,.1f} {row.unit}"
    mark = "" if measurement.ok else "  (does not count)"
    plan.say(f"  {system:8} {row.name:12} {text:>22}{mark}  {measurement.note}")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line of `ringmq bench` and `python -m ringmq.loadtest.bench`."""
    parser = argparse.ArgumentParser(prog="ringmq bench", description=__doc__)
    parser.add_argument("--rows", default="", help="names, comma separated: " + ", ".join(row.name for row in ROWS))
    parser.add_argument("--only", default="", help="groups of rows, comma separated: " + ", ".join(GROUPS))
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="which to run (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (%(default)s)")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one run (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="one short round, small sizes: does it work at all?")
    parser.add_argument("--folder", type=Path, default=Path("build/bench"), help="stores and results (%(default)s)")
    parser.add_argument("--cpus", default="", help="CPUs of the servers, such as 0,1 (default: all of this process)")
    parser.add_argument("--loader-cpu", type=int, help="CPU of the loader (default: the last one)")
    parser.add_argument("--open-rate", type=float, help="messages/s of the open loop (default: half of stock's best)")
    parser.add_argument("--settle", type=float, default=SETTLE_S, help="seconds of rest before a run (%(default)s)")
    parser.add_argument("--stock-warmup", type=float, default=20.0, help="seconds (%(default)s)")
    parser.add_argument("--warm-memory", action="store_true", help="touch free memory before servers start")
    parser.add_argument("--catch-up-mb", type=float, default=2000.0, help="log that an empty slave gets (%(default)s)")
    options = parser.parse_args(arguments)
    groups = [name for name in options.only.split(",") if name] or GROUPS
    if set(groups) - set(GROUPS):
        parser.error(f"--only: {options.only} unknown; there are {', '.join(GROUPS)}")
    unknown = set(options.systems.split(",")) - set(SYSTEMS)
    if unknown:
        parser.error(f"--systems: {', '.join(sorted(unknown))} unknown; there are {', '.join(SYSTEMS)}")
    try:
        options.row_list = rows_named([name for name in options.rows.split(",") if name], groups)
        options.cpu_list = [int(cpu) for cpu in options.cpus.split(",") if cpu]
    except ValueError as error:
        parser.error(str(error))
    return options


def without_java(rows: list[Row], systems: list[str], folder: Path, tell: Say) -> tuple[list[Row], list[str]]:
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


def needed_bytes(rows: Sequence[Row], context: Context) -> int:
    """Return the least that the largest store of these rows takes."""
    of_pair = 2 * context.catch_up_bytes
    of_rows = {"restart": context.restart_bytes, "repl-catch-up": of_pair, "repl-production": of_pair}
    return max((of_rows.get(row.name, 0) for row in rows), default=0)


def context_of(options: argparse.Namespace) -> Context:
    """Return tools, folder and sizes for these options."""
    context = context_in(options.folder, options.seconds, cpus=options.cpu_list, loader_cpu=options.loader_cpu)
    context.open_rate, context.stock_warmup_s = options.open_rate, options.stock_warmup
    context.catch_up_bytes = int(options.catch_up_mb * 1e6)
    if options.quick:
        context.seconds, context.warmup_s, context.idle_seconds = 1.0, 0.3, 2.0
        context.messages_max, context.memory_messages = 1_000_000, 200_000
        context.waiting_timers = 200_000
        context.restart_bytes, context.idle_connections = 64 << 20, 200
        context.link_bytes, context.catch_up_bytes = 50_000_000, 100_000_000
        context.stall_s, context.stock_warmup_s = 5.0, 2.0
    return context


@ended_by_sigterm()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print the table, write `bench.json` and `bench.svg`. Return 1 if a row of RingMQ did not count."""
    options = parse(arguments)
    prepare_results(options.folder, "bench.json", "bench.svg")
    announce_picture(say)
    context = context_of(options)
    rows, systems = without_java(options.row_list, options.systems.split(","), context.folder, say)
    prepare_results(options.folder, needed_bytes=needed_bytes(rows, context))
    plan = Plan(
        rows=rows,
        systems=systems,
        rounds=1 if options.quick else options.rounds,
        settle_s=0.2 if options.quick else options.settle,
        warm_memory=options.warm_memory,
    )
    try:
        run_bench(plan, context)
    finally:
        report = document(
            plan.rows, plan.results, context, rounds=plan.rounds, quick=options.quick, warm_memory=plan.warm_memory
        )
        path = options.folder / "bench.json"
        path.write_text(json.dumps(report, indent=1) + "\n")
        shutil.rmtree(context.folder, ignore_errors=True)
    print_table(report)
    picture = options.folder / "bench.svg"
    has_picture = drawn(partial(write_plot, report), picture)
    print(f"\nwritten: {path}" + (f" and {picture}" if has_picture else ""))
    failed = [row["name"] for row in report["rows"] if row["systems"].get(RINGMQ, {}).get("counted") == 0]
    if failed:
        print(f"rows of RingMQ without a run that counts: {', '.join(failed)}")
    return 1 if failed else 0
