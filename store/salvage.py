"""Moves a part of the log out of the store without losing it, after a slave's log has diverged from its master's.

The store is closed, and this process holds its lock. Removed bytes go to `<root>/salvage/<from>-<to>-<ms>.log`: the
bytes of one log file from commit log offset <from> on (zero behind <to>), and the time of the save. A file of the log
never shrinks under its readers: the retained part is written to a new file, which is renamed over the old one.

Every step can be the last one. The marker `abort` comes first, so that recovery looks at everything. Log files go
newest first, so that the log has no gap. Bytes are safe in `salvage/` before their place in the log changes. A
repeated call finishes the rest and saves nothing twice. Recovery repairs queues and index.
"""

import bisect
import contextlib
import errno
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from ringmq.native import lib
from ringmq.store import layout, markers
from ringmq.store.commit_log import CommitLog
from ringmq.store.config import StoreConfig
from ringmq.store.mapped_file import MappedFileCache, data_chunks

SALVAGE = "salvage"
_KEPT = "ringmq.kept"  # a folder in the log's folder, on its file system; RingMQ and stock from 5.1 on ignore it
_NAME = re.compile(r"(\d{20})-(\d{20})-(\d+)\.log")
COPY_BYTES = 1 << 20
Forget = Callable[[Path, int], None]
"""Called with a store's root and an offset, before the log is cut there: files that tell of the log behind the offset
change first. Raises OSError."""


def forget_nothing(root: Path, log_offset: int) -> None:
    """The store has no such files."""


class SalvageError(Exception):
    """The log cannot be changed as asked, and nothing was changed. The message has the reason."""


class SalvageFile(Struct, frozen=True):
    """One file of `salvage/`: bytes of the log from `from_offset` to `to_offset`, saved at `saved_ms`."""

    path: Path
    from_offset: int
    to_offset: int
    saved_ms: int


class SalvageReport(Struct, frozen=True):
    """The log's end after the work, and the saved files, lowest offset first."""

    end_offset: int
    files: tuple[SalvageFile, ...] = ()

    def text(self) -> str:
        """One line for the operator."""
        if not self.files:
            return f"the log ends at offset {self.end_offset}; nothing was moved out"
        saved = ", ".join(str(file.path) for file in self.files)
        return f"the log ends at offset {self.end_offset}; the rest was moved to {saved}"


def salvage_files(root: Path) -> list[SalvageFile]:
    """Return all saved parts of the store's log, by offset and time."""
    found = []
    for path in (root / SALVAGE).glob("*.log"):
        match = _NAME.fullmatch(path.name)
        if match is not None:
            found.append(SalvageFile(path, int(match[1]), int(match[2]), int(match[3])))
    return sorted(found, key=lambda file: (file.from_offset, file.saved_ms))


def truncate(
    config: StoreConfig, to_offset: int, forget: Forget = forget_nothing, *, now_ms: int | None = None
) -> SalvageReport:  # fmt: skip
    """End the log with the last whole record at or below `to_offset`. A log that ends there already stays as it is.

    Raises SalvageError if the log begins behind that offset, and OSError.
    """
    log = _open_log(config)
    files = log.files
    if files.starts and to_offset < files.min_offset:
        raise SalvageError(f"the log cannot be cut at offset {to_offset}: it begins at {files.min_offset}; rebase it")
    if not files.starts:
        return SalvageReport(0)
    saver = _Saver(config.root, _now_ms(now_ms))
    border = _border_below(log, min(to_offset, files.end_offset))
    behind = [start for start in files.starts if start >= border]
    start = files.start_of(border)
    used = border if start is None else _used_end(log, start)
    if behind or used > border:
        markers.write_abort(config.root, os.getpid())
        forget(config.root, border)
    for later in reversed(behind):
        saver.take_file(log, later)
    if start is not None and start < border < used:
        saver.save_tail(files.path(start), border, used)
        _replace_by_prefix(files.path(start), border - start, files.file_bytes)
    return SalvageReport(border, saver.saved())


def border_below(config: StoreConfig, offset: int) -> int:
    """Return the offset at which `truncate` would end the log. Reads only.

    Raises SalvageError if the log begins behind `offset`, and OSError.
    """
    log = CommitLog(config, MappedFileCache(2))
    if not log.files.starts:
        return 0
    if offset < log.files.min_offset:
        raise SalvageError(f"offset {offset} lies before the log, which begins at {log.files.min_offset}")
    return _border_below(log, min(offset, log.files.end_offset))


def rebase(
    config: StoreConfig, to_offset: int, forget: Forget = forget_nothing, *, now_ms: int | None = None
) -> SalvageReport:  # fmt: skip
    """Move out the whole log. The store then begins, and ends, at `to_offset`, a multiple of the file size.

    Queues and index are deleted: their units name records of the old log, and dispatch makes them again from later
    records. Raises SalvageError, OSError.
    """
    import shutil  # imports the compressors of archives

    if to_offset % config.commit_log_file_bytes:
        raise SalvageError(
            f"the log cannot begin at {to_offset}, which is not a multiple of mappedFileSizeCommitLog = "
            f"{config.commit_log_file_bytes}"
        )
    log = _open_log(config)
    saver = _Saver(config.root, _now_ms(now_ms))
    config.root.mkdir(parents=True, exist_ok=True)
    markers.write_abort(config.root, os.getpid())
    forget(config.root, 0)
    for folder in (layout.CONSUME_QUEUE, layout.BATCH_CONSUME_QUEUE, layout.INDEX):
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(config.root / folder)
    for start in reversed(log.files.starts):
        saver.take_file(log, start)
    make_log_file(config, to_offset)
    return SalvageReport(to_offset, saver.saved())


def end_at(config: StoreConfig, border: int, forget: Forget = forget_nothing) -> SalvageReport:
    """End the log at a record border. At the log's begin an empty file remains, which `truncate` would not leave."""
    begins_there = is_without_files(config) or CommitLog(config, MappedFileCache(2)).files.min_offset == border
    return (rebase if border and begins_there else truncate)(config, border, forget)


def is_without_files(config: StoreConfig) -> bool:
    """True if the log has no file: it is new, or the last one was just moved out."""
    return not CommitLog(config, MappedFileCache(2)).files.starts


def make_log_file(config: StoreConfig, start: int) -> None:
    """Make the log file that begins at `start`, all zero and fully allocated. An existing one stays. Raises OSError."""
    directory, size = config.commit_log_directories[0], config.commit_log_file_bytes
    code = lib.rmq_folder_make(os.fsencode(directory))
    code = code or lib.rmq_segment_create(os.fsencode(config.root), os.fsencode(directory), start, size)
    if code < 0:
        raise OSError(-code, f"the log file of {size} bytes cannot be made: {os.strerror(-code)}", str(directory))
    markers.sync_directory(directory)


def _now_ms(now_ms: int | None) -> int:
    return time.time_ns() // 1_000_000 if now_ms is None else now_ms


def _open_log(config: StoreConfig) -> CommitLog:
    """Return the log. An empty newest file, left by a crash while it was made, is removed."""
    log = CommitLog(config, MappedFileCache(2))
    log.files.check_sizes(remove_empty=True)
    return log


def _border_below(log: CommitLog, offset: int) -> int:
    """Return the end of the last whole record at or below `offset`, or the start of its file without such a record."""
    border = log.files.starts[bisect.bisect_right(log.files.starts, offset) - 1]
    places = log.places(border, offset, check_crc=False)
    while True:
        try:
            position, size = next(places)
        except StopIteration as stop:  # the next file's start if `offset` lies in the blank at a file's end
            return int(stop.value.offset) if stop.value.offset <= offset else border
        border = position + size


def _used_end(log: CommitLog, start: int) -> int:
    """Return the commit log offset behind the used bytes of a log file: its records, and other non-zero bytes."""
    end, last = start + log.files.file_bytes, 0
    with log.files.path(start).open("rb") as file:
        for position, chunk in data_chunks(file.fileno(), 0, log.files.file_bytes):
            used = len(chunk.rstrip(b"\x00"))
            last = position + used if used else last
    return max(start + last, _border_below(log, end) if last else start)


class _Saver:
    """Copies bytes of the log to `<root>/salvage`, each range once."""

    def __init__(self, root: Path, now_ms: int) -> None:
        self._folder = root / SALVAGE
        self._root = root
        self._now_ms = now_ms
        self._saved: list[SalvageFile] = []

    def saved(self) -> tuple[SalvageFile, ...]:
        """The saved files, lowest offset first."""
        return tuple(reversed(self._saved))

    def take_file(self, log: CommitLog, start: int) -> None:
        """Move a whole file out of the log. An unused file is removed."""
        files, path = log.files, log.files.path(start)
        used = _used_end(log, start)
        if used == start:
            files.unlink(start)
        else:
            target = self._target(start, used)
            try:
                files.set_aside(start, target.path)
                self._saved.append(target)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                self.save_tail(path, start, used)  # another file system
                path.unlink()
            markers.sync_directory(self._folder)
        markers.sync_directory(path.parent)

    def save_tail(self, path: Path, from_offset: int, to_offset: int) -> None:
        """Copy a range that ends in this log file, unless the folder has the same bytes already."""
        at, length = from_offset - int(path.name), to_offset - from_offset
        for known in salvage_files(self._root):
            if (known.from_offset, known.to_offset) == (from_offset, to_offset) and _same(known.path, path, at, length):
                self._saved.append(known)
                return
        target = self._target(from_offset, to_offset)
        for unfinished in self._folder.glob("*.tmp"):
            unfinished.unlink()
        unfinished = target.path.with_suffix(".tmp")
        copy_range(path, at, length, unfinished, length)
        unfinished.replace(target.path)
        markers.sync_directory(self._folder)
        self._saved.append(target)

    def _target(self, from_offset: int, to_offset: int) -> SalvageFile:
        """Return a name that is still free."""
        if not self._folder.is_dir():
            self._folder.mkdir()
            markers.sync_directory(self._root)
        saved_ms = self._now_ms
        while True:
            name = f"{layout.file_name(from_offset)}-{layout.file_name(to_offset)}-{saved_ms}.log"
            if not (self._folder / name).exists():
                return SalvageFile(self._folder / name, from_offset, to_offset, saved_ms)
            saved_ms += 1


def _replace_by_prefix(path: Path, kept_bytes: int, file_bytes: int) -> None:
    """Replace a file by a new one of the same length that holds its first bytes."""
    folder = path.parent / _KEPT
    folder.mkdir(exist_ok=True)
    copy_range(path, 0, kept_bytes, folder / path.name, file_bytes)
    (folder / path.name).replace(path)
    markers.sync_directory(path.parent)
    folder.rmdir()


def copy_range(source: Path, at: int, length: int, target: Path, target_bytes: int) -> None:
    """Copy a range to a new file of `target_bytes` and sync it."""
    with source.open("rb") as old, target.open("wb") as new:
        for position, chunk in data_chunks(old.fileno(), at, at + length, COPY_BYTES):
            os.pwrite(new.fileno(), chunk, position - at)
        new.truncate(target_bytes)
        os.fsync(new.fileno())


def _same(salvaged: Path, log_file: Path, at: int, length: int) -> bool:
    if salvaged.stat().st_size != length:
        return False
    with salvaged.open("rb") as one, log_file.open("rb") as other:
        other.seek(at)
        return all(left == right for left, right in zip(_chunks(one, length), _chunks(other, length), strict=True))


def _chunks(file: BinaryIO, length: int) -> Iterator[bytes]:
    for at in range(0, length, COPY_BYTES):
        yield file.read(min(COPY_BYTES, length - at))
