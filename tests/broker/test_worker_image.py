"""A broker whose workers are forked: what each process holds, and what the death of one does to the others."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil
import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.worker_image import BY_EXEC, FILTER_COMPILER, image_contents
from ringmq.doctor.gather_store import runs_other_build
from ringmq.ipc.exit_status import EXIT_PACKAGE_REPLACED
from ringmq.ipc.image_process import ImageContents
from ringmq.ipc.plane import Plane
from ringmq.ipc.segment import plane_name
from ringmq.ipc.watermark import store_is_locked
from ringmq.ipc.worker import STATE_SERVING
from ringmq.ipc.workers import CpuClass, StopPhase, WorkerRow
from ringmq.loadtest.load.running import RunningBroker, remove_shared_memory, worker_name
from ringmq.native import lib
from ringmq.remoting.codes import RequestCode
from tests.broker import probe_worker
from tests.broker.test_processes import SMALL
from tests.broker.test_worker_table import prefix
from tests.raw_client import RawClient
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("broker") / "store", {**SMALL, "brokerName": "named"}) as running:
        yield running


ROOT = Path(__file__).parents[2]
GUEST = StopPhase.CONTROL, CpuClass.SERVICE
Replaceable = tuple[RunningBroker, Callable[..., None]]


def image_of(broker: RunningBroker) -> psutil.Process | None:
    """The image of its workers, None while there is none."""
    for child in psutil.Process(broker.process.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):  # also a zombie, whose command line is gone
            if child.cmdline()[:2] == ["ringmq", "image"]:
                return child
    return None


def links(pid: int) -> list[str]:
    return [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()]


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_the_image_holds_nothing_of_the_broker(broker: RunningBroker) -> None:
    image = image_of(broker)
    assert image is not None and image.num_threads() == 1
    caught = int(status_of(image.pid)["SigCgt"], 16) & (1 << 31) - 1  # above: signals of the C library
    assert not caught & ~(1 << (signal.SIGINT - 1)), "more than the interpreter's own handler"
    maps = Path(f"/proc/{image.pid}/maps").read_text()
    assert "/dev/shm" not in maps and str(broker.store) not in maps and "io_uring" not in maps and "numpy" not in maps
    assert sum(link.startswith("socket:") for link in links(image.pid)) == 1, "the channel"
    assert not [
        link
        for link in links(image.pid)
        if "eventfd" in link or "/dev/shm" in link or link.startswith(str(broker.store) + "/")
    ]


def test_a_worker_is_a_process_of_its_own(broker: RunningBroker) -> None:
    pids = broker.worker_pids()
    assert {"write", "flush", "dispatch", "control", "namesrv", "read-0"} <= set(pids)
    for name, pid in pids.items():
        status = status_of(pid)
        assert int(status["PPid"]) == broker.process.pid
        assert Path(f"/proc/{pid}/cmdline").read_bytes() == f"ringmq {name} named\0".encode()
        assert status["Name"] == f"ringmq-{name}"[:15]
        assert int(status["SigBlk"], 16) == 0
        assert int(status["SigIgn"], 16) >> (signal.SIGINT - 1) & 1, "the supervisor handles the terminal's ^C"
        assert int(status["SigCgt"], 16) >> (signal.SIGTERM - 1) & 1
        assert str(Path(f"/proc/{pid}/fd/0").readlink()) == os.devnull
        assert str(broker.store / "lock") in links(pid)
    assert not [link for link in links(pids["flush"]) if link.startswith("socket:")], "listeners are those of readers"
    cpus = {name: status_of(pid)["Cpus_allowed_list"] for name, pid in pids.items()}
    assert all(cpu.isdecimal() for name, cpu in cpus.items() if name.startswith("read-")), cpus


def test_the_death_of_the_image_touches_no_worker(broker: RunningBroker) -> None:
    before, image = broker.worker_pids(), image_of(broker)
    assert image is not None
    image.kill()
    wait_until(lambda: (other := image_of(broker)) is not None and other.pid != image.pid, "another image is there")
    assert broker.worker_pids() == before
    os.kill(before["write"], signal.SIGKILL)
    wait_until(lambda: broker.worker_pids().get("write", before["write"]) != before["write"], "write is back")
    with RawClient(broker.address, 60) as client:
        wait_until(lambda: client.send("Kept", b"x").code == 0, "it takes sends")


def processes_of(main: int) -> list[int]:
    """All live processes of the session of a broker's main process."""
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getsid(pid) == main and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
    return found


def kill_and_wait(main: int, store: Path) -> None:
    """Kill the main process, and wait until the store's lock is free and no process is left."""
    began_ns = time.monotonic_ns()
    os.kill(main, signal.SIGKILL)
    wait_until(lambda: not store_is_locked(store), "the lock is free")
    print(f"the lock is free after {(time.monotonic_ns() - began_ns) / 1e6:.0f} ms")
    wait_until(lambda: not processes_of(main), "nothing is left", state=lambda: processes_of(main))


def test_nothing_survives_the_supervisor(tmp_path: Path) -> None:
    """A stopped worker and a stopped image die, too: the next start finds the store's lock free."""
    with RunningBroker(tmp_path / "store", {}) as broker:
        image, workers = image_of(broker), broker.worker_pids()
        assert image is not None
        for pid in (image.pid, workers["flush"]):
            os.kill(pid, signal.SIGSTOP)
        os.kill(workers["control"], signal.SIGKILL)  # its replacement waits for the image's answer
        wait_until(lambda: "control" not in broker.worker_pids(), "it is dead")
        assert store_is_locked(broker.store) and len(processes_of(broker.process.pid)) >= len(workers)
        kill_and_wait(broker.process.pid, broker.store)


@pytest.mark.parametrize("processes", [2, 4])
def test_nothing_survives_a_supervisor_that_starts(tmp_path: Path, processes: int) -> None:
    """It is killed when only the image is there, and when the first workers are."""
    words = ("-m", "ringmq.cli.main", "serve", "--store", str(tmp_path), "--port", "0", "--namesrv-port", "0")
    main = subprocess.Popen([sys.executable, *words], start_new_session=True)
    try:
        wait_until(lambda: len(processes_of(main.pid)) >= processes, "so many are there")
        assert main.poll() is None
        kill_and_wait(main.pid, tmp_path)
    finally:
        main.kill()
        main.wait()
        remove_shared_memory(tmp_path)


def test_a_crash_of_a_worker_makes_another_image(broker: RunningBroker) -> None:
    """Forked workers share the layout of their memory, so an attacker gets two tries against one layout."""
    image = wait_until(lambda: image_of(broker), "there is an image")
    old = broker.worker_pids()["dispatch"]
    os.kill(old, signal.SIGSEGV)
    wait_until(lambda: broker.worker_pids().get("dispatch", old) != old, "dispatch is back")
    wait_until(lambda: (other := image_of(broker)) is not None and other.pid != image.pid, "another image is there")


def test_workers_can_be_started_by_exec(tmp_path: Path) -> None:
    """For a debugger, and for a build with sanitizers."""
    with RunningBroker(tmp_path / "store", {}, environment={BY_EXEC: "1"}) as broker:
        assert image_of(broker) is None
        line = psutil.Process(broker.worker_pids()["write"]).cmdline()
        assert line[1:4] == ["-m", "ringmq.broker.worker", "write"]
        assert BY_EXEC not in broker.log_tail(), "the variable is no unknown property"


def _modules(contents: ImageContents) -> tuple[str, ...]:
    return (*contents.at_once, *contents.later)


@pytest.mark.parametrize("closed", [(2,), (0, 1, 2)])
def test_a_broker_starts_without_standard_descriptors(tmp_path: Path, closed: tuple[int, ...]) -> None:
    """Nothing else may get their numbers: log lines go to 2."""
    words = ("-m", "ringmq.cli.main", "serve", "--store", str(tmp_path), "--port", "0", "--namesrv-port", "0")
    redirections = " ".join(f"{number}>&-" for number in closed)
    main = subprocess.Popen(["/bin/sh", "-c", f'exec "$0" "$@" {redirections}', sys.executable, *words])
    try:

        def workers() -> list[psutil.Process]:
            assert main.poll() is None
            return psutil.Process(main.pid).children()

        wait_until(lambda: "write" in {worker_name(child.cmdline()) for child in workers()}, "write is there")
        for pid in (main.pid, *(child.pid for child in workers())):
            assert {str(Path(f"/proc/{pid}/fd/{number}").readlink()) for number in closed} == {os.devnull}
    finally:
        main.terminate()
        assert main.wait(60) == 0


@contextlib.contextmanager
def of_own_package(folder: Path, settings: Mapping[str, object] | None = None, **options: Any) -> Iterator[Replaceable]:
    """A broker with a package of its own, and a call that replaces it: with other files of these names, and a new
    one."""
    package = folder / "path" / "ringmq"
    package.mkdir(parents=True)
    for root in import_module("ringmq").__path__:
        for part in Path(root).iterdir():
            (package / part.name).symlink_to(part.resolve())

    def replace(*names: str, more_code: str = "") -> None:
        for name in names:
            part = package / Path(name).parts[0]
            if part.is_symlink():
                source = part.resolve()
                part.unlink()
                shutil.copytree(source, part)
            with (package / name).open("a") as file:
                file.write(more_code or "# of the next version\n")
        (package / "of_the_next_version.py").touch()

    environment = {"PYTHONPATH": f"{package.parent}{os.pathsep}{ROOT}", **options.pop("environment", {})}
    with RunningBroker(folder / "store", settings, environment=environment, **options) as broker:
        yield broker, replace


@pytest.fixture
def replaceable(tmp_path: Path) -> Iterator[Replaceable]:
    with of_own_package(tmp_path) as made:
        yield made


def degraded(broker: RunningBroker) -> list[str]:
    with urllib.request.urlopen(f"{broker.metrics_url}/health") as answer:
        return list(json.load(answer)["degraded"])


def test_after_an_upgrade_workers_come_from_the_old_image(replaceable: Replaceable) -> None:
    broker, replace = replaceable
    replace()
    old = broker.worker_pids()["write"]
    os.kill(old, signal.SIGKILL)
    wait_until(lambda: broker.worker_pids().get("write", old) != old, "write is back")
    assert psutil.Process(broker.worker_pids()["write"]).cmdline()[0] == "ringmq"
    assert degraded(broker) == [], "its first scrape starts a worker that is not in the image"


def test_after_an_upgrade_no_filter_is_compiled_by_new_code(replaceable: Replaceable) -> None:
    """Control has not loaded the compiler, so it refuses the property that needs it."""
    broker, replace = replaceable
    replace("filters/compiler.py")
    with RawClient(broker.address, 60) as client:
        answer = client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"enablePropertyFilter=true\nringmqSlowRequestMs=77")
        assert answer.code == 1 and "module ringmq.filters.compiler cannot be loaded; restart" in str(answer.remark)
        body = client.ask(RequestCode.GET_BROKER_CONFIG, {}).body.decode()
        assert "enablePropertyFilter=false" in body and "ringmqSlowRequestMs=77" not in body


def test_after_an_upgrade_the_replacement_of_control_compiles_filters(tmp_path: Path) -> None:
    """It has the compiler from the old image."""
    with of_own_package(tmp_path, {"enablePropertyFilter": True}) as (broker, replace):
        with RawClient(broker.address, 60) as client:
            wait_until(lambda: client.send("Kept", b"x", pairs={"a": "1"}).code == 0, "it takes sends")
            replace("filters/compiler.py", more_code="raise SystemExit('of the next version')\n")
            old = broker.worker_pids()["control"]
            os.kill(old, signal.SIGKILL)
            wait_until(lambda: broker.worker_pids().get("control", old) != old, "control is back")
            sql = {"expressionType": "SQL92", "subscription": "a = 1"}
            wait_until(lambda: client.pull("Kept", **sql).code == 0, "it pulls by a filter")
        assert broker.stop() == 0


def test_after_an_upgrade_a_reopened_store_is_served_by_old_code(tmp_path: Path) -> None:
    """The main process would have to load a module to find out whether a worker has work, so it starts the worker."""
    guest, folder = WorkerRow("probe-now", 24, probe_worker.__name__, *GUEST, is_optional=True), tmp_path / "probe"
    options = {"prefix": prefix(folder, (guest,)), "environment": {probe_worker.FOLDER: str(folder)}}
    with of_own_package(tmp_path, **options) as (broker, replace):
        with RawClient(broker.address, 60) as client:
            half = {"TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": "half"}
            wait_until(lambda: client.send("Half", b"x", pairs=half).code == 0, "it takes sends")
        plane = Plane.open(plane_name(broker.store))
        transactions = plane.role(lib.RMQ_ROLE_TRANSACTIONS)
        wait_until(lambda: transactions.state == STATE_SERVING, "the message has started transactions")
        replace("services/transactions/records.py")
        (folder / "order.tmp").write_text("reopen")
        (folder / "order.tmp").rename(folder / "probe-now-order")
        unknown = "module ringmq.services.transactions.records cannot be loaded; restart the broker; starting it"
        wait_until(lambda: unknown in broker.log_tail(), "it is told")
        with RawClient(broker.address, 60) as client:
            wait_until(lambda: client.send("Kept", b"x").code == 0, "it takes sends again")
        wait_until(lambda: "transactions" in broker.worker_pids(), "it runs")
        assert broker.stop() == 0


def test_after_an_upgrade_and_the_death_of_the_image_the_next_death_ends_the_broker(
    replaceable: Replaceable,
) -> None:
    broker, replace = replaceable
    with RawClient(broker.address, 60) as client:
        wait_until(lambda: client.send("Kept", b"x").code == 0, "it takes sends")
    replace()
    assert not runs_other_build(broker.store), "workers still come from the old image"
    image = image_of(broker)
    assert image is not None
    image.kill()
    wait_until(lambda: image_of(broker) is None and "restart it to run the new one" in broker.log_tail(), "it is told")
    note = "the installed package was replaced: restart the broker, the next death of a worker ends it"
    wait_until(lambda: degraded(broker) == [note], "/health tells it")
    assert runs_other_build(broker.store), "and doctor"
    os.kill(broker.worker_pids()["control"], signal.SIGKILL)
    assert broker.process.wait(60) == EXIT_PACKAGE_REPLACED
    assert broker.log_tail().count("the installed package was replaced while the broker runs") == 1


def filtering(role: str) -> BrokerConfig:
    return BrokerConfig(broker_role=role, enable_property_filter=True)


def test_the_image_loads_no_guest_and_no_library_with_threads() -> None:
    contents = image_contents(BrokerConfig(broker_name="b"))
    assert "ringmq.broker.control_shell" in contents.at_once and "ringmq.services.worker" in contents.later
    assert not {"ringmq.timer.worker", "ringmq.broker.exporter.worker", FILTER_COMPILER} & {*_modules(contents)}
    modules = {name for role in ("ASYNC_MASTER", "SLAVE") for name in _modules(image_contents(filtering(role)))}
    assert FILTER_COMPILER in modules
    program = "import importlib, sys; from ringmq.ipc.image_process import problem\n"
    program += f"for name in {sorted(modules)}: importlib.import_module(name)\n"
    program += "sys.exit(problem() or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["ringmq", "write", "broker-a"], "write"),
        (["ringmq", "image", "broker-a"], ""),
        (["python3", "-m", "ringmq.broker.worker", "read-0", "{}"], "read-0"),
        (["python3", "-m", "http.server"], ""),
    ],
)
def test_a_worker_is_known_by_its_command_line(command: list[str], name: str) -> None:
    assert worker_name(command) == name
