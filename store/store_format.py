"""The format number of a store: `<root>/ringmq.format`, its first word a number, then who wrote it first.

It rises when an older RingMQ would misread what a newer one writes: our own files beside RocketMQ's, and how RocketMQ's
are used. A store without the file comes from a stock broker, or from a RingMQ before the number: format 0. RocketMQ
does not look at the file.
"""

from collections.abc import Callable
from pathlib import Path

from ringmq.store import layout, markers

FORMAT = 1
_READ_BYTES = 256


class StoreFormatError(Exception):
    """This RingMQ may not open the store; the message says what to do."""


def read_format(root: Path) -> int:
    """The store's format number, 0 without one. Raises StoreFormatError when the file holds none, OSError."""
    number, _ = _read(root)
    return number


def check_format(root: Path) -> None:
    """Raise StoreFormatError where a newer RingMQ has written the store."""
    number, writer = _read(root)
    if number > FORMAT:
        raise StoreFormatError(
            f"{root}: the store has format {number}, written by {writer or 'a newer RingMQ'}; this RingMQ knows "
            f"formats up to {FORMAT}. Nothing was changed: start a RingMQ that is at least as new, or restore a copy "
            "from before"
        )


def write_format(root: Path, writer: Callable[[], str]) -> None:
    """Mark the store with our number and who writes it; a store that has the number already is left alone."""
    if read_format(root) != FORMAT:
        markers.replace_file(root / layout.FORMAT_MARKER, f"{FORMAT} {writer()}\n".encode())


def _read(root: Path) -> tuple[int, str]:
    path = root / layout.FORMAT_MARKER
    try:
        with path.open("rb") as file:
            text = file.read(_READ_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return 0, ""
    number, _, writer = text.strip().partition(" ")
    if not (number.isascii() and number.isdigit()):
        raise StoreFormatError(
            f"{path}: holds no format number but {text[:40]!r}; if no newer RingMQ has owned the store, remove "
            "the file and start again"
        )
    return int(number), writer
