"""Records whose body does not have the CRC of its record: found, named, never changed.

Such a record stays in the log and in its queue, and slaves get it byte for byte. A recovery finds it in the part of the
log that it reads, a slave behind the receipt (`BodyCheck`), `ringmq store verify` in the whole log. Appends compute
the CRC, so a master has nothing to check. A consumer checks with `check_crc=True`.
"""

from collections.abc import Sequence

from ringmq.native import ffi, lib
from ringmq.store import record as records
from ringmq.store.commit_log import SCAN_ROWS, CommitLog

CHUNK_BYTES = 256 << 10
LAG_BYTES_MAX = 1 << 30
"""A check that is further behind the log's end passes over the bytes between, which may not be in memory any more."""


def bad_body_line(log: CommitLog, offset: int) -> str:
    """Return the log line for one record, at a commit log offset."""
    record = log.record_at(offset, log.files.end_offset)
    place = "" if record is None else f" (topic {record.topic}, queue {record.queue_id}, offset {record.queue_offset})"
    return (
        f"the record at log offset {offset}{place} has a body with a wrong CRC, and stays; "
        "`ringmq store verify` names all of them"
    )


def bad_body_lines(log: CommitLog, count: int, first_offsets: Sequence[int]) -> list[str]:
    """Return log lines for `count` records, of which the first offsets are known."""
    lines = [bad_body_line(log, offset) for offset in first_offsets[:count]]
    more = count - len(lines)
    return [*lines, f"{more} more records have bodies with a wrong CRC"] if more else lines


class BodyCheck:
    """A check of the bodies of a growing log behind `position`, a record border, in steps of bounded size."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.passed_bytes = 0
        """Bytes that were not checked."""
        self._rows = ffi.new("struct rmq_record_view[]", SCAN_ROWS)
        self._at, self._reason = ffi.new("uint64_t *"), ffi.new("int *")

    def step(self, log: CommitLog, end: int, bytes_max: int) -> list[int]:
        """Check about `bytes_max` more bytes in front of `end`, a record border. Return the offsets of bad bodies."""
        self.position = min(self.position, end)  # a log may be cut
        if end - self.position > LAG_BYTES_MAX:
            self._pass_to(end)
        found: list[int] = []
        limit = min(end, self.position + bytes_max)
        while self.position < limit:
            stop = min(end, self.position + CHUNK_BYTES)
            before = self.position
            reason = self._scan(log, stop, SCAN_ROWS)
            if reason == records.SHORT and self.position == before:
                reason = self._scan(log, end, 1)
            if reason == records.BAD_CRC:
                found.append(self.position)
                raw = log.raw_at(self.position, end)
                self.position = end if raw is None else self.position + len(raw)
            elif reason == records.BLANK:
                self.position += log.files.file_bytes - self.position % log.files.file_bytes
            elif reason not in (records.END, records.FULL) and self.position == before:
                self._pass_to(end)
        return found

    def _scan(self, log: CommitLog, end: int, rows: int) -> int:
        found = log.files.find(self.position)
        if found is None:
            self._pass_to(end)
            return records.END
        start, mapped = found
        data, stop = ffi.from_buffer(mapped), min(end - start, len(mapped))
        lib.rmq_log_scan(data, self.position - start, stop, start, 1, self._rows, rows, self._at, self._reason)
        self.position = start + self._at[0]
        return int(self._reason[0])

    def _pass_to(self, end: int) -> None:
        self.passed_bytes += end - self.position
        self.position = end
