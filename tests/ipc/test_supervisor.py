"""What the supervisor sees of workers between two looks, without processes."""

import contextlib
import errno
import os
import selectors
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from ringmq.ipc.exit_status import EXIT_CRASH_LOOP
from ringmq.ipc.plane import Capacity, Plane
from ringmq.ipc.segment import remove_segments
from ringmq.ipc.supervisor import Supervisor, make_event_fds
from ringmq.ipc.supervisor_core import SILENT_MS, SILENT_START_MS, START_FAILURES_MAX, Silent, Spawn, Stop, Terminate
from ringmq.ipc.worker import STATE_SERVING, STATE_STARTING, WorkerSpec
from ringmq.ipc.workers import WORKERS, CpuClass, Start, StopPhase, WorkerRow, WorkerTable
from ringmq.native import lib
from tests.ipc import unbound_worker
from tests.waiting import wait_until


class FakePlane:
    """One role, which the test plays."""

    def __init__(self) -> None:
        self.header = SimpleNamespace(ports=SimpleNamespace(journal=SimpleNamespace(owner=0)))
        self.words = SimpleNamespace(
            invariant_line=0,
            state=0,
            pid=0,
            generation=0,
            claim_position=0,
            cpu=0,
            bell=SimpleNamespace(sleeping=0),
            flags=0,
            activation_requested=0,
            deaths=0,
            progress=0,
        )

    def role(self, number: int) -> Any:
        return self.words

    def wake(self, number: int) -> None:
        pass


class FakeProcess:
    """Runs until `status` is set."""

    pid = 4711

    def __init__(self) -> None:
        self.status: int | None = None
        self.signals: list[int] = []

    def send_signal(self, number: int) -> None:
        self.signals.append(number)

    def poll(self) -> int | None:
        return self.status


class WatchedSupervisor(Supervisor):
    """Starts fakes."""

    def _spawn(self, name: str) -> None:
        self._plane.role(0).state = STATE_STARTING
        self._processes[name] = FakeProcess()  # type: ignore[assignment]

    def start(self) -> None:
        self._perform(self._core.start())

    def look(self) -> None:
        self._check_workers()

    @property
    def worker(self) -> subprocess.Popen[bytes]:
        return self._processes["flush"]


def supervisor(plane: FakePlane) -> WatchedSupervisor:
    spec = WorkerSpec("flush", 0, "plane", (0,), 0, 0, {})
    return WatchedSupervisor(plane, [spec], ())  # type: ignore[arg-type]


def deaths_until_given_up(last_state: int) -> int:
    """How often the worker dies at once, with this as its last word, until the supervisor gives up; 20 = never."""
    plane = FakePlane()
    with contextlib.closing(supervisor(plane)) as watched:
        watched.start()
        for death in range(1, 21):
            plane.words.state = last_state
            watched.worker.status = -9  # type: ignore[attr-defined]
            watched.look()
            if watched._exit_status is not None:
                return death
            watched._core._workers["flush"].due_ms = 0  # no need to sit the pause out
            watched.look()
        return 20


def test_who_came_up_and_died_between_two_looks_has_not_failed_to_start() -> None:
    assert deaths_until_given_up(STATE_SERVING) == 20


def test_who_never_comes_up_is_given_up() -> None:
    assert deaths_until_given_up(STATE_STARTING) == START_FAILURES_MAX


@pytest.mark.parametrize(
    ("error", "refusals"),
    [(BlockingIOError(errno.EAGAIN, "no room"), 2), (FileNotFoundError(errno.ENOENT, "no python"), START_FAILURES_MAX)],
)
def test_a_process_that_cannot_be_made_has_failed_to_start(
    monkeypatch: pytest.MonkeyPatch, error: OSError, refusals: int, log_text: Callable[[], str]
) -> None:
    """The limit of processes is reached, or an upgrade is replacing the interpreter: no reason to die of it."""
    plane, left = FakePlane(), refusals

    def popen(*arguments: Any, **options: Any) -> FakeProcess:
        nonlocal left
        left -= 1
        if left >= 0:
            raise error
        return FakeProcess()

    monkeypatch.setattr(subprocess, "Popen", popen)
    spec = WorkerSpec("flush", 0, "plane", (0,), 0, 0, {})
    with contextlib.closing(Supervisor(plane, [spec], ())) as watching:  # type: ignore[arg-type]
        watching._perform(watching._core.start())
        for _ in range(refusals):
            assert (watching.pids(), plane.words.pid) == ({}, 0)
            watching._check_workers()
            watching._core._workers["flush"].due_ms = 0  # no need to sit the pause out
            watching._check_workers()
        assert sum("worker flush cannot be started: [Errno" in line for line in log_text().splitlines()) == refusals
        if refusals < START_FAILURES_MAX:
            assert (watching.pids(), plane.words.pid) == ({"flush": 4711}, 4711)
            assert watching._exit_status is None
        else:
            assert watching._exit_status == EXIT_CRASH_LOOP


SERVICE = WorkerRow(
    "errand", 26, "ringmq.errands.worker", StopPhase.CONTROL, CpuClass.SERVICE, start=Start.ON_REQUEST, is_optional=True
)
READ, *ROWS = WORKERS
TABLE = WorkerTable(READ, (*ROWS, SERVICE))


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    """With the bells of the supervisor and of the service."""
    name = f"ringmq-test-{uuid.uuid4().hex}"
    plane = Plane.create(name, Capacity(64, 64, 64, 64, 64), tmp_path.stat(), 1)
    event_fds = make_event_fds([lib.RMQ_ROLE_SUPERVISOR, SERVICE.role])
    plane.set_event_fds(event_fds)
    yield plane
    for descriptor in event_fds.values():
        os.close(descriptor)
    remove_segments(name)


def test_a_wish_ends_the_supervisors_sleep(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringmq.ipc.supervisor.POLL_MS", 60_000)
    bells = {role: plane.struct.event_fds[role] for role in (lib.RMQ_ROLE_SUPERVISOR, SERVICE.role)}
    specs = [
        WorkerSpec("read-0", lib.RMQ_ROLE_READ, plane.name, (0,), 0, 0, bells),
        WorkerSpec(SERVICE.name, SERVICE.role, plane.name, (0,), 0, 0, bells, dormant=True),
    ]
    bell = plane.role(lib.RMQ_ROLE_SUPERVISOR).bell
    with (
        contextlib.closing(Supervisor(plane, specs, (), table=TABLE)) as watching,
        selectors.DefaultSelector() as selector,
        ThreadPoolExecutor(1) as pool,
    ):
        assert watching._core.start() == [Spawn("read-0")]
        selector.register(bells[lib.RMQ_ROLE_SUPERVISOR], selectors.EVENT_READ)
        sleep = pool.submit(watching._events, selector)
        wait_until(lambda: bell.sleeping == 1, "it sleeps")
        plane.activate(SERVICE.role)
        assert [key.fd for key, _ in sleep.result(20)] == [bells[lib.RMQ_ROLE_SUPERVISOR]]
        os.eventfd_read(bells[lib.RMQ_ROLE_SUPERVISOR])
        assert watching._events(selector) == [], "it does not go to sleep while a dormant worker is wanted"
        assert bell.sleeping == 0
        assert watching._core.step(Stop(), 0) == [Terminate("read-0")]
        sleep = pool.submit(watching._events, selector)
        wait_until(lambda: bell.sleeping == 1, "it sleeps in a stop, whatever is wanted")
        plane.wake(lib.RMQ_ROLE_SUPERVISOR)
        sleep.result(20)


def test_an_optional_worker_that_stands_still_is_replaced(log_text: Callable[[], str]) -> None:
    plane = FakePlane()
    spec = WorkerSpec("metrics", 0, "plane", (0,), 0, 0, {})
    process = FakeProcess()
    with contextlib.closing(WatchedSupervisor(plane, [spec], ())) as watched:  # type: ignore[arg-type]
        watched.start()
        watched._processes["metrics"] = process  # type: ignore[assignment]
        plane.words.state = STATE_SERVING
        watched.look()
        began_ms = 1_000_000
        assert watched._silent(began_ms) == []
        assert watched._silent(began_ms + SILENT_MS - 1) == []
        plane.words.progress += 1
        assert watched._silent(began_ms + SILENT_MS) == [], "it has turned"
        assert watched._silent(began_ms + 2 * SILENT_MS - 1) == []
        assert watched._silent(began_ms + 2 * SILENT_MS) == ["metrics"]
        assert watched._silent(began_ms + 2 * SILENT_MS + 1) == [], "the signal gets its time"
        watched._perform(watched._core.step(Silent("metrics"), 0))
        assert process.signals == [signal.SIGKILL] and "has not turned its loop for 20 s" in log_text()


def test_an_optional_worker_that_does_not_come_up_is_replaced() -> None:
    """A start that took long has the whole time of a serving worker from its first turn on."""
    plane, spec = FakePlane(), WorkerSpec("metrics", 0, "plane", (0,), 0, 0, {})
    with contextlib.closing(WatchedSupervisor(plane, [spec], ())) as watched:  # type: ignore[arg-type]
        watched.start()
        watched._processes["metrics"] = FakeProcess()  # type: ignore[assignment]
        watched.look()
        began_ms = watched._beats["metrics"][1]
        assert watched._silent(began_ms + SILENT_START_MS - 1) == []
        assert watched._silent(began_ms + SILENT_START_MS) == ["metrics"]
        plane.words.state = STATE_SERVING
        watched.look()
        serves_ms = watched._beats["metrics"][1]
        assert watched._silent(serves_ms + SILENT_MS - 1) == []
        assert watched._silent(serves_ms + SILENT_MS) == ["metrics"]


def test_the_image_is_one_of_the_brokers_processes() -> None:
    """The limit of its memory counts it."""
    spec = WorkerSpec("flush", 0, "plane", (0,), 0, 0, {})
    image = SimpleNamespace(pid=0)
    with contextlib.closing(WatchedSupervisor(FakePlane(), [spec], (), image=image)) as watched:  # type: ignore[arg-type]
        watched.start()
        assert watched.other_pids() == [FakeProcess.pid], "there is no image now"
        image.pid = 4712
        assert watched.other_pids() == [FakeProcess.pid, 4712]


def test_a_worker_that_the_broker_needs_is_left_to_the_watchdog() -> None:
    plane = FakePlane()
    with contextlib.closing(supervisor(plane)) as watched:
        watched.start()
        plane.words.state = STATE_SERVING
        watched.look()
        assert watched._silent(0) == watched._silent(100 * SILENT_MS) == []


def test_a_worker_that_is_being_loaded_dies_with_its_supervisor() -> None:
    """It would keep the store's lock, and the next start of the broker would be refused."""
    command = [sys.executable, "-m", unbound_worker.MODULE, "supervisor"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as supervising:
        assert supervising.stdout is not None
        worker = psutil.Process(int(supervising.stdout.readline()))
        try:
            supervising.kill()
            supervising.wait()
            wait_until(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE, "it is killed")
        finally:
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.kill()
