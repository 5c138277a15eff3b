"""A `ringmq serve` process started from outside: waits for `ready`, knows its workers, ends it in every way."""

import contextlib
import os
import re
import select
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType

import psutil

from ringmq.loadtest.load.program import Program

_INTERPRETER = ContextVar("interpreter", default=sys.executable)
_BESIDE: ContextVar[Mapping[str, object]] = ContextVar("settings of a version", default=MappingProxyType({}))
READY_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 120.0
_METRICS = re.compile(r"metrics on (http://\S+)/metrics")
_READY = re.compile(r"ready: broker \S+ on (\S+):(\d+)(?:, name server on (\S+):(\d+))?")


def worker_name(command: Sequence[str]) -> str:
    """The worker of a process with this command line, forked (`ringmq NAME BROKER`) or started by exec (`python -m
    MODULE NAME SPEC`). Empty for the image of the workers, and for other processes."""
    match list(command):
        case ["ringmq", "image", *_]:
            return ""
        case ["ringmq", name, *_] | [_, "-m", _, name, _]:
            return name
    return ""


def remove_shared_memory(store: Path) -> None:
    """Remove the segments that a killed broker left for its restart, unless a broker has the store."""
    from ringmq.ipc.segment import plane_name, remove_lasting, remove_segments
    from ringmq.ipc.watermark import store_is_locked

    if store.is_dir() and not store_is_locked(store):
        remove_segments(plane_name(store))
        remove_lasting(store, "pop")


def wait_ended(processes: Iterable[psutil.Process], timeout_s: float = STOP_TIMEOUT_S) -> list[psutil.Process]:
    """Wait until these processes have ended. Returns those that still run.

    An orphan that has ended keeps its process id until process 1 reaps it, which may take seconds. It holds no lock, no
    memory and no port any more.
    """
    deadline, running = time.monotonic() + timeout_s, []
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(process.pid)
            try:
                poll = select.poll()  # select() knows the first 1,024 descriptors of a process alone
                poll.register(descriptor, select.POLLIN)
                if not poll.poll(max(0.0, 1000 * (deadline - time.monotonic()))):
                    running.append(process)
            finally:
                os.close(descriptor)
    return running


@contextlib.contextmanager
def interpreter(python: str, settings: Mapping[str, object] = MappingProxyType({})) -> Iterator[None]:
    """Start the brokers of this block with another environment, whose interpreter is `python`.

    They get these settings beside their own.
    """
    token, beside = _INTERPRETER.set(python), _BESIDE.set(settings)
    try:
        yield
    finally:
        _BESIDE.reset(beside)
        _INTERPRETER.reset(token)


class RunningBroker:
    """A broker with its processes. It has a name server unless `namesrv` is an address, or None.

    Ports of 0 are replaced by the real ones at `ready`. `prefix` goes in front of the command and has to exec it.
    """

    def __init__(
        self,
        store: Path,
        settings: Mapping[str, object] | None = None,
        *,
        port: int = 0,
        namesrv_port: int = 0,
        namesrv: str | None = "",
        arguments: Sequence[str] = (),
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        log_path: Path | None = None,
    ) -> None:
        store.parent.mkdir(parents=True, exist_ok=True)
        self.store = store
        self.log_path = log_path or store.with_name(store.name + ".log")
        command = [*prefix, _INTERPRETER.get(), "-m", "ringmq.cli.main", "serve" if namesrv == "" else "broker"]
        command += ["--namesrv-port", str(namesrv_port)] if namesrv == "" else ["--namesrv", namesrv or ""]
        command += ["--store", str(store), "--port", str(port), *arguments]
        for name, value in {**(settings or {}), **_BESIDE.get()}.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            command += ["--set", f"{name}={text}"]
        began = time.monotonic()
        with self.log_path.open("ab") as errors:
            self.process = Program(
                command,
                stdout=subprocess.PIPE,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        try:
            line = self._wait_ready()
        except BaseException:
            self.kill_all()
            raise
        self.start_seconds = time.monotonic() - began
        found = _READY.search(line)
        assert found, f"the ready line is not understood: {line}"
        self.host, self.port = found[1], int(found[2])
        self.namesrv_port = int(found[4] or 0)
        metrics = _METRICS.search(line)
        self.metrics_url = metrics[1] if metrics else ""
        """URL of /metrics, /health and /ready, empty if the broker has none."""

    @property
    def address(self) -> str:
        """The broker's host:port."""
        return f"{self.host}:{self.port}"

    @property
    def namesrv(self) -> str:
        """The name server's host:port."""
        return f"{self.host}:{self.namesrv_port}"

    def _wait_ready(self) -> str:
        assert self.process.stdout is not None
        deadline = time.monotonic() + READY_TIMEOUT_S
        text = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while time.monotonic() < deadline:
                if not selector.select(deadline - time.monotonic()):
                    break
                chunk = os.read(self.process.stdout.fileno(), 4096)
                if not chunk:
                    self.process.wait()
                    raise RuntimeError(f"the broker ended with status {self.process.returncode}:\n{self.log_tail()}")
                text += chunk
                for line in text.decode(errors="replace").splitlines(keepends=True):
                    if "ready" in line and line.endswith("\n"):
                        return line
        raise RuntimeError(f"the broker was not ready within {READY_TIMEOUT_S:.0f} s:\n{self.log_tail()}")

    def log_tail(self, size_bytes: int = 16_000) -> str:
        """Return the end of the broker's log."""
        return self.log_path.read_text(errors="replace")[-size_bytes:]

    def worker_pids(self) -> dict[str, int]:
        """Return live workers by name (`write`, `read-0`, ...), from the process table."""
        found = {}
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.process.pid).children():
                with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess, ProcessLookupError):
                    if name := worker_name(child.cmdline()):
                        found[name] = child.pid
        return found

    def signal_worker(self, name: str, number: signal.Signals) -> int | None:
        """Send a signal to a worker. Return its pid, or None without such a worker."""
        pid = self.worker_pids().get(name)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return pid

    def kill_supervisor(self) -> None:
        """Kill the main process by SIGKILL. Return when every worker and their image are gone too."""
        workers: list[psutil.Process] = []
        with contextlib.suppress(psutil.NoSuchProcess):
            workers = psutil.Process(self.process.pid).children()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        alive = wait_ended(workers)
        self._close()
        if alive:
            raise AssertionError(f"workers outlived their supervisor: {alive}")

    def kill_all(self) -> None:
        """Kill all processes by SIGKILL at once."""
        processes = [psutil.Process(self.process.pid)] if self.process.poll() is None else []
        with contextlib.suppress(psutil.NoSuchProcess):
            processes += [child for process in processes for child in process.children(recursive=True)]
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()
        wait_ended(processes[1:])
        self._close()

    def stop(self) -> int:
        """Stop by SIGTERM and return the exit status. Raises AssertionError if the broker does not end in time."""
        self.process.terminate()
        try:
            status = self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            tail = self.log_tail()
            self.kill_all()
            raise AssertionError(f"the broker did not stop within {STOP_TIMEOUT_S:.0f} s:\n{tail}") from None
        self._close()
        return status

    def close(self) -> None:
        """End the use of the store: kill all processes and remove the shared memory."""
        if self.process.poll() is None:
            self.kill_all()
        remove_shared_memory(self.store)

    def _close(self) -> None:
        if self.process.stdout is not None:
            self.process.stdout.close()

    def __enter__(self) -> "RunningBroker":
        return self

    def __exit__(self, *ignored: object) -> None:
        if self.process.poll() is None:  # a test starts a killed broker again on its store
            self.close()
