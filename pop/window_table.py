"""The windows of POP as a table of `ringmq store inspect`."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

from ringmq.ipc.guests import Table
from ringmq.native import lib
from ringmq.pop.image_file import FOLDER, IMAGE, HeaderError
from ringmq.pop.memory_copy import MemoryCopy, newest_copy
from ringmq.pop.names import Content, WindowName, read_names
from ringmq.store.message_store import MessageStore

NAME = "pop_windows"


def windows_of(store: MessageStore, topic: str | None, limit: int) -> Table | None:
    """The windows of a topic, or of all, at most `limit`: those with the most open messages first.

    None: POP was not used in this store, or no start would use its files. Raises OSError.
    """
    root = store.config.root
    if not (root / FOLDER / IMAGE).exists():
        return None
    names = read_names(root / FOLDER) or Content({})
    try:
        with newest_copy(root) as copy:
            return None if copy.lost else _table(copy, names, topic, limit)  # `ringmq store verify` says why
    except HeaderError:
        return None


def _table(copy: MemoryCopy, names: Content, topic: str | None, limit: int) -> Table:
    total, rows = 0, []

    def ranked() -> Iterator[tuple[int, int]]:
        nonlocal total
        for place in copy.places():
            name = names.windows.get(int(lib.rmq_pop_window_at(copy.windows, place).id))
            if topic is None or (name is not None and name.topic == topic):
                total += 1
                yield -int(lib.rmq_pop_open_messages(copy.windows, place)), place

    for _, place in heapq.nsmallest(limit, ranked()):
        window = lib.rmq_pop_window_at(copy.windows, place)
        rows.append(_row(copy, place, window, names.windows.get(int(window.id))))
    return Table(NAME, rows, total)


def _row(copy: MemoryCopy, place: int, window: Any, name: WindowName | None) -> dict[str, Any]:
    return {
        "group": name.group if name else None, "topic": name.topic if name else None,
        "queue_id": int(window.queue_id), "next_offset": int(window.next_offset),
        "first_open": _first_open(copy, place), "open": int(lib.rmq_pop_open_messages(copy.windows, place)),
        "last_pop_ms": int(window.last_pop_ms),
    }  # fmt: skip


def _first_open(copy: MemoryCopy, place: int) -> int:
    """C takes several calls across a large gap."""
    before, found = -1, int(lib.rmq_pop_first_open(copy.windows, place))
    while found != before:
        before, found = found, int(lib.rmq_pop_first_open(copy.windows, place))
    return found
