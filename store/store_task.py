"""`<root>/config/haOrder.json`: a task for the closed store before it is opened again.

A running broker writes the task and ends its workers. The next start performs and removes the task, also after a
crash: every action can be repeated.

    {"action": "cut", "offset": 4096}           the log ends there, the rest goes to salvage/
    {"action": "rebase", "offset": 1073741824}  the log begins and ends there, all that it had goes to salvage/
    {"action": "adopt", "offset": 4096, "end": 9000, "source": "10.0.0.2:10911", "is_cut": false}
                                                [offset, end) of the log at `source` is copied beside the log, then
                                                the log is cut, then the copy is appended
"""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict, replace

from ringmq.fastjson.files import read_json_file
from ringmq.store import adoption_staging, layout, markers
from ringmq.store.adoption import AdoptionError, ReadChunk, append
from ringmq.store.adoption_staging import Staged
from ringmq.store.config import StoreConfig
from ringmq.store.config_files import moved_away
from ringmq.store.queue_ends import forget_queue_ends
from ringmq.store.recovery import recover
from ringmq.store.salvage import (
    Forget,
    SalvageError,
    border_below,
    end_at,
    forget_nothing,
    is_without_files,
    rebase,
    truncate,
)
from ringmq.store.write_hold import forget_adopted

TASK_FILE = "haOrder.json"
CUT = "cut"
REBASE = "rebase"
ADOPT = "adopt"


class TaskFileError(SalvageError):
    """The file holds no task. The message names the file and the remedy."""


class StoreTask(Struct, frozen=True):
    """One task: the fields of the file."""

    action: str
    offset: int
    end: int = 0  # adopt: where the other log ends
    source: str = ""  # adopt: host:port of the broker that has it
    is_cut: bool = False  # adopt: the old log is cut at `offset` already; later records are copies


OpenSource = Callable[[str], contextlib.AbstractContextManager[ReadChunk]]
"""host:port of a broker -> a reader of its log. Raises OSError."""
TakeTables = Callable[[Path, str], list[str]]
"""Writes the tables of the broker at host:port into the config files of a store (root), before an adoption of its
log.

Returns lines for the operator. Raises OSError.
"""


class Performed(Struct, frozen=True):
    """Result of a task: lines for the operator, and the begin of another broker's log.

    The begin is the offset from which on the log was copied, None without a copy.
    """

    lines: list[str]
    adopted_from: int | None = None
    failure: str = ""
    """A line about a log that was not taken over."""


def write_task(root: Path, task: StoreTask) -> None:
    """Write a task durably, in place of an earlier one. Raises OSError."""
    (root / layout.CONFIG).mkdir(parents=True, exist_ok=True)
    markers.replace_file(root / layout.CONFIG / TASK_FILE, json.dumps(asdict(task)).encode())


def read_task(root: Path) -> StoreTask | None:
    """Return the waiting task, None without one. Raises TaskFileError for an unreadable file, OSError."""
    path = root / layout.CONFIG / TASK_FILE
    try:
        values = read_json_file(path)
        task = StoreTask(**values)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise TaskFileError(_unusable(path, error)) from error
    numbers = all(type(value) is int and value >= 0 for value in (task.offset, task.end))
    if task.action not in (CUT, REBASE, ADOPT) or not numbers or type(task.source) is not str:
        raise TaskFileError(_unusable(path, values))
    return task


def _unusable(path: Path, cause: object) -> str:
    command = moved_away([path])
    return f"{path} is not a task of the store: {cause}. To start with the store as it is, run: {command}"


def remove_task(root: Path) -> None:
    """Remove the task, if there is one."""
    with contextlib.suppress(FileNotFoundError):
        (root / layout.CONFIG / TASK_FILE).unlink()
        markers.sync_directory(root / layout.CONFIG)


def perform(
    config: StoreConfig,
    open_source: OpenSource,
    take_tables: TakeTables = lambda root, address: [],
    tell: Callable[[str], None] = lambda line: None,
    forget: Forget = forget_nothing,
) -> Performed:
    """Carry out the task, if there is one, and remove it. `tell` gets lines about the progress.

    The caller has the store's lock and runs the recovery afterwards. If a log cannot be copied to its end, the
    own log is not cut, and writes stay held for the slave with the rest. After SalvageError, StoreLoadError,
    ConfigFileError and OSError the task remains for the next start.
    """
    root = config.root
    task = read_task(root)
    if task is None:
        adoption_staging.discard(root)
        return Performed([])
    lines = [f"task of the store: {task.action} at offset {task.offset}"]
    forget_queue_ends(root)  # the log may end earlier from now on
    if task.action == ADOPT:
        performed = _adopt(config, task, open_source, take_tables, tell, forget)
        return replace(performed, lines=[*lines, *performed.lines])
    adoption_staging.discard(root)  # the copy of a replaced adoption fits the old log alone
    report = (rebase if task.action == REBASE else truncate)(config, task.offset, forget)
    remove_task(root)
    return Performed([*lines, report.text()])


def _adopt(
    config: StoreConfig,
    task: StoreTask,
    open_source: OpenSource,
    take_tables: TakeTables,
    tell: Callable[[str], None],
    forget: Forget,
) -> Performed:
    """Copy, cut, append. A failure before the copy is complete leaves the log as it is. Later steps ask no peer."""
    root = config.root
    lines: list[str] = []
    try:
        staged = _staged_before(config, task)
        if staged is None:
            staged, lines = _stage(config, task, open_source, take_tables, tell)
    except (AdoptionError, SalvageError, OSError) as error:
        remove_task(root)
        adoption_staging.discard(root)
        return Performed(
            [], failure=f"the log of {task.source} was not taken over and the own log was not cut: {error}"
        )
    if not task.is_cut:
        lines.append(end_at(config, staged.from_offset, forget).text())
        end_offset = recover(config).append_offset  # ends queues and index there, before other records follow
        if end_offset != staged.from_offset:
            raise SalvageError(
                f"the log ends at offset {end_offset} after the cut, but the copy begins at {staged.from_offset}"
            )
        write_task(root, replace(task, offset=staged.from_offset, is_cut=True))
    adoption_staging.put_config(root)
    try:
        with adoption_staging.reader(root, staged) as read_chunk:
            end = append(config, staged.from_offset, staged.to_offset, read_chunk)
    except AdoptionError as error:
        raise SalvageError(f"the copy in {root / adoption_staging.FOLDER} is damaged: {error}") from error
    forget_adopted(root, task.source, task.end)
    remove_task(root)
    adoption_staging.discard(root)
    lines.append(f"the log of {task.source} was taken over from {staged.from_offset} to {end}")
    return Performed(lines, staged.from_offset)


def _staged_before(config: StoreConfig, task: StoreTask) -> Staged | None:
    """Return the complete copy for this task. A copy from another offset belongs to an earlier task.

    The border is found without a recovery: the log may be half cut, and the rest of the cut has to find it so.
    """
    staged = adoption_staging.complete(config.root, task.source, task.end)
    if staged is None or (not task.is_cut and is_without_files(config)):
        return staged
    border = task.offset if task.is_cut else border_below(config, task.offset)
    return staged if staged.from_offset == border else None


def _stage(
    config: StoreConfig,
    task: StoreTask,
    open_source: OpenSource,
    take_tables: TakeTables,
    tell: Callable[[str], None],
) -> tuple[Staged, list[str]]:
    """Stage the other log. The slave's tables come along only if nothing of the own log stays.

    In that case the own tables are of a disk that has lost the older ones, with entries of later clients. Otherwise
    the own tables are the newer ones, and deletions are not undone.
    """
    common = min(task.offset, recover(config).append_offset)

    def take(root: Path) -> list[str]:
        return take_tables(root, task.source)

    with open_source(task.source) as read_chunk:
        return adoption_staging.stage(config, common, task.end, task.source, read_chunk, take, tell)
