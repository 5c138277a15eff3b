"""Log part of recovery: what lies behind the end of the log goes, but is never lost.

Old bytes must not look like records again once new ones are written in front of them, so they are zeroed in place;
a copy of them, and log files that lie wholly behind, go to `ringmq.cut/` beside the log's folder.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from ringmq.store import layout
from ringmq.store.mapped_file import FileQueue, data_chunks, write_zeros
from ringmq.store.markers import sync_directory

CUT_FOLDER = "ringmq.cut"


def cut_log(files: FileQueue, append_offset: int, reasons: list[str]) -> int:
    """Take away everything behind `append_offset`; returns how many bytes were in use there. Raises OSError."""
    cut_bytes = 0
    for start in [start for start in files.starts if start > append_offset]:
        path = files.path(start)
        if next(_used_chunks(path, 0), None) is None:
            files.unlink(start)
            reasons.append(f"removed the unused log file {path.name}")
            continue
        target = _cut_folder(path) / f"{path.name}.commitlog"
        files.set_aside(start, target)
        cut_bytes += files.file_bytes
        reasons.append(f"log file {path.name} lies behind the end of the log: moved to {target}")
    start_of = files.start_of(append_offset)
    if start_of is not None:
        cut_bytes += _cut_tail(files.path(start_of), append_offset, append_offset - start_of)
    for directory in files.directories:
        if directory.is_dir():
            sync_directory(directory)
    return cut_bytes


def _cut_tail(path: Path, append_offset: int, at: int) -> int:
    """Copy the used bytes behind `at` to the cut folder and zero them; a lone end-of-file blank needs no copy."""
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
            target = os.open(_cut_folder(path) / layout.file_name(append_offset), os.O_RDWR | os.O_CREAT, 0o644)
        os.pwrite(target, chunk, position - at)
    if target is not None:
        os.fsync(target)
        os.close(target)
    if last:
        write_zeros(path, at, last)
    return 0 if only_blank else last - at


def _used_chunks(path: Path, at: int) -> Iterator[tuple[int, bytes]]:
    """Yield (position, bytes) of the chunks behind `at` that are not all zero; holes are skipped."""
    with path.open("rb") as file:
        for position, chunk in data_chunks(file.fileno(), at, os.fstat(file.fileno()).st_size):
            if chunk.count(0) != len(chunk):
                yield position, chunk


def _cut_folder(log_file: Path) -> Path:
    folder = log_file.parent.parent / CUT_FOLDER
    folder.mkdir(exist_ok=True)
    return folder
