"""Readers' claim on a log file: a shared open-file-description lock on its first byte.

A reader locks through its read-only descriptor. The lock needs no right to write, leaves nothing behind, and ends
with its process. Retention takes the exclusive lock before it deletes a file. A later reader waits and finds the file
gone. A recovery that needs a file to be unmapped does the same.
"""

import errno
import fcntl
import os
from pathlib import Path

from ringmq.store.safe_files import open_to_write
from ringmq.store.store_lock import byte_0_lock


def lock_for_deletion(path: Path) -> int | None:
    """Return a descriptor that makes new readers wait until it is closed, None if the file is being read.

    Raises OSError, FileNotFoundError for a file that is gone.
    """
    descriptor = open_to_write(path, os.O_RDWR)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, byte_0_lock(fcntl.F_WRLCK))
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return None
        raise
    return descriptor
