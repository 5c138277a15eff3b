"""Shared-memory files of one store: /dev/shm/ringmq-<st_dev>-<st_ino>-<part>.

The inode of the store root gives the name, so processes that can see the store find its plane. Two brokers on one store
would collide; the store's lock prevents that.
"""

import contextlib
import mmap
import os
from pathlib import Path

SHM_DIR = Path("/dev/shm")


def plane_name(store_root: Path) -> str:
    """Name of the plane of the store at `store_root` (which must exist)."""
    status = store_root.stat()
    return f"ringmq-{status.st_dev:x}-{status.st_ino:x}"


def segment_path(name: str, part: str) -> Path:
    """Path of the segment `part` (watermarks, plane, arena0, ...) of the plane `name`."""
    return SHM_DIR / f"{name}-{part}"


def create_segment(name: str, part: str, size_bytes: int, *, readers: int | None = None) -> mmap.mmap:
    """Make a zeroed segment in place of a stale one. Only the holder of the store's lock may call this.

    Only its owner may read it, unless `readers` is a group id: then the members of the group may read it, too.
    """
    path = segment_path(name, part)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        if readers is not None:
            with contextlib.suppress(PermissionError):  # not in the group: the process's own group reads it
                os.fchown(descriptor, -1, readers)
            os.fchmod(descriptor, 0o640)
        os.ftruncate(descriptor, size_bytes)
        return mmap.mmap(descriptor, size_bytes)
    finally:
        os.close(descriptor)


def open_segment(name: str, part: str, writable: bool = True) -> mmap.mmap:
    """Map an existing segment whole. Raises FileNotFoundError if no broker has made it."""
    descriptor = os.open(segment_path(name, part), (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
    try:
        size_bytes = os.fstat(descriptor).st_size
        return mmap.mmap(descriptor, size_bytes, prot=mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0))
    finally:
        os.close(descriptor)


def remove_segments(name: str) -> None:
    """Unlink every segment of the plane `name`.

    Anybody may make files and folders of such names in SHM_DIR. What cannot be unlinked stays. If it has the name of a
    segment, `create_segment` fails and names it.
    """
    for path in SHM_DIR.glob(f"{name}-*"):
        with contextlib.suppress(PermissionError, IsADirectoryError):
            path.unlink(missing_ok=True)
