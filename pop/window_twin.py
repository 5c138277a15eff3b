"""native/src/pop/pop_windows.c, pop_revivals.c and pop_start.c in Python. Tests compare both, and break it off.

`WindowTwin` decides on a `WindowMemory`, store by store in the order of the C core. All else it finds in the memory
or keeps in dictionaries, so it is slow, and it has none of the lists, hashes and wheels of C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct, structs

from ringmq.native import ffi, lib
from ringmq.pop import entry_states as states
from ringmq.pop.entry_states import State
from ringmq.pop.entry_twin import STATES, Give, NoRoomError
from ringmq.pop.order_states import OrderWindowEnded
from ringmq.pop.order_twin import OrderTwin
from ringmq.pop.window_memory import ENTRY_MESSAGES, WINDOW_IDS, WindowMemory, entry_check, window_check

DONE, KNOWN, UNKNOWN = lib.RMQ_POP_DONE, lib.RMQ_POP_KNOWN, lib.RMQ_POP_UNKNOWN
REVIVED_MS = 600_000
FORGOTTEN_A_CALL = 256


class Due(Struct, frozen=True):
    """A message whose time is over: `struct rmq_pop_due`."""

    window: int
    place: int
    queue_offset: int
    pop_time_ms: int
    attempts: int


def bits_of(bits: int) -> Iterator[int]:
    """The numbers of the bits that are set, the lowest first."""
    return (number for number in range(bits.bit_length()) if bits >> number & 1)


class WindowTwin(OrderTwin):
    """Windows of one memory."""

    def __init__(self, memory: WindowMemory, now_ms: int, mono_ms: int) -> None:
        super().__init__(memory, mono_ms)
        self.spare_windows: list[int] = []
        self.windows_end = 0
        self.damaged = 0
        self._start(now_ms)

    # -- a start -----------------------------------------------------------------------------------------------

    def _start(self, now_ms: int) -> None:
        self._start_windows()
        found = [entry for entry in range(self.memory.entries_max) if self.memory.entry(entry).state]
        damaged_entries = sum(not self._is_entry(self.memory.entry(entry)) for entry in found)
        self.damaged += damaged_entries
        if damaged_entries:
            for place in sorted(self.places.values()):
                self.drop(place)
        self.damaged += self.start_orders(now_ms)
        used = [entry for entry in found if self._start_entry(entry, now_ms)]
        self.entries_end = max(used, default=-1) + 1
        self.free_entries = sorted(set(range(self.entries_end)) - set(used), reverse=True)
        for entry in used:
            slot = self.memory.entry(entry)
            end = slot.base_offset + int(self.open_bits(entry) | slot.copied).bit_length()
            self.skip_to(self.places[slot.window], end)
        for place in sorted(self.places.values()):
            if (order := self.order_at(place)) is not None and order.acked:
                self.skip_to(place, self.order_next(place))
        for entry in used:
            if self.state_of(entry) is State.MOVING:
                self.step(states.Started(entry, False, self._old_bits(entry)))

    def _start_windows(self) -> None:
        for place in range(self.memory.windows_max):
            window = self.memory.window(place)
            if not window.id:
                continue
            whole = window.id < WINDOW_IDS and window.check == window_check(window) and window.next_offset >= 0
            if not whole or window.id in self.places:
                self.damaged += 1
                self.memory.store(window, "id", 0)
                continue
            self.places[window.id] = place
            self.of_window[window.id] = set()
            self.windows_end = place + 1
        used = set(self.places.values())
        self.spare_windows = [place for place in reversed(range(self.windows_end)) if place not in used]

    @staticmethod
    def _is_entry(slot: Any) -> bool:
        return (
            slot.state in STATES
            and slot.check == entry_check(slot)
            and slot.present & 1 == 1
            and not (slot.acked | slot.copied) & ~slot.present
            and slot.base_offset < (1 << 63) - 1 - ENTRY_MESSAGES
            and slot.start_delta <= slot.base_offset
            and slot.invisible_ms <= lib.RMQ_POP_INVISIBLE_MS_MAX
            and (not slot.copied or STATES[slot.state] in (State.REVIVING, State.REVIVED))
        )

    def _start_entry(self, entry: int, now_ms: int) -> bool:
        """Take an entry of the memory over. False if it is free."""
        slot = self.memory.entry(entry)
        place = self.places.get(slot.window)
        if place is None:
            self.memory.store(slot, "state", 0)
            return False
        is_unanswered = slot.base_offset >= self.memory.window(place).next_offset
        if STATES[slot.state] is not State.MOVING:
            self.step(states.Started(entry, is_unanswered, 0))
        elif not self.open_bits(entry):
            self.set_state(entry, State.FREE)
        if not slot.state:
            return False
        left_ms = slot.pop_time_ms + slot.invisible_ms - now_ms
        self.link(entry, self.mono_ms + min(max(left_ms, 0), slot.invisible_ms))
        return True

    def _old_bits(self, entry: int) -> int:
        slot = self.memory.entry(entry)
        others = [other for other in self.of_window[slot.window] if self.state_of(other) is not State.MOVING]
        return sum(
            1 << bit for bit in bits_of(self.open_bits(entry))
            if any(self.open_bits(other) & self._bit(other, slot.base_offset + bit) for other in others)
        )  # fmt: skip

    # -- windows -----------------------------------------------------------------------------------------------

    def make(self, window_id: int, queue_id: int, birth: int, next_offset: int) -> int:
        """`rmq_pop_window_make`. Returns the place. Raises ValueError, or NoRoomError."""
        if not 0 < window_id < WINDOW_IDS or window_id in self.places or next_offset < 0:
            raise ValueError(window_id)
        if self.spare_windows:
            place = self.spare_windows.pop()
        elif self.windows_end < self.memory.windows_max:
            place, self.windows_end = self.windows_end, self.windows_end + 1
        else:
            raise NoRoomError
        window, store = self.memory.window(place), self.memory.store
        store(window, "queue_id", queue_id)
        store(window, "birth", birth)
        store(window, "next_offset", next_offset)
        store(window, "committed", -1)
        store(window, "reported_start", 0)
        store(window, "unmarked_start", 0)
        store(window, "last_pop_ms", 0)
        store(window, "order", 0)
        made = ffi.new("struct rmq_pop_window *", {"id": window_id, "queue_id": queue_id, "birth": birth})
        store(window, "check", window_check(made[0]))
        store(window, "id", window_id)
        self.places[window_id] = place
        self.of_window[window_id] = set()
        return place

    def drop(self, place: int) -> int:
        """`rmq_pop_window_drop`."""
        if place not in self.places.values():
            return 0
        window = self.memory.window(place)
        window_id = window.id
        entries = self._in_order(window_id)
        self.memory.store(window, "id", 0)
        for entry in entries:
            self.step(states.WindowEnded(entry))
        if self.order_at(place) is not None:
            self.step_order(OrderWindowEnded(place))
        del self.places[window_id], self.of_window[window_id]
        self.spare_windows.append(place)
        return len(entries)

    def _in_order(self, window_id: int) -> list[int]:
        """Entries of a window, those of the lowest blocks first, of a block the newest first."""
        blocks = sorted(self.of_window[window_id])
        return sorted(blocks, key=lambda entry: self.memory.entry(entry).base_offset)

    def open_messages(self, place: int) -> int:
        """`rmq_pop_open_messages`."""
        entries = self.of_window[self.memory.window(place).id]
        return sum(self.open_bits(entry).bit_count() for entry in entries)

    def first_open(self, place: int) -> int:
        """`rmq_pop_first_open`, exact at once."""
        return self.first_open_from(place, 0)

    def first_open_from(self, place: int, start: int) -> int:
        """`rmq_pop_first_open_from`, exact at once."""
        window = self.memory.window(place)
        offsets = (
            self.memory.entry(entry).base_offset + bit
            for entry in self.of_window[window.id] for bit in bits_of(self.open_bits(entry))
        )  # fmt: skip
        return int(min((offset for offset in offsets if offset >= start), default=window.next_offset))

    def set_committed(self, place: int, committed: int, start_id: int) -> None:
        """`rmq_pop_set_committed`."""
        self.memory.store(self.memory.window(place), "committed", committed)
        self.memory.store(self.memory.window(place), "reported_start", start_id)

    def set_unmarked(self, place: int, start_id: int) -> None:
        """`rmq_pop_set_unmarked`."""
        self.memory.store(self.memory.window(place), "unmarked_start", start_id)

    def _note_mark(self, place: int) -> None:
        if self.memory.window(place).unmarked_start:
            self.set_unmarked(place, 0)

    # -- pops --------------------------------------------------------------------------------------------------

    def time_for(self, places: Sequence[int], starts: Sequence[int], pop_time_ms: int) -> int:
        """`rmq_pop_time_for`."""
        while any(self._with_receipt(p, start, pop_time_ms) for p, start in zip(places, starts, strict=True)):
            pop_time_ms += 1
        return pop_time_ms

    def _with_receipt(self, place: int, start: int, pop_time_ms: int) -> list[int]:
        found = []
        for entry in sorted(self.of_window[self.memory.window(place).id]):
            slot = self.memory.entry(entry)
            if slot.pop_time_ms == pop_time_ms and slot.base_offset - slot.start_delta == start:
                found.append(entry)
        return found

    @staticmethod
    def _spans(offsets: Sequence[int]) -> list[tuple[int, int]]:
        spans: list[tuple[int, int]] = []
        for offset in offsets:
            if not spans or offset - spans[-1][0] >= ENTRY_MESSAGES:
                spans.append((offset, 0))
            base, present = spans[-1]
            spans[-1] = (base, present | 1 << (offset - base))
        return spans

    def give(self, place: int, give: Give, offsets: Sequence[int]) -> None:
        """`rmq_pop_window_give`. Raises NoRoomError: nothing changed."""
        spans = self._spans(offsets)
        self.need(len(spans))
        for base, present in spans:
            self.make_entry(place, give, base, present, moves=False)
        self.skip_to(place, give.next_offset)
        self.memory.store(self.memory.window(place), "last_pop_ms", give.pop_time_ms)

    def _returned_entries(self, place: int) -> list[int]:
        window_id = self.memory.window(place).id
        found = [entry for entry in self.again if self.memory.entry(entry).window == window_id]
        return sorted(found, key=lambda entry: self.memory.entry(entry).base_offset)

    def returned(self, place: int, room: int) -> list[int]:
        """`rmq_pop_returned`."""
        offsets = {
            self.memory.entry(entry).base_offset + bit
            for entry in self._returned_entries(place) for bit in bits_of(self.open_bits(entry))
        }  # fmt: skip
        first = min(offsets, default=0)
        return sorted(offset for offset in offsets if offset - first < lib.RMQ_POP_SPAN_MAX)[:room]

    def leave_returned(self, place: int, before: int) -> None:
        """`rmq_pop_leave_returned`."""
        for entry in self._returned_entries(place):
            if self.memory.entry(entry).base_offset < before:
                self.step(states.LeftBehind(entry))

    def give_again(self, place: int, give: Give, offsets: Sequence[int]) -> None:
        """`rmq_pop_give_again`. Raises NoRoomError: nothing changed."""
        spans = self._spans(offsets)
        self.need(len(spans))
        made = [self.make_entry(place, give, base, present, moves=True) for base, present in spans]
        for entry in self._returned_entries(place):
            bits = sum(self._bit(entry, offset) for offset in offsets) & self.open_bits(entry)
            if bits:
                self.step(states.Acknowledged(entry, bits))
        for entry in made:
            self.step(states.Moved(entry))
        self.memory.store(self.memory.window(place), "last_pop_ms", give.pop_time_ms)

    # -- receipts ----------------------------------------------------------------------------------------------

    def _bit(self, entry: int, offset: int) -> int:
        at = offset - self.memory.entry(entry).base_offset
        return 1 << at if 0 <= at < ENTRY_MESSAGES else 0

    def ack(self, place: int, start: int, pop_time_ms: int, offset: int, bits: int) -> tuple[int, int]:
        """`rmq_pop_ack`: the result, and the number of messages that are done by it."""
        found, done = self._with_receipt(place, start, pop_time_ms), 0
        for entry in found:
            slot = self.memory.entry(entry)
            at = offset - slot.base_offset
            hits = (bits << at if at >= 0 else bits >> -at) & self.can_be_acked(entry)
            if hits:
                done += hits.bit_count()
                self.step(states.Acknowledged(entry, hits))
        return DONE if done else KNOWN if found else UNKNOWN, done

    def note_in_log(self, place: int, start: int, pop_time_ms: int) -> None:
        """`rmq_pop_note_in_log`."""
        for entry in self._with_receipt(place, start, pop_time_ms):
            slot = self.memory.entry(entry)
            self.memory.store(slot, "attempts", slot.attempts | lib.RMQ_POP_IN_LOG)

    def in_log(self, place: int, start: int, pop_time_ms: int, offset: int, bits: int) -> int:
        """`rmq_pop_in_log`."""
        count = 0
        for entry in self._with_receipt(place, start, pop_time_ms):
            slot, record = self.memory.entry(entry), self.records.get(entry)
            if slot.attempts & lib.RMQ_POP_IN_LOG:
                at = offset - slot.base_offset
                without_copy = self.open_bits(entry) & ~(record.flying | record.stored if record else 0)
                count += ((bits << at if at >= 0 else bits >> -at) & without_copy).bit_count()
        return count

    def change(self, place: int, start: int, pop_time_ms: int, offset: int, give: Give) -> int:
        """`rmq_pop_change`. Raises NoRoomError: nothing changed."""
        found = self._with_receipt(place, start, pop_time_ms)
        if not found:
            return int(UNKNOWN)
        old = next((entry for entry in found if self._bit(entry, offset) & self.open_bits(entry)), None)
        if old is None or self.state_of(old) not in (State.OPEN, State.RETURNED):
            return int(KNOWN)
        self.need(1)
        changed = structs.replace(give, revive_queue=give.revive_queue | lib.RMQ_POP_CHANGED)
        made = self.make_entry(place, changed, offset, 1, moves=True)
        self.step(states.Acknowledged(old, self._bit(old, offset)))
        self.step(states.Moved(made))
        return int(DONE)

    def changed_at(self, place: int, offset: int, give: Give) -> int:
        """`rmq_pop_changed_at`."""
        wanted = (give.client, give.invisible_ms, give.revive_queue | lib.RMQ_POP_CHANGED)
        for entry in sorted(self.of_window[self.memory.window(place).id]):
            slot = self.memory.entry(entry)
            is_open = self.state_of(entry) is State.OPEN and self.open_bits(entry) & self._bit(entry, offset)
            if is_open and slot.revive_queue & lib.RMQ_POP_CHANGED:
                found = (slot.client, slot.invisible_ms, slot.revive_queue)
                return int(slot.pop_time_ms) if found == wanted else -1
        return -1

    def unsent(self, place: int, start: int, pop_time_ms: int) -> bool:
        """`rmq_pop_unsent`."""
        found = self._with_receipt(place, start, pop_time_ms)
        for entry in found:
            self.step(states.Unsent(entry))
        return bool(found) or self.order_unsent(place, start, pop_time_ms)

    # -- due messages ------------------------------------------------------------------------------------------

    def due(self, mono_ms: int, room: int) -> list[Due]:
        """`rmq_pop_due`."""
        self.mono_ms = max(self.mono_ms, mono_ms)
        self.marks_are_known = True
        self._forget_old()
        found: list[Due] = []
        while True:
            entry = min(self.wheel, key=self.wheel.__getitem__, default=None)
            if entry is None or self.wheel[entry][0] > self.mono_ms:
                self.wheel_ms = max(self.wheel_ms, self.mono_ms)
                return found
            self.wheel_ms = max(self.wheel_ms, self.wheel[entry][0])
            slot, bits = self.memory.entry(entry), self.open_bits(entry)
            if room - len(found) < bits.bit_count():
                return found
            place = self.places[slot.window]
            self._note_mark(place)
            self.step(states.CameDue(entry))
            for bit in bits_of(bits):
                attempts = slot.attempts & lib.RMQ_POP_ATTEMPTS_MAX
                found.append(Due(slot.window, place, slot.base_offset + bit, slot.pop_time_ms, attempts))

    def _forget_old(self) -> None:
        for _ in range(FORGOTTEN_A_CALL):
            entry = next(iter(self.revived), None)
            if entry is None or self.mono_ms - self.revived[entry] < REVIVED_MS:
                return
            if self.memory.entry(entry).acked & self.memory.entry(entry).copied:
                self.turn(entry, State.REVIVED)
            else:
                self.step(states.GivesWay(entry))

    def next_due_ms(self) -> int | None:
        """The exact time of the next due entry; `rmq_pop_next_due_ms` may be earlier."""
        return min((due_ms for due_ms, _ in self.wheel.values()), default=None)

    # -- copies ------------------------------------------------------------------------------------------------

    def _best(self, window_id: int, offset: int, rank: Callable[[int, int], int]) -> tuple[int, int] | None:
        """Entry and bit with the highest rank, of equals the first one."""
        found = [
            (-rank(entry, bit), entry, bit)
            for entry in self.of_window.get(window_id, ())
            if (bit := self._bit(entry, offset) & self.memory.entry(entry).present) and rank(entry, bit)
        ]
        return min(found)[1:] if found else None

    def _flying(self, entry: int, bit: int) -> bool:
        return entry in self.records and bool(self.records[entry].flying & bit)

    def _rank_copied(self, entry: int, bit: int) -> int:
        record, slot = self.records.get(entry), self.memory.entry(entry)
        if record and record.flying & bit:
            return 5
        if (slot.copied | (record.stored if record else 0)) & bit:
            return 4
        if not self.open_bits(entry) & bit:
            return 0
        return {State.REVIVING: 3, State.OPEN: 2}.get(self.state_of(entry), 1)

    def _rank_copy(self, entry: int, bit: int) -> int:
        record, slot = self.records.get(entry), self.memory.entry(entry)
        under_way = record.stored | record.flying if record else 0
        if (slot.copied | under_way) & ~slot.acked & bit:
            return 2
        return int(bool(slot.copied & slot.acked & bit))

    def copied(self, window_id: int, offset: int, end: int) -> None:
        """`rmq_pop_copied`."""
        if window_id in self.places:
            self._note_mark(self.places[window_id])
        found = self._best(window_id, offset, self._rank_copied)
        if found and self._rank_copied(*found) != 4:
            self.step(states.CopyStored(*found, end))

    def copy_failed(self, window_id: int, offset: int, mono_ms: int, is_counted: bool) -> None:
        """`rmq_pop_copy_failed`."""
        if found := self._best(window_id, offset, self._flying):
            self.step(states.CopyFailed(*found, mono_ms, is_counted))

    def copy_gone(self, window_id: int, offset: int) -> None:
        """`rmq_pop_copy_gone`."""
        if found := self._best(window_id, offset, self._flying):
            self.step(states.CopyGone(*found))

    def flushed(self, flushed_offset: int) -> int:
        """`rmq_pop_flushed`."""
        count = 0
        while self.stored and self.stored[0][3] <= flushed_offset:
            entry, record, bit, _ = self.stored.pop(0)
            if self.records.get(entry) is record and record.stored & bit:
                self.step(states.LogFlushed(entry, bit))
                count += entry not in self.records and not self.open_bits(entry)
        return count

    def take_copy(self, window_id: int, offset: int) -> bool:
        """`rmq_pop_take_copy`."""
        found = self._best(window_id, offset, self._rank_copy)
        return found is None or self._rank_copy(*found) != 1

    def copy_seen(self, window_id: int, offset: int) -> None:
        """`rmq_pop_copy_seen`."""
        if found := self._best(window_id, offset, self._rank_copy):
            self.step(states.CopySeen(*found))

    # -- the end of the queue ----------------------------------------------------------------------------------

    def clamp(self, place: int, end_offset: int) -> int:
        """`rmq_pop_clamp`."""
        window, dropped = self.memory.window(place), 0
        self.clamp_order(place, end_offset)
        if window.next_offset <= end_offset:
            return 0
        for entry in self._in_order(window.id):
            slot = self.memory.entry(entry)
            lost = slot.present >> max(end_offset - slot.base_offset, 0) << max(end_offset - slot.base_offset, 0)
            if lost:
                dropped += (self.open_bits(entry) & lost).bit_count()
                self.step(states.QueueCut(entry, lost))
        self.memory.store(window, "next_offset", end_offset)
        return dropped
