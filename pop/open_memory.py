"""The open messages of the last snapshot, as structs of the C core: for readers outside the broker, such as Spark.

A reader takes a private copy of the files in `<root>/pop`, so it costs the broker nothing, and sees no half-written
page. The worker writes a snapshot each second while anything changes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ringmq.ipc.plane import NONE
from ringmq.ipc.segment import open_segment, plane_name
from ringmq.ipc.watermark import read_watermarks
from ringmq.native import ffi, lib
from ringmq.pop.image_file import CHUNK, ENTRY_BYTES, FOLDER, STATE_AT, has_image
from ringmq.pop.memory_copy import MemoryCopy, image_copy
from ringmq.pop.names import FILE, Content, WindowName, read_names
from ringmq.pop.revival_words import Gauge, SnapshotFault
from ringmq.services.kit.clocks import monotonic_ms

ATTEMPTS = 5
"""Copies of the image. Another one is made if a start has written the names anew meanwhile."""
STALE_MS = 10_000
"""Time without a snapshot of changes from which on the files are refused."""
_FAULTS = {
    SnapshotFault.NO_ROOM: "the disk has no room",
    SnapshotFault.FAILED: "a write or a sync has failed",
}


class OpenMemory(NamedTuple):
    """`windows`: their names by id, also of windows that have ended."""

    windows: Mapping[int, WindowName]
    copy: MemoryCopy

    def entries(self) -> Iterator[bytes]:
        """Yield all entries in use, among free ones: arrays of struct rmq_pop_entry."""
        at, end = int(self.copy.header.layout.entries_at), int(self.copy.header.layout.bytes)
        left = int(lib.rmq_pop_counts_of(self.copy.windows).entries)
        while left and at < end:
            chunk = self.copy.memory[at : min(at + CHUNK, end)]
            at += len(chunk)
            states = chunk[STATE_AT::ENTRY_BYTES]
            if used := len(states) - states.count(0):
                left -= used
                yield chunk

    def orders(self) -> tuple[bytes, list[int]]:
        """The batches of orderly groups, an array of struct rmq_pop_order, and for each of them the queue offset below
        which its messages are done."""
        windows, place, slot = self.copy.windows, ffi.new("uint32_t *"), 0
        batches, begins = list[bytes](), list[int]()
        while (slot := int(lib.rmq_pop_orders_from(windows, slot, place))) != NONE:
            batches.append(bytes(ffi.buffer(lib.rmq_pop_order_at(windows, place[0]))))
            begins.append(int(lib.rmq_pop_window_at(windows, place[0]).next_offset))
            slot += 1
        return b"".join(batches), begins


@contextmanager
def open_memory(root: Path) -> Iterator[OpenMemory | None]:
    """The open messages of a store, whose broker may run. None: POP was never used there.

    Raises ValueError if the files cannot be used, or lack the changes of STALE_MS; OSError (EBUSY: starts of the broker
    come between again and again) and MemoryError.
    """
    if not has_image(root):
        yield None
        return
    _refuse_stale(root)
    for _ in range(ATTEMPTS):
        with _names_stay(root / FOLDER) as do_stay, image_copy(root / FOLDER) as copy:
            names = read_names(root / FOLDER) or Content({})  # behind the copy: a snapshot syncs the names before
            if do_stay():
                yield _checked(names, copy)
                return
    raise OSError(errno.EBUSY, "the names of POP's windows are written anew again and again", str(root / FOLDER / FILE))


@contextmanager
def _names_stay(folder: Path) -> Iterator[Callable[[], bool]]:
    """A question whether the names are in the same file as before. A start that leaves out windows which have ended
    makes another one. The file stays open, so no other one gets its inode."""
    try:
        file = (folder / FILE).open("rb")
    except FileNotFoundError:
        yield lambda: not (folder / FILE).exists()
        return
    with file:
        yield lambda: os.fstat(file.fileno()).st_nlink > 0


def _checked(names: Content, copy: MemoryCopy) -> OpenMemory:
    if fault := copy.lost or (f"{copy.damaged} windows and entries are damaged" if copy.damaged else ""):
        raise ValueError(f"the image of POP's memory cannot be used: {fault}")
    return OpenMemory(names.windows, copy)


def _refuse_stale(root: Path) -> None:
    """The gauges of the running worker tell the age of the last snapshot. A user who may not read them is not told."""
    if not read_watermarks(root).live:
        return
    try:
        plane = open_segment(plane_name(root), "plane", writable=False)
    except (OSError, ValueError):
        return
    with plane, ffi.from_buffer("char *", plane) as base:
        if lib.rmq_plane_check(base, len(plane)) < 0:
            return
        words = ffi.cast("struct rmq_plane_header *", base).roles[lib.RMQ_ROLE_POP].counters
        since_ms, fault = int(words[Gauge.UNSAVED_MS]), int(words[Gauge.SNAPSHOT_FAULT])
    age_ms = monotonic_ms() - since_ms if since_ms else 0
    if age_ms > STALE_MS:
        cause = _FAULTS.get(SnapshotFault(fault), "the worker pop does not write it")
        raise ValueError(
            f"the image of POP's memory lacks the changes of the last {age_ms // 1000} s: {cause}; "
            "`ringmq group inflight` asks the worker itself"
        )
