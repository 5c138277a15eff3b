"""`make bench-growth`: costs of more topics, connections, log, groups, slow consumers, timers, pops, scrapes, time.

    python -m ringmq.loadtest.growth --only topics,queues --rounds 1 --seconds 3

The scenarios run one after another, three rounds; scrapes, timers, pops, backlog and soak once. Written: growth.json,
growth.md, growth.svg.
"""

import argparse
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from ringmq.loadtest.bench.rows import context_of
from ringmq.loadtest.growth.bench import RESERVE_BYTES, Bench, Scenario, sends
from ringmq.loadtest.growth.long_runs import BACKLOG, SOAK, backlog_values, soak_values
from ringmq.loadtest.growth.points import session_of
from ringmq.loadtest.growth.polls import QUICK as QUICK_POLLS
from ringmq.loadtest.growth.polls import WAITING
from ringmq.loadtest.growth.pops import POPS
from ringmq.loadtest.growth.pops import QUICK as QUICK_POPS
from ringmq.loadtest.growth.report import draw, tables
from ringmq.loadtest.growth.scenarios import LOAD, SHORT
from ringmq.loadtest.growth.scrapes import SCRAPES
from ringmq.loadtest.growth.timers import QUICK as QUICK_TIMERS
from ringmq.loadtest.growth.timers import TIMERS
from ringmq.loadtest.load.pops import serves_pop
from ringmq.loadtest.measuring.command import Command, Options, say, split
from ringmq.loadtest.measuring.documents import missed, silent
from ringmq.loadtest.measuring.rounds import Session, named

SCENARIOS = (*SHORT, *SCRAPES, *TIMERS, *((*POPS, *WAITING) if serves_pop() else ()), BACKLOG, SOAK)
QUICK_VALUES = 2  # of a scenario: the first and the last
QUICK_SOAK_S = 5.0
QUICK = {"rounds": 1, "seconds": 0.5, "warmup_s": 0.05, "messages_max": 200_000, "idle_seconds": 1.0}


def _options(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(scenario.name for scenario in SCENARIOS)
    parser.add_argument("--only", default="", help=f"scenarios, comma separated: {names}")
    parser.add_argument("--values", action="append", default=[], help="other points of a scenario: topics=1,256")
    parser.add_argument("--backlog-gb", type=float, default=0.0, help="GB of log; 0: what the disk has, at most 50")
    parser.add_argument("--soak-seconds", type=float, default=3600.0, help="length of the soak (%(default)s)")
    parser.add_argument("--soak-rate", type=float, default=0.0, help="messages/s; 0: half of the best rate")
    parser.add_argument("--warm-memory", action="store_true", help="touch free memory before each scenario")


def _check(options: Options) -> None:
    options.scenarios = named(SCENARIOS, split(options.only), "--only")
    if options.backlog_gb < 0 or options.rounds < 1 or min(options.seconds, options.soak_seconds) <= 0:
        raise ValueError("--backlog-gb must not be below 0, --rounds not below 1, lengths must be above 0")
    options.chosen = dict(_values(text) for text in options.values)


def _values(text: str) -> tuple[str, tuple[float, ...]]:
    name, _, numbers = text.partition("=")
    values, names = tuple(sorted(map(float, split(numbers)))), [scenario.name for scenario in SCENARIOS[:-1]]
    if name not in names or not values or values[0] < 0:
        raise ValueError(
            f"--values: {text!r}: NAME=1,2,3 with a scenario that has points ({', '.join(names)}) is needed"
        )
    return name, values


def scenarios_of(options: Options, free_bytes: int) -> list[Scenario]:
    """Return the chosen scenarios with their points."""
    backlog_gb = options.backlog_gb or (0.25 if options.quick else 0.0)
    filled = {BACKLOG.name: backlog_values(free_bytes, backlog_gb), SOAK.name: soak_values(options.soak_seconds)}
    quick = {**QUICK_TIMERS, **QUICK_POPS, **QUICK_POLLS} if options.quick else {}
    filled |= {**quick, **options.chosen}
    found = []
    for scenario in options.scenarios:
        values = filled.get(scenario.name, scenario.values)
        if options.quick and scenario.name != SOAK.name:
            values = values[:: max(1, len(values) - 1)][:QUICK_VALUES]
        found.append(replace(scenario, values=values))
    return found


@contextmanager
def bench_of(options: Options) -> Iterator[Bench]:
    """Yield tools, folder and sizes for these options."""
    small = {"mappedFileSizeCommitLog": 64 << 20} if options.quick else {}
    soak_s = min(options.soak_seconds, QUICK_SOAK_S) if options.quick else options.soak_seconds
    with context_of(options) as context:
        yield Bench(context, small, soak_s, options.soak_rate, options.warm_memory, say)


@contextmanager
def _opened(options: Options) -> Iterator[Session]:
    with bench_of(options) as bench:
        free_bytes = max(0, shutil.disk_usage(bench.context.folder).free - RESERVE_BYTES)
        if not options.quick:
            bench.say("warming up")  # the first load of a machine meets unused memory
            with bench.broker() as target:
                sends(bench, target, "warm-up", queues=8, **LOAD)
        yield session_of(bench, scenarios_of(options, free_bytes), options.rounds)


BENCH = Command(
    "ringmq.loadtest.growth", __doc__, "build/growth", _opened, partial(tables, scenarios=SCENARIOS),
    files=("growth.json", "growth.md", "growth.svg"),
    options=_options, quick=QUICK, check=_check, draw=draw, faults=lambda report: missed(report) + silent(report),
)  # fmt: skip
main = BENCH.main
