"""`config/ringmqMasterTimers.json`: how far a slave's master has delivered its timer messages.

Control of a slave writes it, as soon as the slave's log has everything that the master had delivered. The worker
`timer` reads it, and deletes it once the broker delivers itself. It is written without fsync: a file that a power cut
has damaged counts as none, and the worker's own checkpoint is used.
"""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path

from msgspec import Struct

from ringmq.store.config_files import ConfigFileError
from ringmq.store.layout import CONFIG
from ringmq.store.markers import replace_unsynced
from ringmq.store.sealed_files import load_sealed, sealed_text
from ringmq.timer.timer_checkpoint import Filing, TimerCheckpoint

FILE = "ringmqMasterTimers.json"


class MasterTimers(Struct, frozen=True):
    """Timer messages before `known_offset` whose slot is before `open_ms` are in the log before `log_offset`."""

    open_ms: int
    known_offset: int
    log_offset: int
    marks_from: int | None = None
    """Log offset from which on copies of messages of later slots lie. None: a stock master, whose copies have no
    mark."""
    version: tuple[int, int, int] = (0, 0, 0)
    """State version, timestamp and counter of the master's timercheck."""
    filing: Filing | None = None
    """Of the master. None: a stock master, or one of an older version."""

    @property
    def checkpoint(self) -> TimerCheckpoint:
        """The part that a stock slave copies from timercheck."""
        return TimerCheckpoint(self.open_ms, 0, 0, self.known_offset, *self.version)


def write_master_timers(root: Path, timers: MasterTimers) -> None:
    """Replace the file. Raises OSError."""
    value = {
        "openMs": timers.open_ms, "knownOffset": timers.known_offset, "logOffset": timers.log_offset,
        "marksFrom": timers.marks_from, "version": timers.version,
        "filing": None if timers.filing is None else astuple(timers.filing),
    }  # fmt: skip
    replace_unsynced(root / CONFIG / FILE, sealed_text(value))


def read_master_timers(root: Path) -> MasterTimers | None:
    """Read the file. None if it is missing or damaged. Raises OSError."""
    try:
        value = load_sealed(root, FILE)
    except ConfigFileError:
        return None
    match value:
        case {
            "openMs": int(open_ms), "knownOffset": int(known_offset), "logOffset": int(log_offset),
            "marksFrom": int() | None as marks_from, "version": [int(state), int(timestamp), int(counter)],
        } if open_ms >= 0:  # fmt: skip
            version, filing = (state, timestamp, counter), Filing.of(value.get("filing"))
            return MasterTimers(open_ms, known_offset, log_offset, marks_from, version, filing)
    return None


def delete_master_timers(root: Path) -> None:
    """Delete the file, if there is one. Raises OSError."""
    (root / CONFIG / FILE).unlink(missing_ok=True)


def forget_behind(root: Path, log_offset: int) -> None:
    """Delete the file, if the log is cut at an offset before that which the progress needs. Raises OSError."""
    timers = read_master_timers(root)
    if timers is not None and timers.log_offset > log_offset:
        delete_master_timers(root)
