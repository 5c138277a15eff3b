"""The commit log's files in one task: opened in the planned folder, locked against retention, mapped in small
windows.

While a segment is open its byte 0 holds a shared OFD lock (read-only descriptor, nothing is written; it ends with the
task). Retention leaves a locked segment alone. Forced cleaning on a full disk unlinks it nevertheless. Each new
window checks for that. An existing mapping keeps its bytes, as files never shrink.
"""

import errno
import fcntl
import mmap
import os
from pathlib import Path

from ringmq.spark_bridge.errors import DataLossError, ReadError
from ringmq.spark_bridge.slices import StoreLocation
from ringmq.spark_bridge.store_access import readable
from ringmq.store.store_lock import byte_0_lock

SEGMENTS_OPEN_MAX = 16
WINDOW_BYTES_MIN = 64 << 10
MAP_POPULATE = 0x8000


class Window:
    """Mapped bytes. `data[0]` has commit-log offset `start`, `end` is behind the last byte."""

    def __init__(self, data: mmap.mmap, start: int) -> None:
        self.data = data
        self.start = start
        self.end = start + len(data)

    def covers(self, begin: int, end: int) -> bool:
        """True if [begin, end) is in the window."""
        return self.start <= begin and end <= self.end

    def __enter__(self) -> "Window":
        return self

    def __exit__(self, *_: object) -> None:
        self.data.close()


class Segment:
    """One open and locked file of the log."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.start = int(path.name)
        self._descriptor = descriptor
        self.end = self.start + os.fstat(descriptor).st_size

    def check_present(self, offset: int) -> None:
        """Raise `DataLossError` if the file was unlinked meanwhile."""
        if os.fstat(self._descriptor).st_nlink == 0:
            raise DataLossError(
                f"{self.path} was deleted while it was read, at offset {offset}: forced cleaning of a full disk, or a "
                "recreated store"
            )

    def window(self, begin: int, end: int, *, populate: bool = False) -> Window:
        """Map [begin, end) from a page border on, or less if address space is short. Raises `DataLossError`."""
        self.check_present(begin)
        if not self.start <= begin < end <= self.end:
            raise ReadError(f"{self.path} ends at offset {self.end}, but {begin} to {end} was planned: it was replaced")
        first = (begin - self.start) // mmap.PAGESIZE * mmap.PAGESIZE
        data = _map(self._descriptor, first, end - self.start - first, MAP_POPULATE if populate else 0)
        return Window(data, self.start + first)

    def close(self) -> None:
        """Release the lock."""
        os.close(self._descriptor)


def _map(descriptor: int, first: int, length: int, flags: int) -> mmap.mmap:
    while True:
        try:
            return mmap.mmap(descriptor, length, mmap.MAP_SHARED | flags, mmap.PROT_READ, offset=first)
        except OSError as error:
            if error.errno != errno.ENOMEM or length <= WINDOW_BYTES_MIN:
                raise
            length //= 2  # RLIMIT_AS (spark.executor.pyspark.memory) counts mappings


class LogSegments:
    """The segments of a store, of which a few stay open.

    Raises `DataLossError` for a deleted segment, `ReadError` for one that cannot be opened.
    """

    def __init__(self, place: StoreLocation) -> None:
        self.folder = Path(place.root) / "commitlog"
        self._open: dict[int, Segment] = {}
        try:
            self._folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise _not_opened(self.folder, error) from error
        status = os.fstat(self._folder)
        if (status.st_dev, status.st_ino) != (place.device, place.inode):
            self.close()
            raise DataLossError(f"{self.folder} is another folder than planned: the store was recreated; plan again")
        self._starts = self._list()

    def _list(self) -> list[int]:
        names = os.listdir(self._folder)  # noqa: PTH208  # of the folder that is open, whatever the path says now
        return sorted(int(name) for name in names if len(name) == 20 and name.isdigit())

    def at(self, offset: int) -> Segment:
        """Return the segment that holds the commit-log offset."""
        for segment in self._open.values():
            if segment.start <= offset < segment.end:
                return segment
        if not self._starts or self._starts[-1] <= offset:
            self._starts = self._list()  # the log has grown
        start = max((start for start in self._starts if start <= offset), default=None)
        if start is None:
            raise DataLossError(f"{self.folder}: offset {offset} is before the first file: retention has taken it")
        segment = self._open_segment(start, offset)
        if offset >= segment.end:
            raise DataLossError(f"{self.folder}: no file holds offset {offset}: retention has taken it")
        return segment

    def _open_segment(self, start: int, offset: int) -> Segment:
        path = self.folder / f"{start:020d}"
        try:
            descriptor = os.open(path.name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._folder)
        except OSError as error:
            raise _not_opened(path, error) from error
        segment = Segment(path, descriptor)
        if len(self._open) >= SEGMENTS_OPEN_MAX:
            self._open.pop(next(iter(self._open))).close()
        self._open[start] = segment
        # it waits for a cleaner that has just decided, which holds its own lock for one unlink
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW, byte_0_lock(fcntl.F_RDLCK))
        segment.check_present(offset)
        return segment

    def next_start(self, offset: int) -> int | None:
        """Return the begin of the first file behind `offset`, None without one."""
        self._starts = self._list()
        return next((start for start in self._starts if start > offset), None)

    def close(self) -> None:
        """Release all locks."""
        for segment in self._open.values():
            segment.close()
        self._open.clear()
        os.close(self._folder)

    def __enter__(self) -> "LogSegments":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _not_opened(path: Path, error: OSError) -> RuntimeError:
    if isinstance(error, FileNotFoundError):
        return DataLossError(f"{path} is gone since the read was planned: retention, or a recreated store")
    try:
        with readable(path):
            raise error
    except ReadError as told:
        return told


class WindowCursor:
    """The last mapped window, for a walk that mostly goes forward."""

    def __init__(self, segments: LogSegments, window_bytes: int) -> None:
        self.segments = segments
        self._window_bytes = window_bytes
        self._window: Window | None = None

    def at(self, position: int, size: int) -> Window:
        """Return a window with all of [position, position + size). Raises `DataLossError` and `ReadError`."""
        if self._window is not None and self._window.covers(position, position + size):
            return self._window
        self.close()
        segment = self.segments.at(position)
        if position + size > segment.end:
            raise ReadError(
                f"{segment.path}: a record of {size} bytes at offset {position} reaches over the file's end"
            )
        self._window = segment.window(position, min(segment.end, position + max(size, self._window_bytes)))
        if not self._window.covers(position, position + size):
            raise ReadError(f"{segment.path}: no address space for a record of {size} bytes at offset {position}")
        return self._window

    def close(self) -> None:
        """Unmap it."""
        if self._window is not None:
            self._window.data.close()
            self._window = None
