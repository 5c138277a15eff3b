"""Checks of a long command before its work begins: the place of its results, the disk, packages. And its picture.

The functions end the command with one line if it could not keep what it measures. A picture that cannot be drawn is a
line, because the figures are in other files.
"""

import os
import shutil
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from ringmq.client.extras import how_to_install, not_installed

FULL_PERCENT = 90
"""diskSpaceWarningLevelRatio: from this use of the disk on, a broker refuses sends."""
Say = Callable[[str], None]


def prepare_results(folder: Path, *names: str, needed_bytes: int = 0) -> None:
    """Make the folder. End the command if it may not write one of these files there at the end, or lacks room.

    `needed_bytes` is the least that the command's stores take at a time.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            _try_to_write(folder / name)
    except OSError as error:
        path = error.filename or folder
        sys.exit(f"{path}: {error.strerror}: results could not be written at the end; choose another --folder")
    _check_room(folder, needed_bytes)


def _try_to_write(path: Path) -> None:
    """Open a file for writing. Its content stays, and a new one is removed again. Raises OSError."""
    is_new = not path.exists()
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
    if is_new:
        path.unlink()


def _check_room(folder: Path, needed_bytes: int) -> None:
    room = shutil.disk_usage(folder)
    usable = room.used + room.free
    percent = 100 * (room.used + needed_bytes) // max(1, usable)
    if percent >= FULL_PERCENT:
        stores = f" with stores of {needed_bytes / 1e9:.1f} GB" if needed_bytes else ""
        sys.exit(
            f"{folder}: the disk is {percent} % used{stores}, and a broker refuses sends from {FULL_PERCENT} % on: "
            "make room, choose another --folder, or smaller sizes"
        )


def need_packages(subject: str, extra: str, *modules: str) -> None:
    """End the command if one of these modules of an extra is not installed."""
    for module in modules:
        if find_spec(module) is None:
            sys.exit(not_installed(subject, module, extra))


def announce_picture(say: Say) -> None:
    """Say before the work that there will be no picture, if that is known."""
    if find_spec("matplotlib") is None:
        say(f"there will be no picture: matplotlib is not installed; {how_to_install('loadtest')}")


def drawn(draw: Callable[[Path], None], path: Path, say: Say = print) -> bool:
    """Draw the picture at `path`. If that fails, say why, and remove an older picture, whose figures are others."""
    try:
        draw(path)
    except Exception as error:  # of matplotlib's many; the figures are written
        path.unlink(missing_ok=True)
        say(f"no picture {path}: {type(error).__name__}: {str(error)[:300]}")
        return False
    return True
