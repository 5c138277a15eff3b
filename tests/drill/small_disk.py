"""A small real file system (ext4 in a loop file), for tests that fill a disk. Needs root."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def missing_for_small_disk() -> str:
    """Why a small disk cannot be made here; empty when it can."""
    if os.geteuid() != 0:
        return "mounting a loop file needs root"
    absent = [tool for tool in ("mkfs.ext4", "mount", "umount") if shutil.which(tool) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    return "" if Path("/dev/loop-control").exists() else "there are no loop devices"


@contextmanager
def small_disk(folder: Path, size_mb: int) -> Iterator[Path]:
    """Mount a fresh ext4 of `size_mb` MiB below `folder`."""
    image, mount_point = folder / "disk.img", folder / "disk"
    with image.open("wb") as file:
        file.truncate(size_mb << 20)
    mount_point.mkdir()
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(mount_point)], check=True)
    try:
        yield mount_point
    finally:
        subprocess.run(["umount", "-l", str(mount_point)], check=True)


def fill(folder: Path) -> Path:
    """Leave no room on the file system of `folder`; delete the returned file to make room again."""
    ballast = folder / "ballast"
    with ballast.open("wb") as file:
        free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
        while free > 0:
            try:
                os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), free)
            except OSError:
                free //= 2
                if free < 4096:
                    break
                continue
            free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    return ballast
