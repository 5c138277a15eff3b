"""The guests: parts that wait, retry or republish messages, and that the broker knows by their rows alone.

A guest is a folder. Its module `guest` has one row, and the row names all that the rest of the broker has to know:
metrics, answers, facts, commands. Collector, control, doctor and the command line walk the rows. They import no
guest by name, so a folder that no other guest needs takes its parts with it when it is taken out of the tree. A row is
plain data, which `ringmq --help` reads: it imports this module alone and names functions as `package.module:function`.
The guest's worker has a row of its own, which counts only if the folder is there (`ipc/workers.py`).

A new guest is a folder with a row, and a line in `FOLDERS`.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

from ringmq.ipc.named_functions import function_of, is_function_name

FOLDERS = (
    "ringmq.services.delay",
    "ringmq.timer",
    "ringmq.services.send_back",
    "ringmq.services.transactions",
    "ringmq.services.staged",
    "ringmq.services.replies",
    "ringmq.pop",
)
"""The packages of the guests, in the order in which their metrics, facts and answers appear."""


class Command(NamedTuple):
    """A command of the command line."""

    name: str
    function: str
    """Of the click command."""
    group: str = ""
    """The command in which it is, such as `group` of `ringmq group dlq`."""
    help: str = ""
    """Its line in the list of commands. Commands of a group have theirs in their functions."""
    after: str = ""
    """The command behind which it stands in that list."""


class CopiedFile(NamedTuple):
    """A file in `config/` that the guest's worker writes, and that slaves copy from their master as it is."""

    file: str
    code: int
    """The request by which a slave asks for its text."""
    table: str
    """The table that is empty in the answer of a broker without the file."""
    check: str = ""
    """Function (JSON object) for the text of a master. Raises BadBody if it must not be saved."""
    replaces: str = ""
    """The worker's own checkpoint from when a slave was the master. It does not count beside the master's text."""
    is_optional: bool = False
    """True if a stock master may refuse the request."""


class Place(IntEnum):
    """The order of admission rules. The first rule that matches a send decides."""

    OTHER_HALVES = 1
    TIMED_HALVES = 2
    HALVES = 3
    DELAYS = 4
    TIMES = 5


class Admission(NamedTuple):
    """Rules by which read workers redirect or refuse sends."""

    place: Place
    function: str
    """(BrokerConfig, `ringmq.ipc.admission.TopicId`) -> rules. Control calls it after each change of either."""


class Table(NamedTuple):
    """A table of a guest in the output of `ringmq store inspect`."""

    name: str
    rows: list[dict[str, Any]]
    total: int
    """Rows that there are. Some of them may be left out."""


class Guest(NamedTuple):
    """The row of a guest. A column that is empty names nothing."""

    name: str
    metric_table: str = ""
    """Rows of metrics, a tuple of `ringmq.broker.exporter.metric.Metric`. No two guests have a metric of one name."""
    metrics: str = ""
    """Function that the metrics worker calls at its start: (Sources) -> Add
    (`ringmq.broker.exporter.sources`)."""
    questions: str = ""
    """Table of the questions that the guest's worker asks control: type of the ask (RMQ_INBOX_*) -> its answerer
    (`ringmq.broker.requests.questions`)."""
    send_check: str = ""
    """Check of sends that read workers leave to control: a `ringmq.broker.requests.cold_send.SendCheck`."""
    runtime_info: str = ""
    """Function that control calls at each GET_BROKER_RUNTIME_INFO: (plane, `BrokerStats.rate_of`, now_ms) -> rows."""
    doctor: str = ""
    """A `ringmq.doctor.look.Look`: the part of `ringmq doctor` that looks at the guest's files."""
    commands: tuple[Command, ...] = ()
    admission: tuple[Admission, ...] = ()
    control_answers: str = ""
    """Function that control calls at its start: (`ringmq.broker.requests.guest_answers.ControlParts`) -> handlers by
    request code. No two guests have a code."""
    copied_files: tuple[CopiedFile, ...] = ()
    """Slaves ask for them in this order."""
    memory_bytes: str = ""
    """Function (BrokerConfig) -> bytes of the tables that the guest has in shared memory of its own, when they are
    full: a part of the default of ringmqMemoryMax."""
    store_entries: tuple[str, ...] = ()
    """Files and folders in the store's folder that a start must find to be its user's (`store/store_owner.py`)."""
    damage: str = ""
    """Function (MessageStore) -> pairs of place and fault: the guest's files that are not as they were written, in a
    store that no broker has open. The next start mends them. Raises OSError."""
    inspect: str = ""
    """Function (MessageStore, topic or None for all, most rows) -> `Table` or None: what the guest keeps in the store.
    It changes nothing, and a broker may run. Raises OSError."""
    open_messages: str = ""
    """Function (store root) -> context with the open messages of consumer groups in the guest's files, None if there
    are no files: a `ringmq.pop.open_memory.OpenMemory`. A broker may run. Raises ValueError, OSError and
    MemoryError."""
    on_log_cut: str = ""
    """Function (store root, log offset) that a start calls before it cuts the log there. The guest's files forget what
    is true of the log behind it alone. Raises OSError."""
    on_slave_start: str = ""
    """Function (store root) that each start of a slave calls before the log follows a master. The guest's files forget
    what a later start as a master must not go on with. Raises OSError."""
    holds: str = ""
    """Function (store root): False if the guest's worker, which has its name, cannot hold messages of groups, because
    it was never used. Control does not start it for a reset or a deletion then (`broker/holders.py`)."""
    slave_progress: str = ""
    """Class that control of a slave makes at its start, if a slave follows more than files of its master: (LiveConfig,
    store root) -> `ringmq.broker.replication.slave_role.SlaveProgress`."""


@cache
def guests() -> tuple[Guest, ...]:
    """The rows of the guests of this build, in the order of `FOLDERS`."""
    return tuple(import_module(f"{folder}.guest").GUEST for folder in FOLDERS if _has_row(folder))


def _has_row(folder: str) -> bool:
    """True if the folder is there with its row. What Git or an editor leaves of a deleted folder, such as
    `__pycache__`, is a package to Python, too."""
    return find_spec(folder) is not None and find_spec(f"{folder}.guest") is not None


def store_entries() -> list[str]:
    """Files and folders of all guests in the store's folder."""
    return [name for guest in guests() for name in guest.store_entries]


def is_missing(module: str) -> bool:
    """True for a module of a guest that this build does not have."""
    return any(module.startswith(f"{folder}.") and not _has_row(folder) for folder in FOLDERS)


def modules(*columns: str) -> tuple[str, ...]:
    """The modules of the functions in these columns."""
    named = [name for column in columns for guest in guests() for name in _functions(getattr(guest, column))]
    return tuple(dict.fromkeys(name.partition(":")[0] for name in named))


def _functions(cell: object) -> Iterator[str]:
    """The names of functions in a cell of a row."""
    if isinstance(cell, tuple):
        for part in cell:
            yield from _functions(part)
    elif isinstance(cell, str) and is_function_name(cell):
        yield cell


def parts(column: str) -> Iterator[Any]:
    """The functions that guests name in a column. Their modules are imported now."""
    for guest in guests():
        if name := getattr(guest, column):
            yield function_of(name)
