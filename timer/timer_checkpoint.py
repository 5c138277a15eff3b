"""`config/timercheck`: how far the wheel is delivered, and how much of the log is on disk.

The first 56 bytes are also the body of the answer to request 60 (GET_TIMER_CHECK_POINT).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from ringmq.store.layout import CHECKPOINT_BYTES, CONFIG

FILE = "timercheck"
_FIELDS = struct.Struct(">7q")


@dataclass(frozen=True, slots=True)
class TimerCheckpoint:
    """TimerCheckpoint of stock. The last three fields are its DataVersion."""

    last_read_ms: int = 0
    """Time of the first slot that is not delivered yet."""
    flushed_position: int = 0
    """TimerLog is on disk up to this position."""
    queue_offset: int = 0
    """Next offset of the timer topic's queue. Messages before it are in the wheel."""
    master_queue_offset: int = 0
    """The same of the master: a slave follows no further."""
    state_version: int = 0
    timestamp_ms: int = 0
    counter: int = 0

    def encode(self) -> bytes:
        """Return the 56 bytes of file and wire."""
        return _FIELDS.pack(
            self.last_read_ms, self.flushed_position, self.queue_offset, self.master_queue_offset, self.state_version,
            self.timestamp_ms, self.counter,
        )  # fmt: skip

    def encode_file(self) -> bytes:
        """Return the whole file."""
        return self.encode().ljust(CHECKPOINT_BYTES, b"\x00")

    @classmethod
    def decode(cls, data: bytes) -> TimerCheckpoint:
        """Decode file or wire. Raises ValueError for fewer than 56 bytes."""
        if len(data) < _FIELDS.size:
            raise ValueError(f"a timer checkpoint has {len(data)} bytes, {_FIELDS.size} are needed")
        return cls(*_FIELDS.unpack_from(data))


def read_timer_checkpoint(root: Path) -> TimerCheckpoint | None:
    """Read the file. None if it is missing, empty or too short: the log tells what it would."""
    try:
        return TimerCheckpoint.decode((root / CONFIG / FILE).read_bytes())
    except (FileNotFoundError, ValueError):
        return None
