"""The error of a broker that cannot start."""

import errno
from pathlib import Path

from ringmq.ipc.exit_status import EXIT_STORE_REFUSED


class StartError(RuntimeError):
    """The broker cannot start. The message says what to do. `status` is the exit status."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


_FOR_GOOD = (
    errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.EINVAL, errno.EFBIG, errno.ENXIO,
)  # fmt: skip
"""Errors of a file's type, owner, mode or size. The next start would meet them, too."""


def unusable_file(root: Path, error: OSError) -> StartError:
    """The error of a file in the store at `root` that the system does not let this broker use."""
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    status = EXIT_STORE_REFUSED if error.errno in _FOR_GOOD else 1
    usual = "give this user the right to read and write it, or restore it from a copy"
    remedy = "make room on its disk" if is_full else usual
    return StartError(
        f"{error.filename or root}: the broker cannot use it: {error.strerror or error}; {remedy}", status
    )
