"""A worker that a test registers: with its row alone the broker starts it, places it, stops it and tells of it."""

import contextlib
import json
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ringmq.ipc.placement import place
from ringmq.ipc.plane import Plane
from ringmq.ipc.segment import plane_name
from ringmq.ipc.workers import WORKERS, CpuClass, Start, StopPhase, WorkerRow, WorkerTable
from ringmq.loadtest.load.running import RunningBroker
from tests.broker.exporter_kit import value
from tests.broker.probe_worker import FOLDER
from tests.raw_client import RawClient
from tests.waiting import wait_until

READ, *OTHERS = WORKERS
ROOT = Path(__file__).parents[2]
MODULE = "tests.broker.probe_worker"
SMALL = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}
NOW, CALLED, WANTED, OPEN = ROWS = (
    WorkerRow("probe-now", 24, MODULE, StopPhase.CONTROL, CpuClass.SERVICE, is_optional=True),
    WorkerRow(
        "probe-called", 25, MODULE, StopPhase.READ, CpuClass.SERVICE, start=Start.CONNECTION, is_optional=True,
        listener=f"{MODULE}:listen_for_probe",
    ),
    WorkerRow(
        "probe-wanted", 26, MODULE, StopPhase.WRITE, CpuClass.SERVICE, start=Start.ON_REQUEST, is_optional=True
    ),
    WorkerRow(
        "probe-open", 32, MODULE, StopPhase.HA, CpuClass.SERVICE, start=Start.OPEN_WORK, is_optional=True,
        needed_at_once=f"{MODULE}:has_open_work",
    ),
)  # fmt: skip


class Probed:
    """A running broker that has the rows above."""

    def __init__(self, broker: RunningBroker, folder: Path) -> None:
        self.broker = broker
        self.folder = folder
        self.plane = Plane.open(plane_name(broker.store))

    @property
    def running(self) -> set[str]:
        """The probes that have a process."""
        return {name for name in self.broker.worker_pids() if name.startswith("probe-")}

    def order(self, row: WorkerRow, text: str) -> None:
        """Tell a probe what to do; it removes the order when it has been carried out for once."""
        temporary = self.folder / "order.tmp"
        temporary.write_text(text)
        temporary.rename(self.folder / f"{row.name}-order")

    def get(self, path: str) -> str:
        """A page of the HTTP port; HTTPError unless its status is 200."""
        with urllib.request.urlopen(self.broker.metrics_url + path, timeout=60) as answer:
            return str(answer.read().decode())

    @property
    def is_ready(self) -> bool:
        """By /ready."""
        with contextlib.suppress(urllib.error.HTTPError):
            return bool(json.loads(self.get("/ready"))["ready"])
        return False

    def health(self) -> dict[str, Any]:
        """Of a broker that is alive."""
        told = json.loads(self.get("/health"))
        assert told["alive"] is True
        return dict(told)

    def state(self, row: WorkerRow) -> str:
        """Of the worker, by /health."""
        return str(self.health()["workers"][row.name]["state"])


def environment(folder: Path) -> dict[str, str]:
    return {FOLDER: str(folder), "PYTHONPATH": str(ROOT)}


def prefix(folder: Path, rows: tuple[WorkerRow, ...]) -> list[str]:
    """In front of a broker's command line."""
    folder.mkdir(exist_ok=True)
    path = folder / "probe.rows"
    path.write_bytes(pickle.dumps(rows))
    return [sys.executable, str(ROOT / "tests" / "broker" / "probe_worker.py"), str(path)]


@contextmanager
def probed(folder: Path, *, rows: tuple[WorkerRow, ...] = ROWS, **settings: object) -> Iterator[Probed]:
    """A broker with probes, stopped cleanly at the end."""
    with RunningBroker(
        folder / "store", SMALL | settings, prefix=prefix(folder, rows), environment=environment(folder)
    ) as broker:
        made = Probed(broker, folder)
        wait_until(lambda: made.is_ready, "a name server knows the broker")
        yield made
        assert broker.stop() == 0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "probe"
    path.mkdir()
    return path


def serving(probed: Probed, row: WorkerRow) -> bool:
    block = probed.plane.role(row.role)
    return bool(block.pid and block.state == 2)


def test_each_of_the_four_ways_to_start(folder: Path) -> None:
    with probed(folder) as broker:
        wait_until(lambda: serving(broker, NOW), "it starts at once")
        assert broker.running == {"probe-now"}, "the others cost no process"
        assert [broker.state(row) for row in ROWS] == ["running", "dormant", "dormant", "dormant"]
        with socket.create_connection(("127.0.0.1", int((folder / "port").read_text())), 20):
            wait_until(lambda: serving(broker, CALLED), "its listener's first connection starts it")
        assert broker.running == {"probe-now", "probe-called"}
        broker.order(NOW, f"want {WANTED.role}")
        wait_until(lambda: serving(broker, WANTED), "another worker's word starts it")
        broker.plane.activate(OPEN.role)
        wait_until(lambda: serving(broker, OPEN), "a process that has no bell's descriptor may want it, too")
        plan = place(sorted(os.sched_getaffinity(0)), table=WorkerTable(READ, (*OTHERS, *ROWS))).cpus_by_worker
        pids = broker.broker.worker_pids()
        for row in ROWS:
            assert os.sched_getaffinity(pids[row.name]) == set(plan[row.name]), row.name
        text = broker.get("/metrics")
        for row in ROWS:
            assert value(text, "ringmq_worker_up", worker=row.name) == 1
            assert value(text, "ringmq_worker_starts_total", worker=row.name) == 1
            assert value(text, "ringmq_worker_deaths_total", worker=row.name) == 0
    stops = [line.split() for line in (folder / "stops").read_text().splitlines()]
    assert stops == [[row.name, str(int(row.stop_phase))] for row in (CALLED, NOW, WANTED, OPEN)]


@pytest.mark.parametrize(("name", "starts"), [("open-work", True), ("unknown", True), ("nothing", False)])
def test_open_work_is_asked_for_when_the_store_is_opened(folder: Path, name: str, *, starts: bool) -> None:
    (folder / name).touch()
    with probed(folder, rows=(OPEN,)) as broker:
        if starts:
            wait_until(lambda: serving(broker, OPEN), "it starts with the broker")
        else:
            assert broker.running == set() and broker.state(OPEN) == "dormant"
        log = broker.broker.log_tail()
    assert ("nobody may look" in log) == (name == "unknown"), "an answer that is refused is told"


def test_a_store_that_is_opened_again_is_asked_again(folder: Path) -> None:
    with probed(folder, rows=(NOW, WANTED, OPEN)) as broker:
        broker.plane.activate(WANTED.role)
        wait_until(lambda: serving(broker, WANTED), "it is wanted")
        assert broker.running == {NOW.name, WANTED.name}
        (folder / "open-work").touch()
        broker.order(NOW, "reopen")
        wait_until(lambda: broker.running == {NOW.name, OPEN.name}, "open work starts it, the old wish is forgotten")
        wait_until(lambda: broker.is_ready, "the broker serves again")
        assert [broker.state(row) for row in (NOW, WANTED, OPEN)] == ["running", "dormant", "running"]


def test_a_worker_that_needs_a_master_is_dormant_on_a_slave(folder: Path) -> None:
    rows = (replace(NOW, needs_master=True), WANTED)
    with probed(folder, rows=rows, brokerRole="SLAVE", brokerId=1) as broker:
        assert [broker.state(row) for row in rows] == ["dormant", "dormant"]
        for row in rows:
            broker.plane.activate(row.role)
        wait_until(lambda: serving(broker, WANTED), "it is wanted")
        assert broker.running == {WANTED.name}


def test_a_worker_that_has_nothing_to_do_costs_nothing_until_it_is_wanted_again(folder: Path) -> None:
    with probed(folder, rows=(WANTED,)) as broker:
        for starts in (1, 2):
            broker.plane.activate(WANTED.role)
            wait_until(lambda: serving(broker, WANTED), "it is wanted")
            broker.order(WANTED, "rest")
            wait_until(lambda: broker.state(WANTED) == "dormant" and not broker.running, "it has nothing to do")
            found = broker.health()["workers"][WANTED.name]
            assert (found["starts"], found["deaths"], found["silent_ms"]) == (starts, 0, 0)
        assert json.loads(broker.get("/ready"))["reasons"] == []
        text = broker.get("/metrics")
        assert value(text, "ringmq_worker_starts_total", worker=WANTED.name) == 2, "a counter stays"
        assert "deaths" not in broker.broker.log_tail() and WANTED.name not in broker.broker.log_tail()


def test_a_worker_that_is_wanted_while_it_ends_starts_again(folder: Path) -> None:
    with probed(folder, rows=(WANTED,)) as broker:
        broker.plane.activate(WANTED.role)
        wait_until(lambda: serving(broker, WANTED), "it is wanted")
        broker.order(WANTED, "rest slowly")
        wait_until(lambda: not (folder / f"{WANTED.name}-order").exists(), "it has looked for work and found none")
        old = broker.broker.worker_pids()[WANTED.name]
        broker.plane.activate(WANTED.role)
        (folder / "end").touch()
        wait_until(lambda: broker.broker.worker_pids().get(WANTED.name, old) != old, "the wish is not lost")
        wait_until(lambda: serving(broker, WANTED), "it serves")
        assert broker.plane.role(WANTED.role).activation_requested == 0, "the start has taken the word"


def test_a_word_that_is_set_while_the_worker_dies_starts_it_once(folder: Path) -> None:
    with probed(folder, rows=(WANTED,)) as broker:
        broker.plane.activate(WANTED.role)
        wait_until(lambda: serving(broker, WANTED), "it is wanted")
        old = broker.broker.signal_worker(WANTED.name, signal.SIGKILL)
        broker.plane.activate(WANTED.role)
        wait_until(lambda: broker.broker.worker_pids().get(WANTED.name, old) != old, "it is started again")
        wait_until(lambda: serving(broker, WANTED), "it serves")
        wait_until(lambda: broker.health()["workers"][WANTED.name]["deaths"] == 1, "the death is told")
        assert broker.plane.role(WANTED.role).generation == 2


@pytest.mark.parametrize("order", ["die", "die before it serves"])
def test_endless_deaths_of_an_optional_worker_degrade_and_end_nothing(folder: Path, order: str) -> None:
    with probed(folder, rows=(NOW,)) as broker, RawClient(broker.broker.address) as client:
        broker.order(NOW, order)
        if order != "die":
            broker.broker.signal_worker(NOW.name, signal.SIGKILL)
        wait_until(lambda: int(broker.plane.role(NOW.role).deaths) > 6, "it dies more often than others may")
        degraded = broker.health()["degraded"]
        assert len(degraded) == 1 and re.match(r"worker probe-now keeps dying \(\d+ deaths\)", degraded[0])
        ready = json.loads(broker.get("/ready"))
        assert ready["ready"] and ready["reasons"] == [re.sub(r"\d+", lambda _: str(ready_deaths(ready)), degraded[0])]
        assert value(broker.get("/metrics"), "ringmq_worker_deaths_total", worker=NOW.name) > 6
        assert client.send("Hello", b"x").code == 0, "the broker serves"
        (folder / f"{NOW.name}-order").unlink()
        wait_until(lambda: serving(broker, NOW), "it is well again")
        assert broker.state(NOW) == "running"


def ready_deaths(ready: dict[str, Any]) -> int:
    """Deaths that /ready tells of: it may be one more than /health told a moment before."""
    found = re.search(r"\((\d+) deaths\)", ready["reasons"][0])
    assert found
    return int(found[1])


def test_a_wish_in_a_stop_starts_nothing(folder: Path) -> None:
    with RunningBroker(
        folder / "store", SMALL, prefix=prefix(folder, (WANTED,)), environment=environment(folder)
    ) as broker:
        made = Probed(broker, folder)
        broker.signal_worker("flush", signal.SIGSTOP)  # the stop gets as far as this one, for which no reader waits
        broker.process.terminate()
        wait_until(lambda: made.plane.watermarks.stop_requested >= StopPhase.FLUSH, "the stop is under way")
        made.plane.activate(WANTED.role)
        broker.signal_worker("flush", signal.SIGCONT)
        assert broker.process.wait(60) == 0
        assert made.plane.role(WANTED.role).generation == 0


def test_a_row_that_clashes_is_refused_with_one_line(folder: Path) -> None:
    clash = WorkerRow("mine", WORKERS.row("flush").role, MODULE, StopPhase.CONTROL, CpuClass.SERVICE)
    path = folder / "clash.rows"
    path.write_bytes(pickle.dumps([clash]))
    command = [*prefix(folder, ())[:-1], str(path), sys.executable, "-m", "ringmq.cli.main", "serve"]
    done = subprocess.run(
        [*command, "--store", str(folder / "store")], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, **environment(folder)},
    )  # fmt: skip
    assert done.returncode != 0
    assert "worker 'mine' cannot be registered: role 3 is that of worker 'flush'" in done.stderr
