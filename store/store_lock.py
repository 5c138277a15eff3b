"""The lock of a store's single owner: an open-file-description lock on byte 0 of `<root>/lock`.

It conflicts with the POSIX lock that a stock broker takes on the same byte, in both directions. Unlike a POSIX lock
it belongs to the open file, so every worker with the inherited descriptor holds it until the last worker is gone.
"""

import contextlib
import errno
import fcntl
import os
import struct
from pathlib import Path

from ringmq.store import layout
from ringmq.store.safe_files import open_to_write

FLOCK = struct.Struct("hhqqi4x")  # struct flock on 64-bit Linux: type, whence, start, length, pid
CONTENT = b"lock"


class StoreLockedError(Exception):
    """Another broker owns the store."""


def byte_0_lock(kind: int) -> bytes:
    """Return the argument of fcntl for a lock of `kind` (fcntl.F_RDLCK, F_WRLCK or F_UNLCK) on a file's first byte."""
    return FLOCK.pack(kind, os.SEEK_SET, 0, 1, 0)


def _open(path: Path) -> int:
    """Open the file. A new one is readable to the group of the store's folder alone, because a reader may lock it.

    An existing file keeps its mode.
    """
    try:
        return open_to_write(path, os.O_RDWR)
    except FileNotFoundError:
        descriptor = open_to_write(path, os.O_RDWR | os.O_CREAT, 0o640)
        with contextlib.suppress(PermissionError):  # not in the group: the process's own group reads it
            os.fchown(descriptor, -1, path.parent.stat().st_gid)
        return descriptor


class StoreLock:
    """Holds the lock while `descriptor` (or an inherited copy of it) is open."""

    def __init__(self, root: Path) -> None:
        """Take the lock at once or raise StoreLockedError naming the folder and, where known, the owner."""
        root.mkdir(parents=True, exist_ok=True)
        path = root / layout.LOCK
        self.descriptor = _open(path)
        try:
            fcntl.fcntl(self.descriptor, fcntl.F_OFD_SETLK, byte_0_lock(fcntl.F_WRLCK))
        except OSError as error:
            is_reader, owner = self._owner()
            os.close(self.descriptor)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            if is_reader:
                raise StoreLockedError(
                    f"{path}: a process{owner} that is no broker holds a read lock on it: end that process (lslocks "
                    "lists it), and let the store's group alone read the file: chmod 640"
                ) from error
            raise StoreLockedError(f"{root}: another broker{owner} has this store open ({path} is locked)") from error
        if os.pread(self.descriptor, 5, 0) != CONTENT:
            os.pwrite(self.descriptor, CONTENT, 0)
            os.ftruncate(self.descriptor, len(CONTENT))
        os.set_inheritable(self.descriptor, True)

    def _owner(self) -> tuple[bool, str]:
        """Return True for a read lock, which no broker takes, and the holder's process where known."""
        answer = FLOCK.unpack(fcntl.fcntl(self.descriptor, fcntl.F_OFD_GETLK, byte_0_lock(fcntl.F_WRLCK)))
        return answer[0] == fcntl.F_RDLCK, f" (process {answer[4]})" if answer[4] > 0 else ""

    def close(self) -> None:
        """Close this descriptor. The lock ends with the last inherited copy."""
        os.close(self.descriptor)
