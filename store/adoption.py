"""Adoption of the tail of a slave's log that the master has lost.

The store is closed, and this process holds its lock. There are three steps: the tail is copied from the source to a
folder of the store (`adoption_staging`), the own log is cut (`salvage.truncate`), the copy is appended. Copying and
appending go by whole records, in order. Sizes and CRC of the body are checked before a record is written. Appending
again from the same offset writes the same bytes again.

A record with impossible values (`record_values`) is adopted byte for byte, as replication copies it. This includes a
record that names another position of the log. One flipped bit on the source must not keep this broker from all later
records. Recovery and dispatch do not index such a record. They count it and name it.
"""

import os
from collections.abc import Callable
from contextlib import ExitStack

from ringmq.store import layout
from ringmq.store import record as records
from ringmq.store.commit_log import CommitLog
from ringmq.store.config import StoreConfig
from ringmq.store.mapped_file import MappedFileCache
from ringmq.store.safe_files import open_to_write
from ringmq.store.salvage import make_log_file
from ringmq.store.tail_checksums import WINDOW_BYTES, log_bytes

CHUNK_BYTES = 1 << 20
RECORD_BYTES_MAX = 64 << 20
ReadChunk = Callable[[int, int], bytes]
"""(commit log offset, wanted bytes) -> bytes from that offset on, at least one, maybe fewer. Raises OSError."""


class AdoptionError(Exception):
    """The other log cannot be adopted to its end.

    The message has the reason. Its records are whole up to `end_offset`.
    """

    def __init__(self, message: str, end_offset: int) -> None:
        super().__init__(message)
        self.end_offset = end_offset


def append(config: StoreConfig, from_offset: int, to_offset: int, read_chunk: ReadChunk) -> int:
    """Append [from_offset, to_offset) of the log that `read_chunk` reads to the own log, and return the new end.

    Both offsets are record borders. Raises AdoptionError if the bytes end early or are no records, and OSError.
    """
    with ExitStack() as stack:
        writer = _LogWriter(config, stack)
        try:
            return copy_records(config, from_offset, to_offset, read_chunk, writer.write)
        finally:
            writer.sync()


def copy_records(
    config: StoreConfig,
    from_offset: int,
    to_offset: int,
    read_chunk: ReadChunk,
    write: Callable[[int, bytes], None],
) -> int:
    """Pass the records of [from_offset, to_offset) to `write`, in order. Return their end.

    `write` gets (commit log offset, whole records). Raises AdoptionError if the bytes end early or are no records.
    The records written before the error are whole.
    """
    at, pending = from_offset, b""
    while at < to_offset:
        wanted = min(CHUNK_BYTES, to_offset - at - len(pending))
        if wanted:
            pending += _read(read_chunk, at, at + len(pending), wanted)
        check_crc, file_bytes = config.check_crc_on_recover, config.commit_log_file_bytes
        used, why = whole_bytes(pending, at, file_bytes, check_crc=check_crc, keeps_places=False)
        write(at, pending[:used])
        at, pending = at + used, pending[used:]
        ended = not used and (not wanted or len(pending) > RECORD_BYTES_MAX)
        if why != records.SHORT or ended:
            raise AdoptionError(f"the other log has no record at offset {at}: {records.REASONS[why]}", at)
    return at


def check_front(config: StoreConfig, end_offset: int, read_chunk: ReadChunk) -> None:
    """Compare the last bytes in front of `end_offset` in both logs.

    Raises AdoptionError if they differ or are missing.
    """
    log = CommitLog(config, MappedFileCache(2))
    at = max(log.min_offset, end_offset - WINDOW_BYTES)
    while at < end_offset:
        theirs = _read(read_chunk, end_offset, at, end_offset - at)
        ours = b"".join(log_bytes(log, at, at + len(theirs)))
        if ours != theirs:
            raise AdoptionError(
                f"the logs differ before offset {end_offset}, in the {len(theirs)} bytes from {at} on", end_offset
            )
        at += len(theirs)


def _read(read_chunk: ReadChunk, taken: int, offset: int, wanted: int) -> bytes:
    try:
        chunk = read_chunk(offset, wanted)
    except OSError as error:
        raise AdoptionError(f"the other log cannot be read at offset {offset}: {error}", taken) from error
    if not chunk:
        raise AdoptionError(f"the other log ends at offset {offset}", taken)
    return chunk[:wanted]


def whole_bytes(
    data: bytes | memoryview,
    offset: int,
    file_bytes: int,
    *,
    check_crc: bool,
    keeps_places: bool = True,
    rest: Callable[[], None] = lambda: None,
) -> tuple[int, int]:
    """Return the length of the whole records and blanks at the start of `data`, and the next parser result.

    SHORT also stands for the end of `data`. With `keeps_places` a record that names another position ends the walk
    (BAD_PLACE). Callers need this if the records prove that they belong here. `rest`: see `record.has_its_body`.
    """
    view, at = memoryview(data), 0
    while at < len(view):
        left = file_bytes - (offset + at) % file_bytes
        result, record = records.parse_record(view[at : at + left], offset + at, with_body=False)
        if result == records.BLANK:
            size = int.from_bytes(view[at : at + 4], "big")
            if size != left:
                return at, records.BAD_LENGTH
            if at + size > len(view):
                break
            at += size
            continue
        if result != records.OK or record is None:
            is_cut = result == records.SHORT and len(view) - at < left
            return at, result if is_cut or result != records.SHORT else records.BAD_LENGTH
        if check_crc and not records.has_its_body(view[at:], record, rest):
            return at, records.BAD_CRC
        if keeps_places and record.physical_offset != offset + at:
            return at, records.BAD_PLACE
        at += record.size
    return at, records.SHORT


class _LogWriter:
    """Writes at commit log offsets and makes log files as needed."""

    def __init__(self, config: StoreConfig, stack: ExitStack) -> None:
        self._config = config
        self._stack = stack
        self._descriptors: dict[int, int] = {}

    def write(self, offset: int, data: bytes) -> None:
        size = self._config.commit_log_file_bytes
        at = 0
        while at < len(data):
            place = (offset + at) % size
            part = data[at : at + size - place]
            os.pwrite(self._open(offset + at - place), part, place)
            at += len(part)

    def sync(self) -> None:
        for descriptor in self._descriptors.values():
            os.fdatasync(descriptor)

    def _open(self, start: int) -> int:
        known = self._descriptors.get(start)
        if known is not None:
            return known
        name = layout.file_name(start)
        paths = [directory / name for directory in self._config.commit_log_directories]
        path = next((path for path in paths if path.exists()), paths[0])
        if not path.exists():
            self.sync()  # so that log files reach the disk in order
            make_log_file(self._config, start)
        descriptor = open_to_write(path, os.O_RDWR)
        self._stack.callback(os.close, descriptor)
        self._descriptors[start] = descriptor
        return descriptor
