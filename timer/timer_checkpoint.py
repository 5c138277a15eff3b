"""`config/timercheck`: how far the wheel is delivered, and how much of the log is on disk.

The first 56 bytes are also the body of the answer to request 60 (GET_TIMER_CHECK_POINT).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple, replace

from ringmq.fastjson.files import read_head
from ringmq.store.checkpoint import TIME_MS_MAX
from ringmq.store.config_files import ConfigFileError
from ringmq.store.layout import CHECKPOINT_BYTES, CONFIG
from ringmq.store.sealed_files import load_sealed

FILE = "timercheck"
PROGRESS_FILE = "ringmqTimer.json"
"""The checkpoint of the worker `timer` (timer/progress.py)."""
WRITTEN = "timercheck"
"""Key of PROGRESS_FILE: the fields with which RingMQ has written timercheck, which has no checksum."""
_FIELDS = struct.Struct(">7q")
PRECISION_MS_MAX, WINDOW_SLOTS_MAX = 1000, 1_209_600


@dataclass(frozen=True, slots=True)
class Filing:
    """Settings of a broker that tell the slot of each of its waiting messages."""

    window_slots: int
    """timerRollWindowSlot. 0: it is not known."""
    precision_ms: int
    coarsest_ms: int
    """The largest precision that any of the messages was admitted by."""
    known_coarsest_ms: int = field(compare=False)
    """See timer.core.Progress."""

    @classmethod
    def of(cls, value: object) -> Filing | None:
        """Return the filing of four numbers. None without such, or for impossible ones."""
        match value:
            case [int(window), int() as precision, int() as coarsest, int() as known]:
                if 0 <= window <= WINDOW_SLOTS_MAX and all(
                    0 < step <= PRECISION_MS_MAX for step in (precision, coarsest, known)
                ):
                    return cls(window, precision, coarsest, known)
        return None

    def agrees(self, other: Filing | None) -> bool:
        """True if both brokers have the same wheel."""
        return self.window_slots > 0 and self == other


class TimerCheckpoint(Struct, frozen=True):
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

    @property
    def known_offset(self) -> int:
        """Offset of the timer topic before which all messages of slots before `last_read_ms` are delivered."""
        return max(0, self.queue_offset, self.master_queue_offset)

    @property
    def _progress(self) -> tuple[int, ...]:
        return astuple(self)[:4]

    @property
    def _version(self) -> tuple[int, ...]:
        return astuple(self)[4:]

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
    """Read the file. None if it is missing, too short or has an impossible time: the log tells what it would."""
    try:
        found = TimerCheckpoint.decode(read_head(root / CONFIG / FILE, CHECKPOINT_BYTES))
    except (FileNotFoundError, ValueError):
        return None
    return found if 0 <= found.last_read_ms <= TIME_MS_MAX else None


def agreed(stock: TimerCheckpoint | None, own: Mapping[str, Any]) -> TimerCheckpoint | None:
    """Return the checkpoint of the file, or that which RingMQ has written with the progress `own` if the file is
    damaged: a stock broker that goes on changes times and version alike."""
    match own.get(WRITTEN):
        case [int(), int(), int(), int(), int(), int(), int()] as fields:
            written = TimerCheckpoint(*fields)
            if stock is None or stock._progress == written._progress or stock._version == written._version:
                return written
    return stock


def contradiction(stock: TimerCheckpoint | None, own: Mapping[str, Any]) -> str:
    """Return how the file claims more than RingMQ has written into it, empty if it does not. A death may leave it
    older."""
    written = agreed(stock, own)
    if stock is None or written is None:
        return ""
    pairs = zip(stock._progress, written._progress, strict=True)
    if all(found <= expected for found, expected in pairs):
        return ""
    named = " instead of ".join(", ".join(map(str, found._progress)) for found in (stock, written))
    return f"its times and positions are {named}, which {PROGRESS_FILE} has"


def filing_of(own: Mapping[str, Any]) -> Filing | None:
    """Return the filing of the progress `own`. While messages are filed again, their window is not known."""
    window_slots = 0 if own.get("needsRebuild") or own.get("isRebuilding") else own.get("windowSlots")
    return Filing.of([window_slots, *(own.get(name) for name in ("precisionMs", "coarsestMs", "knownCoarsestMs"))])


class ForSlaves(Struct, frozen=True):
    """The answer to a slave's question for the progress (60)."""

    checkpoint: TimerCheckpoint
    marks_from: int | None = None
    """The log offset from which on the marks of copies count. None: of a stock broker."""
    filing: Filing | None = None
    """None: of a stock broker, or of an older version."""


def checkpoint_for_slaves(root: Path) -> ForSlaves | None:
    """Return what slaves get.

    All slots before its time are delivered, of messages before its queue offset. A message that came too late for its
    slot lies behind this offset, so a slave files it again. None if no timer message ever was. Raises OSError.
    """
    stock = read_timer_checkpoint(root)
    try:
        own = load_sealed(root, PROGRESS_FILE)
    except ConfigFileError:
        own = {}
    stock = agreed(stock, own)
    match own:
        case {"openMs": int(open_ms), "known": [int(offset), int(known_ms)], "marksFrom": int(marks_from)}:
            found = stock or TimerCheckpoint()
            if open_ms >= found.last_read_ms:
                queue_offset = min(found.queue_offset, offset)
                known = replace(found, last_read_ms=known_ms, queue_offset=queue_offset, master_queue_offset=offset)
                return ForSlaves(known, marks_from, filing_of(own))
    return None if stock is None or stock == TimerCheckpoint() else ForSlaves(stock)
