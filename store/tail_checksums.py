"""Checksums of windows before the end of the log: two replicas find their common part without sending the bytes.

A window is [commit log offset, length, CRC-32 without its sign bit, as in records]. The first one ends at the end of
the log. The k-th ends 64 KiB << k before it, so sixteen windows look back over 2 GiB.
"""

from collections.abc import Iterator

from ringmq.native import ffi, lib
from ringmq.store.commit_log import CommitLog

WINDOW_BYTES = 64 << 10
WINDOWS_MAX = 16

Window = tuple[int, int, int]
"""(commit log offset, bytes, CRC-32)."""


def window_places(min_offset: int, end_offset: int) -> list[tuple[int, int]]:
    """Return (commit log offset, length) of the windows of a log, newest first. The oldest may be shorter."""
    places = []
    for number in range(WINDOWS_MAX):
        end = end_offset - (WINDOW_BYTES << number if number else 0)
        start = max(min_offset, end - WINDOW_BYTES)
        if end <= start:
            break
        places.append((start, end - start))
    return places


def tail_checksums(log: CommitLog, min_offset: int, end_offset: int) -> list[Window]:
    """Return the windows of a log, newest first, without those whose bytes are gone by now."""
    found = []
    for offset, length in window_places(min_offset, end_offset):
        value = window_crc(log, offset, length)
        if value is not None:
            found.append((offset, length, value))
    return found


def window_crc(log: CommitLog, offset: int, length: int) -> int | None:
    """Return the checksum of a range of the log (at most some files long), None if a byte of it is missing."""
    parts = list(log_bytes(log, offset, offset + length))
    if sum(map(len, parts)) != length:
        return None
    data = parts[0] if len(parts) == 1 else b"".join(parts)
    return int(lib.rmq_crc32(ffi.from_buffer(data), length))


def log_bytes(log: CommitLog, offset: int, end_offset: int) -> Iterator[memoryview]:
    """Yield the bytes of [offset, end_offset) file by file, without a copy. Stops at a missing byte."""
    while offset < end_offset:
        rest = log.files.rest(offset, end_offset)
        if rest is None or not len(rest):
            return
        yield rest
        offset += len(rest)
