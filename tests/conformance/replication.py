"""A name server, a master and a slave as separate processes, each RingMQ's or stock, for the tests of replication."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from ringmq.loadtest.load.running import remove_shared_memory
from ringmq.loadtest.stock import StockServer, free_broker_port, free_port, start_broker, start_namesrv
from tests.conformance.records import log_bytes
from tests.conformance.servers import JSON_HEADERS, RingmqProcess, settings_args
from tests.waiting import wait_until

STOCK_HEAP_MB = 256
FILE_BYTES = 1 << 17
SMALL_FILES: dict[str, Any] = {
    "mappedFileSizeCommitLog": FILE_BYTES,
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "maxMessageSize": 32_768,
    "fileReservedTime": 87_600,
}
QUICK = {"haSendHeartbeatInterval": 1000}
SELDOM = {"timerFlushIntervalMs": 4000}
"""Each flush of a stock broker takes 0.15 s of a CPU, by default each second (`tests/server_pool.py`)."""
SLAVE = {"brokerRole": "SLAVE", "brokerId": 1, "slaveReadEnable": True}


class RingmqNode:
    """One `ringmq broker` of a group. It can be ended and started again on its port and store."""

    kind = "ringmq"

    def __init__(self, home: Path, namesrv: str, settings: Mapping[str, Any]) -> None:
        self.store = home / "store"
        self._home = home / "ringmq"
        self._settings = {"brokerIP1": "127.0.0.1", **SMALL_FILES, **QUICK, **settings}
        port = free_broker_port()
        self.address = f"127.0.0.1:{port}"
        self._place = ["--port", str(port), "--namesrv", namesrv]
        self.start()

    def start(self, **more: Any) -> None:
        """Start it, with more settings than before."""
        self._settings.update(more)
        arguments = ["--store", str(self.store), *self._place, *settings_args(self._settings)]
        self._process = RingmqProcess(self._home, "broker", *arguments)

    def kill(self) -> None:
        """kill -9 of all its processes."""
        self._process.kill()

    def kill_worker(self, name: str) -> None:
        """kill -9 of one of its workers, which has to be there."""
        supervisor = psutil.Process(self._process.process.pid)
        worker = next(child for child in supervisor.children() if name in child.cmdline())
        worker.kill()

    def stop(self) -> None:
        """Clean stop."""
        self._process.stop()

    def close(self) -> None:
        """kill -9, and nothing stays but the store."""
        self.kill()
        remove_shared_memory(self.store)

    def tail(self) -> str:
        """The last that it logged."""
        return self._process.tail()


def _state(task: Path) -> str:
    """One letter, as in /proc/<pid>/stat; X for a thread that is gone."""
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


class StockNode:
    """One stock broker of a group."""

    kind = "stock"

    def __init__(self, home: Path, namesrv: str, settings: Mapping[str, Any]) -> None:
        self.store = home / "store"
        self._home = home / "stock"
        self._namesrv = namesrv
        self._port = free_broker_port()
        self.address = f"127.0.0.1:{self._port}"
        self._settings = {**SMALL_FILES, **QUICK, **SELDOM, **settings}
        self.start()

    def start(self, **more: Any) -> None:
        """Start it, with more settings than before."""
        self._settings.update(more)
        self._broker: StockServer = start_broker(
            self._settings,
            port=self._port,
            home=self._home,
            store=self.store,
            namesrv=self._namesrv,
            jvm=JSON_HEADERS,
            heap_mb=STOCK_HEAP_MB,
        )

    def kill(self) -> None:
        """kill -9."""
        self._broker.kill()

    def stop(self) -> None:
        """Clean stop."""
        self._broker.stop()

    def close(self) -> None:
        """A stock broker leaves nothing outside its store."""
        self.kill()

    def pause(self) -> None:
        """SIGSTOP; returns when no thread runs any more."""
        self._broker.pause()
        tasks = list(Path(f"/proc/{self._broker.pid}/task").iterdir())
        wait_until(lambda: all(_state(task) in "TZX" for task in tasks), "the stock broker is stopped")

    def go_on(self) -> None:
        """SIGCONT."""
        os.kill(self._broker.pid, signal.SIGCONT)

    def tail(self) -> str:
        """The last that it logged."""
        return self._broker.tail()


def stored_log(root: Path) -> bytes:
    """The CommitLog from offset 0 on up to the last byte that is not zero."""
    return log_bytes(root).rstrip(b"\0") if (root / "commitlog").is_dir() else b""


def ends_as(root: Path, wanted: bytes) -> bool:
    """True if the CommitLog has the last byte of `wanted`: one byte is read, not the whole log."""
    if not wanted:
        return True
    file, place = divmod(len(wanted) - 1, FILE_BYTES)
    path = root / "commitlog" / f"{file * FILE_BYTES:020}"
    if not path.exists():
        return False
    with path.open("rb") as log:
        log.seek(place)
        return log.read(1) == wanted[-1:]


NODES = {"ringmq": RingmqNode, "stock": StockNode}


class Group:
    """A name server of the master's kind, a master and, when it is told to start, a slave."""

    def __init__(self, home: Path, master: str, slave: str, **master_settings: Any) -> None:
        self.broker_name = f"{master}-{slave}"
        self._home = home
        self._slave_kind = slave
        self.slave: RingmqNode | StockNode | None = None
        if master == "stock":
            self._stock_namesrv: StockServer | None = start_namesrv(home=home / "namesrv", jvm=JSON_HEADERS)
            self._ringmq_namesrv: RingmqProcess | None = None
            self.namesrv = self._stock_namesrv.address
        else:
            port = free_port()
            self._stock_namesrv = None
            self._ringmq_namesrv = RingmqProcess(home / "namesrv", "namesrv", "--port", str(port))
            self.namesrv = f"127.0.0.1:{port}"
        try:
            settings = {"brokerName": self.broker_name, **master_settings}
            self.master = NODES[master](home / "master", self.namesrv, settings)
        except BaseException:
            self._close_namesrv()
            raise

    def start_slave(self) -> RingmqNode | StockNode:
        """The slave, for the first time."""
        settings = {"brokerName": self.broker_name, **SLAVE}
        self.slave = NODES[self._slave_kind](self._home / "slave", self.namesrv, settings)
        return self.slave

    def wait_equal(self, timeout_s: float = 60.0) -> None:
        """Until the slave's CommitLog is the master's, byte by byte; the master must not append meanwhile."""
        assert self.slave is not None
        slave, wanted = self.slave, stored_log(self.master.store)
        try:
            wait_until(
                lambda: ends_as(slave.store, wanted) and stored_log(slave.store) == wanted,
                "the slave has the master's log",
                timeout_s,
            )
        except AssertionError as error:
            there = stored_log(slave.store)
            state = f"{len(there)} of {len(wanted)} bytes, the same so far: {wanted.startswith(there)}"
            raise AssertionError(f"{error}: {state}\n{self.master.tail()}\n{slave.tail()}") from None

    def close(self) -> None:
        """End everything."""
        for node in (self.slave, self.master):
            if node is not None:
                node.close()
        self._close_namesrv()

    def _close_namesrv(self) -> None:
        for namesrv in (self._stock_namesrv, self._ringmq_namesrv):
            if namesrv is not None:
                namesrv.kill()
