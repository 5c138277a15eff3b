"""Scans a part of the log for what published records name (native/src/log/published_marks.h), in steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ringmq.native import ffi, lib
from ringmq.services.log_view import LogView

MARKS_PER_STEP = 4096


def scan_marks(
    log: LogView, mark_range: int, since: int, log_end: int, also: Callable[..., None] | None = None, /,
    *, segment_bytes: int, step_bytes: int,
) -> Iterator[list[tuple[int, int]]]:  # fmt: skip
    """Find the marks in the records of [since, log_end), in the order of the log. A step reads at most `step_bytes`.

    Each step yields (mark, number of neighbours with it). Files that retention has deleted are passed over.
    `also` gets the arguments of `rmq_published_marks` from `file` to `file_start`, with the range of each step.
    """
    marks, records = ffi.new("uint64_t[]", MARKS_PER_STEP), ffi.new("uint32_t[]", MARKS_PER_STEP)

    def find(*place: Any) -> int:
        file, begin, limit, end, start, at = place
        room = MARKS_PER_STEP
        count = int(lib.rmq_published_marks(mark_range, file, begin, limit, end, start, marks, records, room, at))
        if also is not None:
            also(file, begin, int(at[0]), end, start)
        return count

    for count in _scan(log, find, since, log_end, segment_bytes, step_bytes):
        yield [(int(marks[index]), int(records[index])) for index in range(count)]


def scan_commits(
    log: LogView, since: int, log_end: int, *, segment_bytes: int, step_bytes: int
) -> Iterator[list[tuple[int, int]]]:
    """Find the committed messages of transactions likewise. Each step yields log offsets: (half, committed message)."""
    halves, commits = ffi.new("uint64_t[]", MARKS_PER_STEP), ffi.new("uint64_t[]", MARKS_PER_STEP)

    def find(*place: Any) -> int:
        file, begin, limit, end, start, at = place
        return int(lib.rmq_committed_halves(file, begin, limit, end, start, halves, commits, MARKS_PER_STEP, at))

    for count in _scan(log, find, since, log_end, segment_bytes, step_bytes):
        yield [(int(halves[index]), int(commits[index])) for index in range(count)]


def _scan(
    log: LogView, find: Callable[..., int], since: int, log_end: int, segment_bytes: int, step_bytes: int
) -> Iterator[int]:
    at = ffi.new("uint64_t *")
    offset = since
    while offset < log_end:
        found = log.file(offset)
        if found is None:
            offset += segment_bytes - offset % segment_bytes
            continue
        start, mapped = found
        begin, end = offset - start, min(log_end - start, len(mapped))
        yield find(ffi.from_buffer("uint8_t *", mapped), begin, min(end, begin + step_bytes), end, start, at)
        offset = start + int(at[0])
