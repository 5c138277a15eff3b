"""A private copy of POP's memory, for programs that look at a store and change nothing."""

from __future__ import annotations

import errno
import mmap
import os
import time
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
    Journal,
    data_ranges,
    is_of_image,
    lost_entries,
    read_header,
    whole_journal,
)  # fmt: skip

PART = "pop"
WAIT_S = 5.0
"""Time for a copy of the image beside a worker that writes snapshots into it."""
PAUSE_S = 0.01


class MemoryCopy(NamedTuple):
    """The windows of a copy as a start finds them: struct rmq_pop_windows, and the number of slots that are damaged.

    `lost`: the fault of an image without some of its entries, or "".
    """

    memory: mmap.mmap
    header: Header
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
    """Copy the last snapshot: the image with the pages of a whole journal. A worker may write the next one meanwhile.

    Raises HeaderError, OSError (EBUSY: no snapshot stays as long as its copy takes) and MemoryError.
    """
    memory, header = last_snapshot(folder)
    with memory:
        states = memory[int(header.layout.entries_at) + STATE_AT : int(header.layout.bytes) : ENTRY_BYTES]
        lost = lost_entries(header, len(states) - states.count(0))
        with _windows_of(memory, header) as found:
            yield found._replace(lost=lost)


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
        with _copied(descriptor, header) as memory, _windows_of(memory, header) as found:
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


# ---- the last snapshot ----


class _Pages(NamedTuple):
    """A whole journal, and its pages."""

    journal: Journal
    data: memoryview


def last_snapshot(folder: Path) -> tuple[mmap.mmap, Header]:
    """The memory as it was at the last snapshot. Raises HeaderError and OSError, as `image_copy`."""
    end_s = time.monotonic() + WAIT_S
    while (found := _snapshot(folder)) is None:
        if time.monotonic() > end_s:
            text = f"each of its snapshots gives way to the next one within the time of a copy, for {WAIT_S:g} s"
            raise OSError(errno.EBUSY, text, str(folder / IMAGE))
        time.sleep(PAUSE_S)
    return found


def _snapshot(folder: Path) -> tuple[mmap.mmap, Header] | None:
    """One try. None: a later snapshot has come meanwhile."""
    found = _pages_of(folder / JOURNAL)
    descriptor = _open(folder / IMAGE)
    try:
        first = os.pread(descriptor, PAGE, 0)
        pages = found if found is not None and is_of_image(found.journal, first) else None
        try:
            header = read_header(first if pages is None else pages.journal.first_page, has_check=True)
        except HeaderError:
            if found is None and _pages_of(folder / JOURNAL) is not None:
                return None  # its first page is being written
            raise
        memory = _copied(descriptor, header)
    finally:
        os.close(descriptor)
    try:
        if pages is not None:
            _apply(memory, pages)
        if _is_last(folder, first, header):
            return memory, header
    except BaseException:
        memory.close()
        raise
    memory.close()
    return None


def _pages_of(path: Path) -> _Pages | None:
    """The journal, None if it is missing or not whole. The file is not mapped: its writer may cut it. Raises
    OSError."""
    try:
        with os.fdopen(_open(path), "rb") as file:
            data = memoryview(file.read())
    except FileNotFoundError:
        return None
    journal = whole_journal(data)
    return None if journal is None else _Pages(journal, data[HEAD.size :])


def _is_last(folder: Path, first: bytes, header: Header) -> bool:
    """True unless a part of a later snapshot may lie in the image since `first`, its first page, was read.

    A snapshot gets into the image once its journal is whole, and this journal stays until the image has all of it,
    its first page included.
    """
    if _snapshot_in(folder / JOURNAL) > header.snapshot and _pages_of(folder / JOURNAL) is not None:
        return False
    with os.fdopen(_open(folder / IMAGE), "rb") as image:
        now = image.read(PAGE)
    if now == first:
        return True
    try:
        later = read_header(now, has_check=True)
    except HeaderError:
        return False
    return (later.store_id, later.snapshot) == (header.store_id, header.snapshot)


def _snapshot_in(path: Path) -> int:
    """The number in the head of a journal, whole or not. -1 without one."""
    try:
        with os.fdopen(_open(path), "rb") as file:
            head = file.read(HEAD.size)
    except FileNotFoundError:
        return -1
    return int(HEAD.unpack(head)[-1]) if len(head) == HEAD.size else -1


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)


def _copied(descriptor: int, header: Header) -> mmap.mmap:
    memory = mmap.mmap(-1, int(header.layout.mapped_bytes), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for begin, end in data_ranges(descriptor, 0, int(header.layout.bytes)):
        for at in range(begin, end, CHUNK):
            data = os.pread(descriptor, min(CHUNK, end - at), at)
            memory[at : at + len(data)] = data
    return memory


def _apply(memory: mmap.mmap, pages: _Pages) -> None:
    """Raises HeaderError for a page beyond the memory."""
    numbers = memoryview(pages.journal.numbers).cast("I")
    if (last := max(numbers, default=0)) >= len(memory) // PAGE:
        raise HeaderError(f"its journal has page {last}, the memory has {len(memory) // PAGE} pages")
    for at, number in enumerate(numbers):
        memory[number * PAGE : (number + 1) * PAGE] = pages.data[at * PAGE : (at + 1) * PAGE]


@contextmanager
def _windows_of(memory: mmap.mmap, header: Header) -> Iterator[MemoryCopy]:
    base, damaged = ffi.from_buffer("uint8_t *", memory, require_writable=True), ffi.new("uint64_t *")
    pages = lib.rmq_pop_pages_open(base, header.layout, -1)
    windows = ffi.NULL if pages == ffi.NULL else lib.rmq_pop_windows_open(pages, header.layout, 0, 0, damaged)
    try:
        if windows == ffi.NULL:
            raise MemoryError("no memory to read the windows of POP")
        yield MemoryCopy(memory, header, windows, int(damaged[0]))
    finally:
        lib.rmq_pop_windows_close(windows)
        lib.rmq_pop_pages_close(pages)
        ffi.release(base)
