"""The compared brokers: started with the same settings on the same CPUs in the same folder."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from ringmq.loadtest.load.process_stats import family
from ringmq.loadtest.load.running import RunningBroker
from ringmq.loadtest.stock import StockServer, start_broker, start_namesrv

STOCK_HEAP_MB = 2048
# Of both brokers. Sizes of index and segments are defaults, but the comparison rests on them.
COMMON_SETTINGS: Mapping[str, str | int | bool] = {
    "mappedFileSizeCommitLog": 1 << 30,
    "mappedFileSizeConsumeQueue": 300000 * 20,
    "messageIndexEnable": True,
    "autoCreateTopicEnable": True,
    "diskMaxUsedSpaceRatio": 95,
}

OTHER = "other"
"""A process of a broker that is no worker."""


class Target(Protocol):
    """A broker under measurement."""

    name: str
    port: int
    namesrv: str
    store: Path
    start_seconds: float

    def pids(self) -> dict[int, str]:
        """Return all processes of the broker by id, with their names. A separate name server process is left out."""

    def kill(self) -> None:
        """Kill everything by SIGKILL. The store stays."""

    def close(self) -> None:
        """End everything and remove the store."""


class StockTarget:
    """Stock RocketMQ 5.3.3: its name server and one broker."""

    name = "stock"

    def __init__(self, folder: Path, settings: Mapping[str, str | int | bool], cpus: Sequence[int]) -> None:
        self._folder, self._cpus = folder, cpus
        self.store = folder / "store"
        shutil.rmtree(folder, ignore_errors=True)
        self._namesrv: StockServer = start_namesrv(home=folder / "namesrv", cpus=cpus)
        try:
            self._start(settings)
        except BaseException:
            self._namesrv.kill()
            raise
        self.namesrv = self._namesrv.address
        self.start_seconds = 0.0

    def _start(self, settings: Mapping[str, str | int | bool]) -> None:
        self._broker = start_broker(
            {**COMMON_SETTINGS, **settings},
            home=self._folder / "broker",
            store=self.store,
            namesrv=self._namesrv.address,
            heap_mb=STOCK_HEAP_MB,
            cpus=self._cpus,
        )
        self.port = self._broker.port

    def restart(self, settings: Mapping[str, str | int | bool]) -> None:
        """Stop the broker and start it on its store with other settings. Its port may change."""
        self._broker.stop()
        self._start(settings)

    def pids(self) -> dict[int, str]:
        """Return the broker's process."""
        return {self._broker.pid: "broker"}

    def kill(self) -> None:
        """Kill both by SIGKILL."""
        self._broker.kill()
        self._namesrv.kill()

    def close(self) -> None:
        """Kill the broker, whose clean stop takes long, and remove the store."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


class RingmqTarget:
    """`ringmq serve`. With `keep` an existing store is opened instead of a fresh one."""

    name = "ringmq"

    def __init__(
        self, folder: Path, settings: Mapping[str, str | int | bool], cpus: Sequence[int], *, keep: bool = False
    ) -> None:
        self._folder, self._cpus = folder, cpus
        self.store = folder / "store"
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        self._start(settings)

    def _start(self, settings: Mapping[str, str | int | bool]) -> None:
        before = os.sched_getaffinity(0)
        # The child inherits the mask; the default placement plan uses the CPUs it is given.
        if self._cpus:
            os.sched_setaffinity(0, self._cpus)
        try:
            self._running = RunningBroker(self.store, {**COMMON_SETTINGS, **settings})
        finally:
            os.sched_setaffinity(0, before)
        self.port = self._running.port
        self.namesrv = self._running.namesrv
        self.start_seconds = self._running.start_seconds
        self.metrics_url = self._running.metrics_url

    def restart(self, settings: Mapping[str, str | int | bool]) -> None:
        """Stop the broker and start it on its store with other settings. Its port may change."""
        self._running.stop()
        self._start(settings)

    def pids(self) -> dict[int, str]:
        """Return supervisor and workers. One of them is the name server."""
        workers = {pid: name for name, pid in self._running.worker_pids().items()}
        main = self._running.process.pid
        return {pid: workers.get(pid, "supervisor" if pid == main else OTHER) for pid in family(main)}

    def kill(self) -> None:
        """Kill everything by SIGKILL."""
        self._running.kill_all()

    def start_again(self, settings: Mapping[str, str | int | bool]) -> None:
        """Kill everything and start on the store that is left. Its port may change."""
        self.kill()
        self._start(settings)

    def close(self) -> None:
        """End everything and remove the store."""
        self._running.close()
        shutil.rmtree(self._folder, ignore_errors=True)
