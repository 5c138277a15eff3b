"""The target of the siege: a broker with default settings on fixed ports, its store, and its canary."""

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ringmq.loadtest.drills.checker import Violation
from ringmq.loadtest.load.running import RunningBroker
from ringmq.loadtest.siege.attack import TOPIC, Target
from ringmq.loadtest.siege.canary import TOPIC as CANARY_TOPIC
from ringmq.loadtest.siege.canary import Canary, Connection, make_group, make_topic, read_back
from ringmq.loadtest.siege.honest_requests import group_of, topic_of
from ringmq.loadtest.siege.requests import request
from ringmq.loadtest.siege.watch import SPARE_BYTES, shared_bytes
from ringmq.loadtest.stock.ports import free_broker_port, free_port
from ringmq.remoting.codes import RequestCode

SETTLE_TIMEOUT_S = 30.0
STAYS_S = 1.0  # a slave that starts on a bad record dies within its first second
GROUPS = ("canary", "canary-end")
_CLUSTER, _NAME, _SLAVE_ID = "DefaultCluster", "broker-a", 1
_LOG_FILE_BYTES = 1 << 30
_MEMORY_MAX = re.compile(r"^ringmqMemoryMax=(\d+)$", re.MULTILINE)


class BrokerUnderTest:
    """A started broker, and its canary. `settings` change the defaults for short runs."""

    def __init__(self, folder: Path, settings: dict[str, object], tell: Callable[[str], None]) -> None:
        self._folder = folder
        self._log = tell
        self._stores = 0
        self._port, self._name_server_port = free_broker_port(), free_port()
        self._master_port, self._lying_port, self._http_port = free_port(), free_port(), free_port()
        self._settings = {"metricsPromExporterPort": self._http_port, **settings}
        self._own: Mapping[str, object] | None = None
        self.violations: list[Violation] = []
        self.failed_starts = 0
        self.sent = 0
        self.target = self._make_target()
        self._open_store()

    def _make_target(self) -> Target:
        return Target(
            port=self._port,
            vip_port=self._port - 2,
            ha_port=self._port + 1,
            name_server_port=self._name_server_port,
            http_port=self._http_port,
            master_port=self._master_port,
            lying_port=self._lying_port,
            cluster=_CLUSTER,
            broker_name=_NAME,
            log_file_bytes=int(str(self._settings.get("mappedFileSizeCommitLog", _LOG_FILE_BYTES))),
        )

    def _open_store(self) -> None:
        self._stores += 1
        self.broker = self._start(self._folder / f"store-{self._stores}")
        self.memory_max_bytes = self._memory_max_bytes()
        make_topic(self._port, CANARY_TOPIC)
        make_topic(self._port, TOPIC)
        for group in GROUPS:
            make_group(self._port, group)
        self.canary = Canary(self.target)

    def _start(self, store: Path) -> RunningBroker:
        return RunningBroker(
            store, {**self._settings, **(self._own or {})}, port=self._port, namesrv_port=self._name_server_port
        )

    def _memory_max_bytes(self) -> int:
        """The broker's own limit."""
        with contextlib.closing(Connection(self._port)) as connection:
            text = connection.ask(request(RequestCode.GET_BROKER_CONFIG)).body.decode()
        told = _MEMORY_MAX.search(text)
        return int(told[1]) if told and int(told[1]) else shared_bytes(self.broker.store)[1] + SPARE_BYTES

    def start_again(self) -> bool:
        """Stop, and start on the same store. A failure is counted and gives False."""
        try:
            self.broker.stop()
            self.broker = self._start(self.broker.store)
        except (RuntimeError, AssertionError) as error:
            self.failed_starts += 1
            self._log(f"  the start failed: {error}")
            return False
        return True

    def use(self, own: Mapping[str, object] | None) -> None:
        """Continue with an empty store if an attack has settings of its own (not None), or the one before had."""
        if own is None and self._own is None:
            return
        self.verify_store()
        self.broker.close()
        self._own = own
        self._open_store()

    @contextlib.contextmanager
    def beside(self, kinds: Sequence[str]) -> Iterator[Canary | None]:
        """Yield lanes of these kinds of honest requests, None without kinds."""
        if not kinds:
            yield None
            return
        for kind in kinds:
            make_topic(self._port, topic_of(kind))
            make_group(self._port, group_of(kind))
        lanes = Canary(self.target, kinds)
        try:
            yield lanes
        finally:
            lanes.stop()

    def replace_store(self) -> None:
        """Check the canary's readable messages, and continue with an empty store."""
        self.verify_store()
        self.broker.close()
        self._open_store()

    def verify_store(self) -> None:
        """Start again, read everything back, compare it with the canary's own record."""
        self.canary.stop()
        record = self.canary.record
        if self.start_again():
            deadline = time.monotonic() + SETTLE_TIMEOUT_S
            while (failed := self._read_back()) and time.monotonic() < deadline:
                time.sleep(0.5)
            if failed:
                self.violations.append(Violation("unreadable", failed))
        self.violations += record.checker.verdict()
        self.sent += record.checker.acknowledged_count

    def _read_back(self) -> str:
        try:
            return read_back(self._port, self.canary.record)
        except (OSError, KeyError, ValueError) as error:
            return repr(error)

    @contextlib.contextmanager
    def slave(self) -> Iterator[None]:
        """Yield a slave of the listener on `master_port`.

        Afterwards it must start again on the store from that listener.
        """
        store = self._folder / f"slave-{self._stores}"
        settings = {**self._settings, "brokerRole": "SLAVE", "brokerId": _SLAVE_ID, "metricsPromExporterPort": 0}
        settings["haMasterAddress"] = f"127.0.0.1:{self._master_port}"
        running = RunningBroker(store, settings, port=free_broker_port(), namesrv=None)
        try:
            yield
            running.stop()
            running = RunningBroker(store, settings, port=running.port, namesrv=None)
            workers = running.worker_pids()
            time.sleep(STAYS_S)
            if running.worker_pids() != workers:
                raise RuntimeError(f"workers of the slave ended:\n{running.log_tail()}")
        except (RuntimeError, AssertionError) as error:
            self.failed_starts += 1
            self._log(f"  the slave's start failed: {error}")
        finally:
            running.close()

    def close(self) -> None:
        """End everything."""
        self.canary.stop()
        self.broker.close()
