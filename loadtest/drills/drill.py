"""The drill: kills and stops workers of a broker under load, then the checker looks for violated guarantees.

    python -m ringmq.loadtest.drills.drill --seed 1 --blows 1000

All randomness comes from the seed. The checker uses the client's own record only.
"""

import asyncio
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import click
import psutil

from ringmq.client import Producer, RetryPolicy
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.loadtest.drills.checker import Violation
from ringmq.loadtest.drills.load import Course, Tasks
from ringmq.loadtest.drills.loads import LOADS, POP_LOADS
from ringmq.loadtest.drills.pop_load import now_ms
from ringmq.loadtest.load.running import RunningBroker
from ringmq.loadtest.load.sigterm import ended_by_sigterm
from ringmq.loadtest.stock.ports import free_broker_port, free_port

RETURN_TIMEOUT_S = 60.0
"""Far beyond what a busy machine needs. What has not come by then is lost."""
FAULTS_PER_LINE = 50
VIOLATIONS_SHOWN = 20
ONE_WORKER = (
    "read-0", "write", "flush", "dispatch", "control", "delay", "services", "transactions", "timer",
    *(["pop"] if POP_LOADS else []),
)  # fmt: skip
SMALL_FILES = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
    "maxMessageSize": 65_536,
    "brokerIP1": "127.0.0.1",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: an action and its target."""

    kind: str  # kill, stop, restart (clean, under load), supervisor, everybody
    workers: tuple[str, ...] = ()
    stopped_s: float = 0.0


def plan_faults(seed: int, count: int, workers: tuple[str, ...] = ONE_WORKER) -> list[Fault]:
    """Return a seeded plan: mostly single kills, some pairs and stops, a few restarts and deaths of all."""
    dice = random.Random(seed)
    faults = []
    for _ in range(count):
        throw = dice.random()
        if throw < 0.50:
            faults.append(Fault("kill", (dice.choice(workers),)))
        elif throw < 0.70:
            faults.append(Fault("kill", tuple(dice.sample(workers, 2))))
        elif throw < 0.89:
            faults.append(Fault("stop", (dice.choice(workers),), stopped_s=dice.uniform(0.02, 0.3)))
        elif throw < 0.92:
            faults.append(Fault("restart"))
        elif throw < 0.96:
            faults.append(Fault("supervisor"))
        else:
            faults.append(Fault("everybody"))
    return faults


@dataclass(slots=True)
class DrillReport:
    """The result of a drill. `counts`: numbers of its loads by their words."""

    seed: int
    faults: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    violations: list[Violation] = field(default_factory=list)
    injected: list[tuple[int, Fault]] = field(default_factory=list)
    """Faults with their times in ms of the wall clock."""

    def text(self) -> str:
        """Return one paragraph for a person. The times of violations are to be compared with those of the faults."""
        numbers = ", ".join(f"{count} {words}" for words, count in self.counts.items())
        head = (
            f"drill with seed {self.seed}: {self.faults} faults, {numbers}, {self.seconds:.1f} s: "
            f"{len(self.violations)} violations"
        )
        if not self.violations:
            return head
        listed = [f"  {violation.kind}: {violation.text}" for violation in self.violations[:VIOLATIONS_SHOWN]]
        return "\n".join([head, *listed, f"  {self._faults()}"])

    def _faults(self) -> str:
        """The faults, each with its time since the first one."""
        first_ms = self.injected[0][0] if self.injected else 0
        parts = (f"+{at_ms - first_ms} {' '.join((fault.kind, *fault.workers))}" for at_ms, fault in self.injected)
        return f"faults, in ms since {first_ms}: {', '.join(parts)}"


class Drill:
    """One run over one store. The broker is started again on the same ports whenever it has ended."""

    def __init__(
        self, store: Path, seed: int, settings: Mapping[str, object], environment: Mapping[str, str] | None = None
    ) -> None:
        of_loads = {name: value for kind in LOADS for name, value in kind.settings.items()}
        self._settings = {**SMALL_FILES, **of_loads, **settings}
        self._environment = environment or {}
        self._store = store
        self._stops_failed: list[str] = []
        # Below the range of outgoing connections: a port that the kernel chose may go to one of them during a restart.
        self._broker = RunningBroker(
            store, self._settings, port=free_broker_port(), namesrv_port=free_port(), environment=self._environment
        )
        self._workers = set(self._broker.worker_pids())
        self._killed: set[int] = set()
        self._running = True
        self._course = Course(
            self._broker.namesrv, lambda: self._broker.address, lambda: self._running, RETURN_TIMEOUT_S
        )
        self._loads = [kind(self._course) for kind in LOADS]
        self._report = DrillReport(seed)

    async def run(self, faults: list[Fault], log_line: Callable[[str], None] | None = None) -> DrillReport:
        """Load, inject, settle, check. `log_line` gets a line of progress now and then."""
        began = time.monotonic()
        client = RemotingClient()
        retry = RetryPolicy(attempts=1, budget_ms=3000)
        try:
            async with Producer(self._broker.namesrv, "drill", retry=retry) as producer:
                tasks = [task for load in self._loads for task in load.tasks(producer, client)]
                running = [asyncio.create_task(task) for task in (*tasks, *self.extra_load(producer, client))]
                await self._service_returns()
                for number, fault in enumerate(faults, 1):
                    self._course.faults = number
                    self._report.injected.append((now_ms(), fault))
                    await self.inject(fault)
                    await self._service_returns()
                    self._report.faults = number
                    if log_line and number % FAULTS_PER_LINE == 0:
                        log_line(self._progress(len(faults), began))
                self._running = False
                await asyncio.gather(*running)
            for load in self._loads:
                self._report.violations += await load.verdict(client)
        finally:
            await client.close()
            self._report.seconds = time.monotonic() - began
        self._report.violations += [Violation("stop", text) for text in self._stops_failed]
        self._report.counts = self._counts()
        await self._workers_return()
        status = self._broker.stop()
        if status != 0:
            self._report.violations.append(Violation("stop", f"the clean stop ended with status {status}"))
        return self._report

    def _counts(self) -> dict[str, int]:
        return {words: count for load in self._loads for words, count in load.counts.items()}

    def _progress(self, faults: int, began: float) -> str:
        sends = self._counts()["sends"]
        return f"{self._report.faults} of {faults} faults, {sends} sends, {time.monotonic() - began:.0f} s"

    def abandon(self) -> None:
        """End the broker in any state, and leave nothing of it in shared memory."""
        self._broker.close()

    def extra_load(self, producer: Producer, client: RemotingClient) -> Tasks:
        """Return coroutines to run beside the sends and pulls, until `running` is False. Tests override this."""
        return []

    @property
    def running(self) -> bool:
        """True while the load continues."""
        return self._running

    @property
    def broker(self) -> RunningBroker:
        """The current broker."""
        return self._broker

    async def inject(self, fault: Fault) -> None:
        """Carry out one fault."""
        match fault.kind:
            case "kill":
                for worker in fault.workers:
                    if (pid := self._broker.signal_worker(worker, signal.SIGKILL)) is not None:
                        self._killed.add(pid)
            case "stop":
                pid = self._broker.signal_worker(fault.workers[0], signal.SIGSTOP)
                await asyncio.sleep(fault.stopped_s)
                if pid is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)
            case "restart":
                await self._workers_return()
                loop = asyncio.get_running_loop()
                status = await loop.run_in_executor(None, self._broker.stop)
                if status != 0:
                    self._stops_failed.append(f"a clean stop under load ended with status {status}")
                self._broker = await loop.run_in_executor(None, self._start_again)
            case "supervisor" | "everybody":
                loop = asyncio.get_running_loop()
                end = self._broker.kill_supervisor if fault.kind == "supervisor" else self._broker.kill_all
                await loop.run_in_executor(None, end)
                self._broker = await loop.run_in_executor(None, self._start_again)

    async def _workers_return(self) -> None:
        """Wait until killed workers run again: a dead worker at the begin of a stop rightly makes it unclean."""
        async with asyncio.timeout(RETURN_TIMEOUT_S):
            while not self._workers <= self._broker.worker_pids().keys() or any(map(psutil.pid_exists, self._killed)):
                await asyncio.sleep(0.01)  # poll: a busy supervisor has not seen the death yet
        self._killed.clear()

    def _start_again(self) -> RunningBroker:
        old = self._broker
        self._killed.clear()
        environment = self._environment
        return RunningBroker(
            self._store, self._settings, port=old.port, namesrv_port=old.namesrv_port, environment=environment
        )

    async def _service_returns(self) -> None:
        """Wait until a send that began after now is acknowledged."""
        self._course.acknowledged.clear()
        try:
            async with asyncio.timeout(RETURN_TIMEOUT_S):
                await self._course.acknowledged.wait()
                self._course.acknowledged.clear()
                await self._course.acknowledged.wait()
        except TimeoutError:
            self._running = False
            tail = self._broker.log_tail()
            raise RuntimeError(f"the service did not return within {RETURN_TIMEOUT_S:.0f} s:\n{tail}") from None


async def run_drill(
    store: Path,
    seed: int,
    faults: list[Fault],
    settings: Mapping[str, object],
    log_line: Callable[[str], None] | None = None,
) -> DrillReport:
    """Run one drill over `store`. Raises RuntimeError if the service does not come back."""
    drill = Drill(store, seed, settings)
    try:
        return await drill.run(faults, log_line)
    finally:
        drill.abandon()


@click.command()
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--blows", "faults", type=click.IntRange(1), default=1000, show_default=True, help="Kills and stops.")
@click.option("--sync/--async", "sync", default=True, show_default=True, help="SYNC_FLUSH or ASYNC_FLUSH.")
@click.option("--store", type=click.Path(path_type=Path), help="Store folder; default: a temporary one.")
@ended_by_sigterm()
def main(seed: int, faults: int, sync: bool, store: Path | None) -> None:
    """Kill and stop workers under load. Exit status 1 if a guarantee was violated."""
    flush = "SYNC_FLUSH" if sync else "ASYNC_FLUSH"
    click.echo(f"drill with seed {seed}, {faults} faults, {flush}")
    log_line = partial(click.echo, err=True)
    with tempfile.TemporaryDirectory(prefix="ringmq-drill-") as folder:
        root = store or Path(folder) / "store"
        report = asyncio.run(run_drill(root, seed, plan_faults(seed, faults), {"flushDiskType": flush}, log_line))
    click.echo(report.text())
    sys.exit(1 if report.violations else 0)


if __name__ == "__main__":
    main()
