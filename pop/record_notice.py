"""`<root>/pop/records`: where the log has check points that a RocketMQ broker would still read, and until when.

    {"from":123456,"until_ms":1700000060000}

They lie behind `from` of the log, and the last one leaves the timer before `until_ms`. A stop looks for them until
then: messages that are done meanwhile get acknowledgements. Without the file there are none.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from ringmq.fastjson.files import read_head
from ringmq.pop.image_file import FOLDER
from ringmq.store.markers import replace_or_remove

FILE = "records"
BYTES_MAX = 256


class RecordNotice(Struct, frozen=True, rename={"since": "from"}):
    """A log offset, and a time of the wall clock."""

    since: int = 0
    until_ms: int = 0


NONE = RecordNotice()


def read_notice(root: Path) -> RecordNotice:
    """Read the file. A damaged one counts as the earliest place without an end. Raises OSError."""
    try:
        data = read_head(root / FOLDER / FILE, BYTES_MAX)
    except FileNotFoundError:
        return NONE
    try:
        return msgspec.json.decode(data, type=RecordNotice)
    except msgspec.DecodeError:
        return RecordNotice(0, 1 << 62)


def write_notice(root: Path, notice: RecordNotice) -> None:
    """Replace the file durably. Raises OSError."""
    replace_or_remove(root / FOLDER / FILE, msgspec.json.encode(notice) if notice.until_ms else None)
