"""The supervisor's side of the image of the workers: makes it, sends it orders, takes its answers.

An order is one message with the descriptors of the worker. It also holds the read end of a pipe, the gate. The image
forks the worker and answers its process id. Only then does the supervisor write into the gate, and the worker goes on.
If the supervisor gives the order up, it closes the gate, and the worker ends. So a worker that the supervisor does not
know of never runs, even if the image dies between its fork and its answer.

A worker is started by exec if there is no image. It may then run another build than the broker, so the build is
compared before.

No call waits for the image: it may be stopped, or hang.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict

from ringmq.ipc import image_process
from ringmq.ipc.build import installed_build
from ringmq.ipc.exit_status import EXIT_PACKAGE_REPLACED
from ringmq.ipc.image_core import (
    CRASHES,
    Answered,
    Cancelled,
    Crashed,
    Died,
    Effect,
    End,
    Exec,
    ImageCore,
    Loaded,
    Log,
    Make,
    Order,
    Refuse,
    State,
    Tick,
    Wanted,
)
from ringmq.ipc.image_process import ANSWER_BYTES_MAX, DESCRIPTORS_MAX, ORDER_BYTES_MAX, ImageContents, thread_count
from ringmq.ipc.package_guard import PackageGuard
from ringmq.ipc.worker import die_with_parent
from ringmq.ipc.worker_process import WorkerProcess, reaped

log = logging.getLogger(__name__)

ARGUMENT_ROOM = 256
"""Bytes for the title of a worker whose image was made by exec (ipc/process_title.py)."""


class _Forked:
    """A child that this process has forked itself, or that the image has forked for it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._status: int | None = None

    def poll(self) -> int | None:
        """The exit code, None until the end."""
        if self._status is None:
            self._status = reaped(self.pid)
        return self._status

    def wait(self) -> None:
        """Wait for its end."""
        if self._status is None:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
            self._status = 0

    def kill(self) -> None:
        """Send SIGKILL."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


class _Sent(Struct):
    """An order that the image has not answered."""

    process: WorkerProcess
    gate: int

    def close(self) -> None:
        """Close the gate. If nothing was written into it, the worker ends."""
        if self.gate >= 0:
            os.close(self.gate)
            self.gate = -1


class WorkerImage:
    """The image of a broker's workers over all its lives. The main process owns it."""

    def __init__(self, contents: ImageContents, core: ImageCore | None = None) -> None:
        self._contents = contents
        self._core = core or ImageCore()
        self._guard = PackageGuard()
        self._build = self._guard.build
        self._child: _Forked | subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._wanted: dict[str, WorkerProcess] = {}
        self._of_this_build: set[str] = set()
        """Wanted workers that may not run another build."""
        self._sent: dict[int, _Sent] = {}
        self._number = 0
        self._ended: list[_Forked | subprocess.Popen[bytes]] = []
        """Killed children that are not reaped yet."""
        self._has_strays = False
        """True if an image may have forked a worker without an answer. The worker ends, and has to be reaped."""

    @classmethod
    def first(cls, contents: ImageContents, now_ms: int) -> WorkerImage:
        """The image at the start of the main process: a fork of it, which shares the modules that are loaded.

        The process must have one thread and no shared memory, and it must hold no file of the store. If it has more
        threads, the image is made by exec.
        """
        image = cls(contents, ImageCore(since_ms=now_ms))
        image._guard.install()
        if thread_count() > 1:
            image._make()
        else:
            image._fork()
        return image

    @property
    def pid(self) -> int:
        """Process id of the image, 0 if there is none."""
        return self._child.pid if self._child is not None else 0

    @property
    def state(self) -> State:
        """State of the image."""
        return self._core.state

    @property
    def is_replaced(self) -> bool:
        """True if the installed package was replaced, so that the broker has to start anew."""
        return self._core.state is State.REPLACED

    def is_of_old_build(self) -> bool:
        """True if a store that is opened now could get workers of another build: the installed package was replaced,
        and there is no image that could fork all of them."""
        return self.is_replaced or (self._core.state is not State.READY and installed_build() != self._build)

    @property
    def channel(self) -> socket.socket | None:
        """The socket that is readable when the image answers. Each image has another one."""
        return self._channel

    def want(self, process: WorkerProcess, now_ms: int, *, may_exec_new: bool = True) -> None:
        """Start the worker's process, at once or in a later turn. `may_exec_new`: it may run another build."""
        name = process.command.name
        if name in self._wanted:  # its last process was given up since the last turn
            self._forget(name, now_ms)
        self._wanted[name] = process
        (self._of_this_build.discard if may_exec_new else self._of_this_build.add)(name)
        self._step(Wanted(name, may_exec_new), now_ms)

    def ended(self, status: int, now_ms: int) -> None:
        """A worker has ended with this exit code."""
        if status in CRASHES:
            self._step(Crashed(), now_ms)

    def turn(self, now_ms: int, *, may_make: bool, known: Callable[[], Collection[int]] = tuple) -> None:
        """Take answers, notice deaths and time-outs. `known` gives the process ids of the supervisor's workers, also of
        those that this turn starts."""
        for name, process in list(self._wanted.items()):
            if process.is_given_up:
                self._forget(name, now_ms)
        self._receive(now_ms)
        if self._child is not None and (status := self._child.poll()) is not None:
            self._step(Died(_end_text(status)), now_ms)
        is_busy = self._core.is_overdue(now_ms) and _is_busy(self.pid)
        self._step(Tick(may_make, is_busy), now_ms)
        self._ended = [child for child in self._ended if child.poll() is None]
        if self._has_strays:
            self._reap_strays({self.pid, *known(), *(child.pid for child in self._ended)})

    def close(self) -> None:
        """End the image's process, for good. A program may run another broker afterwards."""
        self._guard.remove()
        self._end()
        for child in self._ended:
            child.kill()  # a worker at a closed gate may be stopped
            child.wait()
        self._ended = []

    # -- effects -----------------------------------------------------------------------------------------

    def _step(self, event: Wanted | Loaded | Answered | Cancelled | Crashed | Died | Tick, now_ms: int) -> None:
        for effect in self._core.step(event, now_ms):
            self._perform(effect, now_ms)

    def _perform(self, effect: Effect, now_ms: int) -> None:
        match effect:
            case Make():
                self._make()
            case End():
                self._end()
            case Order(worker=name):
                if name in self._wanted:  # an order before this one has found the image dead
                    self._send(self._wanted[name], now_ms)
            case Exec(worker=name):
                if name in self._wanted:
                    self._exec(name)
            case Refuse(worker=name):
                self._wanted.pop(name).refuse(EXIT_PACKAGE_REPLACED)
            case Log(text=text, level=level):
                log.log(level, "%s", text)

    def _exec(self, name: str) -> None:
        process = self._wanted.pop(name)
        if name in self._of_this_build and installed_build() != self._build:
            process.refuse(EXIT_PACKAGE_REPLACED)
        else:
            process.exec()

    def _fork(self) -> None:
        self._channel, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.setblocking(False)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # closed by the caller
                stream.flush()
        parent = os.getpid()
        gc.freeze()  # the collector leaves the objects of the image alone, and their pages shared
        pid = os.fork()
        if not pid:
            image_process.run_forked(other, self._contents, self._build, parent)
        other.close()
        self._child = _Forked(pid)

    def _make(self) -> None:
        """Make an image by exec. A failure shows as the end of the channel."""
        self._channel, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.setblocking(False)
        words = [str(other.fileno()), str(os.getpid()), json.dumps(asdict(self._contents)).ljust(ARGUMENT_ROOM)]
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-m", image_process.__name__, *words],
                pass_fds=(other.fileno(),),
                stdin=subprocess.DEVNULL,
                preexec_fn=partial(die_with_parent, os.getpid()),
            )
        except OSError as error:
            log.error("the image of the workers cannot be started: %s", error)
        other.close()

    def _end(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._child is not None:
            self._child.kill()
            self._ended.append(self._child)
            self._child = None
        self._has_strays |= bool(self._sent)
        for sent in self._sent.values():
            sent.close()
        self._sent = {}

    def _send(self, process: WorkerProcess, now_ms: int) -> None:
        command = process.command
        self._number += 1
        order = {"number": self._number, "parent": os.getpid(), **asdict(command)}
        message = json.dumps(order, separators=(",", ":")).encode()
        if len(message) > ORDER_BYTES_MAX or len(command.fds) >= DESCRIPTORS_MAX:
            self._step(Answered(command.name, can_exec=True), now_ms)
            return
        reading, gate = os.pipe2(os.O_CLOEXEC)
        self._sent[self._number] = _Sent(process, gate)
        try:
            assert self._channel is not None
            socket.send_fds(self._channel, [message], [*command.fds, reading])
        except OSError as error:
            self._step(Died(f"takes no orders ({error.strerror})"), now_ms)
        finally:
            os.close(reading)

    # -- answers -----------------------------------------------------------------------------------------

    def _receive(self, now_ms: int) -> None:
        while self._channel is not None:
            try:
                message = self._channel.recv(ANSWER_BYTES_MAX)
            except BlockingIOError:
                return
            except OSError:
                message = b""
            if not message:
                status = self._child.poll() if self._child is not None else None
                self._step(Died("has ended" if status is None else _end_text(status)), now_ms)
                return
            answer = json.loads(message)
            if "build" in answer:
                self._step(self._loaded(answer), now_ms)
            else:
                self._answer(answer, now_ms)

    def _loaded(self, answer: dict[str, str]) -> Loaded:
        if answer["problem"] or answer["build"] == self._build:
            return Loaded(answer["problem"])
        return Loaded("the installed package was replaced while the broker runs", is_replaced=True)

    def _answer(self, answer: dict[str, int | str], now_ms: int) -> None:
        sent = self._sent.pop(int(answer["number"]), None)
        pid = int(answer.get("pid", 0))
        if sent is None or self._wanted.get(sent.process.command.name) is not sent.process:
            if sent is not None:
                sent.close()
            if pid:
                self._ended.append(_Forked(pid))  # it ends, because its gate is closed
            return
        name = sent.process.command.name
        if pid:
            del self._wanted[name]
            sent.process.started(pid)
            with contextlib.suppress(BrokenPipeError):  # it is dead
                os.write(sent.gate, b"g")
        elif answer["refusal"]:
            log.warning("worker %s is started by exec, the image of the workers refuses: %s", name, answer["refusal"])
        sent.close()
        self._step(Answered(name, can_exec=name in self._wanted), now_ms)

    def _forget(self, name: str, now_ms: int) -> None:
        process = self._wanted.pop(name)
        for sent in self._sent.values():
            if sent.process is process:
                sent.close()
        self._step(Cancelled(name), now_ms)

    def _reap_strays(self, known: set[int]) -> None:
        with contextlib.suppress(ChildProcessError):
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if ended.si_pid in known:
                    return
                os.waitpid(ended.si_pid, os.WNOHANG)


def _is_busy(pid: int) -> bool:
    """True if the process could run and gets no CPU, or waits for a disk."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in (b"R", b"D")


def _end_text(status: int) -> str:
    return f"was ended by signal {-status}" if status < 0 else f"has ended with status {status}"
