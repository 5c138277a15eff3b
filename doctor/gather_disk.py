"""Facts about the disk under a folder: file system, space, and a bounded trial of syncs and bandwidth."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from ringmq.doctor.facts import DiskFacts
from ringmq.store.retention import used_ratio

SYNC_ROUNDS_MAX = 50
TRIAL_S = 1.5
"""Duration of each of the two trials."""
BLOCK = 4096
CHUNK_BYTES = 4 << 20
WRITTEN_BYTES_MAX = 64 << 20
FREE_BYTES_MIN = 4 * WRITTEN_BYTES_MAX
Clock = Callable[[], float]


def existing_folder(path: Path) -> Path:
    """Return `path`, or the nearest existing folder above it that this user may see."""
    return next(folder for folder in (path, *path.parents) if _is_seen(folder))


def _is_seen(folder: Path) -> bool:
    try:
        return folder.is_dir()
    except PermissionError:
        return False


def gather_disk(path: Path, *, measure: bool = True, clock: Clock = time.monotonic) -> DiskFacts:
    """Return facts about the disk under `path`, which need not exist.

    The trial writes an unnamed file of at most 64 MiB.
    """
    folder = existing_folder(path.absolute())
    room = os.statvfs(folder)
    free = room.f_bavail * room.f_frsize
    sync_ms: tuple[float, ...] = ()
    bandwidth, error = None, ""
    if measure and free < FREE_BYTES_MIN:
        error = f"not measured: less than {FREE_BYTES_MIN >> 20} MiB free"
    elif measure:
        try:
            with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
                sync_ms = _sync_trial(file.fileno(), clock)
                bandwidth = _bandwidth_trial(file.fileno(), clock)
        except OSError as failure:
            error = f"{folder}: {failure.strerror}"
    kind, options = _mount_of(folder)
    return DiskFacts(
        folder=str(folder), filesystem=kind, options=options, used_percent=round(100 * used_ratio(folder)),
        free_bytes=free, inodes_free=room.f_favail if room.f_files else -1,
        sync_ms=sync_ms, write_mib_per_s=bandwidth, error=error,
    )  # fmt: skip


def _sync_trial(descriptor: int, clock: Clock) -> tuple[float, ...]:
    block = os.urandom(BLOCK)
    os.posix_fallocate(descriptor, 0, BLOCK * SYNC_ROUNDS_MAX)
    os.fdatasync(descriptor)
    times: list[float] = []
    began = clock()
    while len(times) < SYNC_ROUNDS_MAX and clock() - began < TRIAL_S:
        before = clock()
        os.pwrite(descriptor, block, BLOCK * len(times))
        os.fdatasync(descriptor)
        times.append((clock() - before) * 1000)
    return tuple(times)


def _bandwidth_trial(descriptor: int, clock: Clock) -> float:
    chunk = os.urandom(CHUNK_BYTES)
    began, written = clock(), 0
    while written < WRITTEN_BYTES_MAX and clock() - began < TRIAL_S:
        os.pwrite(descriptor, chunk, written)
        os.fdatasync(descriptor)
        written += CHUNK_BYTES
    return written / (1 << 20) / max(clock() - began, 1e-6)


def _mount_of(folder: Path) -> tuple[str, str]:
    """Return (file system, options) of the longest mount point above `folder`.

    Of several mounts there the latest counts.
    """
    above = {str(path) for path in (folder.resolve(), *folder.resolve().parents)}
    mounts = [mount for mount in psutil.disk_partitions(all=True) if mount.mountpoint in above]
    if not mounts:
        return "", ""
    longest = max(len(mount.mountpoint) for mount in mounts)
    mount = [mount for mount in mounts if len(mount.mountpoint) == longest][-1]
    return mount.fstype, mount.opts
