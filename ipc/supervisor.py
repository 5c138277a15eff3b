"""Starts the worker processes, watches them and restarts them: the shell around supervisor_core.

The supervisor owns everything that has to survive a worker: listening sockets, event descriptors, the store's lock, the
shared segments. It does not fork workers itself, because a worker must not inherit its threads, mappings and rings. The
image of the workers forks them (ipc/image.py). Without an image they are started by exec.
"""

import contextlib
import logging
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable

from msgspec.structs import replace

from ringmq.ipc.image import WorkerImage
from ringmq.ipc.plane import Plane
from ringmq.ipc.supervisor_core import (
    SILENT_MS,
    SILENT_START_MS,
    ActivationRequested,
    Effect,
    Exited,
    Finished,
    Kill,
    Log,
    Serving,
    Silent,
    Spawn,
    Stop,
    SupervisorCore,
    Terminate,
    Tick,
)
from ringmq.ipc.worker import STATE_SERVING, WorkerSpec
from ringmq.ipc.worker_blocks import set_flag
from ringmq.ipc.worker_process import WorkerCommand, WorkerProcess
from ringmq.ipc.workers import WORKERS, Start, WorkerTable
from ringmq.native import lib

log = logging.getLogger(__name__)

NO_BEAT = -1
"""The beat of a worker that does not serve yet."""
POLL_MS = 20
LOOK_S = 0.25
"""Time between two checks of the workers and their words while all serve."""
_NO_CLAIM = 2**64 - 1
_IMAGE = "\0image"
"""The image's channel in the selector. No worker has this name."""


class Supervisor:
    """Runs the workers of the given specs until a stop. `run` returns the exit status."""

    def __init__(
        self,
        plane: Plane,
        specs: list[WorkerSpec],
        inherited_fds: tuple[int, ...],
        stop_timeout_ms: int = 10_000,
        table: WorkerTable = WORKERS,
        image: WorkerImage | None = None,
    ) -> None:
        self._plane = plane
        self._image = image
        self._followed: socket.socket | None = None
        """The image's channel, as far as the selector knows it."""
        self._specs = {spec.name: spec for spec in specs}
        self._rows = {name: table.row(name) for name in self._specs}
        self._inherited_fds = inherited_fds
        dormant = frozenset(spec.name for spec in specs if spec.dormant)
        self._core = SupervisorCore([spec.name for spec in specs], stop_timeout_ms, dormant, table)
        self._bell = specs[0].event_fds.get(lib.RMQ_ROLE_SUPERVISOR, -1)
        self._processes: dict[str, WorkerProcess] = {}
        self._serving: set[str] = set()
        self._beats: dict[str, tuple[int, int]] = {}
        """Optional worker -> its `progress` or NO_BEAT, and the time of its last change."""
        self._exit_status: int | None = None
        self._stop_asked = False
        self.ran_ms = 0
        """Duration of `run`."""
        self._life_read, self._life_write = os.pipe2(os.O_CLOEXEC)
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def run(self, on_tick: Callable[[bool], None]) -> int:
        """Serve until SIGTERM or SIGINT. Calls `on_tick(all_serving)` several times a second."""
        began_ms = _now_ms()
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop_signal)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)  # the signal only wakes the selector
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_read, selectors.EVENT_READ)
            if self._bell >= 0:
                selector.register(self._bell, selectors.EVENT_READ)
            for name, row in self._rows.items():
                for listener in self._activation_listeners(name) if row.start is Start.CONNECTION else ():
                    selector.register(listener, selectors.EVENT_READ, name)
            self._perform(self._core.start())
            while self._exit_status is None:
                self._follow_image(selector)
                for key, _ in self._events(selector):
                    if key.data == _IMAGE:
                        continue  # `_check_workers` takes its answers
                    if key.data is not None:
                        self._on_connection(selector, key.data)
                        continue
                    with contextlib.suppress(BlockingIOError):
                        os.read(key.fd, 4096)
                self._check_workers()
                on_tick(self._core.all_serving() and not self._core.stopping)
        self.ran_ms = _now_ms() - began_ms
        return self._exit_status

    def stop(self) -> None:
        """Request a clean stop."""
        self._stop_asked = True

    @property
    def stop_asked(self) -> bool:
        """True if a clean stop has been requested."""
        return self._stop_asked

    @property
    def restart_wanted(self) -> bool:
        """True after `run` if the store is to be reopened: a worker has left an order for it, or the plane is
        broken."""
        return self._core.restart_wanted and not self._stop_asked

    @property
    def is_abandoned(self) -> bool:
        """True after `run` if the plane is broken and the supervisor has killed the workers."""
        return self._core.is_abandoned

    @property
    def replaced_only(self) -> frozenset[str]:
        """Optional workers for which the plane has been made again once."""
        return self._core.replaced_only

    @replaced_only.setter
    def replaced_only(self, workers: frozenset[str]) -> None:
        self._core.replaced_only = workers

    def close(self) -> None:
        """Close the pipes, after `run`, if another supervisor follows in this process."""
        signal.set_wakeup_fd(-1)
        for descriptor in (self._life_read, self._life_write, self._wake_read, self._wake_write):
            os.close(descriptor)

    def pids(self) -> dict[str, int]:
        """Live worker pids by name."""
        return {name: process.pid for name, process in self._processes.items() if process.pid}

    def other_pids(self) -> list[int]:
        """Process ids of all other processes of the broker: live workers, and their image."""
        image_pid = self._image.pid if self._image is not None else 0
        return [*self.pids().values(), *([image_pid] if image_pid else [])]

    def _on_stop_signal(self, number: int, frame: object) -> None:
        self._stop_asked = True

    def _activation_listeners(self, name: str) -> tuple[int, ...]:
        """The listeners whose first connection starts the worker."""
        spec = self._specs[name]
        return spec.listen_fds if spec.dormant else ()

    def _follow_image(self, selector: selectors.BaseSelector) -> None:
        """Wait for answers of the present image. A later one has another channel."""
        channel = self._image.channel if self._image is not None else None
        if channel is self._followed:
            return
        if self._followed is not None:
            selector.unregister(self._followed)
        if channel is not None:
            selector.register(channel, selectors.EVENT_READ, _IMAGE)
        self._followed = channel

    def _events(self, selector: selectors.BaseSelector) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for a signal, a connection, the bell, or the time of the next check."""
        timeout_s = POLL_MS / 1000 if not self._core.all_serving() else LOOK_S
        if self._bell < 0:
            return selector.select(timeout_s)
        self._plane.arm(lib.RMQ_ROLE_SUPERVISOR)
        events = selector.select(0 if self._wanted() else timeout_s)
        self._plane.disarm(lib.RMQ_ROLE_SUPERVISOR)
        return events

    def _wanted(self) -> list[str]:
        """Dormant workers whose word is set. Empty during a stop: they stay dormant, and the loop would never sleep."""
        if self._core.stopping:
            return []
        dormant = [name for name in self._specs if self._core.is_dormant(name)]
        return [name for name in dormant if self._plane.role(self._specs[name].role).activation_requested]

    def _on_connection(self, selector: selectors.BaseSelector, name: str) -> None:
        """A client has connected: the worker takes over its listeners for good."""
        for listener in self._activation_listeners(name):
            if listener in selector.get_map():  # another listener of the worker may have been reported before
                selector.unregister(listener)
        self._perform(self._core.step(ActivationRequested(name), _now_ms()))

    def _check_workers(self) -> None:
        now_ms = _now_ms()
        self._core.journal_owner = int(self._plane.header.ports.journal.owner)
        if self._image is not None:
            self._image.turn(now_ms, may_make=not self._core.stopping, known=lambda: self.pids().values())
        for name, process in list(self._processes.items()):
            status = process.poll()
            # First see whether it served. A worker that came up and died between two turns has not failed to start.
            if name not in self._serving and self._plane.role(self._specs[name].role).state == STATE_SERVING:
                self._serving.add(name)
                self._perform(self._core.step(Serving(name), now_ms))
            if status is not None:
                line = int(self._plane.role(self._specs[name].role).invariant_line)
                self._clean_up_after(name)
                if self._image is not None:
                    self._image.ended(status, now_ms)
                self._perform(self._core.step(Exited(name, status, line), now_ms))
        if self._stop_asked and not self._core.stopping:
            self._perform(self._core.step(Stop(), now_ms))
        for name in self._wanted():
            self._perform(self._core.step(ActivationRequested(name), now_ms))
        for name in self._silent(now_ms):
            self._perform(self._core.step(Silent(name), now_ms))
        self._perform(self._core.step(Tick(), now_ms))
        self._publish_flags(now_ms)

    def _silent(self, now_ms: int) -> list[str]:
        """Optional workers whose loop or start makes no progress."""
        found = []
        for name in self._processes:
            if not self._rows[name].is_optional:
                continue
            serves = name in self._serving
            beat = int(self._plane.role(self._specs[name].role).progress) if serves else NO_BEAT
            known, since_ms = self._beats.get(name, (None, 0))
            if known != beat:
                self._beats[name] = beat, now_ms
            elif now_ms - since_ms >= (SILENT_MS if serves else SILENT_START_MS):
                self._beats[name] = beat, now_ms
                found.append(name)
        return found

    def _publish_flags(self, now_ms: int) -> None:
        """Publish deaths and flags of each worker in its role block, and those of the supervisor."""
        is_replaced = self._image is not None and self._image.is_replaced
        set_flag(self._plane.role(lib.RMQ_ROLE_SUPERVISOR), lib.RMQ_ROLE_REPLACED, on=is_replaced)
        for name, spec in self._specs.items():
            block = self._plane.role(spec.role)
            if block.deaths != self._core.deaths(name):
                block.deaths = self._core.deaths(name)
            set_flag(block, lib.RMQ_ROLE_DORMANT, on=self._core.is_dormant(name))
            set_flag(block, lib.RMQ_ROLE_CRASH_LOOP, on=self._core.in_crash_loop(name, now_ms))

    def _clean_up_after(self, name: str) -> None:
        """Clear a dead worker's words in the plane, then notify control, which cleans up orphans."""
        del self._processes[name]
        self._serving.discard(name)
        self._beats.pop(name, None)
        role = self._plane.role(self._specs[name].role)
        role.pid = 0
        role.state = 0
        role.claim_position = _NO_CLAIM
        self._plane.wake(lib.RMQ_ROLE_CONTROL)

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Spawn(worker=name):
                    self._spawn(name)
                case Terminate(worker=name):
                    self._plane.watermarks.stop_requested = self._core.phase
                    self._signal(name, signal.SIGTERM)
                case Kill(worker=name):
                    self._signal(name, signal.SIGKILL)
                case Log(text=text, level=level):
                    log.log(level, "%s", text)
                case Finished(status=status):
                    self._exit_status = status

    def _signal(self, name: str, number: signal.Signals) -> None:
        process = self._processes.get(name)
        if process is not None:
            process.send_signal(number)
            self._plane.wake(self._specs[name].role)

    def _spawn(self, name: str) -> None:
        spec = replace(self._specs[name], life_fd=self._life_read, supervisor_pid=os.getpid())
        role = self._plane.role(spec.role)
        role.generation += 1
        role.bell.sleeping = 0
        role.state = 0
        role.activation_requested = 0  # the worker looks for work when it comes up
        role.cpu = spec.cpus[0]
        fds = {self._life_read, *spec.event_fds.values(), *spec.listen_fds, *self._inherited_fds}
        command = WorkerCommand(name, self._rows[name].module, spec.to_json(), tuple(sorted(fds)))

        def started(pid: int) -> None:
            role.pid = pid

        process = self._processes[name] = WorkerProcess(command, started)
        if self._image is None:
            process.exec()
        else:
            may_exec_new = self._rows[name].is_optional or not self._core.deaths(name)
            self._image.want(process, _now_ms(), may_exec_new=may_exec_new)


def make_event_fds(roles: list[int]) -> dict[int, int]:
    """One eventfd per role; inherited by every worker."""
    return {role: os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for role in roles}


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
