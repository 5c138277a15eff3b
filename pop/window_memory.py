"""The memory of POP as the twin sees it: slots of native/src/pop/pop_layout.h, and a notice before each store.

A death may fall between any two stores. A test raises in `before_store` to have one there.
"""

from collections.abc import Callable
from typing import Any
from zlib import crc32

from ringmq.native import ffi, lib

ENTRY_MESSAGES: int = lib.RMQ_POP_ENTRY_MESSAGES
WINDOW_IDS: int = lib.RMQ_POP_WINDOW_IDS


def no_notice() -> None:
    """The notice of a memory that is not watched."""


class WindowMemory:
    """Slots of windows, of batches and of entries in `layout.bytes` of memory. No chunk of it is missing."""

    segment = -1
    """The descriptor of a segment, for rmq_pop_pages_open."""

    def __init__(self, windows_max: int, entries_max: int, data: bytes | None = None) -> None:
        self.layout = lib.rmq_pop_layout_of(windows_max, entries_max)
        self.windows_max, self.entries_max = windows_max, entries_max
        self.orders_max = int(self.layout.orders_max)
        self.bytes = self.allocate(int(self.layout.mapped_bytes))
        if data is not None:
            ffi.memmove(self.bytes, data, self.layout.bytes)
        self._windows = ffi.cast("struct rmq_pop_window *", self.bytes + self.layout.windows_at)
        self._orders = ffi.cast("struct rmq_pop_order *", self.bytes + self.layout.orders_at)
        self._entries = ffi.cast("struct rmq_pop_entry *", self.bytes + self.layout.entries_at)
        self.before_store: Callable[[], None] = no_notice

    def allocate(self, size: int) -> Any:
        """Zeroed memory."""
        return ffi.new("uint8_t[]", size)

    def window(self, place: int) -> Any:
        """The window in a slot."""
        return self._windows[place]

    def entry(self, number: int) -> Any:
        """The entry in a slot."""
        return self._entries[number]

    def order(self, number: int) -> Any:
        """The batch in a slot."""
        return self._orders[number]

    def store(self, slot: Any, field: str, value: int) -> None:
        """One store."""
        self.before_store()
        setattr(slot, field, value)

    def store_at(self, array: Any, number: int, value: int) -> None:
        """One store into an array of a slot."""
        self.before_store()
        array[number] = value

    def content(self) -> bytes:
        """All bytes as they are now."""
        return bytes(ffi.buffer(self.bytes, self.layout.bytes))


def window_check(window: Any) -> int:
    """The checksum of a window's fixed fields."""
    return crc32(ffi.buffer(ffi.addressof(window))[:16]) or 1


def entry_check(entry: Any) -> int:
    """The checksum of the fields that never change while an entry lives."""
    data = ffi.buffer(ffi.addressof(entry))
    return crc32(data[:16] + data[24:40] + data[48:58]) or 1


def order_check(order: Any) -> int:
    """The checksum of the fields that never change while a batch lives."""
    data = ffi.buffer(ffi.addressof(order))
    return crc32(data[:32] + data[48:176] + data[304:496]) or 1
