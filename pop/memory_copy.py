"""A private copy of POP's memory, for commands that look at a store and change nothing."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ringmq.ipc import segment
from ringmq.native import ffi, lib
from ringmq.pop.image_file import (
    CHUNK,
    ENTRY_BYTES,
    FOLDER,
    HEAD,
    IMAGE,
    JOURNAL,
    PAGE,
    STATE_AT,
    Header,
    HeaderError,
    data_ranges,
    is_of_image,
    lost_entries,
    read_header,
    read_journal,
)  # fmt: skip

PART = "pop"


class MemoryCopy(NamedTuple):
    """The windows of a copy as a start finds them: struct rmq_pop_windows, and the number of slots that are damaged.

    `lost`: the fault of an image without some of its entries, or "".
    """

    windows: Any
    damaged: int
    lost: str = ""

    def places(self) -> Iterator[int]:
        """The places of all windows."""
        left, place = int(lib.rmq_pop_counts_of(self.windows).windows), 0
        while left:
            if lib.rmq_pop_window_at(self.windows, place) != ffi.NULL:
                left -= 1
                yield place
            place += 1


@contextmanager
def image_copy(folder: Path) -> Iterator[MemoryCopy]:
    """Copy the image with the pages of its journal. Raises HeaderError, OSError and MemoryError."""
    descriptor = os.open(folder / IMAGE, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        page = os.pread(descriptor, PAGE, 0)
        journal = read_journal(folder / JOURNAL)
        if journal is not None and not is_of_image(journal, page):
            journal = None
        header = read_header(page if journal is None else journal.first_page, has_check=True)
        with _copied(descriptor, header) as copy:
            if journal is not None:
                _apply(copy, folder / JOURNAL, journal.numbers)
            states = copy[int(header.layout.entries_at) + STATE_AT : int(header.layout.bytes) : ENTRY_BYTES]
            lost = lost_entries(header, len(states) - states.count(0))
            with _windows_of(copy, header) as found:
                yield found._replace(lost=lost)
    finally:
        os.close(descriptor)


@contextmanager
def newest_copy(root: Path) -> Iterator[MemoryCopy]:
    """Copy the segment, which is newer than the image while the broker runs and after a kill, else the image.

    A segment that this user may not read is passed over. Raises as `image_copy`.
    """
    descriptor = _open_segment(root)
    if descriptor is None:
        with image_copy(root / FOLDER) as found:
            yield found
        return
    try:
        header = read_header(os.pread(descriptor, PAGE, 0), has_check=False)
        with _copied(descriptor, header) as copy, _windows_of(copy, header) as found:
            yield found
    finally:
        os.close(descriptor)


def _open_segment(root: Path) -> int | None:
    """Open the segment of the image, if it is whole and belongs to the same user."""
    with (root / FOLDER / IMAGE).open("rb") as image:
        owner, stored = os.fstat(image.fileno()).st_uid, read_header(image.read(PAGE), has_check=True)
    path = segment.SHM_DIR / f"{segment.lasting_name(root, PART)}-{stored.store_id:016x}"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (PermissionError, FileNotFoundError):
        return None
    status = os.fstat(descriptor)
    try:
        header = read_header(os.pread(descriptor, PAGE, 0), has_check=False)
        if status.st_uid == owner and status.st_size == header.layout.mapped_bytes:
            return descriptor
    except HeaderError:
        pass  # its maker died before it was filled
    os.close(descriptor)
    return None


@contextmanager
def _copied(descriptor: int, header: Header) -> Iterator[mmap.mmap]:
    with mmap.mmap(-1, int(header.layout.mapped_bytes), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as copy:
        for begin, end in data_ranges(descriptor, 0, int(header.layout.bytes)):
            for at in range(begin, end, CHUNK):
                data = os.pread(descriptor, min(CHUNK, end - at), at)
                copy[at : at + len(data)] = data
        yield copy


def _apply(copy: mmap.mmap, path: Path, numbers: bytes) -> None:
    with path.open("rb") as file:
        file.seek(HEAD.size)
        for number in memoryview(numbers).cast("I"):
            copy[number * PAGE : (number + 1) * PAGE] = file.read(PAGE)


@contextmanager
def _windows_of(copy: mmap.mmap, header: Header) -> Iterator[MemoryCopy]:
    base, damaged = ffi.from_buffer("uint8_t *", copy, require_writable=True), ffi.new("uint64_t *")
    pages = lib.rmq_pop_pages_open(base, header.layout, -1)
    windows = ffi.NULL if pages == ffi.NULL else lib.rmq_pop_windows_open(pages, header.layout, 0, 0, damaged)
    try:
        if windows == ffi.NULL:
            raise MemoryError("no memory to read the windows of POP")
        yield MemoryCopy(windows, int(damaged[0]))
    finally:
        lib.rmq_pop_windows_close(windows)
        lib.rmq_pop_pages_close(pages)
        ffi.release(base)
