"""`make bench-versions OLD=CHECKOUT`: this checkout's broker beside an older one's, by alternating rounds.

Each round runs old, old once more, and new, in an order that turns from round to round. The ratio new / old is the
result of a row. The ratio old / old in the same rounds is its tolerance. Loader and rows are this checkout's for all
three, so only the broker differs. A row counts only if everything acknowledged was read back.

`--old . --engine epoll` compares the engines of this checkout: new runs on epoll, old on io_uring.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ringmq.client.errors import RingmqError
from ringmq.loadtest.bench.markdown import markdown_table
from ringmq.loadtest.bench.measurement import RINGMQ, Measurement
from ringmq.loadtest.bench.report import Document, machine
from ringmq.loadtest.bench.rows import RATE, Context, Run, context_in, pull_row, send_row
from ringmq.loadtest.bench.table import SYNC_FLUSH
from ringmq.loadtest.load import running
from ringmq.loadtest.load.beforehand import prepare_results
from ringmq.loadtest.load.sigterm import ended_by_sigterm
from ringmq.loadtest.load.targets import RingmqTarget, Target
from ringmq.loadtest.load.tools import ToolError
from ringmq.loadtest.replication.pairs import SYNC_MASTER, start_pair
from ringmq.loadtest.replication.rows import MANY, replicated_row
from ringmq.loadtest.versions.disk_row import FILE_BYTES, beside_disk_row
from ringmq.loadtest.versions.staged_row import CONTROL_US, many_queries_row, staged_row

OLD, AGAIN, NEW = "old", "old again", "new"
CPU_US = "server_cpu_us"
"""Processor time of all server processes per message."""
SLOWER_THAN = 0.97
CPU_MORE_THAN = 1.03


@dataclass(frozen=True)
class VersionRow:
    """One kind of load. loader_cpu is the index of the loader's CPU among those available, None = the last."""

    name: str
    run: Run
    settings: Mapping[str, str | int | bool] = field(default_factory=dict)
    is_pair: bool = False
    loader_cpu: int | None = None
    metric: str = RATE
    """The compared figure. Of a latency, less is better."""


def _one_by_one(name: str) -> Run:
    return send_row(name, "send", connections=1, depth=1, size=200)


ROWS = (
    VersionRow("1x1, loader on the first CPU", _one_by_one("1x1-first"), loader_cpu=0),
    VersionRow("1x1, loader on the last CPU", _one_by_one("1x1-last")),
    VersionRow("64x1", send_row("64x1", "send", connections=64, depth=1, size=200)),
    VersionRow("64x16", send_row("64x16", "send", **MANY)),
    VersionRow("batches of 32", send_row("batch", "batch", connections=16, depth=4, size=200, batch=32)),
    VersionRow("pulls of 32", pull_row),
    VersionRow("sync flush 64x16", send_row("sync", "send", **MANY), SYNC_FLUSH),
    VersionRow("SYNC_MASTER 64x16", replicated_row("sync-master", "send", MANY), SYNC_MASTER, is_pair=True),
    VersionRow(
        "1x1 beside pulls from disk: p99", beside_disk_row, {"mappedFileSizeCommitLog": FILE_BYTES}, metric="p99"
    ),
    VersionRow("staged writes", staged_row),
    VersionRow("staged writes, 16 queries at once", many_queries_row),
)


@dataclass(frozen=True)
class Broker:
    """The RingMQ of that interpreter, with these settings beside the row's."""

    python: Path
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """Ratios of one row over the rounds in which all runs counted. `cpu` is of the time per message, if known."""

    rounds: int
    ratio: float
    spread: float
    tolerance: float
    cpu: float | None
    is_latency: bool = False

    @property
    def is_slower(self) -> bool:
        """True if new is slower by more than old differs from itself, and needs more processor time."""
        worse = 1 - self.ratio if not self.is_latency else self.ratio - 1
        return worse > 1 - SLOWER_THAN + self.tolerance and (self.cpu is None or self.cpu > CPU_MORE_THAN)


def compare(rounds: Sequence[Mapping[str, Measurement]], metric: str = RATE) -> Comparison | None:
    """Return the ratios of a row, None if no round counted. Pure."""
    counted = [runs for runs in rounds if all(runs[which].ok for which in (OLD, AGAIN, NEW))]
    if not counted:
        return None

    def ratios(metric: str, of: str, to: str) -> list[float]:
        pairs = [(runs[of].values.get(metric, 0.0), runs[to].values.get(metric, 0.0)) for runs in counted]
        return [a / b for a, b in pairs if a and b]

    news, olds = ratios(metric, NEW, OLD), ratios(metric, AGAIN, OLD)
    cpu = ratios(CPU_US, NEW, OLD)
    return Comparison(
        rounds=len(counted),
        ratio=statistics.median(news),
        spread=max(news) - min(news),
        tolerance=max(abs(1 - ratio) for ratio in olds),
        cpu=statistics.median(cpu) if cpu else None,
        is_latency=metric != RATE,
    )


@contextlib.contextmanager
def _target(row: VersionRow, context: Context, broker: Broker) -> Iterator[Target]:
    settings = {**row.settings, **broker.settings}
    with running.interpreter(str(broker.python)):
        if row.is_pair:
            target: Target = start_pair(RINGMQ, context.folder / "pair", settings, context.cpus)
        else:
            target = RingmqTarget(context.folder / "broker", settings, context.cpus)
    with contextlib.closing(target):
        yield target


def measure(row: VersionRow, context: Context, broker: Broker) -> Measurement:
    """Run a row once on a fresh broker."""
    if row.loader_cpu is not None:
        context = dataclasses.replace(context, loader_cpu=context.cpus[row.loader_cpu])
    try:
        with _target(row, context, broker) as target:
            measured = row.run(context, target)
    except (RingmqError, ToolError, RuntimeError, OSError, AssertionError, KeyError) as error:
        return Measurement({}, ok=False, note=f"{type(error).__name__}: {str(error)[:200]}")
    used = sum(measured.raw.get("server_cpu", {}).values())
    rate = measured.values.get(RATE, 0.0)
    cpu = {CPU_US: used / rate * 1e6} if used and rate else {}
    return dataclasses.replace(measured, values={**measured.values, **cpu})


def run_rounds(
    row: VersionRow,
    rounds: int,
    brokers: Mapping[str, Broker],
    context: Context,
    settle_s: float,
    say: Callable[[str], None],
) -> list[dict[str, Measurement]]:
    """Run rounds of old, old again and new. Each round begins with another of the three."""
    results = []
    for number in range(rounds):
        names = [OLD, NEW, AGAIN]
        names = names[number % 3 :] + names[: number % 3]
        measured = {}
        for name in names:
            os.sync()
            time.sleep(settle_s)
            found = measured[name] = measure(row, context, brokers[name])
            mark = "" if found.ok else "  (does not count)"
            control = f"  control {found.values[CONTROL_US]:.1f} us a commit" if CONTROL_US in found.values else ""
            rate = f"{found.values.get(RATE, 0.0):>12,.0f} msg/s"
            p99 = f"  p99 {found.values.get('p99', 0.0):,.0f} us" if row.metric == "p99" else ""
            say(f"  {number + 1}/{rounds} {name:9} {rate}{p99}{control}{mark}  {found.note}")
        results.append(measured)
    return results


def table(results: Mapping[str, Comparison | None]) -> str:
    """Return one line per row."""
    lines = []
    for name, found in results.items():
        if found is None:
            lines.append([name, "0", "-", "-", "-", "-", "did not count"])
            continue
        cpu = "-" if found.cpu is None else f"{found.cpu:.2f}"
        verdict = "SLOWER" if found.is_slower else "not slower"
        figures = [f"{found.ratio:.2f}", f"{found.spread:.2f}", f"{found.tolerance:.2f}"]
        lines.append([name, str(found.rounds), *figures, cpu, verdict])
    head = ["Row", "Rounds", "New / old", "Spread", "Old / old differs by", "CPU a message, new / old", "Verdict"]
    return markdown_table(head, lines)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line of `python -m ringmq.loadtest.versions`."""
    parser = argparse.ArgumentParser(prog="make bench-versions", description=__doc__)
    parser.add_argument("--old", type=Path, required=True, help="a checkout with its own .venv (make dev there)")
    parser.add_argument(
        "--engine", choices=("io_uring", "epoll"), help="of the new broker alone (default: its default)"
    )
    parser.add_argument("--rows", default="", help="names, separated by ;: " + "; ".join(row.name for row in ROWS))
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of one run (%(default)s)")
    parser.add_argument("--settle", type=float, default=1.0, help="seconds of rest before a run (%(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("build/versions"), help="results (%(default)s)")
    options = parser.parse_args(arguments)
    options.old_python = options.old.absolute() / ".venv" / "bin" / "python"
    if not options.old_python.exists():
        parser.error(f"--old: {options.old_python} is not there: run `make dev` in that checkout")
    names = [name.strip() for name in options.rows.split(";") if name.strip()]
    options.row_list = [row for row in ROWS if row.name in names or not names]
    if unknown := set(names) - {row.name for row in ROWS}:
        parser.error(f"--rows: {', '.join(sorted(unknown))} unknown; there are {'; '.join(row.name for row in ROWS)}")
    return options


def check_version(python: Path) -> None:
    """End the command if that environment has no RingMQ with a C core: each of its runs would fail."""
    program = "from ringmq.native import lib; lib.rmq_crc32"
    done = subprocess.run([str(python), "-c", program], capture_output=True, text=True, timeout=60)
    if done.returncode:
        sys.exit(f"--old: {python} cannot run a broker: {(done.stderr.strip().splitlines() or ['?'])[-1]}")


def _document(results: Mapping[str, list[dict[str, Measurement]]], context: Context) -> Document:
    rows = {
        name: [
            {which: {"values": dict(run.values), "ok": run.ok, "note": run.note} for which, run in runs.items()}
            for runs in rounds
        ]
        for name, rounds in results.items()
    }
    return {"header": {**machine(context.folder), "seconds": context.seconds, "cpus": context.cpus}, "rows": rows}


@ended_by_sigterm()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rows, print the table, write versions.json. Return 1 if a row is slower or did not count."""
    options = parse(arguments)
    prepare_results(options.folder, "versions.json")
    check_version(options.old_python)
    context = context_in(options.folder, options.seconds)
    old, engine = Broker(options.old_python), {"ringmqEngine": options.engine} if options.engine else {}
    brokers = {OLD: old, AGAIN: old, NEW: Broker(Path(sys.executable), engine)}
    results: dict[str, list[dict[str, Measurement]]] = {}
    try:
        for row in options.row_list:
            print(row.name, file=sys.stderr, flush=True)
            say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731
            results[row.name] = run_rounds(row, options.rounds, brokers, context, options.settle, say)
    finally:
        metrics = {row.name: row.metric for row in options.row_list}
        compared = {name: compare(rounds, metrics[name]) for name, rounds in results.items()}
        (options.folder / "versions.json").write_text(json.dumps(_document(results, context), indent=1) + "\n")
        shutil.rmtree(context.folder, ignore_errors=True)
        print(table(compared))
    return int(any(found is None or found.is_slower for found in compared.values()))
