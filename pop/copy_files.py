"""The files of a slave's copy of its master's POP memory: those of a master (`image_file.py`, `names.py`), and pieces.

Pieces gather in `pop/pieces`. A whole copy is a journal, and names. The names come first: none may lack for a window
of the image. The journal takes the place of `pop/journal`, or becomes a new image if it has all pages. So a death
leaves the old copy or the new one, and a power cut does, too.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Any

from ringmq.native import ffi, lib
from ringmq.pop import image_file, names
from ringmq.pop.copy_mark import PIECES, mark_copy, remove_image, run_of_copy
from ringmq.pop.copy_sync import Known
from ringmq.pop.image_file import HEAD, HEAD_MAGIC, IMAGE, JOURNAL, PAGE, DiskFile, HeaderError, Journal
from ringmq.remoting.pop_copy_headers import NAMES_BYTES_MAX, PopProgressResponseHeader
from ringmq.store.crash_points import Step, passed


class CopyError(ValueError):
    """A copy that this build cannot use. The message says why."""


class CopyFiles:
    """The files in `<root>/pop`. Methods raise OSError."""

    def __init__(self, root: Path, step: Step = passed) -> None:
        self._root, self._folder, self._step = root, root / image_file.FOLDER, step
        self._size: int | None = None
        """Bytes of the pieces so far. None: there are none."""

    def known(self) -> Known:
        """Read the state of the copy. One that cannot be read is removed."""
        run = run_of_copy(self._folder)
        if not run:
            return Known()
        try:
            header = image_file.load(self._folder)
        except HeaderError:
            header = None
        if header is None:
            remove_image(self._folder)
            return Known()
        return self._known(run, header.snapshot)

    def add(self, piece: bytes) -> None:
        """Add a piece of the copy that is on its way. Raises CopyError for the first one if it is of another
        version."""
        if self._size is None:
            _check_head(piece)
            image_file.make_folder(self._root)
            (self._folder / PIECES).unlink(missing_ok=True)
            self._size = 0
        file = DiskFile(self._folder / PIECES)
        try:
            file.write(piece, self._size)
        finally:
            file.close()
        self._size += len(piece)

    def drop(self) -> None:
        """Forget the pieces."""
        if self._size is not None:
            self._size = None
            (self._folder / PIECES).unlink(missing_ok=True)

    def remove(self) -> None:
        """Forget the whole copy. The names stay: marks in the log have their ids."""
        self.drop()
        if run_of_copy(self._folder):
            remove_image(self._folder)

    def apply(self, coming: PopProgressResponseHeader, known: Known) -> Known:
        """Make the whole copy the one that is there. `known`: the state so far. Returns the new one. Raises
        CopyError."""
        with (self._folder / PIECES).open("rb") as file:
            file.seek(coming.journal_bytes)
            lines = file.read(NAMES_BYTES_MAX)
        os.truncate(self._folder / PIECES, coming.journal_bytes)
        journal = _checked(image_file.read_journal(self._folder / PIECES), coming.snapshot)
        self._put_names(coming.names_from, lines)
        self._step("pop-copy-named")
        pieces = DiskFile(self._folder / PIECES)
        try:
            pieces.sync()
            numbers = ffi.from_buffer("uint32_t[]", journal.numbers)
            if known.run == coming.run:
                self._reserve(numbers, len(numbers))
            else:
                image_file.make_image(self._folder, pieces, numbers, len(numbers))
                self._step("pop-copy-made")
                mark_copy(self._folder, coming.run)
        finally:
            pieces.close()
        if known.run == coming.run:
            (self._folder / PIECES).replace(self._folder / JOURNAL)
            self._step("pop-copy-replaced")
            _load(self._folder)
        self.drop()
        return self._known(coming.run, coming.snapshot)

    def _reserve(self, numbers: Any, count: int) -> None:
        """Take the room in the image before the journal counts: a start has to write these pages."""
        image = DiskFile(self._folder / IMAGE)
        try:
            image.reserve(numbers, count)
        finally:
            image.close()

    def _put_names(self, begin: int, lines: bytes) -> None:
        path = self._folder / names.FILE
        if begin and not lines:
            return
        before = path.read_bytes()[:begin] if begin else b""
        fresh = path.with_name(names.FILE + ".tmp")
        fresh.unlink(missing_ok=True)
        file = DiskFile(fresh)
        try:
            file.write(before + lines, 0)
            file.sync()
        finally:
            file.close()
        fresh.replace(path)

    def _known(self, run: int, snapshot: int) -> Known:
        try:
            data = (self._folder / names.FILE).read_bytes()
        except FileNotFoundError:
            data = b""
        return Known(run, snapshot, len(data), zlib.crc32(data))


def _check_head(piece: bytes) -> None:
    magic, version, *_ = HEAD.unpack_from(piece.ljust(HEAD.size, b"\0"))
    if magic != HEAD_MAGIC:
        raise CopyError("the copy of POP's memory begins with no journal")
    if version != lib.RMQ_POP_VERSION:
        raise CopyError(f"the copy of POP's memory is of version {version}, this build has {lib.RMQ_POP_VERSION}")


def _checked(journal: Journal | None, snapshot: int) -> Journal:
    """The journal of a copy. Its pages are within the memory that its own header names."""
    if journal is None or not journal.first_page:
        raise CopyError("the copy of POP's memory is damaged")
    try:
        header = image_file.read_header(journal.first_page, has_check=True)
    except HeaderError as error:
        raise CopyError(f"the copy of POP's memory cannot be used: {error}") from error
    found = journal.snapshot, header.snapshot
    if found != (snapshot, snapshot) or journal.store_id != header.store_id:
        raise CopyError(f"the copy of POP's memory is of snapshots {found[0]} and {found[1]} instead of {snapshot}")
    last, pages = max(memoryview(journal.numbers).cast("I")), int(header.layout.bytes) // PAGE
    if last >= pages:
        raise CopyError(f"the copy of POP's memory has page {last}, the memory has {pages} pages")
    return journal


def _load(folder: Path) -> None:
    try:
        image_file.load(folder)
    except HeaderError as error:
        raise CopyError(f"the image of POP's memory cannot be used: {error}") from error
