"""The processes of a replication drill (a name server, a master and its slaves), and actions on their files."""

import contextlib
import os
import selectors
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ringmq.loadtest.drills.ha_net import MASTER_HOST, SLAVE_HOST, Network
from ringmq.loadtest.load.program import Program
from ringmq.loadtest.load.running import READY_TIMEOUT_S, RunningBroker
from ringmq.loadtest.stock.ports import free_broker_port

BROKER_NAME = "broker-a"
LOG_FILE_BYTES = 1 << 18
LOOPBACK = "127.0.0.1"
_RECORD_MAGICS = (0xDAA320A7, 0xDAA320AB)
SMALL_FILES = {
    "mappedFileSizeCommitLog": LOG_FILE_BYTES,
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
    "maxMessageSize": 65_536,
    "brokerName": BROKER_NAME,
    "cleanResourceInterval": 86_400_000,  # retention would make room on a full disk
}
QUICK_TIMES = {"haSendHeartbeatInterval": 500, "haHousekeepingInterval": 3000, "slaveTimeout": 1000}


class NameServer:
    """`ringmq namesrv` on a free port."""

    def __init__(self, host: str) -> None:
        command = [sys.executable, "-m", "ringmq.cli.main", "namesrv", "--port", "0", "--host", host]
        self._process = Program(
            command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            line = self._process.stdout.readline().decode() if selector.select(READY_TIMEOUT_S) else ""
        if "ready" not in line:
            self.close()
            raise RuntimeError(f"the name server is not ready: {line!r}")
        self.address = f"{host}:{line.split(':')[-1].split()[0]}"

    def close(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


class Node:
    """One broker of the group, which can be ended and started again on its port and store."""

    def __init__(
        self, store: Path, settings: Mapping[str, object], namesrv: str, prefix: Sequence[str], log_folder: Path
    ) -> None:
        self.store = store
        self.log = log_folder / f"{store.name}.log"
        self.settings = {**SMALL_FILES, **QUICK_TIMES, **settings}
        self._namesrv = namesrv
        self._prefix = tuple(prefix)
        self._port = free_broker_port()
        self.broker = self._run()

    def _run(self) -> RunningBroker:
        return RunningBroker(
            self.store, self.settings, port=self._port, namesrv=self._namesrv, prefix=self._prefix, log_path=self.log
        )

    def start(self) -> None:
        """Start the broker again. Raises RuntimeError if it does not come up."""
        self.broker = self._run()

    def kill(self) -> None:
        """kill -9 of all its processes."""
        self.broker.kill_all()

    def everybody(self) -> list[int]:
        """Return the process ids of the supervisor and all workers."""
        return [self.broker.process.pid, *self.broker.worker_pids().values()]

    def close(self) -> None:
        """End the use of the store."""
        self.broker.close()

    # ---- files, while it is ended ---------------------------------------------------------------------------

    def has_record(self, commit_log_offset: int) -> bool:
        """True if the log file has a record at this offset, also while the broker runs."""
        start = commit_log_offset - commit_log_offset % LOG_FILE_BYTES
        try:
            with (self.store / "commitlog" / f"{start:020d}").open("rb") as file:
                head = os.pread(file.fileno(), 8, commit_log_offset - start)
        except FileNotFoundError:
            return False
        return len(head) == 8 and int.from_bytes(head[4:], "big") in _RECORD_MAGICS

    def lose_tail(self, lost_bytes: int) -> None:
        """Zero the last bytes of the log like a power cut: they were in the page cache only."""
        (self.store / "ringmq.boot").unlink(missing_ok=True)
        left = lost_bytes
        for path in sorted((self.store / "commitlog").glob("0*"), reverse=True):
            used = len(path.read_bytes().rstrip(b"\0"))
            with path.open("r+b") as file:
                lost = min(left, used)
                os.pwrite(file.fileno(), bytes(lost), used - lost)
            left -= lost
            if not left:
                return


def _addresses(host: str) -> dict[str, object]:
    return {"brokerIP1": host, "bindAddress": host}


class HaGroup:
    """All nodes. `slave_stores`: a folder per slave."""

    def __init__(
        self, folder: Path, settings: Mapping[str, object], slave_stores: Sequence[Path], network: Network | None = None
    ) -> None:
        self.network = network
        self._folder = folder
        self._master_host, self._slave_host = (MASTER_HOST, SLAVE_HOST) if network else (LOOPBACK, LOOPBACK)
        hosts = f"{self._master_host};{self._slave_host}"
        named = {"haAllowedNetworks": hosts, "adminAddresses": hosts}  # longer logs hold writes until it is decided
        self.settings = {**named, **settings}
        self._prefix = network.slave_prefix if network else ()
        self.slaves: list[Node] = []
        self.name_server = NameServer(self._master_host)
        try:
            master = {"brokerRole": "SYNC_MASTER", **_addresses(self._master_host), **self.settings}
            self.master = Node(folder / "master", master, self.name_server.address, (), folder)
            for number, store in enumerate(slave_stores, 1):
                self.slaves.append(self.new_slave(store, number))
        except BaseException:
            self.close()
            raise

    def new_slave(self, store: Path, broker_id: int) -> Node:
        """Return one more slave. The caller closes it unless it is in `slaves`."""
        own = {"brokerRole": "SLAVE", "brokerId": broker_id, "slaveReadEnable": True}
        given = {**self.settings, **own, **_addresses(self._slave_host)}
        return Node(store, given, self.name_server.address, self._prefix, self._folder)

    @property
    def nodes(self) -> list[Node]:
        """All nodes, the master first."""
        return [self.master, *self.slaves]

    @property
    def ha_address(self) -> tuple[str, int]:
        """Host and port of the master's HA listener."""
        return self.master.broker.host, self.master.broker.port + 1

    def close(self) -> None:
        """End everything."""
        for node in (*self.slaves, *([self.master] if hasattr(self, "master") else [])):
            with contextlib.suppress(ProcessLookupError):
                node.close()
        self.name_server.close()
