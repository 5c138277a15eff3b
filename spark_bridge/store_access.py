"""Files of a store that cannot be read: their faults and the remedies."""

import contextlib
import grp
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from ringmq.spark_bridge.errors import ReadError
from ringmq.store import layout
from ringmq.store.commit_log import CommitLog
from ringmq.store.config import StoreConfigError
from ringmq.store.mapped_file import StoreLoadError
from ringmq.store.store_format import StoreFormatError, check_format


@contextlib.contextmanager
def readable(root: Path) -> Iterator[None]:
    """Turn errors of the files of the store `root` inside the block into `ReadError`."""
    try:
        yield
    except PermissionError as error:
        raise ReadError(_refused(Path(error.filename or root))) from error
    except FileNotFoundError as error:
        raise ReadError(f"store {root}: {error.filename} is not there") from error
    except (StoreLoadError, StoreConfigError) as error:
        raise ReadError(f"store {root} is not readable as a RocketMQ store: {error}") from error
    except StoreFormatError as error:
        raise ReadError(str(error)) from error
    except OSError as error:
        raise ReadError(f"store {root}: {error}") from error


def check_folder(root: Path) -> None:
    """Raise `ReadError` if the folder holds no store, StoreFormatError if a newer RingMQ has written it.

    Raises PermissionError if this user cannot see the folder.
    """
    try:
        is_folder = stat.S_ISDIR((root / layout.COMMIT_LOG).stat().st_mode)
    except FileNotFoundError:
        is_folder = False
    if not is_folder:
        raise ReadError(
            f"option store: {root} has no folder commitlog on this host; it is the broker's storePathRootDir, and its "
            "log has to lie in it"
        )
    check_format(root)


def check_log(log: CommitLog) -> None:
    """Raise StoreLoadError if the log's files do not have a known format."""
    log.files.check_sizes()
    if not log.files.starts:
        return
    head = log.files.read(log.files.min_offset, 8)
    if head is None or not any(head):
        return  # the file is still empty
    magic = int.from_bytes(head[4:8], "big")
    if magic not in (layout.MAGIC_V1, layout.MAGIC_V2, layout.MAGIC_BLANK):
        raise StoreLoadError(
            f"{log.files.path(log.files.min_offset)} begins with magic {magic:08X}, not {layout.MAGIC_V1:08X} or "
            f"{layout.MAGIC_V2:08X}: another program's file, or a newer format"
        )


def _refused(path: Path) -> str:
    """Return the reason why this user may not read a file or folder, and the user to ask."""
    user = _user(os.geteuid())
    for place in (path, *path.parents):
        try:
            status = place.stat()
        except OSError:
            continue  # a folder above does not let us see it
        if not os.access(place, os.R_OK | (os.X_OK if place.is_dir() else 0)):
            group = _group(status.st_gid)
            return (
                f"user {user} may not read {place}, which is {_user(status.st_uid)}:{group} "
                f"{stat.filemode(status.st_mode)}; members of group {group} may read a store with folders 0750 and "
                f"files 0640 (usermod -a -G {group} {user})"
            )
    return f"user {user} may not read {path}"


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)
