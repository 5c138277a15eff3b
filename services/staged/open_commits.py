"""Tells if the log may hold incomplete commits, by a look at the newest records of `COMMITS_TOPIC`.

It costs a file and a few records. If the answer would cost more, or is unknown, the worker starts and reads the log.
"""

from __future__ import annotations

from pathlib import Path

from ringmq.ipc.plane import Plane
from ringmq.remoting.errors import RequestError
from ringmq.remoting.staged_writes import COMMITS_TOPIC
from ringmq.services.log_view import LogView
from ringmq.services.staged.commit_records import CommitRecord, decode_record
from ringmq.services.staged.recovery import is_of_this_log
from ringmq.services.staged.staged_table import FILE
from ringmq.services.topics import Topics
from ringmq.store import record as records
from ringmq.store.config_files import ConfigFileError, load_config

RECORDS_MAX = 1024
"""Records that are read, in some 20 ms. After a clean stop the snapshot is a few seconds old."""
RECORD_BYTES_MAX = 1 << 20
"""Bytes of records that are read, in some 40 ms. A decision about 16,384 chunks has 500 KB."""


def has_open_commits(root: Path, plane: Plane, log: LogView, topics: Topics) -> bool:
    """False only if every commit in the log is known to be complete."""
    bounds = topics.queue_bounds(COMMITS_TOPIC, 0)
    if bounds is None or topics.find(COMMITS_TOPIC) is None:
        return False  # no client has used staged writes
    log_end = int(plane.watermarks.append_offset)
    if int(plane.watermarks.dispatched_offset) < log_end:
        return True  # the queue does not have all of them yet
    begin, end = bounds
    try:
        value = load_config(root, FILE)
        first = int(value.get("replayFrom", 0))
        is_foreign = bool(value) and not is_of_this_log(value, log, int(plane.watermarks.min_offset), log_end)
    except (ConfigFileError, TypeError, ValueError, LookupError):
        return True
    if is_foreign or first > end or end - max(first, begin) > RECORDS_MAX:
        return True
    opened: set[int] = set()
    units = log.units(COMMITS_TOPIC, 0, max(first, begin), end - max(first, begin))
    if sum(size for _, size in units) > RECORD_BYTES_MAX:
        return True
    for commit_log_offset, size in units:
        raw = log.record(commit_log_offset)
        record = None if raw is None or len(raw) != size else records.parse_record(raw, commit_log_offset)[1]
        if record is None:
            continue  # retention has taken it
        try:
            decoded = decode_record(record.body)
        except RequestError:
            continue
        if isinstance(decoded, CommitRecord):
            opened.add(record.queue_offset)
        else:
            opened.discard(decoded.number)
    return bool(opened)
