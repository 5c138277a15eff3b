"""Scans a part of the log for the marks of one range of records (native/src/published_marks.h), in steps."""

from __future__ import annotations

from collections.abc import Iterator

from ringmq.native import ffi, lib
from ringmq.services.log_view import LogView

MARKS_PER_STEP = 4096


def scan_marks(
    log: LogView, mark_range: int, since: int, log_end: int, *, segment_bytes: int, step_bytes: int
) -> Iterator[list[tuple[int, int]]]:
    """Find the marks in the records of [since, log_end), in the order of the log. A step reads at most `step_bytes`.

    Each step yields (mark, number of neighbours with it). Files that retention has deleted are passed over.
    """
    marks, records = ffi.new("uint64_t[]", MARKS_PER_STEP), ffi.new("uint32_t[]", MARKS_PER_STEP)
    at = ffi.new("uint64_t *")
    offset = since
    while offset < log_end:
        found = log.file(offset)
        if found is None:
            offset += segment_bytes - offset % segment_bytes
            continue
        start, mapped = found
        begin, end = offset - start, min(log_end - start, len(mapped))
        data, limit = ffi.from_buffer("uint8_t *", mapped), min(end, begin + step_bytes)
        count = lib.rmq_published_marks(mark_range, data, begin, limit, end, start, marks, records, MARKS_PER_STEP, at)
        yield [(int(marks[index]), int(records[index])) for index in range(count)]
        offset = start + int(at[0])
