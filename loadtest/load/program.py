"""Programs of RingMQ as child processes: forked from an image if that makes no difference to them, else by exec.

A test run starts hundreds of brokers and commands, and most of the time of a start goes into the imports. The image of
programs (ipc/program_image.py) has done them. A test run asks for it (`fork_programs`). Benchmarks and drills do not:
they measure what users get, a start by exec. The image is started by exec at the second program, and it ends with this
process.

Only what an order names may differ between this process at its start and at the start of a program: words, environment,
folder, umask, standard descriptors, session. If anything else differs, the program is started by exec.
"""

import atexit
import inspect
import json
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

BY_EXEC = "RINGMQ_WORKERS_BY_EXEC"
"""Set in a program's environment, this starts the program by exec, and each of its workers, too."""
IMAGE = "ringmq.ipc.program_image"
PACKAGES = ("ringmq.",)
"""Beginnings of modules that may be loaded in the image and run in a fork of it."""
ANSWER_S = 60.0
"""Time for the image to load the modules of a program, on a busy machine."""
ORDER_BYTES_MAX, ANSWER_BYTES_MAX = 64 << 10, 4096
ROOM_BYTES = 8192
"""For the command line of a program, and for variables that it has beyond those of this process."""
READ_AT_START = (
    "PYTHON", "LD_", "LC_", "LANG", "LOCPATH", "TZ", "MALLOC_", "GLIBC_", "OPENSSL_", "ASAN_", "LSAN_", "TSAN_",
    "UBSAN_", "RINGMQ_NATIVE",
)  # fmt: skip
"""Beginnings of variables that the loader, the C library, the interpreter or a module reads at its start."""
INHERITED = frozenset({
    "Uid", "Gid", "Groups", "NSpgid", "NSsid", "SigBlk", "SigIgn", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb",
    "NoNewPrivs", "Seccomp", "Cpus_allowed", "Mems_allowed",
})  # fmt: skip
"""Lines of /proc/PID/status."""
INHERITED_FILES = ("limits", "cgroup", "oom_score_adj")
PLAIN = {
    "executable": None, "preexec_fn": None, "close_fds": True, "pass_fds": (), "shell": False,
    "restore_signals": True, "gid": None, "gids": None, "uid": None, "process_group": -1,
}  # fmt: skip
"""Options of Popen that an order cannot name, and their defaults."""
PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")


def fork_programs() -> None:
    """From the second one on, fork the programs of this process from an image."""
    _IMAGE.is_open = True


class Program(subprocess.Popen[Any]):
    """Popen that forks `[sys.executable, "-m", "ringmq....", ...]` from the image of programs."""

    def _execute_child(self, *arguments: Any) -> None:
        """Popen starts the process here. If a later version of Python does not call this, all starts are execs."""
        by_exec = super()._execute_child  # type: ignore[misc]
        given = inspect.signature(by_exec).bind(*arguments).arguments
        if pid := _forked(given):
            self.pid, self._child_created = pid, True
            self._close_pipe_fds(*(given[name] for name in PIPES))  # type: ignore[attr-defined]
        else:
            by_exec(*arguments)


def _forked(given: Mapping[str, Any]) -> int:
    """The process id of the program, 0 if it has to be started by exec. `given`: arguments of Popen and its pipes."""
    if not _IMAGE.is_open:
        return 0
    variables = os.environ if given["env"] is None else given["env"]
    environment = {os.fsdecode(name): os.fsdecode(value) for name, value in variables.items()}
    match given["args"]:
        case [sys.executable, "-m", str(module), *words] if module.startswith(PACKAGES):
            pass
        case _:
            return 0
    is_plain = all(given.get(name, usual) == usual for name, usual in PLAIN.items())
    if not is_plain or BY_EXEC in environment or _state(environment) != _STATE:
        return 0
    given_pipes = (given[name] for name in ("p2cread", "c2pwrite", "errwrite"))
    descriptors = [number if pipe == -1 else pipe for number, pipe in enumerate(given_pipes)]
    if any(os.isatty(descriptor) for descriptor in descriptors):  # the interpreter buffers lines for a terminal
        return 0
    order = {
        "module": module,
        "words": [os.fsdecode(word) for word in words],
        "environment": environment,
        "umask": given["umask"] if given["umask"] >= 0 else int(_status()["Umask"], 8),
        "new_session": given["start_new_session"],
    }
    try:
        folder = os.open(given["cwd"] or ".", os.O_PATH | os.O_DIRECTORY)
    except OSError:
        return 0
    try:
        return _IMAGE.fork(json.dumps(order).encode(), [*descriptors, folder])
    finally:
        os.close(folder)


def _status() -> dict[str, str]:
    lines = Path("/proc/thread-self/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _state(environment: Mapping[str, str]) -> list[object]:
    """The state that a program inherits from this thread and that no order can name."""
    here, status = Path("/proc/thread-self"), _status()
    return [
        {name: value for name, value in environment.items() if name.startswith(READ_AT_START)},
        {name: value for name, value in status.items() if name in INHERITED},
        [(here / name).read_bytes() for name in INHERITED_FILES],
        sorted((path.name, path.readlink()) for path in (here / "ns").iterdir()),
        os.getpriority(os.PRIO_PROCESS, 0),
    ]


class _Image:
    """This process's image of programs."""

    def __init__(self) -> None:
        self.is_open = False
        self._lock = threading.Lock()
        self._is_wanted = False
        self._owner = 0
        """The process that has started it. A fork of this process gets an image of its own."""
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None

    def fork(self, order: bytes, descriptors: Sequence[int]) -> int:
        """Have a program forked. Returns its process id, 0 if it has to be started by exec."""
        with self._lock:
            if not self._is_wanted:  # an image is of no use to a single program
                self._is_wanted = True
                return 0
            for _ in range(2):  # if the image has died, there is another one
                answer = self._ask(order, descriptors)
                if answer:
                    found = json.loads(answer)
                    if found["refusal"]:
                        log.warning("a program is started by exec, the image refuses: %s", found["refusal"])
                    return int(found["pid"])
                self.close()
        return 0

    def _ask(self, order: bytes, descriptors: Sequence[int]) -> bytes:
        try:
            if self._channel is None or self._owner != os.getpid():
                self._channel = self._start()
            socket.send_fds(self._channel, [order], descriptors)
            return self._channel.recv(ANSWER_BYTES_MAX)
        except OSError:
            return b""
        except BaseException:  # an interrupt: the answer may not be taken for that of the next order
            self.close()
            raise

    def _start(self) -> socket.socket:
        channel, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        channel.settimeout(ANSWER_S)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", IMAGE, str(other.fileno()).ljust(ROOM_BYTES)],
                env={**os.environ, "ROOM": "".ljust(ROOM_BYTES)},
                cwd=_FOLDER,
                pass_fds=(other.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        self._owner = os.getpid()
        atexit.register(self.close)
        return channel

    def close(self) -> None:
        """End the image. Its programs go on."""
        if self._channel is not None and self._owner == os.getpid():
            self._channel.close()
            self._channel = None
            assert self._process is not None
            self._process.kill()
            self._process.wait()


_FOLDER = Path.cwd()
_STATE = _state(os.environ)
_IMAGE = _Image()
