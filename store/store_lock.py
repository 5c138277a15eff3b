"""The lock of a store's single owner: an open-file-description lock on byte 0 of `<root>/lock`.

It conflicts with the POSIX lock that a stock broker takes on the same byte, in both directions. Unlike a POSIX lock
it belongs to the open file, so every worker with the inherited descriptor holds it until the last worker is gone.
"""

import errno
import fcntl
import os
import struct
from pathlib import Path

from ringmq.store import layout

FLOCK = struct.Struct("hhqqi4x")  # struct flock on 64-bit Linux: type, whence, start, length, pid
CONTENT = b"lock"


class StoreLockedError(Exception):
    """Another broker owns the store."""


def byte_0_lock(kind: int) -> bytes:
    """Return the argument of fcntl for a lock of `kind` (fcntl.F_RDLCK, F_WRLCK or F_UNLCK) on a file's first byte."""
    return FLOCK.pack(kind, os.SEEK_SET, 0, 1, 0)


class StoreLock:
    """Holds the lock while `descriptor` (or an inherited copy of it) is open."""

    def __init__(self, root: Path) -> None:
        """Take the lock at once or raise StoreLockedError naming the folder and, where known, the owner."""
        root.mkdir(parents=True, exist_ok=True)
        path = root / layout.LOCK
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.fcntl(self.descriptor, fcntl.F_OFD_SETLK, byte_0_lock(fcntl.F_WRLCK))
        except OSError as error:
            owner = self._owner()
            os.close(self.descriptor)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise StoreLockedError(
                    f"{root}: another broker{owner} has this store open ({path} is locked)"
                ) from error
            raise
        if os.pread(self.descriptor, 5, 0) != CONTENT:
            os.pwrite(self.descriptor, CONTENT, 0)
            os.ftruncate(self.descriptor, len(CONTENT))
        os.set_inheritable(self.descriptor, True)

    def _owner(self) -> str:
        answer = fcntl.fcntl(self.descriptor, fcntl.F_OFD_GETLK, byte_0_lock(fcntl.F_WRLCK))
        pid = int(FLOCK.unpack(answer)[4])
        return f" (process {pid})" if pid > 0 else ""

    def close(self) -> None:
        """Close this descriptor. The lock ends with the last inherited copy."""
        os.close(self.descriptor)
