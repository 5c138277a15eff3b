"""Opening of files for writing in a folder that other users may also write to, and free names for files to keep.

A broker that runs as root on another user's folder would write through a link to any file of the machine. So no link
is followed, and the file has to be a plain one of this user or of root.
"""

import errno
import os
import stat
from pathlib import Path


def open_to_write(path: Path, flags: int, mode: int = 0o644) -> int:
    """Return a descriptor of a file in its folder, opened with `flags` (os.O_RDWR, os.O_CREAT and so on).

    Raises OSError with the path: ELOOP for a link, EPERM for a file of a foreign user or of another type.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid not in (os.geteuid(), 0):
            raise OSError(errno.EPERM, "it is no plain file of this user or of root", str(path))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def write_new_file(path: Path, data: bytes) -> None:
    """Write and sync a file that replaces any of this name: a link is removed, not followed. Raises OSError."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def free_name(path: Path) -> Path:
    """Return `path`, or the first path with a number behind it that does not exist."""
    number = 2
    free = path
    while free.exists():
        free, number = path.with_name(f"{path.name}.{number}"), number + 1
    return free
