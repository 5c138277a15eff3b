"""The format number of a store in `<root>/ringmq.format`, followed by the name of its first writer.

The number rises when an older RingMQ would misread the bytes of a newer one: RingMQ's own files beside RocketMQ's,
and its use of RocketMQ's files. A store without the file has format 0: it comes from a stock broker, or from an early
RingMQ. RocketMQ ignores the file.
"""

from collections.abc import Callable
from pathlib import Path

from ringmq.fastjson.files import read_head
from ringmq.store import layout, markers
from ringmq.store.config_files import moved_away

FORMAT = 1
_READ_BYTES = 256


class StoreFormatError(Exception):
    """This RingMQ may not open the store. The message has the remedy."""


def read_format(root: Path) -> int:
    """Return the store's format number, 0 without one.

    Raises StoreFormatError for an unreadable number, and OSError.
    """
    number, _ = _read(root)
    return number


def check_format(root: Path) -> None:
    """Raise StoreFormatError if a newer RingMQ has written the store."""
    number, writer = _read(root)
    if number > FORMAT:
        raise StoreFormatError(
            f"{root}: the store has format {number}, written by {writer or 'a newer RingMQ'}; this RingMQ knows "
            f"formats up to {FORMAT}. Nothing was changed: start a RingMQ that is at least as new, or restore a copy "
            "from before"
        )


def write_format(root: Path, writer: Callable[[], str]) -> None:
    """Write this RingMQ's number and the writer's name. A store that has the number already is left alone."""
    if read_format(root) != FORMAT:
        markers.replace_file(root / layout.FORMAT_MARKER, f"{FORMAT} {writer()}\n".encode())


def _read(root: Path) -> tuple[int, str]:
    path = root / layout.FORMAT_MARKER
    try:
        text = read_head(path, _READ_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return 0, ""
    number, _, writer = text.strip().partition(" ")
    if not (number.isascii() and number.isdigit()):
        raise StoreFormatError(
            f"{path}: holds no format number but {text[:40]!r}; if no newer RingMQ has owned the store, run: "
            + moved_away([path])
        )
    return int(number), writer
