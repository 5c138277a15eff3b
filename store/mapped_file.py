"""Queues of files of one size, named by the offset of their first byte, mapped on demand and read-only.

A file that another process may map is never truncated here. It is unlinked, and existing mappings keep its bytes.
"""

import bisect
import errno
import mmap
import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from pathlib import Path

from ringmq.store.safe_files import open_to_write


class StoreLoadError(Exception):
    """The files on disk cannot be a RocketMQ store. The message names file and expectation."""


class EmptyFileError(StoreLoadError):
    """A file without bytes, left by a crash between create and resize."""


_Inode = tuple[int, int]


class MappedFileCache:
    """Least recently used read-only mappings, shared by all file queues of a store.

    Dropping an entry only drops the cache's reference: slices in use keep their mapping alive.
    """

    def __init__(self, capacity: int = 256) -> None:
        self._capacity = capacity
        self._maps: OrderedDict[str, tuple[mmap.mmap, _Inode]] = OrderedDict()

    def get(self, path: str, advice: int = mmap.MADV_NORMAL) -> mmap.mmap:
        """Return the mapping of a whole, non-empty file. Raises FileNotFoundError or StoreLoadError."""
        found = self._maps.get(path)
        if found is not None:
            self._maps.move_to_end(path)
            return found[0]
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # not by pathlib, which is slow for thousands of queues
        try:
            status = os.fstat(descriptor)
            if status.st_size == 0:
                raise EmptyFileError(f"{path}: the file is empty")
            mapped = self._map(descriptor, status.st_size)
        finally:
            os.close(descriptor)
        if advice != mmap.MADV_NORMAL:
            mapped.madvise(advice)
        self._maps[path] = (mapped, _inode(status))
        if len(self._maps) > self._capacity:
            self._maps.popitem(last=False)
        return mapped

    def _map(self, descriptor: int, size: int) -> mmap.mmap:
        try:
            return mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
        except OSError as error:
            if error.errno != errno.ENOMEM:
                raise
        self.clear()  # the process may have less address space, or fewer mappings, than `capacity` takes
        return mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)

    def forget(self, path: str) -> None:
        """Drop a mapping whose file was unlinked or replaced."""
        self._maps.pop(path, None)

    def forget_gone(self) -> None:
        """Drop the mappings of files that were unlinked or replaced: the mappings keep their blocks allocated."""
        for path, (_, inode) in list(self._maps.items()):
            try:
                is_there = _inode(os.stat(path)) == inode  # noqa: PTH116
            except FileNotFoundError:
                is_there = False
            if not is_there:
                del self._maps[path]

    def forget_folder(self, folder: str) -> None:
        """Drop the mappings of all files below a folder whose files were unlinked."""
        for path in [path for path in self._maps if path.startswith(f"{folder}/")]:
            del self._maps[path]

    def clear(self) -> None:
        """Drop all mappings."""
        self._maps.clear()


def _inode(status: os.stat_result) -> _Inode:
    return status.st_dev, status.st_ino


class FileQueue:
    """Files of `file_bytes` each in one or several directories. Addresses are offsets over the whole queue."""

    def __init__(
        self, directories: Iterable[Path], file_bytes: int, cache: MappedFileCache, advice: int = mmap.MADV_NORMAL
    ) -> None:
        self._advice = advice
        self.directories = tuple(directories)
        self.file_bytes = file_bytes
        self._cache = cache
        self._paths: dict[int, str] = {}  # not pathlib, which is slow for thousands of queues
        self.starts: list[int] = []
        self.strange: list[str] = []
        """Paths that have the name of a file and are none, such as folders."""
        self.refresh()

    def refresh(self) -> None:
        """List the directories again. Sub-directories and foreign names are ignored."""
        paths: dict[int, str] = {}
        strange: list[str] = []
        for directory in self.directories:
            try:
                entries = list(os.scandir(directory))
            except FileNotFoundError:
                continue
            for entry in entries:
                if len(entry.name) == 20 and entry.name.isdigit():
                    if entry.is_file():
                        paths[int(entry.name)] = entry.path
                    else:
                        strange.append(entry.path)
        for start in self._paths.keys() - paths.keys():
            self._cache.forget(self._paths[start])
        self._paths = paths
        self.starts = sorted(paths)
        self.strange = strange

    def check_sizes(self, *, remove_empty: bool = False) -> None:
        """Raise StoreLoadError for a file of another length, or with a name that is no multiple of it.

        A crash between create and resize leaves a newest file of length 0, which is ignored or removed.
        """
        if self.strange:
            raise StoreLoadError(f"{self.strange[0]} is no file")
        for _, _, fault in self.faults(remove_empty=remove_empty):
            raise StoreLoadError(fault)

    def faults(self, *, remove_empty: bool = False) -> Iterator[tuple[int, int, str]]:
        """Yield (start, length, fault) of each file that `check_sizes` refuses."""
        for start in list(self.starts):
            path = self._paths[start]
            size = os.stat(path).st_size  # noqa: PTH116
            if size == 0 and start == self.starts[-1]:
                if remove_empty:
                    self.unlink(start)
                continue
            if size != self.file_bytes:
                yield start, size, f"{path} has {size} bytes, not {self.file_bytes} as configured"
            elif start % self.file_bytes:
                yield start, size, f"{path}: the name is not a multiple of the file size, {self.file_bytes} bytes"

    def is_newest_empty(self) -> bool:
        """True if the newest file has no bytes."""
        return bool(self.starts) and os.stat(self._paths[self.starts[-1]]).st_size == 0  # noqa: PTH116

    def leave_out(self, start: int) -> str:
        """Remove one file from the list alone, and return its path."""
        path = self._paths.pop(start)
        self.starts.remove(start)
        self._cache.forget(path)
        return path

    def path(self, start: int) -> Path:
        """Return the path of the file that starts at `start`."""
        return Path(self._paths[start])

    def path_text(self, start: int) -> str:
        """Return the path as plain text, which is cheaper for thousands of queues."""
        return self._paths[start]

    def head(self, start: int, length: int) -> bytes:
        """Return the first bytes of a file without mapping it.

        Raises KeyError and FileNotFoundError for a missing file.
        """
        descriptor = os.open(self._paths[start], os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(descriptor, length, 0)
        finally:
            os.close(descriptor)

    def start_of(self, offset: int) -> int | None:
        """Return the start of the file that holds this offset, None without one."""
        index = bisect.bisect_right(self.starts, offset) - 1
        if index < 0 or offset >= self.starts[index] + self.file_bytes:
            return None
        return self.starts[index]

    def find(self, offset: int) -> tuple[int, mmap.mmap] | None:
        """Return (start, mapping) of the file with this offset. Lists the directories again before it gives up."""
        for attempt in (0, 1):
            start = self.start_of(offset)
            if start is not None:
                try:
                    return start, self._cache.get(self._paths[start], self._advice)
                except (FileNotFoundError, EmptyFileError):
                    pass  # unlinked by retention since the listing, or never written
            if attempt == 0:
                self.refresh()
        return None

    def read(self, offset: int, length: int) -> memoryview | None:
        """Return bytes of one file without a copy, None if they do not lie in one existing file."""
        found = self.find(offset)
        if found is None or length < 0:
            return None
        at = offset - found[0]
        if at + length > len(found[1]):
            return None
        return memoryview(found[1])[at : at + length]

    def rest(self, offset: int, end: int) -> memoryview | None:
        """Return the bytes from `offset` to the end of its file, but not behind `end`."""
        found = self.find(offset)
        if found is None:
            return None
        return memoryview(found[1])[offset - found[0] : max(offset, min(end, found[0] + len(found[1]))) - found[0]]

    @property
    def min_offset(self) -> int:
        """Return the first byte's offset, 0 for an empty queue."""
        return self.starts[0] if self.starts else 0

    @property
    def end_offset(self) -> int:
        """Return the offset behind the newest file."""
        return self.starts[-1] + self.file_bytes if self.starts else 0

    def unlink(self, start: int) -> None:
        """Remove one file from the disk and from the list."""
        Path(self.leave_out(start)).unlink()

    def set_aside(self, start: int, target: Path) -> None:
        """Move one file out of the queue with its bytes. Raises OSError if `target` is on another file system."""
        Path(self.leave_out(start)).rename(target)


def data_chunks(descriptor: int, start: int, end: int, chunk_bytes: int = 1 << 20) -> Iterator[tuple[int, bytes]]:
    """Yield (position, bytes) of the data of a file range, holes and unwritten space skipped."""
    # Find all ranges before the first read. Read-ahead makes unwritten space look like data.
    for first, stop in list(_data_ranges(descriptor, start, end)):
        at = first
        while at < stop:
            chunk = os.pread(descriptor, min(chunk_bytes, stop - at), at)
            if not chunk:
                return
            yield at, chunk
            at += len(chunk)


def data_end(path: str, start: int) -> int:
    """Return the position behind the last byte from `start` on that is no hole and no unwritten space, else `start`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        ranges = _data_ranges(descriptor, start, os.fstat(descriptor).st_size)
        return max((stop for _, stop in ranges), default=start)
    finally:
        os.close(descriptor)


def has_data(path: str, start: int) -> bool:
    """True if a byte from `start` on is not zero."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        end = os.fstat(descriptor).st_size
        return any(chunk.count(0) != len(chunk) for _, chunk in data_chunks(descriptor, start, end))
    finally:
        os.close(descriptor)


def _data_ranges(descriptor: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    at = start
    while at < end:
        try:
            at = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError:
            return  # ENXIO: nothing but a hole up to the end
        if at < end:
            stop = min(end, os.lseek(descriptor, at, os.SEEK_HOLE))
            yield at, stop
            at = stop


def write_zeros(path: Path, start: int, end: int) -> int:
    """Overwrite the non-zero data of a file range with zeros in place. Returns the number of written bytes.

    Needed behind a cut of the log: old bytes must never look like records again. Raises OSError.
    """
    written = 0
    descriptor = open_to_write(path, os.O_RDWR)
    try:
        for at, chunk in data_chunks(descriptor, start, end):
            if chunk.count(0) != len(chunk):
                os.pwrite(descriptor, bytes(len(chunk)), at)
                written += len(chunk)
        if written:
            os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
    return written
