"""A store folder with POP's memory, and a machine whose power can be cut."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ringmq.native import ffi, lib
from ringmq.pop import memory as memory_module
from ringmq.pop.memory import PopMemory

WINDOWS, ENTRIES = 4096, 8192
START = 7
LOG_END = 10_000


def plane(start_id: int = START) -> Any:
    """A plane of this start of the broker."""
    return SimpleNamespace(watermarks=SimpleNamespace(start_id=start_id, append_offset=LOG_END))


def open_memory(root: Path, start_id: int = START, entries: int = ENTRIES, windows: int = WINDOWS) -> PopMemory:
    """The memory as the worker opens it."""
    return PopMemory.open(root, plane(start_id), entries_max=entries, windows_max=windows)


def window(memory: PopMemory, place: int) -> Any:
    """A slot of the windows."""
    return ffi.cast("struct rmq_pop_window *", memory.base + int(memory.layout.windows_at)) + place


def entry(memory: PopMemory, index: int) -> Any:
    """A slot of the entries."""
    return ffi.cast("struct rmq_pop_entry *", memory.base + int(memory.layout.entries_at)) + index


def order(memory: PopMemory, index: int) -> Any:
    """A slot of the batches."""
    return ffi.cast("struct rmq_pop_order *", memory.base + int(memory.layout.orders_at)) + index


def put(memory: PopMemory, index: int, base_offset: int, state: int = lib.RMQ_POP_OPEN) -> None:
    """Store an entry with some content, as the worker does."""
    slot = entry(memory, index)
    lib.rmq_pop_pages_touch(memory.pages, slot)
    slot.base_offset, slot.present, slot.state = base_offset, 1, state


def content(memory: PopMemory) -> dict[int, tuple[int, int]]:
    """Index -> (base offset, state) of the entries in use."""
    found = {}
    for index in range(int(memory.layout.entries_max)):
        slot = entry(memory, index)
        if lib.rmq_pop_pages_has(memory.pages, slot) and slot.state:
            found[index] = int(slot.base_offset), int(slot.state)
    return found


def cut_power(root: Path) -> None:
    """The segment is gone, the files stay."""
    memory_module.remove_lasting(root)


def forget_copies(entries: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """The twin of rmq_pop_forget_copies, over (state, acked, copied)."""
    rests = lib.RMQ_POP_REVIVING, lib.RMQ_POP_REVIVED
    return [
        (lib.RMQ_POP_REVIVING, acked, copied & acked) if state in rests else (state, acked, copied)
        for state, acked, copied in entries
    ]
