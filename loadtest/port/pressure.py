"""`make bench-port`, second table: clients that send while a service has a backlog to republish.

A round is a fresh broker with a source of a million records. 64 connections with 16 sends each in flight run against
it twice, with and without the service, in alternating order. The ratios of a round compare the two.
"""

import json
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ringmq.loadtest.bench.markdown import markdown_table
from ringmq.loadtest.load.running import RunningBroker
from ringmq.loadtest.load.targets import COMMON_SETTINGS
from ringmq.loadtest.load.tools import Loader, Tools
from ringmq.loadtest.port.worker import MODULE, ROLE, TASK, Task, completed

SOURCE, TARGET = "port_bench_source", "port_bench_target"
CONNECTIONS, DEPTH, BODY = 64, 16, 200
RECORDS = 1_000_000
WARMUP_S = 1.0
SERVICE_MIN, KEPT_MIN, P99_MAX = 45_000, 0.7, 3.0
"""Goals: records a second of the service, and the clients' rate and p99 relative to a run without it."""


@dataclass(frozen=True, slots=True)
class Clients:
    """The result of 64x16."""

    rate: float
    p99_us: float
    ok: bool
    note: str


@dataclass(frozen=True, slots=True)
class Round:
    """The clients without the service and with it, and the service's rate meanwhile."""

    alone: Clients
    beside: Clients
    service_rate: float
    whole: bool
    """True if the target holds every copy."""

    @property
    def kept(self) -> float:
        """The share of the clients' rate that remains."""
        return self.beside.rate / self.alone.rate if self.alone.rate else 0.0

    @property
    def p99_ratio(self) -> float:
        """p99 beside the service, divided by that without it."""
        return self.beside.p99_us / self.alone.p99_us if self.alone.p99_us else 0.0

    @property
    def ok(self) -> bool:
        """True if the work of the round was done."""
        return self.alone.ok and self.beside.ok and self.whole and self.service_rate > 0


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


def measure_round(
    folder: Path, tools: Tools, *, seconds: float, records: int, service_first: bool, sync: bool = False
) -> Round:
    """Run one round on a fresh broker."""
    from ringmq.ipc.plane import Plane
    from ringmq.ipc.segment import plane_name

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    gate = folder / "gate"
    task = Task(SOURCE, TARGET, records, 0.0, "", gate=str(gate))
    prefix, environment = [sys.executable, "-m", MODULE], {TASK: json.dumps(asdict(task))}
    settings = {**COMMON_SETTINGS, **({"flushDiskType": "SYNC_FLUSH"} if sync else {})}
    found: dict[bool, Clients] = {}
    with RunningBroker(folder / "store", settings, prefix=prefix, environment=environment) as broker:
        plane = Plane.open(plane_name(broker.store))  # maps what the words are in
        loader, words = Loader(tools, broker.port), plane.role(ROLE).counters
        loader.run("create", topic=TARGET, queues=1)
        loader.run("batch", topic=SOURCE, create=True, queues=1, size=100, connections=8, depth=2, messages=records)
        rate = 0.0
        for is_beside in (service_first, not service_first):
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
        whole = int(loader.run("verify", topic=TARGET)["read"]) == completed(words)
    shutil.rmtree(folder, ignore_errors=True)
    return Round(found[False], found[True], rate, whole)


def wait_still(words: Any) -> None:
    """Wait until the service has its last completions."""
    before = -1
    while before != (before := completed(words)):
        time.sleep(0.2)


def spread(values: Sequence[float], text: str = ".2f") -> str:
    """Return the median, and the range from smallest to largest."""
    return f"{statistics.median(values):{text}} ({min(values):{text}} to {max(values):{text}})"


def pressure_table(rounds: Sequence[Round]) -> str:
    """Return a line per round, the medians of the ratios, and the reached goals."""
    lines = [
        [
            str(number), f"{each.alone.rate:,.0f}", f"{each.beside.rate:,.0f}", f"{each.kept:.2f}",
            f"{each.alone.p99_us:,.0f}", f"{each.beside.p99_us:,.0f}", f"{each.p99_ratio:.2f}",
            f"{each.service_rate:,.0f}", "yes" if each.ok else f"NO {each.alone.note} {each.beside.note}".strip(),
        ]
        for number, each in enumerate(rounds, 1)
    ]  # fmt: skip
    head = ["Round", "Clients/s", "beside", "kept", "p99 us", "beside", "ratio", "Service/s", "Whole"]
    kept, ratios = [each.kept for each in rounds], [each.p99_ratio for each in rounds]
    rates = [each.service_rate for each in rounds]
    met = (
        statistics.median(kept) >= KEPT_MIN,
        statistics.median(ratios) <= P99_MAX,
        statistics.median(rates) >= SERVICE_MIN,
    )
    verdicts = ["met" if is_met else "MISSED" for is_met in met]
    return "\n".join(
        [
            markdown_table(head, lines),
            f"clients keep {spread(kept)} of their rate: goal {KEPT_MIN}, {verdicts[0]}",
            f"p99 is {spread(ratios)} times theirs: goal {P99_MAX}, {verdicts[1]}",
            f"service {spread(rates, ',.0f')}/s: goal {SERVICE_MIN:,}, {verdicts[2]}",
        ]
    )
