"""`<root>/checkpoint`: five i64 in a 4096-byte file (StoreCheckpoint). The flush role writes it, a start reads it."""

import os
import struct
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from ringmq.fastjson.files import read_head
from ringmq.store import layout
from ringmq.store.safe_files import open_to_write

_FIELDS = struct.Struct(">qqqqq")
TIME_MS_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999."""
TIMES = 3
"""The first fields are times."""
SAFETY_MS = 3000  # records this much older than the checkpoint are on disk, StoreCheckpoint.getMinTimestamp


class Checkpoint(Struct, frozen=True):
    """Store times (ms) up to which log, queues and index are on disk, and two offsets used by replication."""

    physic_time_ms: int = 0
    logics_time_ms: int = 0
    index_time_ms: int = 0
    master_flushed_offset: int = 0
    confirm_offset: int = 0

    @property
    def min_time_ms(self) -> int:
        """Return the store time up to which both log and queues are on disk."""
        return max(0, min(self.physic_time_ms, self.logics_time_ms) - SAFETY_MS)

    @property
    def min_time_with_index_ms(self) -> int:
        """Return the store time up to which log, queues and index are on disk."""
        return max(0, min(self.min_time_ms, self.index_time_ms))

    def encode(self) -> bytes:
        """Return the whole file."""
        fields = _FIELDS.pack(
            self.physic_time_ms, self.logics_time_ms, self.index_time_ms, self.master_flushed_offset,
            self.confirm_offset,
        )  # fmt: skip
        return fields.ljust(layout.CHECKPOINT_BYTES, b"\x00")


def read_checkpoint(root: Path, tell: Callable[[str], None] = lambda line: None) -> Checkpoint:
    """Read the checkpoint. A missing or short one counts as all zero.

    With an impossible time no time counts: a start would believe that all queues and the index are on disk. `tell` gets
    a line about it.
    """
    path = root / layout.CHECKPOINT
    try:
        raw = read_head(path, layout.CHECKPOINT_BYTES)
    except FileNotFoundError:
        return Checkpoint()
    fields = list(_FIELDS.unpack(raw[: _FIELDS.size].ljust(_FIELDS.size, b"\x00")))
    for time_ms in fields[:TIMES]:
        if not 0 <= time_ms <= TIME_MS_MAX:
            tell(f"{path}: a time of {time_ms} ms is impossible: its times count as 0, as without a checkpoint")
            fields[:TIMES] = [0] * TIMES
            break
    return Checkpoint(*fields)


def write_checkpoint(root: Path, checkpoint: Checkpoint) -> None:
    """Write in place (the file may be mapped) and sync. Raises OSError."""
    descriptor = open_to_write(root / layout.CHECKPOINT, os.O_RDWR | os.O_CREAT)
    try:
        if os.fstat(descriptor).st_size != layout.CHECKPOINT_BYTES:
            os.ftruncate(descriptor, layout.CHECKPOINT_BYTES)
        os.pwrite(descriptor, checkpoint.encode()[: _FIELDS.size], 0)
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
