"""POP's windows and their queues at a start, before `write` appends anything.

A window may reach beyond its queue: consumers were given records that were not on disk, and a power cut took these. New
messages will have the same offsets, and the window would say that they are done. So each window is cut back to the end
of its queue.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct

from ringmq.native import ffi, lib
from ringmq.pop.names import IDS_END, WindowName

CHECKED_BYTES: int = ffi.offsetof("struct rmq_pop_window", "next_offset")
"""Bytes of a window that its check covers: id, queue id and birth."""


class QueuePlane(Protocol):
    """The methods of `ringmq.ipc.plane.Plane` that look queues up."""

    def topic_find(self, name: str) -> int | None: ...
    def queue_find(self, topic_id: int, queue_id: int) -> int | None: ...
    def queue(self, queue_slot: int) -> Any: ...


class Mapped(Protocol):
    """The part of `ringmq.pop.memory.PopMemory` that is used here."""

    pages: Any
    layout: Any
    base: Any


class WindowNames(Protocol):
    """The part of `ringmq.pop.names.Names` that is used here."""

    def of(self, window_id: int) -> WindowName | None: ...


class Clamped(Struct):
    """The result. `messages`: dropped ones, which come again. `gone`: windows without a name or topic."""

    windows: int = 0
    messages: int = 0
    gone: int = 0


class Reach(Struct):
    """The reach of all windows. `is_within`: none has to be cut back or to end. `live`: ids of the windows.
    `highest_id`: of a window without a name, too. `has_ahead`: something in a window lies beyond its next offset, as a
    batch of an orderly group does."""

    entries: int
    is_within: bool
    live: set[int]
    highest_id: int = 0
    has_ahead: bool = False


def reach(memory: Mapped, plane: QueuePlane, names: WindowNames, births: Mapping[str, int]) -> Reach:
    """Compare the reach of each window with its queue. Raises MemoryError."""
    room = int(memory.layout.windows_max)
    places, ends, entries = ffi.new("uint32_t[]", room), ffi.new("int64_t[]", room), ffi.new("uint32_t *")
    count = int(lib.rmq_pop_reach(memory.pages, memory.layout, places, ends, room, entries))
    if count < 0:
        raise MemoryError("no memory to read the windows of POP")
    windows = ffi.cast("struct rmq_pop_window *", memory.base + int(memory.layout.windows_at))
    found = Reach(int(entries[0]), True, set())
    for index in range(count):
        window = windows[places[index]]
        end = queue_end(plane, names.of(int(window.id)), window, births)
        found.has_ahead |= int(ends[index]) > int(window.next_offset)
        found.is_within &= end is not None and int(ends[index]) <= end
        if end is not None:
            found.live.add(int(window.id))
        if int(window.id) > found.highest_id and _is_sound(window):
            found.highest_id = int(window.id)
    return found


def _is_sound(window: Any) -> bool:
    checked = ffi.buffer(ffi.addressof(window), CHECKED_BYTES)
    return int(window.id) < IDS_END and int(window.check) == (zlib.crc32(checked) or 1)


def clamp(windows: Any, plane: QueuePlane, names: WindowNames, births: Mapping[str, int]) -> Clamped:
    """Cut each window back to the end of its queue. Windows of a topic that is gone, or was made anew since, end.

    `windows`: struct rmq_pop_windows. `births`: log offsets from which topics are the ones of their names.
    """
    done = Clamped()
    left, place = int(lib.rmq_pop_counts_of(windows).windows), 0
    while left:
        window = lib.rmq_pop_window_at(windows, place)
        if window != ffi.NULL:
            left -= 1
            _clamp_one(done, windows, place, window, queue_end(plane, names.of(int(window.id)), window, births))
        place += 1
    return done


def _clamp_one(done: Clamped, windows: Any, place: int, window: Any, end: int | None) -> None:
    if end is None:
        done.gone += 1
        lib.rmq_pop_window_drop(windows, place)
        return
    done.windows += int(window.next_offset) > end
    done.messages += int(lib.rmq_pop_clamp(windows, place, end))  # a batch may reach beyond the next offset


def queue_end(plane: QueuePlane, name: WindowName | None, window: Any, births: Mapping[str, int]) -> int | None:
    """The offset that the next message of the window's queue gets. None if the window has no queue any more."""
    if name is None or int(window.birth) < births.get(name.topic, 0) or name.queue_id != int(window.queue_id):
        return None
    topic_id = plane.topic_find(name.topic)
    slot = None if topic_id is None else plane.queue_find(topic_id, name.queue_id)
    if slot is None:
        return None
    return end_of(plane.queue(slot))


def end_of(queue: Any) -> int:
    """The offset that the next message of a struct rmq_queue gets. Behind a start the log reaches further than dispatch
    has come."""
    return max(int(queue.max_offset), int(queue.log_end))
