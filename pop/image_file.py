"""The files of POP's memory: `<root>/pop/image` and `<root>/pop/journal`.

The image is the memory as it was at one moment, the last snapshot, with its pages at their places. A snapshot is
written to the journal first, and synced. Then its pages go to their places in the image, which is synced, too. So a
power cut leaves a whole journal or a whole image. A start that finds a whole journal writes its pages into the image
again.

A journal is a head, the pages, their numbers (u32), and an end with a CRC-32 of all bytes before. Numbers are
little-endian.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from ringmq.native import ffi, lib
from ringmq.store.crash_points import Step, passed
from ringmq.store.markers import sync_directory
from ringmq.store.safe_files import open_to_write

FOLDER = "pop"
IMAGE, JOURNAL = "image", "journal"
FOLDER_MODE, FILE_MODE = 0o750, 0o640
PAGE: int = lib.RMQ_POP_PAGE_BYTES
CHUNK: int = lib.RMQ_POP_CHUNK_BYTES
HEADER_BYTES: int = ffi.sizeof("struct rmq_pop_header")
CHECK_AT: int = ffi.offsetof("struct rmq_pop_header", "check")
ENTRY_BYTES: int = ffi.sizeof("struct rmq_pop_entry")
STATE_AT: int = ffi.offsetof("struct rmq_pop_entry", "state")
ENTRIES_MAX = 1 << 26
"""The layout has no larger memory (4 GiB): a header that names one is damaged."""
WINDOWS_MAX = 1 << 24
HEAD = struct.Struct("<8sIIQQ")
END = struct.Struct("<IIQ8s")
HEAD_MAGIC, END_MAGIC = b"RMQPOPJ1", b"RMQPOPE1"
JOURNAL_KEPT_BYTES = 16 << 20
"""A journal that was larger is cut once its pages are in the image."""
OUTDATED = (1 << 32) - 1
"""`used_entries` of an image that a start could not replace. Without the segment it is not used."""
Bytes = bytes | bytearray | memoryview
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a write that is tried again: no page that was written before is lost. A sync with them is a failure."""


def has_image(root: Path) -> bool:
    """True if POP was used in this store."""
    return (root / FOLDER / IMAGE).exists()


class JournalFullError(OSError):
    """The disk has no room for a snapshot. The image is that of the snapshot before."""


class ImageFullError(OSError):
    """The disk has no room for pages of the image, for which there was room. The journal has all of them."""


class DiskFile:
    """A file that is written at offsets. Every method raises OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.descriptor = open_to_write(path, os.O_RDWR)
        except FileNotFoundError:
            self.descriptor = open_to_write(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE)
            give_to_group(self.descriptor, path.parent)

    def write(self, data: Bytes, at: int) -> None:
        """Write all of the bytes at an offset."""
        rest = memoryview(data).cast("B")
        while rest:
            try:
                written = os.pwrite(self.descriptor, rest, at)
            except OSError as error:
                raise self._named(error) from error
            rest, at = rest[written:], at + written

    def reserve(self, numbers: Any, count: int) -> None:
        """Take room on the disk for these pages."""
        code = int(lib.rmq_pop_pages_room(self.descriptor, numbers, count))
        if code < 0:
            raise OSError(-code, os.strerror(-code), str(self.path))

    def apply(self, journal: DiskFile, at: int, numbers: Any, count: int) -> None:
        """Copy pages that lie in the journal from `at` on to their places."""
        code = int(lib.rmq_pop_pages_apply(self.descriptor, journal.descriptor, at, numbers, count))
        if code < 0:
            raise OSError(-code, os.strerror(-code), str(self.path))

    def sync(self) -> None:
        """Bring all bytes to the disk."""
        try:
            os.fdatasync(self.descriptor)
        except OSError as error:
            raise self._named(error) from error

    def _named(self, error: OSError) -> OSError:
        return OSError(error.errno, error.strerror, str(self.path))

    def cut(self, size: int) -> None:
        """Give the file this size."""
        os.ftruncate(self.descriptor, size)

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return os.fstat(self.descriptor).st_size

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.descriptor)


def give_to_group(descriptor: int, folder: Path) -> None:
    """Give a new file to the group of its folder, whose members may read it."""
    with contextlib.suppress(PermissionError):  # not in the group: the process's own group reads it
        os.fchown(descriptor, -1, folder.stat().st_gid)
    os.fchmod(descriptor, FILE_MODE)


def make_folder(root: Path) -> Path:
    """`<root>/pop`, made durably if it is not there. Raises OSError."""
    folder = root / FOLDER
    try:
        folder.mkdir(FOLDER_MODE)
    except FileExistsError:
        return folder
    with contextlib.suppress(PermissionError):
        os.chown(folder, -1, root.stat().st_gid)
    sync_directory(root)
    return folder


class Header(Struct, frozen=True):
    """The words of a header that an opener compares (native/src/pop/pop_layout.h)."""

    store_id: int
    snapshot: int
    windows_max: int
    entries_max: int
    used_entries: int = 0
    """Entries in use at the snapshot, plus 1. 0: unknown."""

    @property
    def layout(self) -> Any:
        """The places of the parts of this memory."""
        return lib.rmq_pop_layout_of(self.windows_max, self.entries_max)


class HeaderError(ValueError):
    """A header that this build cannot use. The message says why."""


def read_header(data: bytes, *, has_check: bool) -> Header:
    """Read a header. `has_check`: it is of a file, whose check has to agree. Raises HeaderError."""
    if len(data) < HEADER_BYTES or not any(data[:HEADER_BYTES]):
        raise HeaderError("it has no header")
    head = ffi.new("struct rmq_pop_header *")
    ffi.buffer(head)[:] = data[:HEADER_BYTES]
    if head.magic != lib.RMQ_POP_MAGIC:
        raise HeaderError("its header is damaged")
    if head.version != lib.RMQ_POP_VERSION or head.page_bytes != PAGE:
        raise HeaderError(f"it is of version {head.version}, this build has version {lib.RMQ_POP_VERSION}")
    if has_check and head.check != zlib.crc32(data[:CHECK_AT]):
        raise HeaderError("its header is damaged")
    if not (head.store_id and 0 < head.windows_max <= WINDOWS_MAX and 0 < head.entries_max <= ENTRIES_MAX):
        raise HeaderError("its header is damaged")
    numbers = head.store_id, head.snapshot, head.windows_max, head.entries_max, head.used_entries
    return Header(*(int(number) for number in numbers))


def lost_entries(header: Header, used: int) -> str:
    """The fault of an image in which `used` entries are in use, "" if it has all."""
    if header.used_entries == OUTDATED:
        return "a start had no room on the disk to write it anew"
    wanted = header.used_entries - 1
    return "" if wanted in (-1, used) else f"{used} entries are there instead of {wanted}"


def seal_header(head: Any) -> None:
    """Store the check of a header, as files have it."""
    head.check = zlib.crc32(bytes(ffi.buffer(head))[:CHECK_AT])


class JournalWriter:
    """Writes one snapshot to the journal, then into the image. Every method raises OSError. `add` and `finish` raise
    JournalFullError, and `apply` raises ImageFullError, where the disk is full."""

    def __init__(self, journal: DiskFile, header: Header, pages: int, step: Step = passed) -> None:
        self._journal, self._header, self._pages, self._step = journal, header, pages, step
        self._numbers = bytearray()
        self._at = 0
        self._crc = 0
        self._full: JournalFullError | None = None
        """Every later call raises it: this journal has a hole."""

    @property
    def numbers(self) -> bytes:
        """The numbers of the pages so far (u32)."""
        return bytes(self._numbers)

    @property
    def snapshot(self) -> int:
        """The number of the snapshot."""
        return self._header.snapshot

    def add(self, numbers: Bytes, data: Bytes) -> None:
        """Write pages."""
        if not self._at:
            header = self._header
            self._add(HEAD.pack(HEAD_MAGIC, lib.RMQ_POP_VERSION, self._pages, header.store_id, header.snapshot))
        self._numbers += numbers
        self._add(data)
        self._step("pop-journal-pages")

    def finish(self, image: DiskFile) -> None:
        """Write the end, and sync: from now on a start uses this snapshot. It may have to write the image, and the disk
        has room for that."""
        if self._full is not None:
            raise self._full
        if len(self._numbers) != 4 * self._pages:
            raise ValueError(f"{len(self._numbers) // 4} pages were written, the snapshot has {self._pages}")
        self._try(image, lambda: image.reserve(ffi.from_buffer("uint32_t[]", self._numbers), self._pages))
        self._add(self._numbers)
        self._add(END.pack(self._crc, self._pages, self._header.snapshot, END_MAGIC))
        self._step("pop-journal-written")
        self._journal.sync()
        self._step("pop-journal-synced")

    def apply(self, image: DiskFile) -> None:
        """Write the pages to their places, and sync. It may be called again after ImageFullError."""
        numbers = ffi.from_buffer("uint32_t[]", self._numbers)
        try:
            image.apply(self._journal, HEAD.size, numbers, self._pages)
        except OSError as error:
            if error.errno in NO_ROOM:
                raise ImageFullError(error.errno, error.strerror, str(image.path)) from error
            raise
        self._step("pop-image-written")
        image.sync()
        self._step("pop-image-synced")
        if self._journal.size > JOURNAL_KEPT_BYTES:  # a snapshot that was given up may have been larger
            self._journal.cut(JOURNAL_KEPT_BYTES)

    def _add(self, data: Bytes) -> None:
        if self._full is not None:
            raise self._full
        self._try(self._journal, lambda: self._journal.write(data, self._at))
        self._at += len(memoryview(data).cast("B"))
        self._crc = zlib.crc32(data, self._crc)

    def _try(self, file: DiskFile, take_room: Callable[[], None]) -> None:
        try:
            take_room()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self._full = JournalFullError(error.errno, error.strerror, str(file.path))
            with contextlib.suppress(OSError):
                self._journal.cut(0)  # the log may need the room, and the image rests on no journal now
            raise self._full from error


class Journal(Struct, frozen=True):
    """A whole journal."""

    store_id: int
    snapshot: int
    numbers: bytes
    first_page: bytes
    """The header page as the snapshot has it."""


def read_journal(path: Path) -> Journal | None:
    """The journal, None if it is missing or not whole. Raises OSError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        size = os.fstat(descriptor).st_size
        if not size:
            return None
        with mmap.mmap(descriptor, size, prot=mmap.PROT_READ) as mapped, memoryview(mapped) as data:
            return whole_journal(data)
    finally:
        os.close(descriptor)


def whole_journal(data: memoryview) -> Journal | None:
    """The journal in the bytes of a file, None if it is not whole. Its pages lie behind its head."""
    if len(data) < HEAD.size + END.size:
        return None
    magic, version, pages, store_id, snapshot = HEAD.unpack_from(data)
    end = HEAD.size + pages * (PAGE + 4)
    if magic != HEAD_MAGIC or version != lib.RMQ_POP_VERSION or end + END.size > len(data):
        return None
    crc, *rest = END.unpack_from(data, end)
    if rest != [pages, snapshot, END_MAGIC] or zlib.crc32(data[:end]) != crc:
        return None
    numbers = bytes(data[end - 4 * pages : end])
    first = next((at for at in range(pages) if not any(numbers[4 * at : 4 * at + 4])), None)
    page = b"" if first is None else bytes(data[HEAD.size + first * PAGE :][:PAGE])
    return Journal(store_id, snapshot, numbers, page)


def load(folder: Path) -> Header | None:
    """Write a whole journal into the image, and return the header of the image. None: there is no image.

    Raises HeaderError for an image that this build cannot use, and OSError.
    """
    if not (folder / IMAGE).exists():
        return None
    image = DiskFile(folder / IMAGE)
    try:
        journal = read_journal(folder / JOURNAL)
        if journal is not None and is_of_image(journal, os.pread(image.descriptor, PAGE, 0)):
            file = DiskFile(folder / JOURNAL)
            try:
                sync_directory(folder)  # a slave renames a journal: a power cut would take the name back
                image.write(journal.first_page, 0)  # control reads the header last (`copy_source.py`)
                numbers = ffi.from_buffer("uint32_t[]", journal.numbers)
                image.apply(file, HEAD.size, numbers, len(journal.numbers) // 4)
            finally:
                file.close()
            image.sync()
            passed("pop-journal-replayed")
        return read_header(os.pread(image.descriptor, PAGE, 0), has_check=True)
    finally:
        image.close()


def is_of_image(journal: Journal, page: bytes) -> bool:
    """True unless the journal is older than the image, or of another store. A torn header page tells nothing."""
    try:
        header = read_header(page, has_check=True)
    except HeaderError:
        return bool(journal.first_page)
    return journal.store_id == header.store_id and journal.snapshot >= header.snapshot


def data_ranges(descriptor: int, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """The ranges of a sparse file that are no holes, as (begin, end) within these bounds. Raises OSError."""
    at = begin
    while at < end:
        try:
            at = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        if at >= end:
            return
        hole = min(end, os.lseek(descriptor, at, os.SEEK_HOLE))
        yield at, hole
        at = hole


def number_header(head: Any, place: Any) -> None:
    """Make the header that of the next snapshot, with a place in the log."""
    head.places[(head.snapshot + 1) % 2] = place
    head.snapshot += 1
    seal_header(head)


def write_image(folder: Path, memory: Any, layout: Any, has: Callable[[int], bool], step: Step = passed) -> None:
    """Write a whole image in place of the one that is there, durably. Raises OSError.

    `has`: says if the memory has the chunk at an offset. The header has a number that no earlier snapshot has, so a
    journal of these is not used.
    """
    with _fresh_image(folder) as file:
        file.cut(int(layout.bytes))
        for at in range(0, int(layout.bytes), CHUNK):
            if has(at):
                file.write(memory[at : min(at + CHUNK, int(layout.bytes))], at)
    step("pop-image-made")
    _take_place(file.path)


@contextlib.contextmanager
def _fresh_image(folder: Path) -> Iterator[DiskFile]:
    """A new image, on the disk at the end of the block. An error takes it back: it may hold the last free bytes."""
    path = folder / (IMAGE + ".tmp")
    path.unlink(missing_ok=True)
    file = DiskFile(path)
    try:
        yield file
        file.sync()
    except OSError:
        path.unlink()
        raise
    finally:
        file.close()


def outdate(folder: Path, snapshot: int) -> None:
    """Let no start use the image without the segment, whose snapshot has this number. No journal counts either, until
    the next snapshot. Raises OSError."""
    image = DiskFile(folder / IMAGE)
    try:
        head = ffi.new("struct rmq_pop_header *")
        ffi.buffer(head)[:] = os.pread(image.descriptor, HEADER_BYTES, 0)
        head.places[snapshot % 2] = head.places[head.snapshot % 2]
        head.snapshot, head.used_entries = snapshot, OUTDATED
        seal_header(head)
        image.write(bytes(ffi.buffer(head)), 0)
        image.sync()
    finally:
        image.close()


def _take_place(fresh: Path) -> None:
    """The new image counts from its new name on. An older journal does not count beside it."""
    folder = fresh.parent
    fresh.replace(folder / IMAGE)
    sync_directory(folder)
    (folder / JOURNAL).unlink(missing_ok=True)


def new_image(folder: Path, head: Any, step: Step = passed) -> None:
    """Make an image without windows and entries, durably. Any journal is removed before. Raises OSError."""
    with _fresh_image(folder) as file:
        seal_header(head)
        file.write(bytes(ffi.buffer(head)).ljust(PAGE, b"\0"), 0)
    step("pop-image-made")
    _take_place(file.path)


def make_image(folder: Path, journal: DiskFile, numbers: Any, count: int) -> None:
    """Make an image of a journal that has all its pages, durably. Raises OSError."""
    with _fresh_image(folder) as file:
        file.apply(journal, HEAD.size, numbers, count)
    _take_place(file.path)


def widen(folder: Path, stored: Header, windows_max: int) -> Header:
    """Make room for more windows: a new image takes the place of the old one. Raises OSError."""
    wider = Header(stored.store_id, stored.snapshot + 1, windows_max, stored.entries_max, stored.used_entries)
    old, new = stored.layout, wider.layout
    moved = {
        0: 0, int(old.orders_at): int(new.orders_at - old.orders_at),
        int(old.entries_at): int(new.entries_at - old.entries_at),
    }  # fmt: skip
    source = DiskFile(folder / IMAGE)
    try:
        with _fresh_image(folder) as file:
            for begin, end in data_ranges(source.descriptor, 0, int(old.bytes)):
                for at in range(begin, end, PAGE):
                    data = os.pread(source.descriptor, PAGE, at)
                    file.write(data, at + moved[max(begins for begins in moved if begins <= at)])
            head = ffi.new("struct rmq_pop_header *")
            ffi.buffer(head)[:] = os.pread(source.descriptor, HEADER_BYTES, 0)
            head.windows_max = windows_max
            number_header(head, head.places[head.snapshot % 2])
            file.write(bytes(ffi.buffer(head)), 0)
    finally:
        source.close()
    _take_place(file.path)
    return wider
