"""Damage of POP's files in a store that no broker has open. Reads only. The next start mends it."""

from __future__ import annotations

from pathlib import Path

from ringmq.native import lib
from ringmq.pop.image_file import FOLDER, IMAGE, HeaderError
from ringmq.pop.memory_copy import MemoryCopy, image_copy
from ringmq.pop.names import FILE, Content, read_names
from ringmq.store.message_store import MessageStore


def find_pop_damage(store: MessageStore) -> list[tuple[str, str]]:
    """Return (place, fault) of each file that is not as it was written. Raises OSError."""
    folder = store.config.root / FOLDER
    if not (folder / IMAGE).exists():
        return []
    found = []
    names = read_names(folder) or Content({})
    if names.damaged:
        found.append((f"{FOLDER}/{FILE}", f"{names.damaged} of {names.lines} lines are damaged"))
    fault = _fault_of_image(folder, names)
    return [*found, (f"{FOLDER}/{IMAGE}", fault)] if fault else found


def _fault_of_image(folder: Path, names: Content) -> str:
    try:
        with image_copy(folder) as copy:
            if copy.lost:
                return copy.lost
            if copy.damaged:
                return f"{copy.damaged} windows and entries are damaged"
            nameless = sum(_id_of(copy, place) not in names.windows for place in copy.places())
            return f"{nameless} windows have no name" if nameless else ""
    except HeaderError as error:
        return str(error)


def _id_of(copy: MemoryCopy, place: int) -> int:
    return int(lib.rmq_pop_window_at(copy.windows, place).id)
