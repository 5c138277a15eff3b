"""The image of the workers: a process that has imported what workers need, and forks a worker at each order.

The first image is a fork of the main process, before that has threads, shared memory or files of the store
(`run_forked`). Later ones are made by exec: `python -m ringmq.ipc.image_process CHANNEL PARENT CONTENTS`.

What must stay true of this process, because each worker is a copy of it:

- It has one thread. Another thread's locks would stay locked in the workers.
- It maps no segment, opens no file of the store, and holds no listener and no ring. Descriptors come with an order, and
  are closed behind it.
- It handles no signal and draws no random numbers.
- It loads no library that keeps state over a fork, above all numpy, whose BLAS starts threads. A row of the worker
  table says that its module does (`in_image`). Such a module is loaded behind the fork.

A fork by the image makes a child of the image's parent (native/src/plane/sibling_fork.h). So exit statuses, the
parent-death signal and waitpid are as after an exec.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

from msgspec import Struct

from ringmq.ipc.build import installed_build
from ringmq.ipc.forked_worker import Order, become, close_all_but, code_of
from ringmq.ipc.guests import modules as modules_of_guests
from ringmq.ipc.package_guard import PackageGuard, PackageReplacedError
from ringmq.ipc.process_title import set_title
from ringmq.ipc.worker import die_with_parent
from ringmq.ipc.workers import Start, WorkerRow
from ringmq.native import ffi, lib

TITLE = "image"
ORDER_BYTES_MAX = 64 << 10
ANSWER_BYTES_MAX = 4096
DESCRIPTORS_MAX = 253
"""The kernel's limit for one message (SCM_MAX_FD)."""
LATER_MS = 1_000
"""Time without an order after which the image loads the modules of workers that start later."""
_HELD = frozenset({signal.SIGTERM, signal.SIGINT})
"""Signals for the whole group of processes. The image ends with its parent. In a new worker they stay pending until it
has its own dispositions."""


class ImageContents(Struct, frozen=True):
    """The modules of an image, and its name."""

    at_once: tuple[str, ...]
    later: tuple[str, ...] = ()
    """Loaded when the broker has started."""
    label: str = ""
    """The broker's name, for titles."""


def contents_of(rows: Iterable[WorkerRow], label: str) -> ImageContents:
    """The modules of these workers. Those of other packages are left out: they may do
    anything when they are imported."""
    at_once: dict[str, None] = {}
    later: dict[str, None] = {}
    for row in rows:
        if row.in_image and row.module.startswith("ringmq."):
            modules = at_once if row.start is Start.AT_ONCE else later
            modules |= dict.fromkeys((row.module, *row.runs_modules, *modules_of_guests(*row.walks)))
    return ImageContents(tuple(at_once), tuple(name for name in later if name not in at_once), label)


def run_forked(channel: socket.socket, contents: ImageContents, build: str, parent: int) -> NoReturn:
    """Be the image, in a fork of the main process. `build`: that of the modules that are loaded."""
    try:
        die_with_parent(parent)
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(null, 0)
        Image(channel, contents, build).run()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(1)


class Image:
    """The image's loop."""

    def __init__(self, channel: socket.socket, contents: ImageContents, build: str) -> None:
        self._channel = channel
        self._contents = contents
        self._build = build
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
        self._codes: dict[str, Any] = {}
        """Module -> its code, so that a worker of this image runs no file of a later build."""
        close_all_but((channel.fileno(),))

    def run(self) -> None:
        """Load, then fork at each order, until the channel ends."""
        set_title(TITLE, self._contents.label)
        self._load(self._contents.at_once)
        build = installed_build()  # behind the imports: an upgrade may have come between two of them
        self._send({"build": build, "problem": problem()})
        is_complete = False
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        while True:
            if not poll.poll(None if is_complete else LATER_MS):
                is_complete = True
                self._load_later()
                if cause := problem():
                    self._send({"build": self._build, "problem": cause})
                continue
            try:
                message, descriptors, _, _ = socket.recv_fds(self._channel, ORDER_BYTES_MAX, DESCRIPTORS_MAX)
            except ConnectionResetError:  # the main process has ended without reading the last answer
                return
            if not message:
                return
            try:
                self._serve(json.loads(message), descriptors)
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)

    def _load_later(self) -> None:
        if installed_build() == self._build:
            with contextlib.suppress(PackageReplacedError):
                self._load(self._contents.later)
        if installed_build() != self._build:  # orders for these modules are refused
            self._codes = {name: code for name, code in self._codes.items() if name in self._contents.at_once}

    def _load(self, modules: Iterable[str]) -> None:
        gc.disable()  # an import makes no garbage worth a collection
        try:
            for name in modules:
                importlib.import_module(name)
                self._codes[name] = code_of(name)
        finally:
            gc.enable()
        gc.freeze()  # a worker's collector leaves these objects alone, and their pages shared

    def _serve(self, words: dict[str, Any], descriptors: list[int]) -> None:
        number = words.pop("number")
        order = Order(**words)
        if order.module not in self._codes and order.module.startswith("ringmq.") and installed_build() != self._build:
            self._send({"number": number, "refusal": ""})
            return
        if len(descriptors) <= len(order.fds):  # the kernel has cut the message (MSG_CTRUNC)
            self._send({"number": number, "refusal": "descriptors of the order are missing, see RLIMIT_NOFILE"})
            return
        try:
            pid = fork_sibling()
        except OSError as error:
            self._send({"number": number, "refusal": f"it cannot fork: {error.strerror}"})
            return
        if not pid:
            gate = descriptors.pop()
            become(order, descriptors, gate, self._mask, self._codes.get(order.module), self._contents.label)
        self._send({"number": number, "pid": pid})

    def _send(self, answer: dict[str, Any]) -> None:
        self._channel.send(json.dumps(answer).encode())


def problem() -> str:
    """The reason why this process cannot be an image, or empty."""
    if lib.rmq_sibling_fork_probe() < 0:
        return "the kernel does not tell the address of the thread's id (prctl PR_GET_TID_ADDRESS)"
    threads = thread_count()
    return f"a module of the workers has started {threads - 1} threads" if threads > 1 else ""


def thread_count() -> int:
    """The number of threads of this process, also of those that Python does not know."""
    return len(list(Path("/proc/self/task").iterdir()))


def fork_sibling() -> int:
    """Fork a child of this process's parent. Returns its process id, 0 in the child. Raises OSError."""
    result = _sibling_fork()(*_hooks())
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return int(result)


def _sibling_fork() -> Callable[..., int]:
    """rmq_sibling_fork as a function that keeps the interpreter's lock, unlike those of `lib`."""
    address = int(ffi.cast("uintptr_t", ffi.addressof(lib, "rmq_sibling_fork")))
    return ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(address)


def _hooks() -> list[ctypes.c_void_p]:
    names = ("PyOS_BeforeFork", "PyOS_AfterFork_Parent", "PyOS_AfterFork_Child")
    return [ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p) for name in names]


def main(words: list[str]) -> None:
    """Run as a program: CHANNEL PARENT CONTENTS."""
    descriptor, parent = int(words[0]), int(words[1])
    die_with_parent(parent)
    guard = PackageGuard()
    guard.install()
    fields = json.loads(words[2])
    contents = ImageContents(tuple(fields["at_once"]), tuple(fields["later"]), fields["label"])
    Image(socket.socket(fileno=descriptor), contents, guard.build).run()


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):  # the supervisor is gone
        main(sys.argv[1:])
