"""The windows of C and their twin, on memories of their own. Each call goes to both, and both must agree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ringmq.native import ffi, lib
from ringmq.pop.entry_twin import Give, NoRoomError
from ringmq.pop.window_memory import WindowMemory
from ringmq.pop.window_twin import Due, WindowTwin

ROOM = 256


class NativeWindows:
    """The windows of C with the calls of the twin."""

    def __init__(self, memory: WindowMemory, now_ms: int, mono_ms: int) -> None:
        self.memory = memory
        pages = lib.rmq_pop_pages_open(memory.bytes, memory.layout, memory.segment)
        self.pages = ffi.gc(pages, lib.rmq_pop_pages_close)
        damaged = ffi.new("uint64_t *")
        opened = lib.rmq_pop_windows_open(self.pages, memory.layout, now_ms, mono_ms, damaged)
        self.native = ffi.gc(opened, lib.rmq_pop_windows_close)
        self.damaged = damaged[0]

    @property
    def counts(self) -> Any:
        return lib.rmq_pop_counts_of(self.native)

    @property
    def entries_free(self) -> int:
        return int(lib.rmq_pop_entries_free(self.native))

    def make(self, window_id: int, queue_id: int, birth: int, next_offset: int) -> int:
        place = ffi.new("uint32_t *")
        found = lib.rmq_pop_window_make(self.native, window_id, queue_id, birth, next_offset, place)
        if found == -22:
            raise ValueError(window_id)
        return int(_checked(found, place[0]))

    def drop(self, place: int) -> int:
        return int(lib.rmq_pop_window_drop(self.native, place))

    def open_messages(self, place: int) -> int:
        return int(lib.rmq_pop_open_messages(self.native, place))

    def first_open(self, place: int) -> int:
        while (first := lib.rmq_pop_first_open(self.native, place)) != lib.rmq_pop_first_open(self.native, place):
            pass
        return int(first)

    def first_open_from(self, place: int, start: int) -> int:
        while (first := int(lib.rmq_pop_first_open_from(self.native, place, start))) > start:
            start = first
        return first

    def skip_to(self, place: int, next_offset: int) -> None:
        lib.rmq_pop_skip_to(self.native, place, next_offset)

    def set_committed(self, place: int, committed: int, start_id: int) -> None:
        lib.rmq_pop_set_committed(self.native, place, committed, start_id)

    def set_unmarked(self, place: int, start_id: int) -> None:
        lib.rmq_pop_set_unmarked(self.native, place, start_id)

    def time_for(self, places: Sequence[int], starts: Sequence[int], pop_time_ms: int) -> int:
        return int(lib.rmq_pop_time_for(self.native, list(places), list(starts), len(places), pop_time_ms))

    def give(self, place: int, give: Give, offsets: Sequence[int]) -> None:
        _checked(lib.rmq_pop_window_give(self.native, place, native_give(give), list(offsets), len(offsets)))

    def returned(self, place: int, room: int) -> list[int]:
        offsets = ffi.new("int64_t[]", max(room, 1))
        return list(offsets[0 : lib.rmq_pop_returned(self.native, place, offsets, room)])

    def give_again(self, place: int, give: Give, offsets: Sequence[int]) -> None:
        _checked(lib.rmq_pop_give_again(self.native, place, native_give(give), list(offsets), len(offsets)))

    def ack(self, place: int, start: int, pop_time_ms: int, offset: int, bits: int) -> tuple[int, int]:
        done = ffi.new("uint32_t *")
        return int(lib.rmq_pop_ack(self.native, place, start, pop_time_ms, offset, bits, done)), int(done[0])

    def note_in_log(self, place: int, start: int, pop_time_ms: int) -> None:
        lib.rmq_pop_note_in_log(self.native, place, start, pop_time_ms)

    def in_log(self, place: int, start: int, pop_time_ms: int, offset: int, bits: int) -> int:
        return int(lib.rmq_pop_in_log(self.native, place, start, pop_time_ms, offset, bits))

    def change(self, place: int, start: int, pop_time_ms: int, offset: int, give: Give) -> int:
        found = lib.rmq_pop_change(self.native, place, start, pop_time_ms, offset, native_give(give))
        return int(_checked(found, found))

    def changed_at(self, place: int, offset: int, give: Give) -> int:
        return int(lib.rmq_pop_changed_at(self.native, place, offset, native_give(give)))

    def unsent(self, place: int, start: int, pop_time_ms: int) -> bool:
        return bool(lib.rmq_pop_unsent(self.native, place, start, pop_time_ms))

    def leave_returned(self, place: int, before: int) -> None:
        lib.rmq_pop_leave_returned(self.native, place, before)

    def order_give(self, place: int, give: Give, attempt: bytes, offsets: Sequence[int]) -> None:
        named = native_attempt(attempt)
        found = lib.rmq_pop_order_give(self.native, place, native_give(give), named[0], list(offsets), len(offsets))
        _checked(found)

    def order_show(self, place: int) -> None:
        lib.rmq_pop_order_show(self.native, place)

    def order_adopt(
        self, place: int, give: Give, attempt: bytes, offsets: Sequence[int], visible_ms: Sequence[int],
        consumed: Sequence[int], acked: int,
    ) -> None:  # fmt: skip
        named = native_attempt(attempt)
        _checked(lib.rmq_pop_order_adopt(
            self.native, place, native_give(give), named[0], list(offsets), len(offsets), list(visible_ms),
            list(consumed), acked,
        ))  # fmt: skip

    def orders_ready(self, count: int, mono_ms: int) -> None:
        _checked(lib.rmq_pop_orders_ready(self.native, count, mono_ms))

    def order_time_for(self, places: Sequence[int], pop_time_ms: int) -> int:
        return int(lib.rmq_pop_order_time_for(self.native, list(places), len(places), pop_time_ms))

    def order_next(self, place: int) -> int:
        return int(lib.rmq_pop_order_next(self.native, place))

    def order_blocked_ms(self, place: int) -> int | None:
        until_ms = int(lib.rmq_pop_order_blocked_ms(self.native, place))
        return None if until_ms == -(2**63) else until_ms

    def order_blocks(self, place: int, attempt: bytes, mono_ms: int) -> bool:
        return bool(lib.rmq_pop_order_blocks(self.native, place, native_attempt(attempt)[0], mono_ms))

    def order_ack(self, place: int, pop_time_ms: int, offset: int) -> int:
        return int(lib.rmq_pop_order_ack(self.native, place, pop_time_ms, offset))

    def order_change(self, place: int, pop_time_ms: int, offset: int, due_ms: int) -> int:
        return int(lib.rmq_pop_order_change(self.native, place, pop_time_ms, offset, due_ms))

    def orders_due(self, mono_ms: int, room: int) -> list[int]:
        places = ffi.new("uint32_t[]", room)
        return list(places[0 : lib.rmq_pop_orders_due(self.native, mono_ms, places, room)])

    def orders_next_ms(self) -> int:
        return int(lib.rmq_pop_orders_next_ms(self.native))

    def due(self, mono_ms: int, room: int) -> list[Due]:
        due = ffi.new("struct rmq_pop_due[]", room)
        return [
            Due(each.window, each.place, each.queue_offset, each.pop_time_ms, each.attempts)
            for each in due[0 : lib.rmq_pop_due(self.native, mono_ms, due, room)]
        ]

    def next_due_ms(self) -> int:
        return int(lib.rmq_pop_next_due_ms(self.native))

    def copied(self, window_id: int, offset: int, end: int) -> None:
        lib.rmq_pop_copied(self.native, window_id, offset, end)

    def copy_failed(self, window_id: int, offset: int, mono_ms: int, is_counted: bool) -> None:
        lib.rmq_pop_copy_failed(self.native, window_id, offset, mono_ms, is_counted)

    def copy_gone(self, window_id: int, offset: int) -> None:
        lib.rmq_pop_copy_gone(self.native, window_id, offset)

    def flushed(self, flushed_offset: int) -> int:
        return int(lib.rmq_pop_flushed(self.native, flushed_offset))

    def take_copy(self, window_id: int, offset: int) -> bool:
        return bool(lib.rmq_pop_take_copy(self.native, window_id, offset))

    def copy_seen(self, window_id: int, offset: int) -> None:
        lib.rmq_pop_copy_seen(self.native, window_id, offset)

    def forget_revived(self, entries: int) -> None:
        lib.rmq_pop_forget_revived(self.native, entries)

    def clamp(self, place: int, end_offset: int) -> int:
        return int(lib.rmq_pop_clamp(self.native, place, end_offset))


def _checked(found: int, result: int = 0) -> int:
    if found == -28:
        raise NoRoomError
    assert found >= 0, found
    return result


def native_give(give: Give) -> Any:
    """The struct of C."""
    return ffi.new("struct rmq_pop_give *", {name: getattr(give, name) for name in give.__struct_fields__})


def native_attempt(attempt: bytes) -> tuple[Any, Any]:
    """The struct of C, and the bytes that it points to."""
    text = ffi.from_buffer(attempt)
    return ffi.new("struct rmq_pop_attempt *", {"text": text, "bytes": len(attempt)}), text


def in_use(memory: WindowMemory) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """Slots that count: those of windows by place, their batches, those of entries in any order."""
    windows = [memory.window(place) for place in range(memory.windows_max)]
    entries = [memory.entry(number) for number in range(memory.entries_max)]
    return (
        [bytes(ffi.buffer(ffi.addressof(window))) if window.id else b"" for window in windows],
        [
            bytes(ffi.buffer(ffi.addressof(memory.order(window.order - 1))))
            for window in windows
            if window.id and window.order
        ],
        sorted(bytes(ffi.buffer(ffi.addressof(entry))) for entry in entries if entry.state),
    )


class Pair:
    """Both, and what they say to a call."""

    def __init__(self, windows_max: int, entries_max: int, now_ms: int, mono_ms: int) -> None:
        self.size = (windows_max, entries_max)
        self._open(WindowMemory(*self.size), WindowMemory(*self.size), now_ms, mono_ms)

    def _open(self, of_native: WindowMemory, of_twin: WindowMemory, now_ms: int, mono_ms: int) -> None:
        self.native = NativeWindows(of_native, now_ms, mono_ms)
        self.twin = WindowTwin(of_twin, now_ms, mono_ms)
        assert self.native.damaged == self.twin.damaged
        self.compare()

    def reopen(self, now_ms: int, mono_ms: int, change: Callable[[WindowMemory], None] | None = None) -> None:
        """A death between two calls, and a start. `change` may damage the memory."""
        data = self.native.memory.content()
        memories = (WindowMemory(*self.size, data), WindowMemory(*self.size, data))
        for memory in memories:
            if change:
                change(memory)
        self._open(*memories, now_ms, mono_ms)

    def call(self, name: str, *arguments: Any) -> Any:
        """The result of a call, which is the same for both."""
        results = []
        for one in (self.native, self.twin):
            try:
                results.append(getattr(one, name)(*arguments))
            except (NoRoomError, ValueError) as error:
                results.append(type(error))
        assert results[0] == results[1], (name, arguments, results)
        return results[0]

    def compare(self) -> None:
        """The memories are equal, and so is what both know beside them."""
        native, twin = self.native, self.twin
        assert in_use(native.memory) == in_use(twin.memory)
        assert native.entries_free == twin.entries_free
        states = [twin.memory.entry(entry).state for entries in twin.of_window.values() for entry in entries]
        counts = native.counts
        assert (counts.windows, counts.entries) == (len(twin.places), len(states))
        assert counts.orders == len(twin.order_places)
        assert counts.open == sum(twin.open_messages(place) for place in twin.places.values())
        assert counts.returned == sum(twin.open_bits(entry).bit_count() for entry in twin.again)
        assert counts.reviving == states.count(lib.RMQ_POP_REVIVING)
        assert counts.revived == states.count(lib.RMQ_POP_REVIVED)
        for place in twin.places.values():
            assert native.open_messages(place) == twin.open_messages(place)
            assert native.first_open(place) == twin.first_open(place)
            assert native.order_blocked_ms(place) == twin.order_blocked_ms(place)
            assert native.order_next(place) == twin.order_next(place)
        exact_ms = twin.next_due_ms()
        assert native.next_due_ms() <= exact_ms if exact_ms is not None else native.next_due_ms() == 2**63 - 1
        free_ms = twin.orders_next_ms()
        assert native.orders_next_ms() <= free_ms if free_ms is not None else native.orders_next_ms() == 2**63 - 1
