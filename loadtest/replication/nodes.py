"""One broker of a replicated group, stock's or RingMQ's, for a bench."""

import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from ringmq.loadtest.load.process_stats import family
from ringmq.loadtest.load.running import RunningBroker
from ringmq.loadtest.load.targets import STOCK_HEAP_MB
from ringmq.loadtest.stock import start_broker, start_namesrv

Settings = Mapping[str, str | int | bool]


class Node(Protocol):
    """A running broker."""

    store: Path

    def pids(self) -> dict[int, str]:
        """Return the processes by id, with their names."""

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all of its processes."""

    def kill(self) -> None:
        """Kill everything by SIGKILL. The store stays."""


class StockNameServer:
    """The name server of a stock group."""

    def __init__(self, folder: Path, cpus: Sequence[int]) -> None:
        self._server = start_namesrv(home=folder / "namesrv", cpus=cpus)
        self.namesrv = self._server.address

    def kill(self) -> None:
        """kill -9."""
        self._server.kill()


class StockNode:
    """A stock broker. Its start returns when the name server lists it."""

    def __init__(self, folder: Path, settings: Settings, port: int, namesrv: str, cpus: Sequence[int]) -> None:
        self.store = folder / "store"
        self._server = start_broker(
            settings,
            port=port,
            home=folder / "home",
            store=self.store,
            namesrv=namesrv,
            heap_mb=STOCK_HEAP_MB,
            cpus=cpus,
        )

    def pids(self) -> dict[int, str]:
        """Return the one process."""
        return {self._server.pid: "broker"}

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it."""
        os.kill(self._server.pid, number)

    def kill(self) -> None:
        """kill -9."""
        self._server.kill()


class RingmqNode:
    """`ringmq serve` (without `namesrv`, so it has its own name server) or `ringmq broker`, the slave.

    The slave counts the CPUs from the other end: on a small host the hot parts of both would share one CPU.
    """

    def __init__(self, folder: Path, settings: Settings, port: int, namesrv: str, cpus: Sequence[int]) -> None:
        self.store = folder / "store"
        order = [str(cpu) for cpu in (reversed(cpus) if namesrv else cpus)]
        arguments = ("--cpus", ",".join(order)) if order else ()
        self._running = RunningBroker(self.store, settings, port=port, namesrv=namesrv, arguments=arguments)
        self.namesrv = namesrv or self._running.namesrv

    def pids(self) -> dict[int, str]:
        """Return supervisor and workers."""
        workers = {pid: name for name, pid in self._running.worker_pids().items()}
        main = self._running.process.pid
        return {pid: workers.get(pid, "supervisor" if pid == main else "other") for pid in family(main)}

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every process, the supervisor first so that it starts no replacement."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """Kill everything by SIGKILL, and remove the shared memory."""
        self._running.close()
