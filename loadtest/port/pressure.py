"""The row of `make bench-port` about clients that send while a service has a backlog to republish.

A round is a fresh broker with a source of a million records. 64 connections with 16 sends each in flight run against
it twice, with and without the service, in alternating order. The ratios of a round compare the two.
"""

import json
import shutil
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ringmq.loadtest.load.running import RunningBroker
from ringmq.loadtest.load.targets import COMMON_SETTINGS
from ringmq.loadtest.load.tools import Loader, Tools
from ringmq.loadtest.measuring.measurement import Measurement, goals
from ringmq.loadtest.measuring.rounds import Row, rotated
from ringmq.loadtest.measuring.tables import Column
from ringmq.loadtest.port.rates import SOURCE, SYNC, TARGET
from ringmq.loadtest.port.worker import MODULE, ROLE, TASK, Task, completed

CONNECTIONS, DEPTH, BODY = 64, 16, 200
RECORDS = 1_000_000
WARMUP_S = 1.0
ROW = Row(
    "beside clients",
    "clients beside a service with a backlog",
    "kept",
    "of their rate",
    goals("kept >=0.7, p99_ratio <=3, service_per_s >=45000"),
    shown=("service_per_s",),
)
COLUMNS = (
    Column("Clients/s", "alone_per_s"),
    Column("beside", "beside_per_s"),
    Column("kept", "kept", "{:.2f}"),
    Column("p99 us", "alone_p99"),
    Column("beside", "beside_p99"),
    Column("ratio", "p99_ratio", "{:.2f}"),
    Column("Service/s", "service_per_s"),
)


@dataclass(frozen=True, slots=True)
class Clients:
    """The result of 64x16."""

    rate: float
    p99_us: float
    ok: bool
    note: str


class Sampler(threading.Thread):
    """Measures the stored copies a second while clients send.

    The sample is from the middle of their measured part, as they read everything back after it.
    """

    def __init__(self, words: Any, seconds: float) -> None:
        super().__init__(daemon=True)
        self._words, self._seconds = words, seconds
        self.rate = 0.0

    def run(self) -> None:
        """Sample from a tenth after the warm-up until a tenth before the end."""
        time.sleep(WARMUP_S + self._seconds / 10)
        first, began = completed(self._words), time.monotonic()
        time.sleep(self._seconds * 8 / 10)
        self.rate = (completed(self._words) - first) / (time.monotonic() - began)


def run_clients(loader: Loader, topic: str, seconds: float) -> Clients:
    """Run 64x16 into a topic of its own. Each acknowledged message has to be found again."""
    report = loader.run(
        "send", topic=topic, create=True, connections=CONNECTIONS, depth=DEPTH, size=BODY, warmup=WARMUP_S,
        seconds=seconds, check=True, read_back=True, settle_ms=60_000,
    )  # fmt: skip
    check = report["check"]
    ok = bool(report["ok"] and check["ok"]) and not report["errors"]
    note = "" if ok else f"{report['trouble']} {report['errors'] or ''} {check['trouble']}".strip()
    return Clients(float(report["messages_per_s"]), float(report["latency_us"]["p99"]), ok, note)


def measure(
    folder: Path, tools: Tools, *, seconds: float, records: int, number: int, sync: bool = False
) -> Measurement:
    """Run one round on a fresh broker, with the service first in every second round."""
    from ringmq.ipc.plane import Plane
    from ringmq.ipc.segment import plane_name

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    gate = folder / "gate"
    task = Task(SOURCE, TARGET, records, 0.0, "", gate=str(gate))
    prefix, environment = [sys.executable, "-m", MODULE], {TASK: json.dumps(asdict(task))}
    settings = {**COMMON_SETTINGS, **(SYNC if sync else {})}
    found: dict[bool, Clients] = {}
    with RunningBroker(folder / "store", settings, prefix=prefix, environment=environment) as broker:
        plane = Plane.open(plane_name(broker.store))  # maps what the words are in
        loader, words = Loader(tools, broker.port), plane.role(ROLE).counters
        loader.run("create", topic=TARGET, queues=1)
        loader.run("batch", topic=SOURCE, create=True, queues=1, size=100, connections=8, depth=2, messages=records)
        rate = 0.0
        for is_beside in rotated((False, True), number):
            sampler = Sampler(words, seconds)
            if is_beside:
                gate.touch()
                sampler.start()
            found[is_beside] = run_clients(loader, f"clients_{int(is_beside)}", seconds)
            if is_beside:
                sampler.join()
                rate = sampler.rate
                gate.unlink()
                wait_still(words)
        is_whole = int(loader.run("verify", topic=TARGET)["read"]) == completed(words)
    shutil.rmtree(folder, ignore_errors=True)
    return measurement_of(found[False], found[True], rate, is_whole=is_whole)


def measurement_of(alone: Clients, beside: Clients, service: float, *, is_whole: bool) -> Measurement:
    """Return the ratios of a round. Counts if its work was done: `is_whole` if the target holds every copy."""
    notes = [alone.note, beside.note, "" if is_whole else "the target lacks copies"]
    values = {
        "alone_per_s": alone.rate,
        "beside_per_s": beside.rate,
        "kept": beside.rate / (alone.rate or 1.0),
        "alone_p99": alone.p99_us,
        "beside_p99": beside.p99_us,
        "p99_ratio": beside.p99_us / (alone.p99_us or 1.0),
        "service_per_s": service,
    }
    ok = alone.ok and beside.ok and is_whole and service > 0
    return Measurement(values, ok, " ".join(filter(None, notes)))


def wait_still(words: Any) -> None:
    """Wait until the service has its last completions."""
    before = -1
    while before != (before := completed(words)):
        time.sleep(0.2)
