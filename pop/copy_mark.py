"""`<root>/pop/copy`: the sign that the image is a copy of a master's, which a slave keeps, and the run of the master.

A start as a master removes it. From then on the memory is this broker's own, and a later start as a slave forgets it.
"""

from __future__ import annotations

from pathlib import Path

from ringmq.fastjson.files import read_head
from ringmq.pop import page_changes
from ringmq.pop.image_file import IMAGE, JOURNAL
from ringmq.store import markers

FILE, PIECES = "copy", "pieces"
_BYTES_MAX = 32


def run_of_copy(folder: Path) -> int:
    """The run of the master, 0 if the image is no copy. Raises OSError."""
    try:
        return int(read_head(folder / FILE, _BYTES_MAX))
    except (FileNotFoundError, ValueError):
        return 0


def mark_copy(folder: Path, run: int) -> None:
    """Note durably that the image is a copy. Raises OSError."""
    markers.replace_file(folder / FILE, b"%d\n" % run)


def own_copy(folder: Path) -> None:
    """Make the copy this broker's own memory, durably, and drop pieces of the next one. Raises OSError."""
    (folder / PIECES).unlink(missing_ok=True)
    markers.replace_or_remove(folder / FILE, None)


def remove_image(folder: Path) -> None:
    """Remove the image, be it a copy or not. Names stay: no id is used again. Raises OSError."""
    for name in (IMAGE, JOURNAL, FILE, page_changes.FILE):  # an image without its journal may be of two moments
        (folder / name).unlink(missing_ok=True)
    markers.sync_directory(folder)
