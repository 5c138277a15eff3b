"""The watermark page: offsets on which readers outside the broker (Spark, `ringmq store inspect`) may rely.

Byte map (native/src/plane/watermarks_layout.h, struct rmq_watermarks), machine byte order:
    0 magic u64   8 version u32  12 confirm_policy u32  16 start_id u64  24 owner_pid u32
   32 store_dev u64  40 store_ino u64
   64 append_offset u64  128 flushed_offset u64  192 dispatched_offset u64  256 min_offset u64
  384 store_fault u32  388 store_fault_errno i32  576 confirm_limit u64
The page is valid only while byte 0 of <store>/lock is locked (a live owner) and store_dev/store_ino are those of the
store. Without a page, readers may read to the end of the ConsumeQueues, but not while a RingMQ holds the lock: it
recovers the store and may cut the files. This module works without the C core.
"""

import fcntl
import os
import struct
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ringmq.ipc.segment import open_segment, plane_name

MAGIC = 0x5245544157514D52
CONFIRM_APPENDED = 0
CONFIRM_FLUSHED = 1
CONFIRM_LIMITED = 2
NO_LIMIT = 2**64 - 1
OURS = -1  # the kernel names no process for a lock of an open file
_FLOCK = struct.Struct("hhqqi4x")  # struct flock on 64-bit Linux: type, whence, start, length, pid


class Watermarks(Struct, frozen=True):
    """One read of the page. Every word is valid by itself; all but confirm_limit only grow."""

    live: bool
    append_offset: int
    flushed_offset: int
    dispatched_offset: int
    min_offset: int
    confirm_policy: int
    store_fault: int
    store_fault_errno: int
    owner_pid: int
    start_id: int
    confirm_limit: int = NO_LIMIT
    lock_holder: int | None = OURS
    """The owner of the store if there is no live page (see `lock_holder` below)."""

    @property
    def is_starting(self) -> bool:
        """True if a RingMQ owns the store and publishes no watermarks yet or any more: it starts or ends."""
        return not self.live and self.lock_holder == OURS

    @property
    def confirm_offset(self) -> int:
        """First commit-log offset that consumers may not see yet. A slave's limit may fall; readers then keep the
        higher offset."""
        local = self.flushed_offset if self.confirm_policy & CONFIRM_FLUSHED else self.append_offset
        bound = min(local, self.confirm_limit) if self.confirm_policy & CONFIRM_LIMITED else local
        return max(bound, self.dispatched_offset)


NOT_LIVE = Watermarks(False, 0, 0, 0, 0, 0, 0, 0, 0, 0, lock_holder=None)


def store_is_locked(store_root: Path) -> bool:
    """True if a process (ours or a stock broker) holds byte 0 of <store>/lock."""
    return lock_holder(store_root) is not None


def lock_holder(store_root: Path) -> int | None:
    """The holder of byte 0 of <store>/lock. None if the byte is free.

    OURS for a lock of an open file (RingMQ). For a lock of a process (stock) the pid, 0 if it is in another namespace.
    """
    try:
        descriptor = os.open(store_root / "lock", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        asked = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 1, 0)
        kind, _, _, _, process_id = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked))
        return None if kind == fcntl.F_UNLCK else int(process_id)
    finally:
        os.close(descriptor)


def read_watermarks(store_root: Path | str) -> Watermarks:
    """The page of the broker that owns `store_root`. `live` is False if there is none.

    A page that a killed RingMQ has left does not count as that of a stock broker which owns the store now.
    """
    root = Path(store_root)
    holder = lock_holder(root) if root.is_dir() else None
    without_page = replace(NOT_LIVE, lock_holder=holder)
    if holder != OURS:
        return without_page
    try:
        page = open_segment(plane_name(root), "watermarks", writable=False)
    except (FileNotFoundError, ValueError):
        return without_page
    with page:
        magic, _, policy, start_id, owner_pid = struct.unpack_from("=QIIQI", page, 0)
        store_dev, store_ino = struct.unpack_from("=QQ", page, 32)
        status = root.stat()
        if magic != MAGIC or (store_dev, store_ino) != (status.st_dev, status.st_ino):
            return without_page
        append, flushed, dispatched, lowest = (struct.unpack_from("=Q", page, at)[0] for at in (64, 128, 192, 256))
        fault, fault_errno = struct.unpack_from("=Ii", page, 384)
        (limit,) = struct.unpack_from("=Q", page, 576)
        return Watermarks(
            True, append, flushed, dispatched, lowest, policy, fault, fault_errno, owner_pid, start_id, limit
        )
