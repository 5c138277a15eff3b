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
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click
import psutil

from ringmq.client import MessageQueue, Producer, RetryPolicy, RingmqError
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.loadtest.drills import delays, filters, timers, transactions
from ringmq.loadtest.drills.checker import Checker, Violation
from ringmq.loadtest.drills.delays import DelayChecker
from ringmq.loadtest.drills.filters import FilterLoad
from ringmq.loadtest.drills.reads import QUEUES, TOPIC, id_of, max_offset, pull, read_up_to
from ringmq.loadtest.drills.retry_load import RetryLoad
from ringmq.loadtest.drills.sends import lane_messages
from ringmq.loadtest.drills.timers import TimerLoad
from ringmq.loadtest.drills.transaction_load import TransactionLoad
from ringmq.loadtest.load.running import RunningBroker
from ringmq.loadtest.load.sigterm import ended_by_sigterm
from ringmq.loadtest.stock.ports import free_broker_port, free_port
from ringmq.remoting.message import MessageExt

IN_FLIGHT_PER_QUEUE = 4
RETURN_TIMEOUT_S = 60.0
"""Far beyond what a busy machine needs. What has not come by then is lost."""
FAULTS_PER_LINE = 50
ONE_WORKER = ("read-0", "write", "flush", "dispatch", "control", "delay", "services", "transactions", "timer")
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
    """The result of a drill."""

    seed: int
    faults: int = 0
    sent: int = 0
    acknowledged: int = 0
    delayed: int = 0
    timers: int = 0
    sent_back: int = 0
    ordered: int = 0
    ended: int = 0
    read: int = 0
    filtered: int = 0
    seconds: float = 0.0
    violations: list[Violation] = field(default_factory=list)

    def text(self) -> str:
        """Return one paragraph for a person."""
        head = (
            f"drill with seed {self.seed}: {self.faults} faults, {self.sent} sends, {self.acknowledged} acknowledged, "
            f"{self.delayed} delayed, {self.timers} with a time, {self.sent_back} sent back, "
            f"{self.ordered} in an ordered group, {self.ended} transactions ended, "
            f"{self.read} read while it ran, {self.filtered} read by SQL92, {self.seconds:.1f} s: "
            f"{len(self.violations)} violations"
        )
        return "\n".join([head, *(f"  {violation.kind}: {violation.text}" for violation in self.violations[:20])])


class Drill:
    """One run over one store. The broker is started again on the same ports whenever it has ended."""

    def __init__(
        self, store: Path, seed: int, settings: Mapping[str, object], environment: Mapping[str, str] | None = None
    ) -> None:
        self._settings = {
            **SMALL_FILES, **delays.SETTINGS, **transactions.SETTINGS, **filters.SETTINGS, **timers.SETTINGS,
            **settings,
        }  # fmt: skip
        self._environment = environment or {}
        self._store = store
        self._checker, self._delays = Checker(), DelayChecker()
        self._stops_failed: list[str] = []
        # Below the range of outgoing connections: a port that the kernel chose may go to one of them during a restart.
        self._broker = RunningBroker(
            store, self._settings, port=free_broker_port(), namesrv_port=free_port(), environment=self._environment
        )
        self._workers = set(self._broker.worker_pids())
        self._killed: set[int] = set()
        self._running = True
        self._retries = RetryLoad(
            self._broker.namesrv, lambda: self._broker.address, lambda: self._running, delays.DELAYS_MS[0],
            RETURN_TIMEOUT_S,
        )  # fmt: skip
        self._transactions = TransactionLoad(
            self._broker.namesrv, lambda: self._broker.address, lambda: self._running, RETURN_TIMEOUT_S
        )
        self._filters = FilterLoad(lambda: self._broker.address, lambda: self._running)
        self._timers = TimerLoad(lambda: self._broker.address, lambda: self._running, RETURN_TIMEOUT_S)
        self._report = DrillReport(seed)
        self._acknowledged = asyncio.Event()
        self._ends: dict[int, int] = {}  # by queue: behind the last message that was acknowledged

    async def run(self, faults: list[Fault], log_line: Callable[[str], None] | None = None) -> DrillReport:
        """Load, inject, settle, check. `log_line` gets a line of progress now and then."""
        began = time.monotonic()
        client = RemotingClient()
        retry = RetryPolicy(attempts=1, budget_ms=3000)
        try:
            async with Producer(self._broker.namesrv, "drill", retry=retry) as producer:
                load = [
                    asyncio.create_task(self._produce(producer, queue_id, lane))
                    for queue_id in range(QUEUES)
                    for lane in range(IN_FLIGHT_PER_QUEUE)
                ]
                load += [asyncio.create_task(self._follow(client, queue_id)) for queue_id in range(QUEUES)]
                load += [asyncio.create_task(self._filters.follow(client, queue_id)) for queue_id in range(QUEUES)]
                load += [
                    asyncio.create_task(self._produce_delayed(producer, level, lane))
                    for level in range(1, len(delays.DELAYS_MS) + 1)
                    for lane in range(delays.LANES)
                ]
                load += [asyncio.create_task(task) for task in self._retries.tasks(producer, client)]
                load += [asyncio.create_task(task) for task in self._transactions.tasks(client)]
                load += [asyncio.create_task(task) for task in self._timers.tasks(producer)]
                load += [asyncio.create_task(extra) for extra in self.extra_load(producer, client)]
                await self._service_returns()
                for number, fault in enumerate(faults, 1):
                    await self.inject(fault)
                    await self._service_returns()
                    self._report.faults = number
                    if log_line and number % FAULTS_PER_LINE == 0:
                        log_line(self._progress(len(faults), began))
                self._running = False
                await asyncio.gather(*load)
            await self._read_all(client)
            await self._read_delayed(client)
            self._report.violations = await self._retries.verdict(client)
            self._report.violations += await self._transactions.verdict(client)
            self._report.violations += await self._timers.verdict(client)
        finally:
            await client.close()
            self._report.seconds = time.monotonic() - began
        self._report.violations += self._checker.verdict() + self._delays.verdict()
        self._report.violations += self._filters.checker.verdict()
        self._report.violations += [Violation("stop", text) for text in self._stops_failed]
        self._report.acknowledged = self._checker.acknowledged_count
        self._report.delayed = self._delays.acknowledged_count
        self._report.sent_back, self._report.ordered = self._retries.counts
        self._report.ended = self._transactions.ended_count
        self._report.timers = self._timers.checker.acknowledged_count
        self._report.filtered = self._filters.checker.given_count
        await self._workers_return()
        status = self._broker.stop()
        if status != 0:
            self._report.violations.append(Violation("stop", f"the clean stop ended with status {status}"))
        return self._report

    def _progress(self, faults: int, began: float) -> str:
        report = self._report
        return f"{report.faults} of {faults} faults, {report.sent} sends, {time.monotonic() - began:.0f} s"

    def abandon(self) -> None:
        """End the broker in any state, and leave nothing of it in shared memory."""
        self._broker.close()

    async def _produce(self, producer: Producer, queue_id: int, lane: int) -> None:
        queue = MessageQueue(TOPIC, "broker-a", queue_id)
        messages = lane_messages(self._checker, queue_id, lane)
        while self._running:
            message_id, message = next(messages)
            self._report.sent += 1
            try:
                result = await producer.send(message, queue=queue)
            except (RingmqError, OSError):
                await asyncio.sleep(0.01)
                continue
            self._checker.acknowledged(message_id, TOPIC, result.queue.queue_id, result.queue_offset)
            self._ends[queue_id] = max(self._ends.get(queue_id, 0), result.queue_offset + 1)
            self._acknowledged.set()

    async def _produce_delayed(self, producer: Producer, level: int, lane: int) -> None:
        queue = MessageQueue(delays.DELAYED_TOPIC, "broker-a", level - 1)
        messages = self._delays.messages(level, lane)
        while self._running:
            message_id, message = next(messages)
            self._delays.began(message_id, time.time_ns() // 1_000_000)
            try:
                await producer.send(message, queue=queue)
            except (RingmqError, OSError):
                await asyncio.sleep(0.01)
                continue
            self._delays.acknowledged(message_id)
            await asyncio.sleep(0.005)  # poll

    async def _follow(self, client: RemotingClient, queue_id: int) -> None:
        """Read all readable messages during the drill, from the beginning on."""
        queue_offset = 0
        while self._running:
            try:
                messages, queue_offset = await pull(client, self._broker.address, queue_id, queue_offset)
            except (RingmqError, OSError):
                await asyncio.sleep(0.01)
                continue
            for message in messages:
                self._report.read += 1
                self._checker.read(TOPIC, queue_id, message.queue_offset, id_of(message))
            if not messages:
                await asyncio.sleep(0.005)

    def extra_load(self, producer: Producer, client: RemotingClient) -> list[Coroutine[Any, Any, None]]:
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
        self._acknowledged.clear()
        try:
            async with asyncio.timeout(RETURN_TIMEOUT_S):
                await self._acknowledged.wait()
                self._acknowledged.clear()
                await self._acknowledged.wait()
        except TimeoutError:
            self._running = False
            tail = self._broker.log_tail()
            raise RuntimeError(f"the service did not return within {RETURN_TIMEOUT_S:.0f} s:\n{tail}") from None

    async def _shown_end(self, client: RemotingClient, queue_id: int) -> int:
        """Return the queue's end, once a restarted control answers and dispatch shows all acknowledged messages.

        If that never happens, the checker reports it.
        """
        deadline = time.monotonic() + RETURN_TIMEOUT_S
        while True:
            try:
                end = await max_offset(client, self._broker.address, queue_id)
            except (RingmqError, OSError):
                if time.monotonic() > deadline:
                    raise
            else:
                if end >= self._ends.get(queue_id, 0) or time.monotonic() > deadline:
                    return end
            await asyncio.sleep(0.01)  # poll

    async def _read_all(self, client: RemotingClient) -> None:
        """Read the queues at the end, from first to last."""
        for queue_id in range(QUEUES):
            end = await self._shown_end(client, queue_id)
            await read_up_to(
                client, self._broker.address, queue_id, end, partial(self._take_final, queue_id), RETURN_TIMEOUT_S
            )
            await self._filters.read_rest(client, queue_id, end, RETURN_TIMEOUT_S)

    def _take_final(self, queue_id: int, message: MessageExt) -> None:
        self._checker.final_read(TOPIC, queue_id, message.queue_offset, id_of(message))
        self._filters.checker.held(queue_id, message.queue_offset, id_of(message))

    async def _read_delayed(self, client: RemotingClient) -> None:
        """Read the copies of delayed messages, once they are all there. The checker reports what never comes."""
        for queue_id in range(len(delays.DELAYS_MS)):
            queue_offset, deadline = 0, time.monotonic() + RETURN_TIMEOUT_S
            while time.monotonic() < deadline:
                try:
                    messages, queue_offset = await pull(
                        client, self._broker.address, queue_id, queue_offset, delays.DELAYED_TOPIC
                    )
                except (RingmqError, OSError):
                    messages = []
                for message in messages:
                    self._delays.delivered(message)
                if messages:
                    deadline = time.monotonic() + RETURN_TIMEOUT_S
                elif self._delays.has_all(queue_id + 1):
                    break
                else:
                    await asyncio.sleep(0.01)  # poll


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
