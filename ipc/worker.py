"""Life of a worker process: it gets its spec as one JSON argument, pins itself, and ends with its supervisor.

Two mechanisms tie it to the supervisor. The parent-death signal also ends a stopped process. The supervisor sets it
before the program is loaded: a worker that outlives its supervisor keeps the store's lock, and no broker can start. A
pipe whose write end only the supervisor holds ends workers that another program has started.
"""

import atexit
import ctypes
import json
import os
import signal
import threading
from collections.abc import Callable

from msgspec import Struct, field
from msgspec.structs import asdict

from ringmq.ipc.plane import Plane
from ringmq.native import lib

STATE_STARTING, STATE_SERVING, STATE_STOPPING = 1, 2, 3
_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None, use_errno=True).prctl


class WorkerSpec(Struct, frozen=True):
    """The parameters of a worker process. It inherits descriptors under the numbers given here."""

    name: str
    role: int
    plane_name: str
    cpus: tuple[int, ...]
    life_fd: int
    supervisor_pid: int
    event_fds: dict[int, int]
    listen_fds: tuple[int, ...] = ()
    config_path: str = ""
    dormant: bool = False
    """True if the worker does not start at once. Its row (ipc/workers.py) says when it does."""
    extra: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """One-line form for the command line."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "WorkerSpec":
        """Inverse of to_json."""
        values = json.loads(text)
        values["event_fds"] = {int(role): fd for role, fd in values["event_fds"].items()}
        values["cpus"], values["listen_fds"] = tuple(values["cpus"]), tuple(values["listen_fds"])
        return cls(**values)


class StopFlag:
    """A flag that SIGTERM sets. A worker's loop checks it between C calls, or registers `on_set`."""

    def __init__(self) -> None:
        self.is_set = False
        self.on_set: Callable[[], object] | None = None
        signal.signal(signal.SIGTERM, self._on_signal)
        # The interpreter restores the default action while it exits. SIGTERM would then kill a worker that is done.
        atexit.register(signal.signal, signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor handles the terminal's ^C

    def _on_signal(self, number: int, frame: object) -> None:
        self.is_set = True
        if self.on_set is not None:
            self.on_set()


def die_with_parent(parent_pid: int) -> None:
    """Have this process killed at the end of its parent, also after an exec. End it if the parent has ended."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)


def bind_to_supervisor(spec: WorkerSpec) -> None:
    """Make sure that this process ends with its supervisor, whatever ends the supervisor."""
    die_with_parent(spec.supervisor_pid)
    threading.Thread(target=_die_with_pipe, args=(spec.life_fd,), daemon=True, name="life").start()


def _die_with_pipe(life_fd: int) -> None:
    os.read(life_fd, 1)  # returns only at end of file, because no process writes
    os.kill(os.getpid(), signal.SIGKILL)


def open_worker(spec: WorkerSpec) -> tuple[Plane, StopFlag]:
    """Pin the process, bind it to the supervisor, map the plane. The role's state becomes STARTING."""
    stop = StopFlag()
    bind_to_supervisor(spec)
    os.sched_setaffinity(0, spec.cpus)
    plane = Plane.open(spec.plane_name)
    plane.set_event_fds(spec.event_fds)
    plane.role(spec.role).state = STATE_STARTING
    lib.rmq_invariant_arm(plane.struct, spec.role)
    return plane, stop
