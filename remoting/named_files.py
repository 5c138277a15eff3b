"""Files whose paths a person names: properties and credentials, which are read, and the state of programs."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from ringmq.fastjson.files import read_plain_file

_HANDED_OVER = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
"""Pipes that the caller has opened: a shell makes them for `<(command)`."""


def open_named_file(path: Path) -> BinaryIO:
    """Open a file for reading. Raises OSError with the path, also for a named pipe: it might never have a writer."""
    if str(path).startswith(_HANDED_OVER):
        return path.open("rb")
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISDIR(mode):
        os.close(descriptor)
        code, text = (errno.EISDIR, "it is a folder") if stat.S_ISDIR(mode) else (errno.EINVAL, "it is a named pipe")
        raise OSError(code, text, str(path))
    return os.fdopen(descriptor, "rb")


def read_state_file(path: Path, bytes_max: int) -> bytes:
    """Return the content of a file that a program of ours writes itself. Raises OSError with the path, also for a
    larger file and for another type than a plain file."""
    return read_plain_file(path, bytes_max)
