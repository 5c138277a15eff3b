"""The image of the workers with real processes: what a forked worker is, and who dies when."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ringmq.ipc import image
from ringmq.ipc.exit_status import EXIT_PACKAGE_REPLACED
from ringmq.ipc.forked_worker import close_all_but, place_descriptors
from ringmq.ipc.image import WorkerImage
from ringmq.ipc.image_core import ANSWER_MS, ImageCore, State
from ringmq.ipc.image_process import ImageContents
from ringmq.ipc.worker_process import WorkerCommand, WorkerProcess
from tests.ipc import dying_image, forked_probe
from tests.waiting import wait_until


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Scene:
    """An image made by exec, and the workers that a test wants from it."""

    def __init__(self, folder: Path, at_once: tuple[str, ...] = (), later: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self._before = psutil.Process().children()
        contents = ImageContents(at_once or ("ringmq.ipc.role_loop",), later, "broker-a")
        self.image = WorkerImage(contents, ImageCore(since_ms=now_ms()))
        self.image._make()
        self.processes: list[WorkerProcess] = []
        self.extra_ms = 0
        """Added to the clock."""

    def turn(self, *, may_make: bool = True) -> None:
        self.image.turn(now_ms() + self.extra_ms, may_make=may_make, known=self.known)

    def forked(self) -> list[psutil.Process]:
        """Children of this process that have come since, without the image."""
        children = psutil.Process().children()
        return [child for child in children if child not in self._before and child.pid != self.image.pid]

    def known(self) -> list[int]:
        return [process.pid for process in self.processes if process.pid]

    def reach(self, state: State) -> None:
        def reached() -> bool:
            self.turn(may_make=state is not State.ABSENT)
            return self.image.state is state

        wait_until(reached, f"the image is {state.value}")

    def want(self, name: str, fds: tuple[int, ...] = (), *, may_exec_new: bool = True, **spec: str) -> WorkerProcess:
        words = json.dumps({"target": str(self.folder / name), **spec})
        process = WorkerProcess(WorkerCommand(name, forked_probe.MODULE, words, fds))
        self.processes.append(process)
        self.image.want(process, now_ms() + self.extra_ms, may_exec_new=may_exec_new)
        return process

    def found(self, name: str) -> dict[str, Any]:
        """What the worker has written down."""

        def written() -> bool:
            self.turn()
            return (self.folder / name).exists()

        wait_until(written, f"{name} runs")
        return dict(json.loads((self.folder / name).read_text()))

    def status(self, process: WorkerProcess) -> int:
        def ended() -> bool:
            self.turn()
            return process.poll() is not None

        wait_until(ended, "the worker has ended")
        status = process.poll()
        assert status is not None
        return status

    def close(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGKILL)
            wait_until(lambda one=process: one.poll() is not None, "the worker is reaped")
        self.image.close()
        strays = [child for child in psutil.Process().children() if child.name().startswith("ringmq-")]
        psutil.wait_procs(strays, timeout=60)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with contextlib.closing(Scene(tmp_path)) as made:
        yield made


def test_a_forked_worker_has_nothing_of_the_image_but_its_modules(scene: Scene) -> None:
    scene.reach(State.READY)
    reading, writing = os.pipe()
    high = os.dup2(writing, 200)
    try:
        for name in ("one", "two"):
            scene.want(name, (writing, high), target=str(scene.folder / name))
        one, two = scene.found("one"), scene.found("two")
    finally:
        for descriptor in (reading, writing, high):
            os.close(descriptor)
    assert (one["name"], one["module"], one["path"]) == ("one", "__main__", str(Path.cwd()))
    assert (one["parent"], one["input"], one["term"], one["mask"]) == (os.getpid(), "/dev/null", True, [])
    extra = set(one["fds"]) - {0, 1, 2, writing, high}
    assert len(extra) == 1, f"the folder itself, and no other: {extra}"
    assert one["title"].rstrip("\0") == "ringmq one broker-a" and one["comm"] == "ringmq-one"
    assert one["random"] != two["random"] and one["ssl"] != two["ssl"]
    assert psutil.Process(scene.image.pid).num_threads() == 1


def test_an_exit_status_comes_to_the_supervisor(scene: Scene) -> None:
    scene.reach(State.READY)
    assert scene.status(scene.want("ends", status="79")) == 79
    process = scene.want("killed")
    scene.found("killed")
    process.send_signal(signal.SIGKILL)
    assert scene.status(process) == -signal.SIGKILL


def test_a_worker_outlives_its_image_and_another_image_comes(scene: Scene) -> None:
    scene.reach(State.READY)
    process = scene.want("stays")
    scene.found("stays")
    before = scene.image.pid
    os.kill(before, signal.SIGKILL)
    scene.reach(State.LOADING)
    assert scene.image.pid != before
    between = scene.want("between")
    assert between.pid, "it does not wait for the image"
    scene.found("between")
    scene.reach(State.READY)
    assert process.poll() is None
    scene.want("after")
    assert scene.found("after")["title"].startswith("ringmq after")


def test_an_image_that_is_stopped_is_killed_and_its_worker_starts_once(
    scene: Scene, log_text: Callable[[], str]
) -> None:
    scene.reach(State.READY)
    stopped = scene.image.pid
    os.kill(stopped, signal.SIGSTOP)
    wait_until(lambda: psutil.Process(stopped).status() == psutil.STATUS_STOPPED, "it is stopped")
    process = scene.want("once", status="0")
    scene.turn()
    assert not process.pid
    scene.extra_ms = ANSWER_MS
    scene.turn()
    assert process.pid and "has not answered for 2 s" in log_text()
    assert scene.found("once")["title"].split("\0")[1:3] == ["-m", forked_probe.MODULE]
    wait_until(lambda: not psutil.pid_exists(stopped) or scene.turn(), "the image is reaped")
    assert scene.status(process) == 0


def test_a_worker_whose_order_is_given_up_ends_unseen(scene: Scene) -> None:
    """The image has forked it, but died before its answer was taken: the gate keeps the worker from running."""
    scene.reach(State.READY)
    process = scene.want("given-up")
    forked = wait_until(scene.forked, "the image has forked")
    process.send_signal(signal.SIGTERM)
    assert scene.status(process) == -signal.SIGTERM
    wait_until(lambda: scene.turn() or not psutil.pid_exists(forked[0].pid), "it has ended, and is reaped")
    assert not (scene.folder / "given-up").exists()


def test_a_worker_that_the_image_refuses_is_started_by_exec(scene: Scene, log_text: Callable[[], str]) -> None:
    """Its limit leaves no number for the descriptors, so the kernel cuts them off the order."""
    scene.reach(State.READY)
    resource.prlimit(scene.image.pid, resource.RLIMIT_NOFILE, (4, 4))
    reading, writing = os.pipe()
    try:
        process = scene.want("by-exec", (reading, writing), status="0")
        found = scene.found("by-exec")
    finally:
        os.close(reading)
        os.close(writing)
    assert found["title"].split("\0")[1:3] == ["-m", forked_probe.MODULE]
    assert scene.status(process) == 0 and "descriptors of the order are missing" in log_text()
    assert scene.image.state is State.READY


def test_a_worker_that_is_given_up_and_wanted_again_starts_once(scene: Scene) -> None:
    """Both before the first image is loaded, and in one turn of the supervisor."""
    first = scene.want("again")
    first.send_signal(signal.SIGKILL)
    second = scene.want("again")
    scene.found("again")
    assert not first.pid and scene.image._sent == {}
    assert [child.pid for child in scene.forked()] == [second.pid]


def test_the_end_of_the_image_waits_for_no_stopped_worker(scene: Scene) -> None:
    """Its order was given up, so it would end at its gate, but it is stopped."""
    scene.reach(State.READY)
    process = scene.want("stopped")
    forked = wait_until(scene.forked, "the image has forked")
    os.kill(forked[0].pid, signal.SIGSTOP)
    process.send_signal(signal.SIGTERM)
    scene.turn()
    scene.image.close()
    assert not psutil.pid_exists(forked[0].pid)


@pytest.fixture
def dying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A scene in which the image or its first worker is killed once at the step of the test's parameter."""
    monkeypatch.setenv("DIE_AT", request.param)
    monkeypatch.setenv("DIE_ONCE", str(tmp_path / "alive"))
    (tmp_path / "alive").touch()
    with contextlib.closing(Scene(tmp_path, (dying_image.__name__,))) as scene:
        scene.reach(State.READY)
        yield scene


def has_children(*expected: int) -> bool:
    """Whether this process has these children with names of RingMQ, and no zombie."""
    children = [child for child in psutil.Process().children() if child.name().startswith("ringmq-")]
    return {child.pid for child in children} == set(expected)


@pytest.mark.parametrize("dying", dying_image.IMAGE_STEPS, indirect=True)
def test_an_image_is_killed_at_any_step_and_its_worker_runs_once(dying: Scene) -> None:
    before = dying.image.pid
    process = dying.want("once")
    dying.found("once")
    dying.reach(State.READY)
    assert dying.image.pid != before and not (dying.folder / "alive").exists()
    again = dying.want("again")
    assert dying.found("again")["title"].startswith("ringmq again")
    forked = [one.pid for one in (process, again) if one._made is None]
    wait_until(lambda: dying.turn() or has_children(dying.image.pid, *forked), "there is no stray, and no zombie")
    assert process.poll() is None, "its process is the one that runs"


@pytest.mark.parametrize(("at_once", "later"), [((dying_image.__name__,), ()), ((), (dying_image.__name__,))])
def test_an_image_is_killed_while_it_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: tuple[str, ...], later: tuple[str, ...]
) -> None:
    """The worker waits for the image that loads at once. The later modules are loaded while it runs."""
    monkeypatch.setenv("DIE_AT", "import")
    monkeypatch.setenv("DIE_ONCE", str(tmp_path / "alive"))
    (tmp_path / "alive").touch()
    with contextlib.closing(Scene(tmp_path, at_once, later)) as scene:
        before = scene.image.pid
        process = scene.want("once")
        wait_until(lambda: scene.turn() or not (tmp_path / "alive").exists(), "it is killed")
        scene.found("once")
        wait_until(lambda: scene.turn() or scene.image.pid not in (0, before), "another one is made")
        scene.reach(State.READY)
        assert process.poll() is None
        forked = [] if process._made else [process.pid]
        wait_until(lambda: scene.turn() or has_children(scene.image.pid, *forked), "there is no stray")


@pytest.mark.parametrize("dying", dying_image.WORKER_STEPS, indirect=True)
def test_a_worker_is_killed_at_any_step_of_its_start(dying: Scene) -> None:
    before = dying.image.pid
    assert dying.status(dying.want("killed")) == -signal.SIGKILL
    assert not (dying.folder / "alive").exists() and not (dying.folder / "killed").exists()
    process = dying.want("killed")
    assert dying.found("killed")["title"].startswith("ringmq killed")
    assert dying.image.pid == before
    wait_until(lambda: dying.turn() or has_children(before, process.pid), "there is no stray, and no zombie")


def test_a_crash_makes_the_image_anew(scene: Scene) -> None:
    scene.reach(State.READY)
    before = scene.image.pid
    scene.image.ended(-signal.SIGSEGV, now_ms())
    scene.want("first")
    assert scene.found("first")["title"].startswith("ringmq first"), "from the old image"
    scene.reach(State.READY)
    assert scene.image.pid != before


def test_an_image_of_another_build_is_not_used(scene: Scene, log_text: Callable[[], str]) -> None:
    scene.image._build = "of the broker's start"
    scene.reach(State.REPLACED)
    assert "the installed package was replaced while the broker runs" in log_text()
    assert scene.want("by-exec").pid
    process = scene.want("dead", may_exec_new=False)
    assert (process.pid, process.poll()) == (0, EXIT_PACKAGE_REPLACED)


def test_a_dead_worker_is_not_started_by_exec_from_another_build(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The image has just died, so the broker does not know yet that no other one of its build can be made."""
    scene.reach(State.READY)
    monkeypatch.setattr(image, "installed_build", lambda: "another one")
    assert not scene.image.is_of_old_build(), "it can fork all workers"
    os.kill(scene.image.pid, signal.SIGKILL)
    scene.reach(State.ABSENT)
    process = scene.want("dead", may_exec_new=False)
    assert (process.pid, process.poll()) == (0, EXIT_PACKAGE_REPLACED)
    assert scene.want("new").pid, "a worker that has not died may run another build"
    assert scene.image.is_of_old_build(), "no store is opened now"
    monkeypatch.undo()
    assert not scene.image.is_of_old_build(), "the workers of a store may be started by exec"


def test_an_image_counts_as_busy_while_it_wants_a_cpu(scene: Scene) -> None:
    scene.reach(State.READY)
    os.kill(scene.image.pid, signal.SIGSTOP)
    wait_until(lambda: psutil.Process(scene.image.pid).status() == psutil.STATUS_STOPPED, "it is stopped")
    assert not image._is_busy(scene.image.pid)
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as running:
        try:
            wait_until(lambda: image._is_busy(running.pid), "it runs")
        finally:
            running.kill()
    assert not image._is_busy(running.pid)


def test_a_module_that_starts_a_thread_ends_the_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_text: Callable[[], str]
) -> None:
    """Also one that is loaded later."""
    (tmp_path / "threaded.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    for at_once, later in ((("threaded",), ()), ((), ("threaded",))):
        with contextlib.closing(Scene(tmp_path, at_once, later)) as scene:
            scene.reach(State.OFF)
            assert "a module of the workers has started 1 threads" in log_text()
            assert scene.want("by-exec", status="0").pid


@pytest.mark.parametrize("numbers", [(7, 5, 9), (5, 7, 9), (9, 5, 7), (20, 5, 21), (7, 9, 5)])
def test_descriptors_get_their_numbers(numbers: tuple[int, ...]) -> None:
    """Each begins where another one belongs."""
    pid = os.fork()
    if not pid:
        with contextlib.suppress(BaseException):
            os.closerange(3, 100)
            null = os.open(os.devnull, os.O_RDONLY)
            for number in (5, 7, 9, 11):
                os.dup2(null, number)
            for number in (5, 7, 9):
                os.dup2(os.memfd_create(f"at-{number}"), number)
            place_descriptors([5, 7, 9], numbers)
            links = [str(Path(f"/proc/self/fd/{number}").readlink()) for number in numbers]
            right = [f"/memfd:at-{number} (deleted)" for number in (5, 7, 9)]
            os._exit(
                links != right or len(list(Path("/proc/self/fd").iterdir())) != 7
            )  # 0 to 2, these, and the folder itself
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_no_descriptor_is_closed_by_its_number_alone() -> None:
    """os.closerange is slow where close_range(2) is missing, so neither the image nor a worker calls it."""
    pid = os.fork()
    if not pid:
        with contextlib.suppress(BaseException):
            os.closerange = None  # type: ignore[assignment]
            high = os.dup2(os.open(os.devnull, os.O_RDONLY), 300)
            close_all_but((high,))
            os._exit(len(list(Path("/proc/self/fd").iterdir())) != 5)  # 0 to 2, this one, and the folder itself
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
