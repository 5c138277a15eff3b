"""Small files by which the next start learns the end of the last run.

`abort`         RocketMQ's: exists while a broker runs, with its process id as text, followed by `ringmq` in RingMQ's.
                A start that finds it follows an unclean exit.
`ringmq.boot`   kernel boot id and the identity of the folder. While both hold, all bytes that any process wrote are
                in the page cache or on disk, however the process ended, and dispatch lacks nothing but a tail. A copied
                store never matches.
`ringmq.failed` an fsync failed in the last run: cached pages may be clean without being on disk.
"""

import contextlib
import os
from pathlib import Path

from ringmq.fastjson.files import read_head
from ringmq.store import layout
from ringmq.store.safe_files import open_to_write, write_new_file

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_OUR_ABORT = b" ringmq"
MARK_BYTES_MAX = 4096


def sync_directory(directory: Path) -> None:
    """Make creations, renames and removals in a folder durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, data: bytes) -> None:
    """Write a whole file. After a crash it has either the old or the new content."""
    temporary = path.with_name(path.name + ".tmp")
    write_new_file(temporary, data)
    temporary.replace(path)
    sync_directory(path.parent)


def replace_unsynced(path: Path, text: str) -> None:
    """Write a whole file that need not outlive a power cut, and make its folder. A death of the process leaves the old
    or the new content, a power cut perhaps an empty file. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".tmp")
    fresh.write_text(text)
    fresh.replace(path)


def replace_or_remove(path: Path, data: bytes | None) -> None:
    """Like `replace_file`, and make the folder. Without data the file is removed, durably too. Raises OSError."""
    if data is None:
        _remove(path)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, data)


def _remove(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
        sync_directory(path.parent)


def has_abort(root: Path) -> bool:
    """True if the last owner did not stop cleanly."""
    return (root / layout.ABORT).exists()


def is_abort_of_stock(root: Path) -> bool:
    """True if the last owner did not stop cleanly and was no RingMQ."""
    try:
        return not read_head(root / layout.ABORT, MARK_BYTES_MAX).endswith(_OUR_ABORT)
    except FileNotFoundError:
        return False


def write_abort(root: Path, pid: int) -> None:
    """Mark the store as running. An old mark is overwritten in place, which works on a full disk."""
    text = str(pid).encode() + _OUR_ABORT
    with (
        contextlib.suppress(FileNotFoundError),
        os.fdopen(open_to_write(root / layout.ABORT, os.O_RDWR), "r+b") as file,
    ):
        file.write(text)
        file.truncate()
        return
    replace_file(root / layout.ABORT, text)


def remove_abort(root: Path) -> None:
    """Mark a clean stop: everything is on disk and dispatched."""
    _remove(root / layout.ABORT)


def _boot_text(root: Path) -> str:
    status = root.stat()
    return f"{BOOT_ID.read_text().strip()}\n{status.st_dev}:{status.st_ino}\n"


def is_same_boot(root: Path) -> bool:
    """True if RingMQ last opened the store in this boot of the kernel, in this very folder."""
    try:
        return read_head(root / layout.BOOT_MARKER, MARK_BYTES_MAX) == _boot_text(root).encode()
    except FileNotFoundError:
        return False


def write_boot_marker(root: Path) -> None:
    """Record this boot. Called after recovery, once dispatch has redone the records before the tail."""
    if not is_same_boot(root):
        replace_file(root / layout.BOOT_MARKER, _boot_text(root).encode())


def remove_boot_marker(root: Path) -> None:
    """Remove the record of the boot, so that the next start reads from the checkpoint."""
    _remove(root / layout.BOOT_MARKER)


def failed_cause(root: Path) -> str | None:
    """Return the recorded cause of the last run's failed fsync, None without one."""
    try:
        return read_head(root / layout.FAILED_MARKER, MARK_BYTES_MAX).decode("utf-8", "replace")
    except FileNotFoundError:
        return None


def write_failed_marker(root: Path, cause: str) -> None:
    """Record a failed fsync as well as possible: the same disk may refuse this write too (OSError)."""
    replace_file(root / layout.FAILED_MARKER, cause.encode())


def remove_failed_marker(root: Path) -> None:
    """Remove the record after a recovery that read everything from the disk again."""
    _remove(root / layout.FAILED_MARKER)
