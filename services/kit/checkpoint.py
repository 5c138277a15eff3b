"""Checkpoints of services: which part of the log a file speaks of, and whether this log is that one.

A checkpoint is true of one history of the log alone. It names an offset of the log and holds a checksum of the bytes
before it, which reveals a log that was cut since and has grown again: by a power cut, or for another master.

The files themselves are those of `store/sealed_files.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from ringmq.services.log_view import LogView

TAIL_BYTES = 4096
"""Bytes of the log before the offset of a checkpoint that its checksum covers."""


class History(Enum):
    """The log of a checkpoint, compared with the log that is there."""

    SAME = "the log has the bytes that it had"
    OTHER = "the log is shorter, or has other bytes"
    DELETED = "retention has deleted the bytes"


def place_in_log(log: LogView, log_offset: int) -> dict[str, Any]:
    """The entries of a checkpoint that name its place in the log: offset, and checksum of the bytes before it."""
    size = max(0, min(TAIL_BYTES, log_offset - log.bounds().min_offset))
    crc = log.crc(log_offset - size, size) if size else None
    return {"logOffset": log_offset, "tail": [0, 0] if crc is None else [size, crc]}


def history_of(checkpoint: Mapping[str, Any], log: LogView, log_end: int) -> tuple[int, History] | None:
    """The log offset of a checkpoint, and whether the log has its history. None if its entries are impossible."""
    match checkpoint:
        case {"logOffset": int(log_offset), "tail": [int(size), int(crc)]} if 0 <= size <= log_offset:
            return log_offset, compare(log, log_end, log_offset - size, size, crc)
    return None


def compare(log: LogView, log_end: int, offset: int, size: int, crc: int) -> History:
    """Compare `size` bytes of the log at an offset with their checksum. No bytes agree with every log that reaches
    there."""
    if offset + size > log_end:
        return History.OTHER
    found = log.crc(offset, size) if size else crc
    if found is None:
        return History.DELETED
    return History.SAME if found == crc else History.OTHER
