"""A broker under a service manager: ready after its own question, signs of life, listeners over a restart."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from click.testing import CliRunner, Result

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.reload import Difference, differences
from ringmq.broker.health import Readiness
from ringmq.broker.service_report import ServiceReport, is_sign_due, status_text
from ringmq.cli import config_reload
from ringmq.cli.main import main
from ringmq.client.errors import BrokerError
from ringmq.ipc.notify import ServiceManager
from ringmq.ipc.worker import STATE_SERVING
from ringmq.ipc.worker_blocks import workers
from ringmq.loadtest.load.running import RunningBroker
from ringmq.loadtest.stock import free_broker_port
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.properties_text import format_properties
from ringmq.store import markers
from tests.broker.exporter_kit import kit
from tests.drill.settings import SMALL_STORE
from tests.fake_service_manager import FakeServiceManager
from tests.raw_client import RawClient
from tests.waiting import TIMEOUT_S, wait_until

WATCHDOG_MS = 4000


class Service:
    """A broker on fixed ports that is started again and again on one store."""

    def __init__(self, folder: Path, port: int) -> None:
        self.manager = FakeServiceManager(folder, WATCHDOG_MS)
        self.store, self.log, self.port = folder / "store", folder / "log", port
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, *more: str) -> dict[str, str]:
        """Until READY, which is returned."""
        command = [sys.executable, "-m", "ringmq.cli.main", "broker", "--store", str(self.store)]
        command += ["--port", str(self.port)]
        settings: dict[str, object] = {**SMALL_STORE}
        command += [word for item in settings.items() for word in ("--set", "=".join(map(str, item)))]
        self.process = self.manager.spawn([*command, *more], self.log)
        try:
            return self.manager.wait_for(lambda message: "READY" in message, 90)
        except AssertionError as error:
            status = self.process.poll()
            raise AssertionError(f"{error}; exit status {status}\n{self.log.read_text(errors='replace')}") from None

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(TIMEOUT_S)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    one = Service(tmp_path, free_broker_port())
    yield one
    if one.process is not None and one.process.poll() is None:
        one.process.kill()
        one.process.wait(TIMEOUT_S)
    one.manager.close()


def test_ready_restart_and_readers(service: Service) -> None:
    ready = service.start("--set", "ringmqReaders=2", "--set", "metricsExporterType=DISABLE")
    assert ready["STATUS"].startswith(f"serving: broker broker-a on 127.0.0.1:{service.port}")
    assert len(service.manager.store) == 5, "two for each reader and one for slaves"
    assert service.stop() == 0
    service.manager.wait_for(lambda message: "STOPPING" in message)

    answered: list[int] = []
    client = RawClient(service.address, 60)  # refused without the manager: nobody runs
    thread = threading.Thread(target=lambda: answered.append(client.send("Kept", b"waited").code))
    thread.start()
    service.start("--set", "ringmqReaders=2", "--set", "metricsExporterType=DISABLE")
    thread.join(TIMEOUT_S)
    assert answered == [0], "a connection made while the broker was down is served"
    assert len(service.manager.store) == 5, "the same sockets"
    client.close()
    assert service.stop() == 0

    service.start("--set", "ringmqReaders=1", "--set", "metricsExporterType=DISABLE")

    def kept() -> int:
        service.manager.receive()
        return len(service.manager.store)

    wait_until(lambda: kept() == 3, "what no reader listens on is closed")
    for _ in range(20):
        with RawClient(service.address) as one:
            assert one.send("Kept", b"again").code == 0
    assert "the configuration does not name it" in service.log.read_text()
    assert service.stop() == 0


def test_ready_to_read_where_sends_are_refused(service: Service) -> None:
    ready = service.start("--set", "brokerPermission=4", "--namesrv", "127.0.0.1:1")
    assert "serving reads" in ready["STATUS"]
    assert "brokerPermission" in ready["STATUS"]
    assert "name server 127.0.0.1:1 does not answer" in ready["STATUS"]
    wanted = ["brokerPermission=6", "flushDiskType=SYNC_FLUSH", "namesrvAddr=127.0.0.1:1", f"listenPort={service.port}"]
    wanted += [f"{name}={value}" for name, value in SMALL_STORE.items()]
    done = reload_config(service.store, *wanted)
    assert done.exit_code == 3, done.output
    assert "brokerPermission: 4 -> 6: changed live" in done.output
    assert "flushDiskType: ASYNC_FLUSH -> SYNC_FLUSH: needs a restart" in done.output
    assert service.process is not None
    control = next(one for one in psutil.Process(service.process.pid).children() if "control" in one.cmdline())
    control.kill()
    with RawClient(service.address, 60) as client:  # the first answer may say that control was restarted
        wait_until(lambda: client.send("Kept", b"taken now").code == 0, "control's successor takes sends")
    rest = [text for text in wanted if not text.startswith("flush")]
    done = reload_config(service.store, *rest, "storePathRootDir=/elsewhere")  # --store wins, as at the start
    assert (done.exit_code, "nothing to change" in done.output) == (0, True), done.output
    done = reload_config(service.store, "brokerPermission=99")
    assert (done.exit_code, "0..7" in done.output) == (1, True), done.output


def reload_config(store: Path, *assignments: str) -> Result:
    words = [word for assignment in assignments for word in ("--set", assignment)]
    return CliRunner().invoke(main, ["config", "reload", "--store", str(store), *words])


def test_reload_leaves_out_what_a_start_chooses() -> None:
    running = replace(BrokerConfig(), listen_port=4711, broker_ip1="10.0.0.1", ha_listen_port=4712).as_properties()
    assert differences(replace(BrokerConfig(), listen_port=0), running) == []
    moved = replace(BrokerConfig(), listen_port=4000)
    assert differences(moved, running) == [Difference("listenPort", "4711", "4000", False)]


def test_reload_leaves_out_the_name_server_of_serve_itself() -> None:
    with_own = {"namesrvAddr": "a:1;b:2;127.0.0.1:9876"}
    for known in ("a:1;b:2", "a:1;b:2;127.0.0.1:9876"):
        assert differences(replace(BrokerConfig(), namesrv_addr=known), with_own, has_own_namesrv=True) == []
    assert differences(BrokerConfig(), {"namesrvAddr": "127.0.0.1:9876"}, has_own_namesrv=True) == []
    for other in ("a:1", "", "127.0.0.1:9876"):
        wanted = replace(BrokerConfig(), namesrv_addr=other)
        assert [one.name for one in differences(wanted, with_own, has_own_namesrv=True)] == ["namesrvAddr"]
    without = replace(BrokerConfig(), namesrv_addr="a:1;b:2")
    assert [one.name for one in differences(without, with_own)] == ["namesrvAddr"], "it was taken out of the file"


def test_reload_of_a_name_server_and_broker_in_one(tmp_path: Path) -> None:
    settings = [f"{name}={value}" for name, value in SMALL_STORE.items()]
    with RunningBroker(tmp_path / "store", SMALL_STORE):
        done = reload_config(tmp_path / "store", "listenPort=0", *settings)
        assert (done.exit_code, "nothing to change" in done.output) == (0, True), done.output
        done = reload_config(tmp_path / "store", "listenPort=0", "namesrvAddr=127.0.0.1:1", *settings)
        assert (done.exit_code, "-> 127.0.0.1:1: needs a restart" in done.output) == (3, True), done.output


@pytest.mark.parametrize(("code", "outcome", "status"), [(None, "changed live", 0), (16, "needs a restart", 3)])
def test_reload_changes_what_deletes_log_files_where_the_broker_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int | None, outcome: str, status: int
) -> None:
    bodies = []

    class Client:
        """A broker that answers what changes retention with `code`."""

        async def call(self, address: str, request: int, fields: object, body: bytes = b"", **_: object) -> Any:
            if request == RequestCode.GET_BROKER_CONFIG:
                return SimpleNamespace(body=format_properties(BrokerConfig().as_properties()).encode())
            bodies.append(body)
            if code is not None and b"fileReservedTime" in body:
                raise BrokerError(address, code, "adminAddresses does not name this host")
            return None

        async def close(self) -> None:
            """Nothing to close."""

    monkeypatch.setattr(config_reload, "RemotingClient", Client)
    monkeypatch.setattr(config_reload, "_address_of", lambda root: "192.0.2.7:1")
    monkeypatch.setattr(config_reload, "_open_files_max", lambda root: -1)
    done = reload_config(tmp_path, "fileReservedTime=48", "defaultQueryMaxNum=9")
    assert done.exit_code == status, done.output
    assert f"fileReservedTime: 72 -> 48: {outcome}" in done.output
    assert "defaultQueryMaxNum: 32 -> 9: changed live" in done.output
    assert [b"fileReservedTime" in body for body in bodies] == [False, True]


def test_a_hung_worker_ends_the_signs_of_life(service: Service) -> None:
    service.start()
    assert service.process is not None
    flush = next(one for one in psutil.Process(service.process.pid).children() if "flush" in one.cmdline())
    flush.suspend()
    line = "worker flush has not turned its loop for 2 s"
    wait_until(lambda: line in service.log.read_text(), "half of the watchdog's time is over")
    service.manager.receive()
    service.manager.messages.clear()
    deadline = time.monotonic() + WATCHDOG_MS / 1000
    while time.monotonic() < deadline:
        service.manager.receive(0.1)
    signs = [message for message in service.manager.messages if "WATCHDOG" in message]
    assert not signs, "systemd would bite within one and a half times its limit"
    flush.resume()
    service.manager.wait_for(lambda message: "WATCHDOG" in message)
    service.process.kill()
    service.process.wait(TIMEOUT_S)
    service.manager.passed.clear()
    service.start()
    told = [message["STATUS"] for message in service.manager.passed if "STATUS" in message]
    assert told[0].startswith("recovering the store: "), told
    assert service.stop() == 0
    assert not markers.has_abort(service.store)


def test_a_start_gets_time_while_dispatch_reads_what_was_recovered(tmp_path: Path) -> None:
    fake = FakeServiceManager(tmp_path)
    with kit(tmp_path) as made:
        report = ServiceReport(ServiceManager(fake.environment), BrokerConfig(), "127.0.0.1:1", "broker a")
        report.watch(made.plane)
        made.plane.header.recovered_end = 500
        for second, dispatched in ((10, 100), (12, 150), (20, 200), (30, 200), (40, 500)):
            made.plane.watermarks.dispatched_offset = dispatched
            report.tick(second * 1000, serving=False, stopping=False)
    fake.receive()
    asked = [message for message in fake.messages if "EXTEND_TIMEOUT_USEC" in message]
    assert len(asked) == 2, "not with every look, not without progress, not when all of it can be read"
    fake.close()


def test_a_hung_optional_worker_does_not_end_the_signs_of_life(tmp_path: Path) -> None:
    """However short the watchdog's time is: the supervisor replaces such a worker."""
    said: list[int] = []
    manager = SimpleNamespace(
        is_there=True, watchdog_ms=400, alive=lambda: said.append(1), status=lambda text: None, ready=lambda text: None
    )
    with kit(tmp_path) as made:
        blocks = {worker.name: made.plane.role(worker.role) for worker in workers(made.plane)}
        for block in blocks.values():
            block.pid, block.generation, block.state = os.getpid(), 1, STATE_SERVING
        report = ServiceReport(manager, made.config, "", "a broker")  # type: ignore[arg-type]
        report.watch(made.plane)

        def signs(hung: str) -> int:
            """In 20 s, after which a worker that the broker needs would have ended it."""
            said.clear()
            for _ in range(200):
                for name, block in blocks.items():
                    block.progress += name != hung
                clock.append(clock[-1] + 100)
                report.tick(clock[-1], serving=False, stopping=False)
            return len(said)

        clock = [0]
        assert signs("metrics") > 100
        assert signs("flush") < 5


def test_signs_follow_the_slowest() -> None:
    assert is_sign_due({"read-0": 10, "flush": 900}, since_sign_ms=1000, limit_ms=4000)
    assert not is_sign_due({"read-0": 10, "flush": 1000}, since_sign_ms=1000, limit_ms=4000)
    assert not is_sign_due({"read-0": 10}, since_sign_ms=100, limit_ms=4000), "not with every tick"


def test_status_texts() -> None:
    well = Readiness(True, [])
    assert status_text("broker a", well, is_ready=True) == "serving: broker a"
    assert status_text("broker a", well, is_ready=False) == "probing itself: broker a"
    refused = Readiness(False, ["the disk is full"], writable=False)
    assert status_text("broker a", refused, is_ready=True) == "serving reads: broker a; the disk is full"
    down = Readiness(False, list("abcdef"), serving=False)
    assert status_text("broker a", down, is_ready=True) == "not all workers serve: broker a; a; b; c; d; and 2 more"
