"""`make bench-growth`: costs of more topics, connections, log, groups, slow consumers, timers, scrapes and time.

    python -m ringmq.loadtest.growth --only topics,queues --rounds 1 --seconds 3

The scenarios run one after another, three rounds; scrapes, timers, backlog and soak once. Written: growth.json,
growth.md, growth.svg.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ringmq.loadtest.bench.measurement import Measurement
from ringmq.loadtest.bench.rows import RATE, context_in
from ringmq.loadtest.bench.warm_memory import touch_free_memory
from ringmq.loadtest.growth.bench import RESERVE_BYTES, Bench, GrowthError, Point, Scenario, sends
from ringmq.loadtest.growth.long_runs import BACKLOG, SOAK, backlog_values, soak_values
from ringmq.loadtest.growth.report import document, missed, tables, write_plots
from ringmq.loadtest.growth.scenarios import LOAD, SHORT
from ringmq.loadtest.growth.scrapes import SCRAPES
from ringmq.loadtest.growth.timers import QUICK, TIMERS
from ringmq.loadtest.load.beforehand import announce_picture, drawn, prepare_results
from ringmq.loadtest.load.sigterm import ended_by_sigterm
from ringmq.loadtest.load.tools import ToolError

NAMES = tuple(scenario.name for scenario in (*SHORT, *SCRAPES, *TIMERS, BACKLOG, SOAK))
QUICK_VALUES = 2  # of a scenario: the first and the last


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="ringmq.loadtest.growth", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="scenarios, comma separated: " + ", ".join(NAMES))
    parser.add_argument("--values", action="append", default=[], help="other points of a scenario: topics=1,256")
    parser.add_argument("--rounds", type=int, default=3, help="of the short scenarios (%(default)s)")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one load (%(default)s)")
    parser.add_argument("--backlog-gb", type=float, default=0.0, help="GB of log; 0: what the disk has, at most 50")
    parser.add_argument("--soak-seconds", type=float, default=3600.0, help="length of the soak (%(default)s)")
    parser.add_argument("--soak-rate", type=float, default=0.0, help="messages/s; 0: half of the best rate")
    parser.add_argument("--folder", type=Path, default=Path("build/growth"), help="stores and results (%(default)s)")
    parser.add_argument("--warm-memory", action="store_true", help="touch free memory before each scenario")
    parser.add_argument("--quick", action="store_true", help="one short round, first and last points: does it work?")
    options = parser.parse_args(arguments)
    names = [name for name in options.only.split(",") if name]
    if set(names) - set(NAMES):
        parser.error(f"--only: {options.only} unknown; there are {', '.join(NAMES)}")
    if options.backlog_gb < 0 or options.rounds < 1 or min(options.seconds, options.soak_seconds) <= 0:
        parser.error("--backlog-gb must not be below 0, --rounds not below 1, lengths must be above 0")
    try:
        options.chosen = dict(_values(text) for text in options.values)
    except ValueError as error:
        parser.error(f"--values: {error}")
    return options


def _values(text: str) -> tuple[str, tuple[float, ...]]:
    name, _, numbers = text.partition("=")
    values = tuple(sorted(float(number) for number in numbers.split(",") if number))
    if name not in NAMES or name == SOAK.name or not values or values[0] < 0:
        raise ValueError(f"{text!r}: NAME=1,2,3 with a scenario that has points ({', '.join(NAMES[:-1])}) is needed")
    return name, values


def scenarios_of(options: argparse.Namespace, free_bytes: int) -> list[Scenario]:
    """Return the chosen scenarios with their points."""
    names = [name for name in options.only.split(",") if name] or list(NAMES)
    backlog_gb = options.backlog_gb or (0.25 if options.quick else 0.0)
    filled = (
        *SHORT,
        *SCRAPES,
        *(replace(scenario, values=QUICK[scenario.name]) if options.quick else scenario for scenario in TIMERS),
        replace(BACKLOG, values=backlog_values(free_bytes, backlog_gb)),
        replace(SOAK, values=soak_values(options.soak_seconds)),
    )
    found = []
    for scenario in filled:
        if scenario.name in names:
            values = options.chosen.get(scenario.name, scenario.values)
            if options.quick and scenario.name != SOAK.name:
                values = values[:: max(1, len(values) - 1)][:QUICK_VALUES]
            found.append(replace(scenario, values=values))
    return found


def bench_of(options: argparse.Namespace) -> Bench:
    """Return tools, folder and sizes for these options."""
    context = context_in(options.folder, options.seconds)
    bench = Bench(
        context,
        soak_s=options.soak_seconds,
        soak_rate=options.soak_rate,
        warm_memory=options.warm_memory,
        say=_print,
    )
    if options.quick:
        context.seconds, context.warmup_s, context.messages_max = 0.5, 0.05, 200_000
        context.idle_seconds = 1.0
        bench.settings = {"mappedFileSizeCommitLog": 64 << 20}
        bench.soak_s = min(bench.soak_s, 5.0)
    return bench


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def with_saved(points: Iterable[Point]) -> Iterator[Point]:
    """Yield the points with `kept`, the rate as a share of the first point's."""
    first = 0.0
    for point in points:
        rate = point.measurement.values.get(RATE, 0.0)
        first = first or rate
        values = {**point.measurement.values, **({"kept": rate / first} if first else {})}
        yield Point(point.at, replace(point.measurement, values=values))


def warm_up(bench: Bench) -> None:
    """Run a load without counting it: the first load of a machine meets unused memory."""
    bench.say("warming up")
    with bench.broker() as target:
        sends(bench, target, "warm-up", queues=8, **LOAD)


def run_growth(bench: Bench, scenarios: Sequence[Scenario], rounds: int) -> dict[str, dict[float, list[Measurement]]]:
    """Run round after round. A failed scenario is recorded at its point, and the rest continues."""
    results: dict[str, dict[float, list[Measurement]]] = {}
    for number in range(rounds):
        bench.say(f"round {number + 1} of {rounds}")
        for scenario in scenarios:
            if number and scenario.once:
                continue
            runs = results.setdefault(scenario.name, {})
            missing = list(scenario.values)
            try:
                if bench.warm_memory:
                    touch_free_memory()
                for point in with_saved(scenario.run(bench, scenario.values)):
                    missing.remove(point.at)
                    runs.setdefault(point.at, []).append(point.measurement)
                    _print_point(bench, scenario, point)
            except (GrowthError, ToolError, RuntimeError, OSError, KeyError, ValueError) as error:
                failed = Measurement({}, ok=False, note=f"{type(error).__name__}: {str(error)[:400]}")
                runs.setdefault(missing[0] if missing else scenario.values[-1], []).append(failed)
                bench.say(f"  {scenario.name}: {failed.note}")
    return results


def _print_point(bench: Bench, scenario: Scenario, point: Point) -> None:
    measured = point.measurement
    rate, mark = measured.values.get(RATE, 0.0), "" if measured.ok else "  (does not count)"
    bench.say(f"  {scenario.name:15} {point.at:>8g} {scenario.axis:15} {rate:>12,.0f} msg/s{mark}  {measured.note}")


@ended_by_sigterm()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run and write. Return 1 if a goal was missed or a point did not count."""
    options = parse(arguments)
    prepare_results(options.folder, "growth.json", "growth.md", "growth.svg")
    announce_picture(_print)
    bench = bench_of(options)
    free_bytes = max(0, shutil.disk_usage(bench.context.folder).free - RESERVE_BYTES)
    scenarios = scenarios_of(options, free_bytes)
    rounds = 1 if options.quick else options.rounds
    try:
        if not options.quick:
            warm_up(bench)
        results = run_growth(bench, scenarios, rounds)
        report = document(scenarios, results, bench, rounds=rounds)
    finally:
        shutil.rmtree(bench.context.folder, ignore_errors=True)
    (options.folder / "growth.json").write_text(json.dumps(report, indent=1) + "\n")
    text = tables(report, scenarios)
    (options.folder / "growth.md").write_text(text)
    has_picture = drawn(partial(write_plots, report), options.folder / "growth.svg")
    header = report["header"]
    print(text)
    print(f"{header['processor']}, {header['cpus']} CPUs, Linux {header['kernel']}, {header['file_system']}")
    print(f"written: growth.json{', .md and .svg' if has_picture else ' and .md'} in {options.folder}")
    short = missed(report)
    if short:
        print("short of goals: " + "; ".join(short))
    return int(bool(short))
