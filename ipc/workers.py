"""The worker table. A row holds everything that the broker has to know of a worker before the worker runs.

Supervisor, placement and the main process read the rows. Processes that a supervisor has started read the role blocks
of the plane, in which the main process publishes names and flags (`ipc/worker_blocks.py`). A row names its functions as
text, so this table imports nothing of other folders.

A new worker is a row here. The row must have a name, a free role number, the module of its process, a phase of the
stop, and a class of CPUs. The other columns have defaults: an unconditional start, no port and no inbox. At a
clean stop the phases end in the order of `StopPhase`; workers of one phase end together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, IntEnum

from msgspec import Struct
from msgspec.structs import replace

from ringmq.ipc.answerers import AnswererPlan, AnswerRow
from ringmq.ipc.guests import is_missing
from ringmq.ipc.ports import READERS_MAX, PortPlan, PortRow
from ringmq.native import lib

NAME_BYTES_MAX = 23
"""The role block has 24 bytes, the last is 0."""
_NAME = re.compile(r"[a-z][a-z0-9-]*")
_FUNCTION = re.compile(r"[a-z_][\w.]*:[a-z_]\w*")


class StopPhase(IntEnum):
    """Order of a clean stop. A worker that accepts work ends before the workers that do the work."""

    READ = lib.RMQ_STOP_READ
    POP = lib.RMQ_STOP_POP
    CONTROL = lib.RMQ_STOP_CONTROL
    WRITE = lib.RMQ_STOP_WRITE
    FLUSH = lib.RMQ_STOP_FLUSH
    DISPATCH = lib.RMQ_STOP_DISPATCH
    HA = lib.RMQ_STOP_HA
    NAMESRV = lib.RMQ_STOP_HA + 1


class AtStop(Enum):
    """The action of a clean stop for a worker that is not running when the stop begins."""

    ENDS = "it is not started any more"
    REPLACEMENT = "the replacement of a dead one comes up first, and finishes or saves what the dead one has left"
    FINISHER = "it comes up first, even at its very first start: it finishes what the other workers have left"


class Start(Enum):
    """The event that starts a worker. Until then the worker is dormant: it has no process."""

    AT_ONCE = "when the store is opened"
    CONNECTION = "at the first connection of its listener"
    ON_REQUEST = "by the word `activation_requested` in its role block"
    OPEN_WORK = "when the store is opened and holds work for it, else by the word `activation_requested`"


class CpuClass(Enum):
    """The class by which placement assigns CPUs. Several rows of a class share its CPUs (`ipc/placement.py`)."""

    READ = "read"
    WRITE = "write"
    FLUSH = "flush"
    DISPATCH = "dispatch"
    CONTROL = "control"
    HA = "ha"
    SERVICE = "service"
    AUXILIARY = "on control's CPU"


class WhileAppending(Struct, frozen=True):
    """Columns of a row that differ while its role owns the journal of write (`ipc/journal.py`)."""

    stop_phase: StopPhase
    cpu_class: CpuClass
    """At the start of the broker. A process that becomes the owner keeps its CPU."""
    at_stop: AtStop


class WorkerRow(Struct, frozen=True):
    """The row of one worker. It names functions as `package.module:function`."""

    name: str
    role: int
    """Number of its block in the plane."""
    module: str
    """The worker runs as `python -m MODULE NAME SPEC`, in a process of its own or in a fork of the image."""
    stop_phase: StopPhase
    cpu_class: CpuClass
    at_stop: AtStop = AtStop.ENDS
    start: Start = Start.AT_ONCE
    is_optional: bool = False
    """True if its deaths, however many, degrade /health and never end the broker."""
    needs_master: bool = False
    """True if it works on a master alone. Other brokers have it dormant, and control answers its requests there."""
    listener: str = ""
    """Function that opens its listening socket: (configuration, ListenRequest) -> socket, or None if there is no such
    worker."""
    port: PortRow | None = None
    """Its port to write. None if it appends nothing."""
    answers: AnswerRow | None = None
    """Its inbox, and the requests of clients that go there. None if it is no answerer."""
    asks: tuple[str, ...] = ()
    """Names of workers that it asks. Read workers also ask every worker that answers requests of clients, and control
    those whose row says so (AnswerRow.control_asks)."""
    needed_at_once: str = ""
    """Function that the main process calls when it opens the store: (configuration, store root) -> True to start at
    once."""
    runs_modules: tuple[str, ...] = ()
    """Modules that its module imports only when it runs as this worker. The image of the workers loads them, too."""
    walks: tuple[str, ...] = ()
    """Columns of guests whose functions it calls (`ipc/guests.py`). The image loads their modules, too."""
    in_image: bool = True
    """False if its modules load a library that keeps state over a fork. The image then leaves them to the worker."""
    while_appending: WhileAppending | None = None
    """Columns that differ while the role owns the journal of write. The worker starts at once then."""

    def appends(self, journal_owner: int) -> bool:
        """True if this worker has a part of its own as the owner of the journal, and is the owner."""
        return self.while_appending is not None and self.role == journal_owner

    def beside(self, journal_owner: int) -> WorkerRow:
        """The row while that role owns the journal."""
        if self.while_appending is None or not self.appends(journal_owner):
            return self
        columns = self.while_appending
        return replace(self, stop_phase=columns.stop_phase, cpu_class=columns.cpu_class, at_stop=columns.at_stop)

    @property
    def ends_when_idle(self) -> bool:
        """True if the worker may end with EXIT_RESTED and become dormant again."""
        return self.start in (Start.ON_REQUEST, Start.OPEN_WORK)


class WorkerRowError(ValueError):
    """A row that cannot be in the table. The message gives the reason."""


def read_name(reader: int) -> str:
    """Name of the read worker with this number."""
    return f"read-{reader}"


def is_read(name: str) -> bool:
    """True if the name is that of a read worker."""
    return name.startswith("read-")


class WorkerTable:
    """Rows by name, in the order of `rows`. One template row stands for all read workers.

    A guest's worker counts only if this build has the guest.
    """

    def __init__(self, read: WorkerRow, rows: Iterable[WorkerRow]) -> None:
        self._read = read
        self._rows: dict[str, WorkerRow] = {}
        for row in rows:
            self.add(row)

    def add(self, row: WorkerRow) -> None:
        """Register a worker before the broker starts. Raises WorkerRowError if the row clashes or contradicts
        itself."""
        if problem := self._problem(row):
            raise WorkerRowError(f"worker {row.name!r} cannot be registered: {problem}")
        self._rows[row.name] = row

    def row(self, name: str) -> WorkerRow:
        """The row of a worker. Raises KeyError if there is none."""
        if is_read(name):
            reader = int(name.removeprefix("read-"))
            return replace(self._read, name=name, role=self._read.role + reader)
        return self._rows[name]

    def rows(self, readers: int) -> list[WorkerRow]:
        """The workers that a broker may have: `readers` read workers, then the others."""
        return [*(self.row(read_name(reader)) for reader in range(readers)), *self._present()]

    @property
    def last_phase(self) -> int:
        """The last phase of a clean stop."""
        return max(row.stop_phase for row in self)

    def __iter__(self) -> Iterator[WorkerRow]:
        """All rows. All read workers share one."""
        return iter((self._read, *self._present()))

    def _present(self) -> Iterator[WorkerRow]:
        return (row for row in self._rows.values() if not is_missing(row.module))

    def _problem(self, row: WorkerRow) -> str:
        if not _NAME.fullmatch(row.name) or len(row.name) > NAME_BYTES_MAX or row.name == "read" or is_read(row.name):
            return (
                f"a name is at most {NAME_BYTES_MAX} of a-z, 0-9 and -, begins with a letter, and is none of a reader"
            )
        if row.name in self._rows:
            return "the table has a worker of this name"
        readers = range(self._read.role, self._read.role + READERS_MAX)
        if not lib.RMQ_ROLE_SUPERVISOR < row.role < lib.RMQ_ROLES_MAX or row.role in readers:
            return (
                f"role {row.role} is outside 1..{lib.RMQ_ROLES_MAX - 1} or one of the readers' "
                f"({readers[0]}..{readers[-1]})"
            )
        for other in self._rows.values():
            if other.role == row.role:
                return f"role {row.role} is that of worker {other.name!r}"
            if (both := _codes(row) & _codes(other)) and not _shares(row, other):
                return f"request code {min(both)} is answered by worker {other.name!r}"
        if unknown := [name for name in row.asks if not self._answers(name)]:
            return f"it asks {unknown[0]!r}, but the table has no such worker with an inbox"
        return _contradiction(row)

    def _answers(self, name: str) -> bool:
        return name in self._rows and self._rows[name].answers is not None


def _codes(row: WorkerRow) -> set[int]:
    return set(row.answers.codes) if row.answers else set()


def _shares(row: WorkerRow, other: WorkerRow) -> bool:
    """True if both answer the same requests, each for groups and topics of its own."""
    rows = [one.answers for one in (row, other) if one.answers is not None and one.answers.shares_codes]
    return len(rows) == 2 and set(rows[0].codes) == set(rows[1].codes)


def _contradiction(row: WorkerRow) -> str:
    if row.start is Start.CONNECTION and not row.listener:
        return "it starts at the first connection of its listener, but has no listener"
    if row.start is Start.OPEN_WORK and not row.needed_at_once:
        return "it starts when the store holds open work, but has no needed_at_once to ask"
    if row.start in (Start.AT_ONCE, Start.ON_REQUEST) and row.needed_at_once:
        return f"it has needed_at_once, which a worker that starts {row.start.value} does not use"
    if row.answers and row.answers.problem:
        return row.answers.problem
    if row.answers and row.answers.control_asks and row.role == lib.RMQ_ROLE_CONTROL:
        return "control does not ask itself"
    for name in (row.listener, row.needed_at_once, row.port.arena if row.port else ""):
        if name and not _FUNCTION.fullmatch(name):
            return f"{name!r} is not of the form package.module:function"
    return ""


def port_plans(
    rows: Iterable[WorkerRow], arena_bytes: Callable[[str], int] = lambda function: 0
) -> tuple[PortPlan, ...]:
    """The table of ports of a broker with these workers. `arena_bytes` calls the function that a port names."""
    return tuple(row.port.plan(row.role, arena_bytes(row.port.arena)) for row in rows if row.port is not None)


def answerer_plans(rows: Iterable[WorkerRow]) -> tuple[AnswererPlan, ...]:
    """The table of answerers of a broker with these workers. Control comes first: it gets all requests that no row
    names."""
    known = sorted(rows, key=lambda row: row.role != lib.RMQ_ROLE_CONTROL)
    return tuple(
        row.answers.plan(row.role, (asker.role for asker in known if _asks(asker, row)))
        for row in known
        if row.answers is not None
    )


def _asks(asker: WorkerRow, answerer: WorkerRow) -> bool:
    if asker.role == lib.RMQ_ROLE_CONTROL and answerer.answers is not None and answerer.answers.control_asks:
        return True
    return answerer.name in asker.asks or (is_read(asker.name) and bool(_codes(answerer)))


_BROKER_MODULE = "ringmq.broker.worker"
WORKERS = WorkerTable(
    WorkerRow(
        "read", lib.RMQ_ROLE_READ, _BROKER_MODULE, StopPhase.READ, CpuClass.READ,
        port=PortRow(
            "ringmq.broker.plane_setup:arena_bytes",
            lib.RMQ_PORT_CONNECTIONS | lib.RMQ_PORT_ARRIVALS | lib.RMQ_PORT_COMMITS,
        ),
        asks=("control",),
    ),
    (
        WorkerRow(
            "write", lib.RMQ_ROLE_WRITE, _BROKER_MODULE, StopPhase.WRITE, CpuClass.WRITE, AtStop.REPLACEMENT,
        ),
        WorkerRow(
            "flush", lib.RMQ_ROLE_FLUSH, _BROKER_MODULE, StopPhase.FLUSH, CpuClass.FLUSH, AtStop.FINISHER,
            runs_modules=("ringmq.broker.flush_shell",),
        ),
        WorkerRow(
            "control", lib.RMQ_ROLE_CONTROL, _BROKER_MODULE, StopPhase.CONTROL, CpuClass.CONTROL, AtStop.REPLACEMENT,
            answers=AnswerRow(),
            runs_modules=("ringmq.broker.control_shell",),
            walks=(
                "questions", "send_check", "runtime_info", "admission", "control_answers", "copied_files",
                "slave_progress",
            ),
        ),
        WorkerRow(
            "dispatch", lib.RMQ_ROLE_DISPATCH, _BROKER_MODULE, StopPhase.DISPATCH, CpuClass.DISPATCH, AtStop.FINISHER,
            asks=("control",), runs_modules=("ringmq.broker.dispatch_shell", "ringmq.store.delay_levels"),
        ),
        WorkerRow(
            "ha", lib.RMQ_ROLE_HA, "ringmq.ha.worker", StopPhase.HA, CpuClass.HA, start=Start.CONNECTION,
            listener="ringmq.broker.listening:listen_for_slaves", asks=("control",),
            needed_at_once="ringmq.broker.config.relations:needs_ha_at_once",
            runs_modules=("ringmq.ha.master_shell", "ringmq.ha.slave_shell"),
            while_appending=WhileAppending(StopPhase.WRITE, CpuClass.WRITE, AtStop.REPLACEMENT),
        ),
        WorkerRow(
            "services", lib.RMQ_ROLE_SERVICES, "ringmq.services.worker", StopPhase.CONTROL, CpuClass.SERVICE,
            start=Start.OPEN_WORK, is_optional=True, needs_master=True, asks=("control",),
            answers=AnswerRow(codes=(36, 324, 325, 370, 270001)),
            port=PortRow("ringmq.services.arenas:services_bytes", weight=1),
            needed_at_once="ringmq.services.open_work:has_open_work",
        ),
        WorkerRow(
            "pop", lib.RMQ_ROLE_POP, "ringmq.pop.worker", StopPhase.POP, CpuClass.SERVICE, start=Start.OPEN_WORK,
            is_optional=True, needs_master=True, asks=("control",),
            answers=AnswerRow(
                codes=(200050, 200051, 200052, 200053, 200054, 200055, 200151, 270007, 270008), control_asks=True
            ),
            port=PortRow(
                "ringmq.pop.arena:arena_bytes",
                lib.RMQ_PORT_ARRIVALS | lib.RMQ_PORT_COMMITS | lib.RMQ_PORT_PULL_STATS, weight=1, parked_max=4096,
            ),
            needed_at_once="ringmq.pop.open_work:has_open_work",
        ),
        WorkerRow(
            "delay", lib.RMQ_ROLE_DELAY, "ringmq.services.delay.worker", StopPhase.CONTROL, CpuClass.SERVICE,
            start=Start.OPEN_WORK, is_optional=True, needs_master=True, asks=("control",),
            port=PortRow(
                "ringmq.services.arenas:republisher_bytes", lib.RMQ_PORT_ORDERED | lib.RMQ_PORT_ARRIVALS, weight=1,
                parked_max=4096,
            ),
            needed_at_once="ringmq.services.delay.open_work:has_open_work",
        ),
        WorkerRow(
            "transactions", lib.RMQ_ROLE_TRANSACTIONS, "ringmq.services.transactions.worker", StopPhase.CONTROL,
            CpuClass.SERVICE, start=Start.OPEN_WORK, is_optional=True, needs_master=True, asks=("control",),
            answers=AnswerRow(codes=(37,)),
            port=PortRow("ringmq.services.arenas:chains_bytes", lib.RMQ_PORT_ARRIVALS, weight=1),
            needed_at_once="ringmq.services.transactions.open_work:has_open_work",
        ),
        WorkerRow(
            "timer", lib.RMQ_ROLE_TIMER, "ringmq.timer.worker", StopPhase.CONTROL, CpuClass.SERVICE,
            start=Start.OPEN_WORK, is_optional=True,
            port=PortRow(
                "ringmq.services.arenas:republisher_bytes", lib.RMQ_PORT_ORDERED | lib.RMQ_PORT_ARRIVALS, weight=1,
                parked_max=4096,
            ),
            needed_at_once="ringmq.timer.open_work:has_open_work", in_image=False,
        ),
        WorkerRow(
            "namesrv", lib.RMQ_ROLE_NAMESRV, "ringmq.namesrv.worker", StopPhase.NAMESRV, CpuClass.AUXILIARY,
            listener="ringmq.broker.listening:listen_for_name_server",
        ),
        WorkerRow(
            "metrics", lib.RMQ_ROLE_METRICS, "ringmq.broker.exporter.worker", StopPhase.READ, CpuClass.AUXILIARY,
            start=Start.CONNECTION, is_optional=True, listener="ringmq.broker.listening:listen_for_metrics",
            in_image=False,
        ),
    ),
)  # fmt: skip
"""Names, roles and classes of all workers. There is no other list of them."""
