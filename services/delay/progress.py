"""The progress of delay levels on disk: delayOffset.json as stock writes it, and a checkpoint of our own.

A stock broker that gets the store goes on from delayOffset.json. The checkpoint adds an offset of the log: every copy
below it counts in its offsets. After a loss of the plane, the marks of the copies from there on tell the rest.

The checkpoint is true of one history of the log alone (`services/kit/checkpoint.py`).

A slave has no checkpoint, and the delayOffset.json of its master may be ahead of its log. So a promoted slave that
finds marks in its log goes by them alone. Otherwise messages whose copies never reached the slave would be lost.

An offset beyond the end of its queue is true of another log, so it tells nothing of this one. Stock takes it for the
end, and skips the messages that wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from msgspec import Struct

from ringmq.broker.requests.turns import Steps
from ringmq.ipc.plane import Plane
from ringmq.ipc.ports import parts_of_mark
from ringmq.remoting import json_body
from ringmq.remoting.config_beans import DataVersion
from ringmq.remoting.errors import BadBody
from ringmq.services.kit.checkpoint import History, history_of, place_in_log
from ringmq.services.log_view import LogView
from ringmq.services.mark_scan import scan_marks
from ringmq.store.config import DELAY_LEVELS_MAX
from ringmq.store.config_files import ConfigFileError, load_config, persist_text
from ringmq.store.layout import DELAY_CHECKPOINT_FILE, DELAY_OFFSETS_FILE
from ringmq.store.sealed_files import load_sealed, persist_sealed

SCAN_STEP_BYTES = 4 << 20
LeaveOut = Callable[[str], None]
NAME_CHARS_SHOWN = 80


def ignore(line: str) -> None:
    """The callback of a caller whose worker names the entries."""


class Progress(Struct, frozen=True):
    """The next offset of each level, level 1 first, and the log offset below which every copy counts in them.

    The offsets of levels that messageDelayLevel has lost are kept behind its levels, because it may get them back.
    """

    log_offset: int
    offsets: tuple[int, ...]
    has_checkpoint: bool = True
    """False if no file is known to be true of this log: the offsets come from a stock broker, a master or marks."""


def stock_text(offsets: Sequence[int], version: DataVersion) -> str:
    """delayOffset.json as fastjson writes it. Levels that nothing was ever delivered from are left out, as of stock."""
    entries = ",".join(f"{level}:{offset}" for level, offset in enumerate(offsets, 1) if offset)
    table = f"{{{entries}\n\t}}" if entries else "{}"
    return (
        f'{{\n\t"dataVersion":{{\n\t\t"counter":{version.counter},\n\t\t"stateVersion":{version.state_version},\n'
        f'\t\t"timestamp":{version.timestamp_ms}\n\t}},\n\t"offsetTable":{table}\n}}'
    )


def stock_offsets(root: Path, levels: int, leave_out: LeaveOut = ignore, ends: Sequence[int] = ()) -> list[int]:
    """The offsets of delayOffset.json, at least `levels` of them. 0 for levels that it does not have. `leave_out` gets
    a line about each impossible entry, which counts as none. `ends`: those of the queues that are known, level 1 first.
    Raises ConfigFileError, OSError."""
    return _offsets(load_config(root, DELAY_OFFSETS_FILE).get("offsetTable"), levels, leave_out, ends)


def _offsets(table: Any, levels: int, leave_out: LeaveOut, ends: Sequence[int]) -> list[int]:
    if not isinstance(table, Mapping | None):
        leave_out("offsetTable is left out: it is no object")
    offsets = [0] * DELAY_LEVELS_MAX
    for name, value in table.items() if isinstance(table, Mapping) else ():
        try:
            level, offset = json_body.as_integer(name, "level"), json_body.as_integer(value, "offset")
            if not 1 <= level <= DELAY_LEVELS_MAX:
                raise ValueError(f"levels are 1 to {DELAY_LEVELS_MAX}")
            if offset < 0:
                raise ValueError(f"offset {offset} is below 0")
            if level <= len(ends) and offset > ends[level - 1]:
                raise ValueError(f"offset {offset} is beyond the end of its queue, {ends[level - 1]}")
        except (BadBody, ValueError) as error:
            leave_out(f"the offset of level {str(name)[:NAME_CHARS_SHOWN]!r} is left out: {error}")
            continue
        offsets[level - 1] = offset
    count = max((level for level, offset in enumerate(offsets, 1) if offset), default=0)
    return offsets[: max(levels, count)]


def load_progress(
    root: Path, levels: int, log: LogView, log_end: int, leave_out: LeaveOut = ignore, ends: Sequence[int] = ()
) -> Progress:  # fmt: skip
    """The newest offsets on disk. `leave_out`, `ends`: see `stock_offsets`. Raises ConfigFileError, OSError.

    With a checkpoint of another history of the log, no file counts: both may tell of copies that the log has lost. Then
    the marks of the whole log tell the progress. They do so, too, if an entry of the checkpoint is impossible.
    """
    own = load_sealed(root, DELAY_CHECKPOINT_FILE)
    stock = stock_offsets(root, levels, leave_out, ends)
    if not own:
        return Progress(0, tuple(stock), has_checkpoint=False)
    found = history_of(own, log, log_end)
    if found is None or found[1] is not History.SAME:
        return Progress(0, (0,) * levels, has_checkpoint=False)
    log_offset = found[0]
    impossible: list[str] = []
    offsets = _offsets(own.get("offsets"), levels, impossible.append, ends)
    for line in impossible:
        leave_out(f"{DELAY_CHECKPOINT_FILE}: {line}")
    return Progress(0 if impossible else log_offset, _later(stock, offsets), has_checkpoint=not impossible)


def _later(some: Sequence[int], others: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(max, zip_longest(some, others, fillvalue=0)))


def may_have_waiting(plane: Plane, slots: Sequence[int], saved: Progress) -> bool:
    """False if no message can wait in the queues of these slots, level 1 first, so the log need not be scanned. Without
    a checkpoint, the offsets may be ahead of the log."""
    for slot, offset in zip_longest(slots, saved.offsets[: len(slots)], fillvalue=0):
        queue = plane.queue(slot)
        known = offset if saved.has_checkpoint else 0
        if int(queue.max_offset) > max(known, int(queue.min_offset)):
            return True
    return False


def save_progress(root: Path, progress: Progress, log: LogView, now_ms: int) -> None:
    """Write both files. Raises OSError."""
    try:
        known = load_config(root, DELAY_OFFSETS_FILE).get("dataVersion")
    except ConfigFileError:
        known = None  # damaged: it is replaced
    counter = known.get("counter", 0) if isinstance(known, Mapping) else 0
    version = DataVersion((counter if isinstance(counter, int) else 0) + 1, 0, now_ms)
    table = {str(level): offset for level, offset in enumerate(progress.offsets, 1) if offset}
    value = {**place_in_log(log, progress.log_offset), "offsets": table}
    persist_text(root, DELAY_OFFSETS_FILE, stock_text(progress.offsets, version))
    persist_sealed(root, DELAY_CHECKPOINT_FILE, value)


def following_marks(log: LogView, role: int, saved: Progress, log_end: int, segment_bytes: int) -> Steps[Progress]:
    """The progress that the marks in the log add to the saved one. Without a checkpoint, the marks replace it. Without
    marks, the saved one is returned."""
    offsets = [0] * len(saved.offsets)
    since = max(saved.log_offset, log.bounds().min_offset)
    for found in scan_marks(log, role, since, log_end, segment_bytes=segment_bytes, step_bytes=SCAN_STEP_BYTES):
        for mark, _ in found:
            _, lane, source = parts_of_mark(mark)
            offsets.extend([0] * (lane + 1 - len(offsets)))
            offsets[lane] = max(offsets[lane], source + 1)
        yield
    if not any(offsets):
        return saved
    if saved.has_checkpoint:
        return Progress(log_end, _later(saved.offsets, offsets), saved.has_checkpoint)
    return Progress(log_end, tuple(offsets), saved.has_checkpoint)
