"""`<root>/pop/records`: where the log has check points that a RocketMQ broker would still read, and until when.

    {"from":123456,"until_ms":1700000060000}

They lie behind `from` of the log, and the last one leaves the timer before `until_ms`. A stop looks for them until
then: messages that are done meanwhile get acknowledgements. Without the file there are none.

No invisible time is longer than 30 days. So no record waits longer behind the time of the file, whatever it says.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from ringmq.fastjson.files import read_head
from ringmq.native import lib
from ringmq.pop.image_file import FOLDER
from ringmq.services.kit.clocks import wall_ms
from ringmq.store.markers import replace_or_remove, replace_unsynced
from ringmq.store.record_numbers import LONG_MAX

FILE = "records"
BYTES_MAX = 256
WAIT_MS_MAX = int(lib.RMQ_POP_INVISIBLE_MS_MAX) + 3_600_000
"""From the time of the file until the last record is due: an invisible time, and an hour."""
LATE_MS = 5000
"""A record may leave the timer so much later than its time."""
_Number = Annotated[int, Meta(ge=0, le=LONG_MAX)]


class RecordNotice(Struct, frozen=True, rename={"since": "from"}):
    """A log offset, and a time of the wall clock."""

    since: _Number = 0
    until_ms: _Number = 0

    def bounded(self, now_ms: int) -> RecordNotice:
        """The notice without the time behind the longest invisible time."""
        return RecordNotice(self.since, min(self.until_ms, now_ms + WAIT_MS_MAX))


NONE = RecordNotice()


def read_notice(root: Path) -> RecordNotice:
    """Read the file. A damaged one counts as the earliest place and the latest time. Raises OSError."""
    path = root / FOLDER / FILE
    try:
        data, written_ms = read_head(path, BYTES_MAX), path.stat().st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return NONE
    try:
        notice = msgspec.json.decode(data, type=RecordNotice)
    except msgspec.DecodeError:
        notice = RecordNotice(0, LONG_MAX)
    return notice.bounded(min(written_ms, wall_ms()))


def write_notice(root: Path, notice: RecordNotice) -> None:
    """Replace the file durably, with the time bounded. Raises OSError."""
    text = msgspec.json.encode(notice.bounded(wall_ms())) if notice.until_ms else None
    replace_or_remove(root / FOLDER / FILE, text)


def lower_notice(root: Path, notice: RecordNotice) -> None:
    """The same without a wait for the disk. After a power cut the file may be empty, or that of before. Raises
    OSError."""
    path = root / FOLDER / FILE
    if notice.until_ms:
        replace_unsynced(path, msgspec.json.encode(notice.bounded(wall_ms())).decode())
    else:
        path.unlink(missing_ok=True)


class KeptNotice:
    """The notice of the store, for all parts of a process that write records."""

    def __init__(self, root: Path) -> None:
        """Raises OSError."""
        self._root = root
        self._lock = threading.Lock()
        """A thread may keep a notice while the time of a message is changed."""
        self.now = read_notice(root)
        self.asked_ms = 0
        """The latest time of `extend` that the notice has to reach."""

    @property
    def waits(self) -> bool:
        """True while records of a RocketMQ broker, or for one, may be in the timer."""
        return self.now.until_ms + LATE_MS > wall_ms()

    def extend(self, until_ms: int) -> None:
        """Records may be due until then. Raises OSError."""
        with self._lock:
            self._keep(RecordNotice(self.now.since, max(until_ms, self.now.until_ms)))
            self.asked_ms = max(self.asked_ms, until_ms)

    def keep(self, notice: RecordNotice) -> None:
        """Replace it, here and on the disk. Raises OSError."""
        with self._lock:
            self._keep(notice)

    def lower(self, notice: RecordNotice) -> None:
        """Replace it by one of an earlier time. This does not wait for the disk, which may take longer than a stop: the
        one of before holds, too. Raises OSError."""
        with self._lock:
            lower_notice(self._root, notice)
            self.now = notice
            self.asked_ms = min(self.asked_ms, notice.until_ms)

    def _keep(self, notice: RecordNotice) -> None:
        write_notice(self._root, notice)
        self.now = notice
