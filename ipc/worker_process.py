"""A worker's process as its supervisor sees it, from the wish for it to its end.

The process is forked by the image of the workers (ipc/image.py), or made by exec: `python -m MODULE NAME SPEC`. A
forked one is a child of the supervisor, too.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial

from msgspec import Struct

from ringmq.ipc.worker import die_with_parent

log = logging.getLogger(__name__)


class WorkerCommand(Struct, frozen=True):
    """The program of a worker's process, and its arguments."""

    name: str
    module: str
    spec: str
    """WorkerSpec as JSON. It names the descriptors."""
    fds: tuple[int, ...]
    """Descriptors that the process inherits, under the same numbers."""


class WorkerProcess:
    """`pid` is 0 until the process exists. It then stays, also after the end."""

    def __init__(self, command: WorkerCommand, on_started: Callable[[int], None] = lambda pid: None) -> None:
        self.command = command
        self.pid = 0
        self._on_started = on_started
        self._made: subprocess.Popen[bytes] | None = None
        self._status: int | None = None

    def exec(self) -> None:
        """Start it by exec. If that fails, the process has ended with status 1."""
        command = self.command
        try:
            self._made = subprocess.Popen(
                [sys.executable, "-m", command.module, command.name, command.spec],
                pass_fds=command.fds,
                stdin=subprocess.DEVNULL,
                preexec_fn=partial(die_with_parent, os.getpid()),
            )
        except OSError as error:  # a limit of processes is reached, or an upgrade is replacing the interpreter
            self.failed(str(error))
            return
        self.started(self._made.pid)

    def started(self, pid: int) -> None:
        """The process exists."""
        self.pid = pid
        self._on_started(pid)

    def failed(self, cause: str) -> None:
        """There will be no process."""
        log.error("worker %s cannot be started: %s", self.command.name, cause)
        self.refuse(1)

    def refuse(self, status: int) -> None:
        """Make no process: it has ended with this status."""
        self._status = status

    @property
    def is_given_up(self) -> bool:
        """True if a signal came before the process was there."""
        return not self.pid and self._status is not None

    def poll(self) -> int | None:
        """The exit code as of Popen: negative for a signal, None until the end."""
        if self._made is not None:
            return self._made.poll()
        if self.pid and self._status is None:
            self._status = reaped(self.pid)
        return self._status

    def send_signal(self, number: int) -> None:
        """Send a signal. A process that does not exist yet will not be made: it has ended by this signal."""
        if not self.pid:
            self._status = -number if self._status is None else self._status
        elif self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def reaped(pid: int) -> int | None:
    """The exit code of a child that has ended, None if it runs. 1 if another part of this process has reaped it."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return 1
    return os.waitstatus_to_exitcode(status) if ended else None
