"""The rows of the comparison of versions, and how one of them is measured on a fresh broker."""

import dataclasses
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ringmq.loadtest.bench.delays import LEVELS, delayed_sends, due_at_once
from ringmq.loadtest.bench.rows import Alone, Context, Run, pull_row, send_back_row, send_row, transaction_row
from ringmq.loadtest.bench.table import ONE_LEVEL, SYNC_FLUSH
from ringmq.loadtest.bench.timers import accepted, one_slot
from ringmq.loadtest.load.running import interpreter
from ringmq.loadtest.load.targets import RingmqTarget
from ringmq.loadtest.measuring.comparison import AGAIN, CPU_US, NEW, OLD
from ringmq.loadtest.measuring.measurement import RATE, RINGMQ, Measurement
from ringmq.loadtest.measuring.rounds import Row, Turn, rotated
from ringmq.loadtest.replication.pairs import SYNC_MASTER, Settings, start_pair
from ringmq.loadtest.replication.rows import MANY, replicated_row
from ringmq.loadtest.versions.disk_row import FILE_BYTES, beside_disk_row
from ringmq.loadtest.versions.staged_row import CONTROL_US, many_queries_row, staged_row


@dataclass(frozen=True)
class VersionRow(Row):
    """One kind of load. `alone` starts its broker. `metric` is the compared figure: of a latency, less is better."""

    alone: Alone
    loader_cpu: int | None = None
    """Index of the loader's CPU among those available, None = the last."""


def _row(name: str, run: Run, settings: Settings | None = None, *, metric: str = RATE,
         loader_cpu: int | None = None, shown: tuple[str, ...] = ()) -> VersionRow:  # fmt: skip
    """A row on a broker with these settings."""

    def alone(context: Context, system: str) -> Measurement:
        with closing(RingmqTarget(context.folder / "broker", settings or {}, context.cpus)) as target:
            return run(context, target)

    return VersionRow(name, name, metric, "", (), alone, loader_cpu, shown=shown)


def _alone(name: str, alone: Alone) -> VersionRow:
    return VersionRow(name, name, RATE, "", (), alone)


def _on_a_pair(context: Context, system: str) -> Measurement:
    with closing(start_pair(system, context.folder / "pair", SYNC_MASTER, context.cpus)) as pair:
        return replicated_row("sync-master", "send", MANY)(context, pair)


def _one_by_one(name: str) -> Run:
    return send_row(name, "send", connections=1, depth=1, size=200)


ROWS = (
    _row("1x1, loader on the first CPU", _one_by_one("1x1-first"), loader_cpu=0),
    _row("1x1, loader on the last CPU", _one_by_one("1x1-last")),
    _row("64x1", send_row("64x1", "send", connections=64, depth=1, size=200)),
    _row("64x16", send_row("64x16", "send", **MANY)),
    _row("batches of 32", send_row("batch", "batch", connections=16, depth=4, size=200, batch=32)),
    _row("pulls of 32", pull_row),
    _row("sync flush 64x16", send_row("sync", "send", **MANY), SYNC_FLUSH),
    _alone("SYNC_MASTER 64x16", _on_a_pair),
    _row("1x1 beside pulls from disk: p99", beside_disk_row, {"mappedFileSizeCommitLog": FILE_BYTES}, metric="p99",
         shown=(RATE,)),
    _row("staged writes", staged_row),
    _row("staged writes, 16 queries at once", many_queries_row, shown=(CONTROL_US,)),
    _row("send-backs", send_back_row, ONE_LEVEL),
    _row("delay-sends", delayed_sends, LEVELS),
    _alone("delay-due", due_at_once),
    _row("transactions", transaction_row),
    _row("timer-accept", accepted),
    _row("timer-slot", one_slot),
)  # fmt: skip


@dataclass(frozen=True)
class Broker:
    """The RingMQ of that interpreter, with these settings beside those of a row."""

    python: Path
    settings: Mapping[str, str] = field(default_factory=dict)


def turns(
    rows: Sequence[VersionRow], brokers: Mapping[str, Broker], context: Context, number: int
) -> Generator[Turn, None, None]:
    """All rows on old, new and old again. Each round begins with another of the three."""
    for row in rows:
        for side in rotated((OLD, NEW, AGAIN), number):
            yield Turn(row, side, partial(measure, row, context, brokers[side]))


def measure(row: VersionRow, context: Context, broker: Broker) -> Measurement:
    """Run a row once on a fresh broker."""
    if row.loader_cpu is not None:
        context = dataclasses.replace(context, loader_cpu=context.cpus[row.loader_cpu])
    with interpreter(str(broker.python), broker.settings):
        measured = row.alone(context, RINGMQ)
    used = sum(measured.raw.get("server_cpu", {}).values())
    rate = measured.values.get(RATE, 0.0)
    cpu = {CPU_US: used / rate * 1e6} if used and rate else {}
    return dataclasses.replace(measured, values={**cpu, **measured.values})


def check_version(python: Path) -> None:
    """End the command if that environment has no RingMQ with a C core: each of its runs would fail."""
    program = "from ringmq.native import lib; lib.rmq_crc32"
    done = subprocess.run([str(python), "-c", program], capture_output=True, text=True, timeout=60)
    if done.returncode:
        sys.exit(f"--old: {python} cannot run a broker: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
