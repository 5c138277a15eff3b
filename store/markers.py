"""Small files that tell the next start how the last run ended.

`abort`         RocketMQ's: there while a broker runs, its process id as text, `ringmq` behind ours; found at start =
                unclean exit.
`ringmq.boot`   kernel boot id and the identity of the folder: while both still hold, everything that any process wrote
                is in the page cache or on disk, however the process ended, and dispatch lacks nothing but a tail. A
                copied store never matches.
`ringmq.failed` an fsync failed in the last run: cached pages may be clean without being on disk.
"""

import contextlib
import os
from pathlib import Path

from ringmq.store import layout

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_OUR_ABORT = b" ringmq"


def sync_directory(directory: Path) -> None:
    """Make creations, renames and removals in a folder durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, data: bytes) -> None:
    """Write a whole file so that after a crash either the old or the new content is there."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_directory(path.parent)


def replace_or_remove(path: Path, data: bytes | None) -> None:
    """`replace_file`, which makes the folder; without data the file is taken away, durably too. Raises OSError."""
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
    """Say whether the last owner did not stop cleanly."""
    return (root / layout.ABORT).exists()


def is_abort_of_stock(root: Path) -> bool:
    """Say whether the last owner did not stop cleanly and was no RingMQ."""
    try:
        return not (root / layout.ABORT).read_bytes().endswith(_OUR_ABORT)
    except FileNotFoundError:
        return False


def write_abort(root: Path, pid: int) -> None:
    """Mark the store as running. The mark of a run before is written over where it lies: that works on a full disk."""
    text = str(pid).encode() + _OUR_ABORT
    with contextlib.suppress(FileNotFoundError), (root / layout.ABORT).open("r+b") as file:
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
    """Say whether the store was last opened by us in this boot of the kernel, at this very place."""
    try:
        return (root / layout.BOOT_MARKER).read_text() == _boot_text(root)
    except FileNotFoundError:
        return False


def write_boot_marker(root: Path) -> None:
    """Remember this boot: called after recovery, once dispatch has redone what lies farther back than the tail."""
    if not is_same_boot(root):
        replace_file(root / layout.BOOT_MARKER, _boot_text(root).encode())


def remove_boot_marker(root: Path) -> None:
    """The next start reads from the checkpoint, whatever it finds in the page cache."""
    _remove(root / layout.BOOT_MARKER)


def failed_cause(root: Path) -> str | None:
    """Return what the last run wrote about its failed fsync, None when there was none."""
    try:
        return (root / layout.FAILED_MARKER).read_text()
    except FileNotFoundError:
        return None


def write_failed_marker(root: Path, cause: str) -> None:
    """Leave word of a failed fsync. Best effort by nature: the same disk may refuse this too (OSError)."""
    replace_file(root / layout.FAILED_MARKER, cause.encode())


def remove_failed_marker(root: Path) -> None:
    """Called after a recovery that read everything from the disk again."""
    _remove(root / layout.FAILED_MARKER)
