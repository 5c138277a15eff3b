"""Recovery of the commits of staged writes from the log, in small steps when the worker starts.

The table of queries comes from a snapshot file and the records of `COMMITS_TOPIC` behind it. For a commit without a
done record, the marks in the log from that commit on show the pieces that are published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from ringmq.native import lib
from ringmq.remoting.errors import RequestError
from ringmq.remoting.staged_writes import COMMITS_TOPIC
from ringmq.services.kit.checkpoint import History, compare
from ringmq.services.log_view import LogView
from ringmq.services.mark_scan import scan_marks
from ringmq.services.staged.commit_records import decode_record
from ringmq.services.staged.commits import StagedCommits
from ringmq.services.staged.staged_table import FILE
from ringmq.services.topics import Topics
from ringmq.store import record as records
from ringmq.store.config_files import ConfigFileError
from ringmq.store.sealed_files import load_sealed, persist_sealed

UNITS_AT_ONCE = 64
SCAN_STEP_BYTES = 4 << 20


def load_snapshot(root: Path, core: StagedCommits, log: LogView, log_end: int) -> tuple[int, str | None]:
    """(number of the first record to replay, reason why the file could not be used). Without a file, all records are
    replayed.

    If the file has another history than the log, it counts only for records that the log does not hold any more.
    """
    rebuilt = f"the table is built again from topic {COMMITS_TOPIC}"
    core.dirty = True  # save again: retention may delete the records that show that the old file is wrong
    try:
        value = load_sealed(root, FILE)
        min_offset = log.bounds().min_offset
        if is_of_this_log(value, log, min_offset, log_end):
            first, core.dirty = core.load(value, log_end), False
            return first, None
        core.load({"queries": value.get("queries", ())}, min_offset)
    except (ConfigFileError, TypeError, ValueError, LookupError) as error:
        return 0, f"{FILE} cannot be used: {error}; {rebuilt}"
    record = value.get("record")
    return 0, record and f"{FILE}: the log has another record at {record[0]} than when the file was written; {rebuilt}"


def is_of_this_log(value: dict[str, Any], log: LogView, min_offset: int, log_end: int) -> bool:
    """True if the newest record of the snapshot is at its offset, or if retention has deleted it."""
    if "record" not in value:
        return False
    offset, size, crc = map(int, value["record"])
    return offset < min_offset or (size > 0 and compare(log, log_end, offset, size, crc) is History.SAME)


def save_snapshot(root: Path, log: LogView, value: dict[str, Any]) -> Callable[[], None]:
    """Return a function that writes the table. It uses nothing of the worker, and raises OSError."""
    if "record" in value:
        offset, size = value["record"]
        value = {**value, "record": [offset, size, log.crc(offset, size) or 0]}
    return partial(persist_sealed, root, FILE, value)


def replay(log: LogView, topics: Topics, core: StagedCommits, first: int) -> Iterator[bool]:
    """Feed the core every record of `COMMITS_TOPIC` from number `first` on, one a step."""
    bounds = topics.queue_bounds(COMMITS_TOPIC, 0)
    if bounds is None:
        return
    begin, end = bounds
    number = begin if first > end else max(first, begin)  # first > end: the log was lost behind the snapshot
    while number < end:
        count = min(UNITS_AT_ONCE, end - number)
        units = log.units(COMMITS_TOPIC, 0, number, count)
        for commit_log_offset, size in units:  # fewer if retention deletes the queue's first file
            _replay_one(log, core, range(number, number + count), commit_log_offset, size)
            yield True  # a record of 16,384 pieces takes some 10 ms
        number += count
        yield True


def _replay_one(log: LogView, core: StagedCommits, numbers: range, commit_log_offset: int, size: int) -> None:
    raw = log.record(commit_log_offset)
    if raw is None or len(raw) != size:
        return  # retention has taken it
    _, record = records.parse_record(raw, commit_log_offset)
    if record is None or record.topic != COMMITS_TOPIC or record.queue_offset not in numbers:
        return
    try:
        decoded = decode_record(record.body)
    except RequestError:
        return  # not ours: an operator with a topic of this name
    core.replay(record.queue_offset, decoded, commit_log_offset, commit_log_offset + size, record.store_time_ms)


def see_published(log: LogView, core: StagedCommits, since: int, log_end: int, segment_bytes: int) -> Iterator[bool]:
    """Feed the core the marks of all records in [since, log_end)."""
    scan = scan_marks(
        log, lib.RMQ_MARK_RANGE_STAGED, since, log_end, segment_bytes=segment_bytes, step_bytes=SCAN_STEP_BYTES
    )
    for found in scan:
        for mark, messages in found:
            core.saw_published(mark, messages, log_end)
        yield True
