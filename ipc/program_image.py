"""The image of programs: a process that has loaded the modules of brokers, name servers and commands, and forks them.

It serves one process that starts many programs, a run of tests (loadtest/load/program.py). A program is forked as a
child of that process, and it gets what an exec would have given it: its words, environment, folder, umask, session and
standard descriptors. The rest comes from the start of the image.

The program itself answers the order, with its process id. So a program that its parent does not know of never runs,
even if the image dies behind the fork.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import NoReturn

from msgspec import Struct

from ringmq.ipc.build import installed_build
from ringmq.ipc.forked_worker import close_all_but, run_program
from ringmq.ipc.image_process import LATER_MS, ORDER_BYTES_MAX, contents_of, fork_sibling, problem
from ringmq.ipc.process_title import set_command
from ringmq.ipc.workers import WORKERS

DESCRIPTORS = 4
"""Standard input, output, error, and the folder."""
COMMANDS = "ringmq.cli.main"
SERVERS = frozenset({"serve", "broker"})
MAIN_PROCESS = ("ringmq.cli.serve", "ringmq.broker.server")


class ProgramOrder(Struct, frozen=True):
    """A program that is to be started: `python -m MODULE WORDS`."""

    module: str
    words: Sequence[str]
    environment: Mapping[str, str]
    umask: int
    new_session: bool


def modules_of(order: ProgramOrder) -> Iterable[str]:
    """The modules that the program will load. They stay in the image for the next ones."""
    if order.module != COMMANDS:
        return (order.module,)
    command = next(iter(order.words), "")
    if command in SERVERS:
        return (*MAIN_PROCESS, *contents_of(WORKERS.rows(1), "").at_once)
    entry = import_module(COMMANDS).COMMANDS.get(command)
    return () if entry is None else (entry.module,)


def later_modules() -> Iterable[str]:
    """The modules of workers that start later, which the image of a broker's workers would load each time."""
    contents = contents_of(WORKERS.rows(1), "")
    return (*contents.at_once, *contents.later)


class ProgramImage:
    """The image's loop."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._build = installed_build()
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        """The terminal's ^C ends the parent, and the end of the channel this process."""
        self._is_complete = True
        """False if a broker was started, and the modules of workers that start later are not loaded."""

    def run(self) -> None:
        """Load and fork at each order, until the channel ends."""
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        while True:
            if not self._is_complete and not poll.poll(LATER_MS):
                self._load(later_modules())
                self._is_complete = True
            message, descriptors, _, _ = socket.recv_fds(self._channel, ORDER_BYTES_MAX, DESCRIPTORS)
            if not message:
                return
            try:
                if refusal := self._serve(ProgramOrder(**json.loads(message)), descriptors):
                    self._answer(refusal=refusal)
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)

    def _serve(self, order: ProgramOrder, descriptors: list[int]) -> str:
        """Fork the program. Returns why not, or an empty text: the program answers."""
        if installed_build() != self._build:
            return "the installed package was replaced"
        if len(descriptors) < DESCRIPTORS:  # the kernel has cut the message (MSG_CTRUNC)
            return "descriptors of the order are missing, see RLIMIT_NOFILE"
        try:
            self._load(modules_of(order))
            self._is_complete &= SERVERS.isdisjoint(order.words[:1])
            if cause := problem():
                return cause
            if not fork_sibling():
                self._become(order, descriptors)
        except (ImportError, OSError) as error:
            return str(error)
        return ""

    def _load(self, modules: Iterable[str]) -> None:
        for name in modules:
            import_module(name)
        gc.freeze()  # a program's collector leaves these objects alone, and their pages shared

    def _become(self, order: ProgramOrder, descriptors: list[int]) -> NoReturn:
        status = 1
        try:
            self._leave(order, descriptors)
            status = run_program(order.module, order.words)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)

    def _leave(self, order: ProgramOrder, descriptors: list[int]) -> None:
        """Keep nothing of the image but its modules. Answer when the process looks like the program."""
        try:
            os.fchdir(descriptors[DESCRIPTORS - 1])
            os.umask(order.umask)
            if order.new_session:
                os.setsid()
            os.environ.clear()
            os.environ.update(order.environment)
            set_command((sys.executable, "-m", order.module, *order.words), order.environment)
            for number in (0, 1, 2):
                os.dup2(descriptors[number], number)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        except BaseException as error:
            self._answer(refusal=str(error))
            raise
        self._answer(pid=os.getpid())
        close_all_but(())

    def _answer(self, pid: int = 0, refusal: str = "") -> None:
        self._channel.send(json.dumps({"pid": pid, "refusal": refusal}).encode())


if __name__ == "__main__":
    with contextlib.suppress(ConnectionError):  # the parent is gone
        ProgramImage(socket.socket(fileno=int(sys.argv[1]))).run()
