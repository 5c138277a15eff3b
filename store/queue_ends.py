"""`<root>/ringmq.queues` and `<root>/ringmq.rebuild`: evidence that queues lack units which the log still has.

`ringmq.queues`   written by a clean stop: the bounds of the log and of each queue. A start that finds less knows that
                  files were lost, emptied or replaced by older ones. First line: CRC-32 of the rest, as 8 hex digits.
                  Then an object with `log`: [first byte, end], `index`: [[file name, end in the log], ...] and
                  `queues`: {topic: [[queue id, is a batch queue, first offset, next offset], ...]}. If another broker
                  has appended to the store since, queues end behind the log's end in the file, which is stale.
`ringmq.rebuild`  a log offset as text. Queues or index are being built again from the log from there on. Written
                  before anything is removed, so a start after a death goes on. The next clean stop removes it.
"""

import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, field

from ringmq.fastjson.files import read_head, read_plain_file
from ringmq.store import layout, markers
from ringmq.store.index_file import header_end_offset, index_paths

QueueKey = tuple[str, int]
_NUMBER_DIGITS = 20


class QueueBound(NamedTuple):
    """Queue offsets of the first message that the log has, and of the next message."""

    is_batch: bool
    first: int
    following: int


class QueueEnds(Struct, frozen=True):
    """The bounds at the last clean stop: commit log offsets, queue bounds by (topic, queue id), index files."""

    log_min: int = 0
    log_end: int = 0
    queues: Mapping[QueueKey, QueueBound] = field(default_factory=dict)
    index: Mapping[str, int] = field(default_factory=dict)
    """Commit log offset of the newest record in each index file, oldest file first."""


def write_queue_ends(root: Path, log_min: int, log_end: int, queues: Iterable[tuple[str, int, QueueBound]]) -> None:
    """Write the bounds durably. `queues` gives (topic, queue id, bounds). Raises OSError."""
    table: dict[str, list[tuple[int, bool, int, int]]] = {}
    for topic, queue_id, bound in queues:
        table.setdefault(topic, []).append((queue_id, *bound))
    index = [(path.name, header_end_offset(path)) for path in index_paths(root / layout.INDEX)]
    text = json.dumps({"log": [log_min, log_end], "index": index, "queues": table}).encode()
    markers.replace_file(root / layout.QUEUE_ENDS_FILE, b"%08x\n%b" % (zlib.crc32(text), text))


def read_queue_ends(root: Path) -> QueueEnds | None:
    """Return the bounds, None without a whole file. Raises OSError."""
    try:
        checksum, _, text = read_plain_file(root / layout.QUEUE_ENDS_FILE).partition(b"\n")
    except (FileNotFoundError, IsADirectoryError):
        return None
    if checksum != b"%08x" % zlib.crc32(text):
        return None
    value = json.loads(text)  # as this module has written it, by the checksum
    queues = {
        (topic, queue_id): QueueBound(*bound) for topic, rows in value["queues"].items() for queue_id, *bound in rows
    }
    log_min, log_end = value["log"]
    return QueueEnds(log_min, log_end, queues, dict(value["index"]))


def forget_queue_ends(root: Path) -> None:
    """Remove the file before the log is changed on purpose. Raises OSError."""
    markers.replace_or_remove(root / layout.QUEUE_ENDS_FILE, None)


def read_rebuild(root: Path) -> int | None:
    """Return the log offset from which queues and index are being built again, None without one.

    An unreadable number counts as 0: the whole log is read. Raises OSError.
    """
    try:
        text = read_head(root / layout.REBUILD_MARKER, _NUMBER_DIGITS + 1).strip()
    except FileNotFoundError:
        return None
    return int(text) if text.isdigit() and len(text) <= _NUMBER_DIGITS else 0


def write_rebuild(root: Path, offset: int) -> None:
    """Record durably that queues or index lack entries of the log from `offset` on. The lowest one stays."""
    known = read_rebuild(root)
    if known is None or offset < known:
        markers.replace_file(root / layout.REBUILD_MARKER, str(offset).encode())


def remove_rebuild(root: Path) -> None:
    """All is built again and on disk."""
    markers.replace_or_remove(root / layout.REBUILD_MARKER, None)
