"""Log part of recovery: bytes behind the end of the log are moved aside, never lost.

Old bytes must not look like records again behind new ones, so they are zeroed in place. A copy of them, and log files
that lie wholly behind the end, go to `ringmq.cut/` in the store's root. The log's folder must not hold them: a stock
broker before 5.1 refuses a log with a folder in it.
"""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from ringmq.store import layout
from ringmq.store.mapped_file import FileQueue, data_chunks, write_zeros
from ringmq.store.markers import sync_directory
from ringmq.store.safe_files import open_to_write
from ringmq.store.salvage import copy_range

CUT_FOLDER = "ringmq.cut"


def truncate_log(files: FileQueue, append_offset: int, folder: Path, *, reasons: list[str], notes: list[str]) -> int:
    """Move all bytes behind `append_offset` into `folder`. Return the number of used bytes among them.

    `reasons` gets lines about files with bytes, `notes` about files without. Raises OSError.
    """
    cut_bytes = 0
    for start in [start for start in reversed(files.starts) if start > append_offset]:  # a death leaves no gap
        path = files.path(start)
        if next(_used_chunks(path, 0), None) is None:
            files.unlink(start)
            notes.append(f"removed the unused log file {path.name}")
            continue
        folder.mkdir(exist_ok=True)
        target = folder / f"{path.name}.commitlog"
        _set_aside(files, start, target)
        cut_bytes += files.file_bytes
        reasons.append(f"log file {path.name} lies behind the end of the log: moved to {target}")
    start_of = files.start_of(append_offset)
    if start_of is not None:
        cut_bytes += _cut_tail(files.path(start_of), append_offset, append_offset - start_of, folder)
    for directory in files.directories:
        if directory.is_dir():
            sync_directory(directory)
    return cut_bytes


def _set_aside(files: FileQueue, start: int, target: Path) -> None:
    path = files.path(start)
    try:
        files.set_aside(start, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        unfinished = target.with_suffix(".tmp")  # the log lies on another file system than the store
        copy_range(path, 0, files.file_bytes, unfinished, files.file_bytes)
        unfinished.replace(target)
        sync_directory(target.parent)
        path.unlink()


def _cut_tail(path: Path, append_offset: int, at: int, folder: Path) -> int:
    """Copy the used bytes behind `at` to the folder and zero them. A lone end-of-file blank needs no copy."""
    last = 0
    only_blank = True
    target = None
    for position, chunk in _used_chunks(path, at):
        is_blank = position == at and chunk[4:8] == layout.MAGIC_BLANK.to_bytes(4, "big") and not any(chunk[8:])
        only_blank = only_blank and is_blank
        last = position + len(chunk.rstrip(b"\x00"))
        if only_blank:
            continue
        if target is None:
            folder.mkdir(exist_ok=True)
            target = open_to_write(folder / layout.file_name(append_offset), os.O_RDWR | os.O_CREAT)
        os.pwrite(target, chunk, position - at)
    if target is not None:
        os.fsync(target)
        os.close(target)
    if last:
        write_zeros(path, at, last)
    return 0 if only_blank else last - at


def _used_chunks(path: Path, at: int) -> Iterator[tuple[int, bytes]]:
    """Yield (position, bytes) of the chunks behind `at` that are not all zero. Holes are skipped."""
    with path.open("rb") as file:
        for position, chunk in data_chunks(file.fileno(), at, os.fstat(file.fileno()).st_size):
            if chunk.count(0) != len(chunk):
                yield position, chunk
