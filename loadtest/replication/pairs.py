"""A master with its slave, stock's or RingMQ's: same settings, same CPUs, optionally with a link between them."""

import contextlib
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringmq.loadtest.ceiling.delay_link import DelayLink
from ringmq.loadtest.load.process_stats import cpu_seconds
from ringmq.loadtest.load.targets import COMMON_SETTINGS
from ringmq.loadtest.load.tools import Tools
from ringmq.loadtest.measuring.measurement import RINGMQ, STOCK
from ringmq.loadtest.replication.name_server_proxy import NameServerProxy
from ringmq.loadtest.replication.nodes import Node, RingmqNode, StockNameServer, StockNode
from ringmq.loadtest.replication.remote import GET_BROKER_HA_STATUS, SUCCESS, Remote
from ringmq.loadtest.stock import free_broker_port

Settings = Mapping[str, str | int | bool]
IN_SYNC_TIMEOUT_S = 90.0
POLL_S = 0.005
COMPARE_BYTES = 4 << 20
SYNC_MASTER: Settings = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2}  # the master and one slave
ASYNC_MASTER: Settings = {"brokerRole": "ASYNC_MASTER"}


@dataclass(frozen=True)
class Progress:
    """A master's report about its one slave, with offsets in bytes of the log."""

    in_sync: bool
    acknowledged: int
    end: int

    @property
    def is_caught_up(self) -> bool:
        """True if the slave counts for sends and has everything. A slave without a report does not count."""
        return self.in_sync and self.acknowledged >= self.end


def progress_of(status: Mapping[str, Any]) -> Progress:
    """Return the progress in the answer to GET_BROKER_HA_STATUS."""
    connections = status["haConnectionInfo"] or []
    acknowledged = max((int(connection["slaveAckOffset"]) for connection in connections), default=0)
    in_sync = any(connection["inSync"] for connection in connections)
    return Progress(in_sync, acknowledged, int(status["masterCommitLogMaxOffset"]))


class Pair:
    """A running master, and its slave after `start_slave`. A Target of the bench.

    With `delay_ms` the slave reaches the master's HA port through a link (0 is a link, too).
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        settings: Settings,
        cpus: Sequence[int],
        *,
        tools: Tools | None = None,
        delay_ms: float | None = None,
    ) -> None:
        self.name = name
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self._cpus = cpus
        self._settings: Settings = {
            **COMMON_SETTINGS, "brokerName": "pair", "brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1", **settings
        }  # fmt: skip
        self.link: DelayLink | None = None
        self._proxy: NameServerProxy | None = None
        self.slave: Node | None = None
        port = free_broker_port()
        self._name_server: StockNameServer | None = None
        own = {**self._settings, "brokerId": 0, "haListenPort": port + 1}
        if name == STOCK:
            self._name_server = StockNameServer(folder, cpus)
            self.master: Node = StockNode(folder / "master", own, port, self._name_server.namesrv, cpus)
            self.namesrv = self._name_server.namesrv
        else:
            master = RingmqNode(folder / "master", own, port, "", cpus)
            self.master, self.namesrv = master, master.namesrv
        self.store = self.master.store
        self.port = port
        self.start_seconds = 0.0
        if delay_ms is not None:
            assert tools is not None
            self.link = DelayLink(tools, port + 1, delay_ms=delay_ms)
            self._proxy = NameServerProxy(int(self.namesrv.rsplit(":", 1)[1]), port + 1, self.link.port)
        self._remote = Remote(port)

    def start_slave(self, settings: Settings | None = None) -> None:
        """Start a slave with an empty store. Returns when it serves, not when it has caught up."""
        namesrv = f"127.0.0.1:{self._proxy.port}" if self._proxy else self.namesrv
        own = {**self._settings, "brokerId": 1, "brokerRole": "SLAVE", **(settings or {})}
        port = free_broker_port()
        own["haListenPort"] = port + 1
        make = StockNode if self.name == STOCK else RingmqNode
        self.slave = make(self.folder / "slave", own, port, namesrv, self._cpus)

    def progress(self) -> Progress:
        """Ask the master for its slave's progress."""
        reply = self._remote.ask(GET_BROKER_HA_STATUS)
        if reply.code != SUCCESS:
            raise RuntimeError(f"request {GET_BROKER_HA_STATUS}: code {reply.code} {reply.remark}")
        return progress_of(reply.json())

    def wait_in_sync(self, timeout_s: float = IN_SYNC_TIMEOUT_S) -> Progress:
        """Wait until the slave has acknowledged everything. Raises RuntimeError at the end of the time."""
        deadline = time.monotonic() + timeout_s
        while True:
            progress = self.progress()
            if progress.is_caught_up:
                return progress
            if time.monotonic() > deadline:
                raise RuntimeError(f"the slave of {self.name} is not in sync after {timeout_s:.0f} s: {progress}")
            time.sleep(POLL_S)

    def same_logs(self) -> bool:
        """True if the slave's CommitLog holds the master's bytes. Both have to be at rest and in sync."""
        assert self.slave is not None
        end = self.progress().end
        size = int(self._settings["mappedFileSizeCommitLog"])
        for start in range(0, end, size):
            name = f"commitlog/{start:020d}"
            left = min(size, end - start)
            with (self.master.store / name).open("rb") as ours, (self.slave.store / name).open("rb") as theirs:
                while left > 0:
                    wanted = min(left, COMPARE_BYTES)
                    if ours.read(wanted) != theirs.read(wanted):
                        return False
                    left -= wanted
        return True

    def pids(self) -> dict[int, str]:
        """Return all processes of both brokers."""
        found = {pid: f"master {name}" for pid, name in self.master.pids().items()}
        if self.slave is not None:
            found |= {pid: f"slave {name}" for pid, name in self.slave.pids().items()}
        return found

    def cpu_seconds(self) -> dict[str, float]:
        """Return the processor time so far of `master` and `slave`."""
        slave = self.slave.pids() if self.slave is not None else {}
        return {"master": cpu_seconds(self.master.pids()), "slave": cpu_seconds(slave)}

    @contextlib.contextmanager
    def slave_stopped(self) -> Iterator[None]:
        """Stop every process of the slave by SIGSTOP, and continue them at the end."""
        assert self.slave is not None
        self.slave.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.slave.signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill everything by SIGKILL. The stores stay."""
        for node in (self.slave, self.master, self._name_server):
            if node is not None:
                node.kill()

    def close(self) -> None:
        """End everything and remove the stores."""
        self._remote.close()
        for part in (self._proxy, self.link):
            if part is not None:
                part.close()
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def start_pair(
    name: str,
    folder: Path,
    settings: Settings,
    cpus: Sequence[int],
    *,
    tools: Tools | None = None,
    delay_ms: float | None = None,
) -> Pair:
    """Return a master and a slave that is in sync with it."""
    assert name in (STOCK, RINGMQ)
    pair = Pair(name, folder, settings, cpus, tools=tools, delay_ms=delay_ms)
    try:
        pair.start_slave()
        pair.wait_in_sync()
    except BaseException:
        pair.close()
        raise
    return pair
