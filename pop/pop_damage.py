"""Damage of POP's files in a store that no broker has open. Reads only. The next start mends it."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

from ringmq.native import ffi, lib
from ringmq.pop.image_file import (
    CHUNK,
    FOLDER,
    HEAD,
    IMAGE,
    JOURNAL,
    PAGE,
    Header,
    HeaderError,
    data_ranges,
    is_of_image,
    read_header,
    read_journal,
)  # fmt: skip
from ringmq.pop.names import FILE, Content, read_names
from ringmq.store.message_store import MessageStore


def find_pop_damage(store: MessageStore) -> list[tuple[str, str]]:
    """Return (place, fault) of each file that is not as it was written. Raises OSError."""
    folder = store.config.root / FOLDER
    if not (folder / IMAGE).exists():
        return []
    found = []
    names = read_names(folder) or Content({})
    if names.damaged:
        found.append((f"{FOLDER}/{FILE}", f"{names.damaged} of {names.lines} lines are damaged"))
    try:
        fault = _fault_of_image(folder, names)
    except HeaderError as error:
        fault = str(error)
    return [*found, (f"{FOLDER}/{IMAGE}", fault)] if fault else found


def _fault_of_image(folder: Path, names: Content) -> str:
    """Open the windows over a copy of the image with the pages of its journal. Raises HeaderError."""
    descriptor = os.open(folder / IMAGE, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        page = os.pread(descriptor, PAGE, 0)
        journal = read_journal(folder / JOURNAL)
        if journal is not None and not is_of_image(journal, page):
            journal = None
        header = read_header(page if journal is None else journal.first_page, has_check=True)
        with mmap.mmap(-1, int(header.layout.mapped_bytes), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as copy:
            for begin, end in data_ranges(descriptor, 0, int(header.layout.bytes)):
                for at in range(begin, end, CHUNK):
                    data = os.pread(descriptor, min(CHUNK, end - at), at)
                    copy[at : at + len(data)] = data
            if journal is not None:
                _apply(copy, folder / JOURNAL, journal.numbers)
            return _fault_of_windows(ffi.from_buffer("uint8_t *", copy, require_writable=True), header, names)
    finally:
        os.close(descriptor)


def _apply(copy: mmap.mmap, path: Path, numbers: bytes) -> None:
    with path.open("rb") as file:
        file.seek(HEAD.size)
        for number in memoryview(numbers).cast("I"):
            copy[number * PAGE : (number + 1) * PAGE] = file.read(PAGE)


def _fault_of_windows(base: Any, header: Header, names: Content) -> str:
    damaged = ffi.new("uint64_t *")
    pages = lib.rmq_pop_pages_open(base, header.layout, -1)
    windows = ffi.NULL if pages == ffi.NULL else lib.rmq_pop_windows_open(pages, header.layout, 0, 0, damaged)
    try:
        if windows == ffi.NULL:
            raise MemoryError("no memory to read the windows of POP")
        if damaged[0]:
            return f"{int(damaged[0])} windows and entries are damaged"
        nameless = _count_nameless(windows, names)
        return f"{nameless} windows have no name" if nameless else ""
    finally:
        lib.rmq_pop_windows_close(windows)
        lib.rmq_pop_pages_close(pages)
        ffi.release(base)


def _count_nameless(windows: Any, names: Content) -> int:
    left, place, nameless = int(lib.rmq_pop_counts_of(windows).windows), 0, 0
    while left:
        window = lib.rmq_pop_window_at(windows, place)
        place += 1
        if window != ffi.NULL:
            left -= 1
            nameless += int(window.id) not in names.windows
    return nameless
