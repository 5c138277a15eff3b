"""Wheel and log of a running worker, mapped for the C core (native/src/timer/timer_files.h).

One process has them at a time. What a slot has is known from the log, which `scan` reads at the start, so no later
change of the wheel misleads.

Blocks are allocated before units are written there, so a full disk is an error of `make_room` and not the end of the
process.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from ringmq.broker.requests.turns import Steps
from ringmq.native import ffi, lib
from ringmq.store.layout import TIMER_WHEEL_FILE, file_name
from ringmq.store.markers import sync_directory
from ringmq.timer import timer_log, timer_wheel
from ringmq.timer.placement import WINDOW_SLOTS, WINDOW_SLOTS_MAX
from ringmq.timer.timer_log import UNIT_BYTES
from ringmq.timer.timer_scan import LOG_NAME, ScanRange, TimerScan

ROOM_BYTES = 1 << 20
"""Blocks that are allocated at a time."""
FILE_MODE = 0o644
CHAINS_BYTES: int = lib.RMQ_TIMER_SLOTS * ffi.sizeof("struct rmq_timer_chain")


class TimerFilesFailedError(Exception):
    """Wheel or log could not be synced, read or written, or a unit is not as it was written, so they are deleted. A new
    process rebuilds them."""


class UnfitFilesError(Exception):
    """The files cannot be those of this precision and size, so they are to be rebuilt from the timer topic."""


class _File(Struct):
    path: Path
    descriptor: int
    map: mmap.mmap
    pointer: Any

    @classmethod
    def open(cls, path: Path, size: int, *, creates: bool) -> _File:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT | os.O_EXCL if creates else 0)
        descriptor = os.open(path, flags, FILE_MODE)
        try:
            if creates:
                os.ftruncate(descriptor, size)
            found = os.fstat(descriptor).st_size
            if found != size:
                raise UnfitFilesError(f"{path} has {found} bytes, not {size}")
            mapped = mmap.mmap(descriptor, size)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(path, descriptor, mapped, ffi.from_buffer("uint8_t *", mapped, require_writable=True))

    def close(self) -> None:
        ffi.release(self.pointer)
        self.map.close()
        os.close(self.descriptor)


class TimerFiles:
    """Opens wheel and log, or makes them where there are none.

    Raises UnfitFilesError for files of other sizes, and OSError.
    """

    def __init__(self, root: Path, precision_ms: int, window_slots: int, file_bytes: int) -> None:
        self.root, self._folder = root, root / timer_log.FOLDER
        self._folder.mkdir(exist_ok=True)
        self.is_new = not (root / TIMER_WHEEL_FILE).exists()
        self.file_bytes = file_bytes
        self._files: list[_File] = []
        self.struct = ffi.new("struct rmq_timer_files *")
        self._wheel = _File.open(root / TIMER_WHEEL_FILE, timer_wheel.FILE_BYTES, creates=self.is_new)
        os.posix_fallocate(self._wheel.descriptor, 0, timer_wheel.FILE_BYTES)
        begin = self._open_log(file_bytes)
        self.struct.wheel, self.struct.precision_ms, self.struct.window_slots = (
            self._wheel.pointer, precision_ms, window_slots,
        )  # fmt: skip
        self.struct.coarsest_ms = precision_ms
        self.struct.file_bytes, self.struct.log_begin, self.struct.log_end = file_bytes, begin, begin
        self._set_table()
        chains = mmap.mmap(-1, CHAINS_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._chains = ffi.from_buffer("struct rmq_timer_chain[]", chains, require_writable=True)
        self.struct.chains = self._chains
        self.scanned_from = begin
        """Units before it are of slots that are delivered."""
        self.is_rebuilt = False
        """True if they replace files that could not be used."""
        self.mended_slots = 0
        self.window_slots = window_slots
        """The window by which all units were filed. 0: it is not known."""
        self.widest_slots = max(window_slots, WINDOW_SLOTS)
        """No waiting message has been filed by a wider window, with a step of `coarsest_ms`."""
        self._scan: TimerScan | None = None
        if error := lib.rmq_timer_pages_cover(self.struct):
            raise OSError(-error, os.strerror(-error))

    def scan(self, wanted: ScanRange, oldest_record: int | None) -> Steps[str]:
        """Read the log, in steps, and write slots of the wheel that differ again.

        Returns how they did, empty if they did not. `oldest_record`: see TimerScan.log_fault.

        Raises UnfitFilesError for a log that is not as it was written, and TimerFilesFailedError.
        """
        self._scan = TimerScan(self.struct, wanted)
        self.scanned_from = int(self._scan.struct.begin)
        yield from self._scan.steps()
        self._scan.compare(mends=True)
        self.check()
        if fault := self._scan.log_fault(oldest_record):
            raise UnfitFilesError(fault)
        self.mended_slots = self._scan.differing_slots
        return self._scan.wheel_fault()

    def drop_last(self, unit: Any) -> None:
        """Take the last unit of the log off."""
        lib.rmq_timer_drop_last(self.struct, unit)

    def mend_wheel(self) -> None:
        """Write slots of the wheel that differ from the log again."""
        if self._scan is not None:
            self._scan.compare(mends=True)

    def note_window(self, saved_slots: int) -> None:
        """Set `window_slots` and `widest_slots` behind the scan. `saved_slots`: of the units before this start."""
        present, is_empty = int(self.struct.window_slots), self.log_end == self.log_begin
        self.window_slots = present if is_empty or saved_slots == present else 0
        had_units = self.is_rebuilt or not is_empty
        before = WINDOW_SLOTS_MAX if had_units and not saved_slots else saved_slots
        self.widest_slots = max(self.widest_slots, before)

    def _open_log(self, file_bytes: int) -> int:
        paths = sorted(path for path in self._folder.iterdir() if path.name.isdigit())
        if paths and not paths[-1].stat().st_size:
            paths.pop().unlink()  # of a death between its creation and its first byte
        begin = int(paths[0].name) if paths else 0
        for number, path in enumerate(paths):
            if path.name != file_name(begin + number * file_bytes):
                raise UnfitFilesError(f"{path}: a file of {file_bytes} bytes before it is missing")
            self._files.append(_File.open(path, file_bytes, creates=False))
        return begin

    def _set_table(self) -> None:
        self._table = ffi.new("uint8_t *[]", [file.pointer for file in self._files])
        self.struct.log, self.struct.file_count = self._table, len(self._files)
        self.struct.log_room = 0

    @property
    def log_end(self) -> int:
        """Position behind the last unit."""
        return int(self.struct.log_end)

    @property
    def files_end(self) -> int:
        """Position behind the newest file."""
        return self.log_begin + len(self._files) * self.file_bytes

    @property
    def log_begin(self) -> int:
        """Position of the first file."""
        return int(self.struct.log_begin)

    @property
    def units_end(self) -> int:
        """Number behind the last unit."""
        per_file = timer_log.units_per_file(self.file_bytes)
        return self.log_end // self.file_bytes * per_file + self.log_end % self.file_bytes // UNIT_BYTES

    def make_room(self, units: int) -> None:
        """Allocate blocks for that many units, or up to the end of the newest file. Raises OSError."""
        if lib.rmq_timer_is_full(self.struct):
            self._add_file()
        end = self.log_end - self.log_end % self.file_bytes + self.file_bytes
        wanted = min(end, self.log_end + units * UNIT_BYTES + timer_log.BLANK.size)
        if wanted > self.struct.log_room:
            upto = min(end, wanted + ROOM_BYTES)
            at = self.log_end % self.file_bytes
            os.posix_fallocate(self._files[-1].descriptor, at, upto - self.log_end)
            self.struct.log_room = upto

    def _add_file(self) -> None:
        path = self._folder / file_name(self.files_end)
        file = _File.open(path, self.file_bytes, creates=True)
        try:
            sync_directory(self._folder)
        except OSError:  # the folder may not have the file after a power cut
            file.close()
            path.unlink()
            raise
        self._files.append(file)
        self._set_table()

    def descriptors(self, from_position: int) -> Sequence[int]:
        """Return duplicates of the descriptors of wheel and log from a position on, for a thread that syncs."""
        skipped = max(0, from_position - self.log_begin) // self.file_bytes
        return [os.dup(file.descriptor) for file in (*self._files[skipped:], self._wheel)]

    def drop_before(self, position: int) -> int:
        """Delete log files that end before or at a position, never the newest. Returns their number."""
        count = 0
        while len(self._files) > 1 and self.log_begin + self.file_bytes <= position:
            file = self._files.pop(0)
            room = self.struct.log_room
            self.struct.log_begin = self.log_begin + self.file_bytes
            self._set_table()
            self.struct.log_room = room
            file.close()
            file.path.unlink()
            count += 1
        return count

    def unit(self, position: int) -> Any | None:
        """Return the unit at a position (struct rmq_timer_unit). None if there is none."""
        found = ffi.new("struct rmq_timer_unit *")
        return found if lib.rmq_timer_unit_at(self.struct, position, found) else None

    def unit_of(self, commit_log_offset: int) -> Any | None:
        """Return the unit of a record (struct rmq_timer_unit). None if there is none."""
        found = ffi.new("struct rmq_timer_unit *")
        return found if lib.rmq_timer_unit_of(self.struct, commit_log_offset, found) else None

    def last_of_file(self, number: int) -> Any | None:
        """Return the last unit of a full file, counted from the oldest."""
        last = (timer_log.units_per_file(self.file_bytes) - 1) * UNIT_BYTES
        return self.unit(self.log_begin + number * self.file_bytes + last)

    @property
    def file_count(self) -> int:
        """Number of the log's files."""
        return len(self._files)

    def check(self) -> None:
        """Raise TimerFilesFailedError if since the files were opened a page could not be read or written, or a read has
        met a unit that is not as it was written.

        Belongs between a read of the files and what is done with it: the page has zeros since then.
        """
        if self.struct.missing != ffi.NULL:
            fault = f"{self._path_at(self.struct.missing)}: a page cannot be read or written"
        elif self.struct.damaged:
            raise self.failed(int(self.struct.damaged) - 1)
        else:
            return
        remove_files(self.root)
        raise TimerFilesFailedError(fault)

    def failed(self, position: int) -> TimerFilesFailedError:
        """Delete the files, and return the error that names this unit."""
        remove_files(self.root)
        return TimerFilesFailedError(f"{LOG_NAME}, position {position}: the unit is not as it was written")

    def _path_at(self, address: Any) -> Path:
        for file in self._files:
            if file.pointer <= address < file.pointer + len(file.map):
                return file.path
        return self._wheel.path

    def close(self) -> None:
        """Unmap all."""
        lib.rmq_timer_pages_uncover(self.struct)
        for file in (*self._files, self._wheel):
            file.close()
        self._files = []


def remove_files(root: Path) -> None:
    """Delete wheel and log. The timer topic has all that they had."""
    folder = root / timer_log.FOLDER
    (root / TIMER_WHEEL_FILE).unlink(missing_ok=True)
    if folder.is_dir():
        for path in folder.iterdir():
            if path.name.isdigit():
                path.unlink()
        sync_directory(folder)
    sync_directory(root)
