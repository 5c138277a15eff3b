"""Shared-memory files of one store: /dev/shm/ringmq-<st_dev>-<st_ino>-<secret>-<part>.

Each start draws a new secret and writes it into `<store>/ringmq.shm`. So no other user can occupy a name before the
broker makes it, and processes that may read the store find the plane. Brokers of earlier versions have
names without a secret. Two brokers on one store would collide; the store's lock prevents that.

A lasting segment outlives the broker: /dev/shm/ringmq-<part>-<st_dev>-<st_ino>-<secret>. Its owner keeps the secret in
a file of the store, and removes the segment at a clean stop.
"""

import contextlib
import mmap
import os
import re
from pathlib import Path

SHM_DIR = Path("/dev/shm")


_OPEN = os.O_NOFOLLOW | os.O_CLOEXEC
NAME_FILE = "ringmq.shm"
_SECRET_BYTES = 12
_SECRET_CHARS = 2 * _SECRET_BYTES
_SECRET = re.compile(r"[0-9a-f]{24}")


def plane_name(store_root: Path) -> str:
    """Name of the plane of the store at `store_root` (which must exist).

    The name without a secret counts if a broker of an earlier version ran last: it has a watermark page of the store's
    owner, which is newer than a page that a killed broker of this version left. Raises PermissionError.
    """
    plain = plain_name(store_root)
    try:
        with open(store_root / NAME_FILE, "rb", opener=_without_waiting) as file:
            secret = file.read(_SECRET_CHARS + 1).decode("utf-8", "replace").strip()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return plain
    if not _SECRET.fullmatch(secret):
        return plain
    name = f"{plain}-{secret}"
    older = segment_path(plain, "watermarks")
    is_older_last = _made_ns(older) > _made_ns(segment_path(name, "watermarks")) and _is_of_owner(older, store_root)
    return plain if is_older_last else name


def _without_waiting(path: str, flags: int) -> int:
    """Open a file. A pipe in its place would wait for a writer, and is empty this way."""
    return os.open(path, flags | os.O_NONBLOCK)


def _made_ns(path: Path) -> int:
    """Return the time in ns at which a segment was made, -1 without one. Stores through a mapping do not change it."""
    try:
        return path.lstat().st_ctime_ns
    except FileNotFoundError:
        return -1


def plain_name(store_root: Path) -> str:
    """Name of the plane that a broker of an earlier version makes."""
    status = store_root.stat()
    return f"ringmq-{status.st_dev:x}-{status.st_ino:x}"


def renew_plane_name(store_root: Path) -> None:
    """Remove the segments that earlier brokers of this store have left, and draw a new name.

    Only the holder of the store's lock may call this. Raises OSError.
    """
    remove_segments(plain_name(store_root))
    (store_root / NAME_FILE).unlink(missing_ok=True)
    descriptor = os.open(store_root / NAME_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
    try:
        with contextlib.suppress(PermissionError):  # not in the group: the process's own group reads it
            os.fchown(descriptor, -1, store_root.stat().st_gid)
        os.write(descriptor, os.urandom(_SECRET_BYTES).hex().encode())
    finally:
        os.close(descriptor)


def _is_of_owner(path: Path, store_root: Path) -> bool:
    try:
        return path.lstat().st_uid in (store_root.stat().st_uid, os.geteuid())
    except FileNotFoundError:
        return False


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
    descriptor = os.open(segment_path(name, part), (os.O_RDWR if writable else os.O_RDONLY) | _OPEN)
    try:
        size_bytes = os.fstat(descriptor).st_size
        return mmap.mmap(descriptor, size_bytes, prot=mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0))
    finally:
        os.close(descriptor)


def lasting_name(store_root: Path, part: str) -> str:
    """Name of a segment of the store that outlives its broker, without the secret."""
    status = store_root.stat()
    return f"ringmq-{part}-{status.st_dev:x}-{status.st_ino:x}"


def lasting_of_plane(name: str, part: str) -> str:
    """The same for the store of the plane `name`."""
    parts = name.split("-")
    return f"ringmq-{part}-{parts[1]}-{parts[2]}" if len(parts) > 2 else f"{name}-{part}"


def remove_lasting(store_root: Path, part: str, *, keep: Path | None = None) -> None:
    """Unlink this user's lasting segments of the store's place, but for one. Segments of other users stay."""
    for path in SHM_DIR.glob(f"{lasting_name(store_root, part)}-*"):
        with contextlib.suppress(PermissionError, IsADirectoryError, FileNotFoundError):
            if path != keep and path.lstat().st_uid == os.geteuid():
                path.unlink()


def remove_segments(name: str) -> None:
    """Unlink this user's segments of the plane `name`, and of planes whose names go on behind it.

    Anybody may make files and folders of such names in SHM_DIR. What cannot be unlinked stays. If it has the name of a
    segment, `create_segment` fails and names it.
    """
    for path in SHM_DIR.glob(f"{name}-*"):
        with contextlib.suppress(PermissionError, IsADirectoryError, FileNotFoundError):
            if path.lstat().st_uid == os.geteuid():
                path.unlink()
