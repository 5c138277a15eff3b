"""What the supervisor sees of workers between two looks, without processes."""

import contextlib
import errno
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from ringmq.ipc.exit_status import EXIT_WORKER_KEEPS_DYING
from ringmq.ipc.supervisor import Supervisor
from ringmq.ipc.supervisor_core import START_FAILURES_MAX
from ringmq.ipc.worker import STATE_SERVING, STATE_STARTING, WorkerSpec


class FakePlane:
    """One role, which the test plays."""

    def __init__(self) -> None:
        self.words = SimpleNamespace(
            state=0,
            pid=0,
            generation=0,
            claim_position=0,
            cpu=0,
            bell=SimpleNamespace(sleeping=0),
            flags=0,
            wanted=0,
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
        self._look_around()

    @property
    def worker(self) -> subprocess.Popen[bytes]:
        return self._processes["flush"]


def supervisor(plane: FakePlane) -> WatchedSupervisor:
    spec = WorkerSpec("flush", 0, "plane", (0,), 0, 0, {}, 1)
    return WatchedSupervisor(plane, [spec], (), lambda text: None)  # type: ignore[arg-type]


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
    monkeypatch: pytest.MonkeyPatch, error: OSError, refusals: int
) -> None:
    """The limit of processes is reached, or an upgrade is replacing the interpreter: no reason to die of it."""
    plane, told, left = FakePlane(), list[str](), refusals

    def popen(*arguments: Any, **options: Any) -> FakeProcess:
        nonlocal left
        left -= 1
        if left >= 0:
            raise error
        return FakeProcess()

    monkeypatch.setattr(subprocess, "Popen", popen)
    spec = WorkerSpec("flush", 0, "plane", (0,), 0, 0, {}, 1)
    with contextlib.closing(Supervisor(plane, [spec], (), told.append)) as watching:  # type: ignore[arg-type]
        watching._perform(watching._core.start())
        for _ in range(refusals):
            assert (watching.pids(), plane.words.pid) == ({}, 0)
            watching._look_around()
            watching._core._workers["flush"].due_ms = 0  # no need to sit the pause out
            watching._look_around()
        assert sum("worker flush cannot be started: [Errno" in line for line in told) == refusals
        if refusals < START_FAILURES_MAX:
            assert (watching.pids(), plane.words.pid) == ({"flush": 4711}, 4711)
            assert watching._exit_status is None
        else:
            assert watching._exit_status == EXIT_WORKER_KEEPS_DYING
