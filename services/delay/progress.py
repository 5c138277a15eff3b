"""The progress of delay levels on disk: delayOffset.json as stock writes it, and a checkpoint of our own.

A stock broker that gets the store goes on from delayOffset.json. The checkpoint adds an offset of the log: every copy
below it counts in its offsets. After a loss of the plane, the marks of the copies from there on tell the rest.

A slave has no checkpoint, and the delayOffset.json of its master may be ahead of its log. So a promoted slave that
finds marks in its log goes by them alone. Otherwise messages whose copies never reached the slave would be lost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringmq.broker.requests.turns import Steps
from ringmq.ipc.ports import parts_of_mark
from ringmq.remoting.config_beans import DataVersion
from ringmq.services.log_view import LogView
from ringmq.services.mark_scan import scan_marks
from ringmq.store.config_files import load_config, persist_text
from ringmq.store.layout import DELAY_CHECKPOINT_FILE, DELAY_OFFSETS_FILE

SCAN_STEP_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Progress:
    """The next offset of each level, level 1 first, and the log offset below which every copy counts in them."""

    log_offset: int
    offsets: tuple[int, ...]
    has_checkpoint: bool = True
    """False if the offsets are those of delayOffset.json alone: a stock broker's, or a master's."""


def stock_text(offsets: Sequence[int], version: DataVersion) -> str:
    """delayOffset.json as fastjson writes it. Levels that nothing was ever delivered from are left out, as of stock."""
    entries = ",".join(f"{level}:{offset}" for level, offset in enumerate(offsets, 1) if offset)
    table = f"{{{entries}\n\t}}" if entries else "{}"
    return (
        f'{{\n\t"dataVersion":{{\n\t\t"counter":{version.counter},\n\t\t"stateVersion":{version.state_version},\n'
        f'\t\t"timestamp":{version.timestamp_ms}\n\t}},\n\t"offsetTable":{table}\n}}'
    )


def stock_offsets(root: Path, levels: int) -> list[int]:
    """The offsets of delayOffset.json. 0 for levels that it does not have. Raises ConfigFileError, OSError."""
    return _offsets(load_config(root, DELAY_OFFSETS_FILE).get("offsetTable"), levels)


def _offsets(table: Any, levels: int) -> list[int]:
    entries: Mapping[Any, Any] = table if isinstance(table, Mapping) else {}
    found = (entries.get(level, entries.get(str(level), 0)) for level in range(1, levels + 1))
    return [offset if isinstance(offset, int) and offset > 0 else 0 for offset in found]


def load_progress(root: Path, levels: int, log_end: int) -> Progress:
    """The newest offsets on disk. Raises ConfigFileError, OSError.

    A checkpoint that lies behind the end of the log tells of copies that a power cut has taken. Then no file counts,
    and the marks of the whole log tell the progress.
    """
    own = load_config(root, DELAY_CHECKPOINT_FILE)
    log_offset = own.get("logOffset")
    log_offset = log_offset if isinstance(log_offset, int) and log_offset >= 0 else 0
    if log_offset > log_end:
        return Progress(0, (0,) * levels)
    both = zip(stock_offsets(root, levels), _offsets(own.get("offsets"), levels), strict=True)
    return Progress(log_offset, tuple(max(pair) for pair in both), has_checkpoint="logOffset" in own)


def save_progress(root: Path, progress: Progress, now_ms: int) -> None:
    """Write both files. Raises OSError."""
    known = load_config(root, DELAY_OFFSETS_FILE).get("dataVersion")
    counter = known.get("counter", 0) if isinstance(known, Mapping) else 0
    version = DataVersion((counter if isinstance(counter, int) else 0) + 1, 0, now_ms)
    table = {level: offset for level, offset in enumerate(progress.offsets, 1) if offset}
    text = json.dumps({"logOffset": progress.log_offset, "offsets": table}, separators=(",", ":"))
    persist_text(root, DELAY_OFFSETS_FILE, stock_text(progress.offsets, version))
    persist_text(root, DELAY_CHECKPOINT_FILE, text)


def following_marks(log: LogView, role: int, saved: Progress, log_end: int, segment_bytes: int) -> Steps[Progress]:
    """The progress that the marks in the log add to the saved one. Without a checkpoint, the marks replace it."""
    offsets = [0] * len(saved.offsets)
    since = max(saved.log_offset, log.bounds().min_offset)
    for found in scan_marks(log, role, since, log_end, segment_bytes=segment_bytes, step_bytes=SCAN_STEP_BYTES):
        for mark, _ in found:
            _, lane, source = parts_of_mark(mark)
            if lane < len(offsets):
                offsets[lane] = max(offsets[lane], source + 1)
        yield
    if saved.has_checkpoint or not any(offsets):
        offsets = list(map(max, saved.offsets, offsets))
    return Progress(log_end, tuple(offsets))
