"""`<root>/pop/names`: the group, topic and queue of each window, by its id.

    5f1d04c2 ["r",1025]
    93ab11e0 ["w",1,"Orders","Payments",3,0]

Each line has the CRC-32 of its JSON. `w`: id, group, topic, queue id, log offset from which the topic is the one of
this name. `r`: ids below this number may be in use. `n`: they are in use. Lines are only added. Marks in the log hold
ids, so no id is used again while the log may have one. A power cut may take the last lines; the synced `r` lines tell
which ids they had.

A start writes the file anew when most of its windows have ended, or lines are damaged, and the disk has room.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path

from msgspec import Struct

from ringmq.native import lib
from ringmq.pop.image_file import FILE_MODE, NO_ROOM, give_to_group
from ringmq.store.crash_points import Step, passed
from ringmq.store.markers import sync_directory
from ringmq.store.safe_files import open_to_write

log = logging.getLogger(__name__)

FILE = "names"
IDS_END: int = lib.RMQ_POP_WINDOW_IDS
RESERVED = 1024
"""Ids that one synced line reserves."""
STALE_LINES = 4096
"""Lines of ended windows that a start leaves in the file, beside as many as windows live."""
LINE_BYTES_MAX = 4096


class WindowName(Struct, frozen=True):
    """The name of a window. `birth`: log offset from which the topic is the one of this name, 0 = from the first."""

    window_id: int
    group: str
    topic: str
    queue_id: int
    birth: int


class NoIdsError(OSError):
    """All ids are used up. The message says what helps."""


class Content(Struct):
    """The content of the file. `damaged`: lines whose checksum is wrong, without a torn last one."""

    windows: dict[int, WindowName]
    next_id: int = 1
    reserved: int = 1
    damaged: int = 0
    lines: int = 0
    size: int = 0
    """Bytes up to the end of the last whole line."""


def read_names(folder: Path) -> Content | None:
    """Read the file, None without one. Raises OSError."""
    try:
        data = (folder / FILE).read_bytes()
    except FileNotFoundError:
        return None
    content = Content({})
    whole = data.rfind(b"\n") + 1
    content.size = whole
    for line in data[:whole].splitlines():
        content.lines += 1
        if not _take_line(content, line):
            content.damaged += 1
    if content.damaged:  # such a line may have reserved ids
        content.reserved = max(content.reserved, content.next_id) + RESERVED
    return content


def _take_line(content: Content, line: bytes) -> bool:
    crc, _, text = line.partition(b" ")
    try:
        if int(crc, 16) != zlib.crc32(text):
            return False
        match json.loads(text):
            case ["r", int(end)]:
                content.reserved = max(content.reserved, end)
                return True
            case ["n", int(end)]:
                content.next_id = max(content.next_id, end)
                return True
            case ["w", int(number), str(group), str(topic), int(queue_id), int(birth)]:
                content.windows[number] = WindowName(number, group, topic, queue_id, birth)
                content.next_id = max(content.next_id, number + 1)
                return True
    except ValueError:
        pass
    return False


def _line(entry: list[object]) -> bytes:
    text = json.dumps(entry, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


class Names:
    """The names of the windows that live. Adds lines, and syncs them when a snapshot needs it.

    `first_id`: no lower id is free. `was_cut`: a power cut may have taken lines, so ids that were reserved are passed
    over. Raises OSError.
    """

    def __init__(self, folder: Path, *, first_id: int = 1, was_cut: bool = False, step: Step = passed) -> None:
        self._fault: OSError | None = None
        self.path, self._step = folder / FILE, step
        content = read_names(folder) or Content({})
        self._windows = content.windows
        self._next_id = max(first_id, content.next_id, content.reserved if was_cut or content.damaged else 1)
        self._reserved = content.reserved
        self.damaged = content.damaged
        self._size, self._lines = content.size, content.lines
        self._is_unsynced = True  # a dead predecessor may have left lines
        self._descriptor = self._open()
        if self._next_id > content.next_id:
            try:
                self._append(_line(["n", self._next_id]))  # the next start has to know it, too
            except OSError as error:
                if not content.damaged or error.errno not in NO_ROOM:
                    raise  # else the damaged lines tell the next start as much
            self.sync()

    def _open(self) -> int:
        try:
            descriptor = open_to_write(self.path, os.O_RDWR)
        except FileNotFoundError:
            descriptor = open_to_write(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE)
            give_to_group(descriptor, self.path.parent)
            sync_directory(self.path.parent)
        os.ftruncate(descriptor, self._size)  # a torn line would spoil the next one
        return descriptor

    @property
    def ids_left(self) -> int:
        """Ids that no window has had."""
        return IDS_END - self._next_id

    def add(self, group: str, topic: str, queue_id: int, birth: int) -> int:
        """Name a new window, and return its id. Raises NoIdsError, and OSError if the line cannot be written: then the
        id is not used."""
        if self._next_id >= IDS_END:
            text = f"all {IDS_END - 1} ids of windows are used up; a clean stop without open messages frees them"
            raise NoIdsError(errno.ENOSPC, text)
        if self._next_id >= self._reserved:
            end = min(self._next_id + RESERVED, IDS_END)
            self._append(_line(["r", end]))
            self._step("pop-names-reserved")
            self.sync()
            self._reserved = end
        name = WindowName(self._next_id, group, topic, queue_id, birth)
        self._append(_line(["w", name.window_id, group, topic, queue_id, birth]))
        self._step("pop-name-added")
        self._next_id += 1
        self._windows[name.window_id] = name
        return name.window_id

    def pass_over(self, window_id: int) -> None:
        """Give no id up to some beyond this one, whose line is lost. Lines behind it may be lost, too. Raises
        OSError."""
        if window_id < self._next_id:
            return
        self._next_id = min(window_id + RESERVED, IDS_END)
        self._append(_line(["n", self._next_id]))
        self.sync()

    def all(self) -> Iterator[tuple[int, str, str, int]]:
        """(id, group, topic, queue id) of each window, the oldest first."""
        for number in sorted(self._windows):
            name = self._windows[number]
            yield number, name.group, name.topic, name.queue_id

    def of(self, window_id: int) -> WindowName | None:
        """The name of a window."""
        return self._windows.get(window_id)

    def forget(self, window_id: int) -> None:
        """Forget a window that has ended. Its line stays, and its id is not used again."""
        self._windows.pop(window_id, None)

    def keep(self, window_ids: Collection[int]) -> None:
        """Forget all windows but these, and write the file anew if it has damaged lines or gets much shorter. On a full
        disk the file stays as it is. Raises OSError."""
        self._windows = {number: name for number, name in self._windows.items() if number in window_ids}
        if not self.damaged and self._lines <= 2 * len(self._windows) + STALE_LINES:
            return
        try:
            self._rewrite()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            log.warning("%s", f"{self.path}: {error.strerror}; the next start writes it anew")

    def sync(self) -> None:
        """Bring all lines to the disk. Called in the thread of snapshots, too. Raises OSError. After one failure it
        always does, because no sync is tried again."""
        if self._fault is not None:
            raise self._fault
        if self._is_unsynced:
            self._is_unsynced = False
            try:
                os.fdatasync(self._descriptor)
            except OSError as error:
                self._fault = OSError(error.errno, error.strerror, str(self.path))
                raise self._fault from error

    def restart(self) -> None:
        """Begin with id 1 again: no window lives, and no mark in the log counts any more. Raises OSError."""
        self._windows, self._next_id, self._reserved = {}, 1, 1
        self._rewrite()

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def _append(self, line: bytes) -> None:
        """Write a line whole, or not at all. A part of it would spoil the next one."""
        try:
            written = os.pwrite(self._descriptor, line, self._size)
            while written < len(line):
                written += os.pwrite(self._descriptor, line[written:], self._size + written)
        except OSError as error:
            os.ftruncate(self._descriptor, self._size)
            raise OSError(error.errno, error.strerror, str(self.path)) from error
        self._size += len(line)
        self._lines += 1
        self._is_unsynced = True

    def _rewrite(self) -> None:
        self._reserved = max(self._reserved, self._next_id)
        lines = [_line(["r", self._reserved]), _line(["n", self._next_id])]
        names = (self._windows[number] for number in sorted(self._windows))
        lines += (_line(["w", name.window_id, name.group, name.topic, name.queue_id, name.birth]) for name in names)
        data = b"".join(lines)
        fresh = self.path.with_name(FILE + ".tmp")
        fresh.unlink(missing_ok=True)
        descriptor = open_to_write(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE)
        try:
            give_to_group(descriptor, self.path.parent)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
            self._step("pop-names-rewritten")
            fresh.replace(self.path)
            sync_directory(self.path.parent)
        except BaseException:
            os.close(descriptor)
            fresh.unlink(missing_ok=True)
            raise
        os.close(self._descriptor)
        self._descriptor = descriptor
        self._size, self._lines = len(data), len(lines)
