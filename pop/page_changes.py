"""`<root>/pop/changes`: for each page of the memory, the number of the last snapshot that had it.

The thread of snapshots writes the file, and control reads it to tell a slave which pages it lacks (`copy_source.py`).
The numbers of a snapshot are stored before its pages go into the image. `begun` is ahead of `done` while they do: then
the image is of no moment.

The file is never synced, so it counts for one boot of the kernel alone. A new file gets another `run`: a slave that has
a snapshot of an earlier one gets all pages.
"""

from __future__ import annotations

import contextlib
import logging
import os
import struct
from array import array
from pathlib import Path

from msgspec import Struct

from ringmq.pop.image_file import FILE_MODE, IMAGE, PAGE, Header, HeaderError, give_to_group, read_header
from ringmq.store.crash_points import Step, passed
from ringmq.store.markers import BOOT_ID
from ringmq.store.safe_files import open_to_write

log = logging.getLogger(__name__)

FILE = "changes"
HEAD = struct.Struct("<8sQQQQ36s")
MAGIC = b"RMQPOPC1"
BEGUN_AT, DONE_AT = 24, 32
NUMBERS_AT = 4096
_BLOCK = 512
"""Numbers that are written together: 4 KiB."""
_NUMBER = struct.Struct("<Q")
_STAY_BEHIND = "slaves keep the open messages that they have until"


class Changes(Struct, frozen=True):
    """The head of the file. `begun`, `done`: numbers of the snapshots that the image gets, and has."""

    run: int
    store_id: int
    begun: int
    done: int

    def is_of(self, header: Header) -> bool:
        """True if the image with this header is whole, and the numbers tell of all its snapshots in this run."""
        return self.begun == self.done == header.snapshot and self.store_id == header.store_id


def read_changes(folder: Path) -> Changes | None:
    """Read the head, None without one of this boot. Raises OSError."""
    try:
        with (folder / FILE).open("rb") as file:
            data = file.read(HEAD.size)
    except FileNotFoundError:
        return None
    if len(data) < HEAD.size:
        return None
    magic, *numbers, boot = HEAD.unpack(data)
    return Changes(*numbers) if magic == MAGIC and boot == _boot() else None


def changed_since(folder: Path, snapshot: int) -> list[int]:
    """The pages of later snapshots, ascending. There may be some more of them than the image has. Raises OSError."""
    numbers, pages = _numbers(folder), list[int]()
    for begin in range(0, len(numbers), _BLOCK):
        block = numbers[begin : begin + _BLOCK]
        if max(block) > snapshot:
            pages += [begin + index for index, last in enumerate(block) if last > snapshot]
    return pages


class PageChanges:
    """The file, for the thread of snapshots. `pages`: of the memory, `header`: of the image. A full disk ends the file,
    and a later snapshot makes another one. Raises OSError if there is none to begin with."""

    def __init__(self, folder: Path, pages: int, header: Header, step: Step = passed) -> None:
        self._path, self._step = folder / FILE, step
        known = read_changes(folder)
        is_known = known is not None and known.begun == header.snapshot and known.store_id == header.store_id
        self._last = _numbers(folder) if is_known else array("Q")
        self._last.frombytes(bytes(8 * max(0, pages - len(self._last))))
        self._store_id = header.store_id
        self._descriptor = open_to_write(self._path, os.O_RDWR) if is_known else self._make(header.snapshot)
        self._write(_NUMBER.pack(header.snapshot), DONE_AT)  # a death may have come before, and a start has done it

    def _make(self, snapshot: int) -> int:
        """A file without numbers: no slave of its run has an earlier snapshot."""
        self._path.unlink(missing_ok=True)
        descriptor = open_to_write(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE)
        run = int.from_bytes(os.urandom(8)) >> 1 | 1
        try:
            give_to_group(descriptor, self._path.parent)
            os.pwrite(descriptor, HEAD.pack(MAGIC, run, self._store_id, snapshot, snapshot, _boot()), 0)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def begin(self, numbers: bytes, snapshot: int) -> None:
        """The image gets these pages (u32) of a snapshot next. It is of no moment until `end`."""
        for page in memoryview(numbers).cast("I"):
            self._last[page] = snapshot
        for block in {page // _BLOCK for page in memoryview(numbers).cast("I")}:
            part = self._last[block * _BLOCK : (block + 1) * _BLOCK]
            self._write(part.tobytes(), NUMBERS_AT + 8 * _BLOCK * block)
        self._step("pop-changes-noted")
        self._write(_NUMBER.pack(snapshot), BEGUN_AT)
        self._step("pop-changes-begun")

    def end(self, snapshot: int) -> None:
        """The image has the snapshot."""
        if self._descriptor < 0:
            with contextlib.suppress(OSError):  # the disk is full still
                self._descriptor = self._make(snapshot)
        self._write(_NUMBER.pack(snapshot), DONE_AT)
        self._step("pop-changes-done")

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, data: bytes, at: int) -> None:
        if self._descriptor < 0:
            return
        try:
            if os.pwrite(self._descriptor, data, at) == len(data):
                return
            cause = "a part of a write"
        except OSError as error:
            cause = error.strerror or str(error)
        self.close()
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        log.warning("%s", f"{self._path}: {cause}; {_STAY_BEHIND} the disk has room for it")


def open_changes(folder: Path, pages: int) -> PageChanges | None:
    """The file beside the image. None if it cannot be had; a log line says so."""
    try:
        with (folder / IMAGE).open("rb") as image:
            header = read_header(image.read(PAGE), has_check=True)
        return PageChanges(folder, pages, header)
    except (OSError, HeaderError) as error:
        log.warning("%s", f"{folder / FILE}: {error}; {_STAY_BEHIND} the worker pop starts again")
        return None


def _numbers(folder: Path) -> array[int]:
    numbers = array("Q")
    with (folder / FILE).open("rb") as file:
        file.seek(NUMBERS_AT)
        data = file.read()
    numbers.frombytes(data[: len(data) // 8 * 8])
    return numbers


def _boot() -> bytes:
    return BOOT_ID.read_bytes().strip()[:36]
