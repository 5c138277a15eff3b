"""Readers' claim on a log file: a shared open-file-description lock on its first byte.

A reader takes it on its read-only descriptor: it needs no right to write, leaves nothing behind, and the lock ends with
its process. Who deletes files takes the exclusive lock first; a reader that comes then waits and finds the file gone.
So does a recovery that must not find a file mapped.
"""

import errno
import fcntl
import os
from pathlib import Path

from ringmq.store.store_lock import byte_0_lock


def lock_for_deletion(path: Path) -> int | None:
    """A descriptor that keeps new readers waiting until it is closed, None when the file is being read.

    Raises OSError, FileNotFoundError for a file that is gone.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, byte_0_lock(fcntl.F_WRLCK))
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return None
        raise
    return descriptor
