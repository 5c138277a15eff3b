"""The memory of POP: a segment of shared memory that outlives every process, and files for power cuts.

The segment is the truth while the machine runs. A death of any process, or of all, leaves it as it was. A clean stop
removes it, because then the image (`image_file.py`) has all of it. A power cut takes it, and leaves an image that is
about a second old.

One process has the memory at a time: the worker `pop`, and before any worker the main process, which compares it with
the log (`open_work.py`) and leaves the plane's `start_id` in the header. Memory without this sign is not used.
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
import stat
from pathlib import Path
from typing import Any, Literal, Protocol

from ringmq.ipc import segment
from ringmq.ipc.role_loop import RoleError
from ringmq.native import ffi, lib
from ringmq.pop import image_file
from ringmq.pop.copy_mark import own_copy
from ringmq.pop.image_file import CHUNK, ENTRY_BYTES, IMAGE, PAGE, STATE_AT, Header, HeaderError
from ringmq.pop.names import Names
from ringmq.store.crash_points import passed

log = logging.getLogger(__name__)

PART = "pop"

Origin = Literal["kept", "image", "new"]
"""The source of the memory: a segment that has outlived its process, the files, or none."""


class HasStart(Protocol):
    """The part of a plane that says which start of the broker it is of."""

    @property
    def watermarks(self) -> Any: ...


class PopMemoryError(RoleError):
    """The memory cannot be had. The message names the file and the cause."""


class PopMemory:
    """The mapped memory. `pages`, `layout`, `header`: structs of the C core over it."""

    def __init__(self, root: Path, descriptor: int, path: Path, header: Header, origin: Origin) -> None:
        self.root, self.folder, self.path, self.origin = root, root / image_file.FOLDER, path, origin
        self.layout = header.layout
        self.was_cut = False
        """True if a power cut has taken what came after the last snapshot."""
        self._descriptor = descriptor
        self._map = mmap.mmap(descriptor, int(self.layout.mapped_bytes))
        self.base = ffi.from_buffer("uint8_t *", self._map, require_writable=True)
        self.header = ffi.cast("struct rmq_pop_header *", self.base)
        self.pages = lib.rmq_pop_pages_open(self.base, self.layout, descriptor)
        if self.pages == ffi.NULL:
            code = ffi.errno
            ffi.release(self.base)
            self._map.close()
            raise OSError(code, os.strerror(code), str(path))

    @classmethod
    def open(cls, root: Path, plane: HasStart, *, entries_max: int, windows_max: int) -> PopMemory:
        """Map the memory for the worker `pop`.

        The memory is made anew if there is none, or if this start of the broker has not compared it with the log: then
        groups continue at their consumer offsets. Raises PopMemoryError.
        """
        start_id = int(plane.watermarks.start_id)
        try:
            memory = cls.load(root, entries_max=entries_max, windows_max=windows_max)
            if memory is not None and int(memory.header.start_id) != start_id:
                log.warning("%s", f"{memory.folder}: it was not compared with the log, so it is not used")
                memory.discard()
                memory = None
            log_end = int(plane.watermarks.append_offset)
            memory = memory or cls.make(root, start_id, log_end, entries_max=entries_max, windows_max=windows_max)
            if memory.was_cut:
                Names(memory.folder, was_cut=True).close()  # the worker's own look begins behind reserved ids
            if memory.header.clean:
                memory.touch_header()
                memory.header.clean = 0
            return memory
        except OSError as error:
            raise PopMemoryError(f"pop: its memory cannot be had: {describe(error)}") from error

    @classmethod
    def load(cls, root: Path, *, entries_max: int = 0, windows_max: int = 0) -> PopMemory | None:
        """Map the segment that was left, else one with the content of the image. None: there is neither.

        A segment that was left keeps its size, and so do both without `entries_max`.

        Files that this build cannot use are named in a log line and are not used. Raises OSError.
        """
        folder = root / image_file.FOLDER
        try:
            stored = image_file.load(folder)
        except HeaderError as error:
            log.warning("%s", f"{folder / IMAGE}: {error}; messages that consumers have taken may come again")
            stored = None
        remove_lasting(root, but=stored.store_id if stored is not None else None)
        if stored is None:
            return None
        kept = _open_kept(root, stored)
        if kept is not None:
            return cls._over(root, *kept, "kept")
        used, end = _used_entries(folder, stored)
        if fault := image_file.lost_entries(stored, used):
            log.warning("%s", f"{folder / IMAGE}: {fault}; messages that consumers have taken may come again")
            return None
        if windows_max > stored.windows_max:
            stored = image_file.widen(folder, stored, windows_max)
        return cls._from_image(root, stored, max(entries_max or stored.entries_max, end))

    @classmethod
    def make(cls, root: Path, start_id: int, log_end: int, *, entries_max: int, windows_max: int) -> PopMemory:
        """Make memory without windows, with a new store id. No mark in the log so far is of it. Raises OSError.

        `start_id` 0: the memory does not count until its maker has filled it and stores one.
        """
        folder = image_file.make_folder(root)
        own_copy(folder)
        header = Header(int.from_bytes(os.urandom(8)) | 1, 0, windows_max, entries_max)
        head = ffi.new("struct rmq_pop_header *", {
            "magic": lib.RMQ_POP_MAGIC, "version": lib.RMQ_POP_VERSION, "page_bytes": PAGE, "start_id": start_id,
            "store_id": header.store_id, "windows_max": windows_max, "entries_max": entries_max,
            "marks_from": log_end,
        })  # fmt: skip
        image_file.new_image(folder, head, passed)
        memory = cls._from_image(root, header, entries_max)
        memory.origin = "new"
        return memory

    @classmethod
    def _from_image(cls, root: Path, stored: Header, entries_max: int) -> PopMemory:
        """Make the segment from the image. Its header page is written last: a segment without it is none."""
        path = _path(root, stored.store_id)
        layout = lib.rmq_pop_layout_of(stored.windows_max, entries_max)
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, int(layout.mapped_bytes))
            marks = int(layout.mapped_bytes - layout.bytes)
            os.posix_fallocate(descriptor, int(layout.bytes), marks)
            passed("pop-segment-made")
            _fill(descriptor, root / image_file.FOLDER / IMAGE, stored, entries_max)
            passed("pop-segment-filled")
        except BaseException:
            os.close(descriptor)
            path.unlink(missing_ok=True)
            raise
        header = Header(stored.store_id, stored.snapshot, stored.windows_max, entries_max)
        memory = cls._over(root, descriptor, header, "image")
        if entries_max != stored.entries_max:
            memory.touch_header()
        memory.was_cut = not memory.header.clean
        return memory

    @classmethod
    def _over(cls, root: Path, descriptor: int, header: Header, origin: Origin) -> PopMemory:
        try:
            return cls(root, descriptor, _path(root, header.store_id), header, origin)
        except BaseException:
            os.close(descriptor)
            raise

    @property
    def is_of_start(self) -> bool:
        """True if a start of the broker has made it, and it has not changed since."""
        return int(self.header.snapshot) <= 1

    def save_whole(self) -> None:
        """Write a whole new image, which counts as the next snapshot, and forget a failed one. For the main process,
        before any worker runs.

        Raises OSError. If the disk has no room, a failed one stays failed, and the old image is not used any more
        without this memory. Snapshots of the worker make up for it.
        """
        header = self.header
        failed = int(header.failed_errno)
        self.touch_header()
        header.failed_errno = 0
        header.used_entries = self._count_used() + 1
        image_file.number_header(header, header.places[header.snapshot % 2])
        lib.rmq_pop_pages_begin(self.pages)
        try:
            with memoryview(self._map) as data:
                image_file.write_image(self.folder, data, self.layout, self._has, passed)
        except OSError as error:
            header.failed_errno = error.errno or errno.EIO  # POP refuses until a start can write it
            if error.errno in image_file.NO_ROOM:
                image_file.outdate(self.folder, int(header.snapshot))
                header.failed_errno = failed
            raise
        finally:
            lib.rmq_pop_pages_give_up(self.pages)
        lib.rmq_pop_pages_saved(self.pages)

    def fault_of_image(self) -> str:
        """The fault of the image beside this segment, "" if it has all entries of its snapshot. Raises OSError and
        HeaderError."""
        if self.origin != "kept":
            return ""  # the memory was made from it, or the other way round
        with (self.folder / IMAGE).open("rb") as image:
            stored = image_file.read_header(image.read(PAGE), has_check=True)
        return image_file.lost_entries(stored, _used_entries(self.folder, stored)[0])

    def _count_used(self) -> int:
        """Entries in use."""
        begin, end, used = int(self.layout.entries_at), int(self.layout.bytes), 0
        with memoryview(self._map) as data:
            for at in range(begin - begin % CHUNK, end, CHUNK):
                if self._has(at):
                    used += _used(data[max(at, begin) : min(at + CHUNK, end)])
        return used

    def _has(self, at: int) -> bool:
        return bool(lib.rmq_pop_pages_has(self.pages, self.base + at))

    def touch_header(self) -> None:
        """Call it before a change of the header."""
        lib.rmq_pop_pages_touch(self.pages, self.header)

    def close(self, *, clean: bool) -> None:
        """Unmap the memory. `clean`: the image has all of it, so the segment goes."""
        self._unmap()
        if clean:
            self.path.unlink(missing_ok=True)

    def discard(self) -> None:
        """Unmap the memory, and remove segment and files. Names stay: no id is used again. Raises OSError."""
        self._unmap()
        self.path.unlink(missing_ok=True)
        for name in (image_file.JOURNAL, IMAGE):
            (self.folder / name).unlink(missing_ok=True)
        own_copy(self.folder)

    def _unmap(self) -> None:
        if self.pages != ffi.NULL:
            lib.rmq_pop_pages_close(self.pages)
        self.pages = self.header = ffi.NULL
        ffi.release(self.base)
        self._map.close()
        os.close(self._descriptor)


def describe(error: OSError) -> str:
    """File and cause, with the remedy for a full /dev/shm."""
    place = f"{error.filename}: " if error.filename else ""
    hint = f"; make room in {segment.SHM_DIR}" if error.filename and str(segment.SHM_DIR) in str(error.filename) else ""
    return f"{place}{error.strerror or error}{hint}"


def _path(root: Path, store_id: int) -> Path:
    return segment.SHM_DIR / f"{segment.lasting_name(root, PART)}-{store_id:016x}"


def remove_lasting(root: Path, *, but: int | None = None) -> None:
    """Remove segments of POP that stores of this place have left, but for that with this id."""
    segment.remove_lasting(root, PART, keep=None if but is None else _path(root, but))


def _open_kept(root: Path, stored: Header) -> tuple[int, Header] | None:
    """Open the segment that an earlier process has left, if it is that of this image and not older. Raises OSError."""
    path = _path(root, stored.store_id)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    header = _kept_header(path, descriptor, stored)
    if header is None:
        os.close(descriptor)
        return None
    return descriptor, header


def _kept_header(path: Path, descriptor: int, stored: Header) -> Header | None:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        log.warning("%s", f"{path}: it belongs to user {status.st_uid}, so it is not used")
        return None
    try:
        header = image_file.read_header(os.pread(descriptor, PAGE, 0), has_check=False)
    except HeaderError:
        return None  # its maker died before it was filled, or was another version
    if header.store_id != stored.store_id or status.st_size != header.layout.mapped_bytes:
        return None
    if header.snapshot < stored.snapshot:
        log.warning(
            "%s", f"{path}: it is of snapshot {header.snapshot}, but the store has {stored.snapshot}: it is not used"
        )
        return None
    return header


def _used_entries(folder: Path, stored: Header) -> tuple[int, int]:
    """(entries in use, entries up to the last one in use) of the image."""
    used = end = 0
    for index, data in _entry_chunks(folder / IMAGE, stored):
        states = data[STATE_AT::ENTRY_BYTES].rstrip(b"\0")
        if states:
            used, end = used + _used(data), index + len(states)
    return used, end


def _used(entries: bytes | memoryview) -> int:
    """The number of entries that are in use."""
    states = bytes(entries[STATE_AT::ENTRY_BYTES])
    return len(states) - states.count(0)


def _entry_chunks(image: Path, stored: Header) -> Any:
    """Yield (number of the first entry, bytes) of each part of the image's entries that is no hole."""
    layout = stored.layout
    descriptor = os.open(image, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        for begin, end in image_file.data_ranges(descriptor, int(layout.entries_at), int(layout.bytes)):
            for at in range(begin, end, CHUNK):
                data = os.pread(descriptor, min(CHUNK, end - at), at)
                yield (at - int(layout.entries_at)) // ENTRY_BYTES, data
    finally:
        os.close(descriptor)


def _fill(descriptor: int, image: Path, stored: Header, entries_max: int) -> None:
    """Copy the image into a new segment, the header last. Raises OSError.

    A page without an entry in use stays out: memory that a burst once took is given back.
    """
    layout = stored.layout
    source = os.open(image, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        for begin, end in image_file.data_ranges(source, int(layout.windows_at), int(layout.entries_at)):
            for at in range(begin, end, CHUNK):
                _write(descriptor, os.pread(source, min(CHUNK, end - at), at), at)
        for index, data in _entry_chunks(image, stored):
            if data[STATE_AT::ENTRY_BYTES].rstrip(b"\0"):
                _write(descriptor, data, int(layout.entries_at) + index * ENTRY_BYTES)
        head = ffi.new("struct rmq_pop_header *")
        ffi.buffer(head)[:] = os.pread(source, image_file.HEADER_BYTES, 0)
        head.entries_max = entries_max
        _write(descriptor, bytes(ffi.buffer(head)), 0)
    finally:
        os.close(source)


def _write(descriptor: int, data: bytes, at: int) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(descriptor, rest, at)
        rest, at = rest[written:], at + written
