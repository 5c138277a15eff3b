"""The error of a broker that cannot start. Its message ends with the next step, where possible a command line."""

import errno
import os
import pwd
import shlex
import stat
from pathlib import Path

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.run_config import store_config
from ringmq.broker.config.store_sizes import load_advice
from ringmq.ipc.exit_status import EXIT_STORE_REFUSED
from ringmq.store import layout
from ringmq.store.config_files import ConfigFileError, moved_away
from ringmq.store.log_loss import LostLogError
from ringmq.store.mapped_file import StoreLoadError

_DENIED = (errno.EACCES, errno.EPERM)
_WRONG_TYPE = (errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)
_MARKERS = (layout.ABORT, layout.FAILED_MARKER, layout.REBUILD_MARKER)
"""Files whose existence says how the last run ended. They come back empty: without them the start would trust more."""


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
    path = Path(error.filename or root)
    status = EXIT_STORE_REFUSED if error.errno in _FOR_GOOD else 1
    remedy = _remedy(path, error, root)
    return StartError(f"{path}: the broker cannot use it: {error.strerror or error}; {remedy}", status)


def unusable_config(error: ConfigFileError) -> StartError:
    """The error of a config file without usable content."""
    cause = error.__cause__
    if isinstance(cause, OSError) and cause.filename:
        path = Path(cause.filename)
        advice = _remedy(path, cause, path.parent.parent)
    elif error.paths:
        advice = f"repair it. To start without its content, run: {moved_away(error.paths)}"
    else:
        advice = "repair the file"
    return StartError(f"{error}; {advice}", EXIT_STORE_REFUSED)


def unloadable(config: BrokerConfig, error: StoreLoadError) -> StartError:
    """The error of log, queue or index files that do not fit the configuration, or are lost."""
    fault = error.fault if isinstance(error, LostLogError) else str(error)
    return StartError(
        f"the store {store_config(config).root} cannot be loaded: {fault}; {load_advice(config)}", EXIT_STORE_REFUSED
    )


def _remedy(path: Path, error: OSError, root: Path) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "make room on its disk"
    if error.errno == errno.EFBIG:
        return f"to start without its content, run: {moved_away([path])}"
    is_wrong_type = error.errno in _WRONG_TYPE or _is_special(path)
    if error.errno in _DENIED and not is_wrong_type:
        return _right_to(path, root)
    is_numbered = len(path.name) == len(layout.file_name(0)) and path.name.isdigit()
    if not is_wrong_type or is_numbered:
        return "no command mends it: look at its disk, and restore it from a copy"
    command = moved_away([path])
    if path.name in _MARKERS:
        command += " && " + shlex.join(["touch", "--", str(path)])
    return f"it has to be a plain file. To start without its content, run: {command}"


def _is_special(path: Path) -> bool:
    """True for a socket, a FIFO or a device, and for a link to one."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _right_to(path: Path, root: Path) -> str:
    """Advice on a file that this user may not use or make. The first folder on the way that is closed comes first.

    A folder on the way to the store is other programs', too. No command gives it away.
    """
    folders = [*reversed(path.parents)]
    closed = next((folder for folder in folders if not os.access(folder, os.X_OK, effective_ids=True)), path)
    try:
        status = closed.lstat()
    except FileNotFoundError:
        closed = closed.parent
        status = closed.lstat()
    if status.st_uid == os.geteuid():
        rights = "u+rwx" if stat.S_ISDIR(status.st_mode) else "u+rw"
        return "give this user the right to read and write it, run: " + shlex.join(["chmod", rights, "--", str(closed)])
    if closed in root.parents or closed == Path(closed.anchor):
        return f"{closed} is closed to this user: choose another folder for the store (--store, storePathRootDir)"
    command = shlex.join(["chown", _user_name(), "--", str(closed)])
    return f"give this user the right to read and write it, run as root: {command}"


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
