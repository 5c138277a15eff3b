"""Entries of native/src/pop/pop_entries.c in Python: the ground of `WindowTwin` and of entry_states.py."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ringmq.native import lib
from ringmq.pop import entry_states as states
from ringmq.pop.entry_states import TRANSITIONS, State
from ringmq.pop.window_memory import WindowMemory, entry_check

NUMBERS = {
    State.FREE: lib.RMQ_POP_FREE, State.OPEN: lib.RMQ_POP_OPEN, State.REVIVING: lib.RMQ_POP_REVIVING,
    State.REVIVED: lib.RMQ_POP_REVIVED, State.RETURNED: lib.RMQ_POP_RETURNED, State.MOVING: lib.RMQ_POP_MOVING,
}  # fmt: skip
STATES = {number: state for state, number in NUMBERS.items()}


class NoRoomError(Exception):
    """No slot is free: -ENOSPC of the C core."""


class Give(Struct, frozen=True):
    """A pop of one queue: `struct rmq_pop_give`."""

    pop_time_ms: int
    mono_ms: int
    start_offset: int
    next_offset: int
    invisible_ms: int
    client: int = 0
    revive_queue: int = 0
    in_log: bool = False


class Record(Struct):
    """Copies of an entry that are under way or not yet flushed."""

    flying: int
    stored: int = 0
    seen: int = 0
    due_ms: int = 0
    has_failed: bool = False


class EntryTwin:
    """Entries of one memory, and what is beside it."""

    def __init__(self, memory: WindowMemory, mono_ms: int) -> None:
        self.memory = memory
        self.mono_ms = self.wheel_ms = mono_ms
        self.places: dict[int, int] = {}
        self.of_window: dict[int, set[int]] = {}
        self.wheel: dict[int, tuple[int, int]] = {}
        """Due time of an entry, and a number in the order of additions."""
        self.again: dict[int, None] = {}
        self.revived: dict[int, int] = {}
        """The monotonic time since when an entry is REVIVED, oldest first."""
        self.records: dict[int, Record] = {}
        self.stored: list[tuple[int, Record, int, int]] = []
        """Stored copies in the order of the log: entry, record, bit, end."""
        self.free_entries: list[int] = []
        self.entries_end = 0
        self.marks_are_known = False
        self._added = 0

    # -- entries: what the actions of entry_states.py stand on -------------------------------------------------

    def step(self, event: states.EntryEvent) -> None:
        """Let an entry take an event."""
        self.cell_of(event).act(self, event, self.mono_ms)

    def cell_of(self, event: states.EntryEvent) -> Any:
        """The cell of an event and the state of its entry."""
        return TRANSITIONS[self.state_of(event.entry), type(event)]

    def state_of(self, entry: int) -> State:
        """The state of an entry."""
        return STATES[self.memory.entry(entry).state]

    def open_bits(self, entry: int) -> int:
        """The messages of an entry that are not done."""
        slot = self.memory.entry(entry)
        return int(slot.present & ~slot.acked & ~slot.copied)

    def set_state(self, entry: int, state: State) -> None:
        """Store a state. No list changes."""
        self.memory.store(self.memory.entry(entry), "state", NUMBERS[state])

    def publish(self, event: states.Published) -> None:
        """Store a new entry, the state last."""
        slot, give, store = self.memory.entry(event.entry), event.give, self.memory.store
        store(slot, "base_offset", event.base)
        store(slot, "present", event.present)
        store(slot, "acked", 0)
        store(slot, "copied", 0)
        store(slot, "pop_time_ms", give.pop_time_ms)
        store(slot, "invisible_ms", give.invisible_ms)
        store(slot, "start_delta", event.base - give.start_offset)
        store(slot, "window", self.memory.window(event.place).id)
        store(slot, "client", give.client)
        store(slot, "revive_queue", give.revive_queue)
        store(slot, "attempts", lib.RMQ_POP_IN_LOG if give.in_log else 0)
        store(slot, "check", entry_check(slot))
        self.set_state(event.entry, State.MOVING if event.moves else State.OPEN)
        self.link(event.entry, give.mono_ms + give.invisible_ms)

    def can_be_acked(self, entry: int) -> int:
        """The messages that are neither done nor in copies that a pop has passed."""
        slot, record = self.memory.entry(entry), self.records.get(entry)
        return int(slot.present & ~slot.acked & ~(record.seen if record else 0))

    def with_copies(self, entry: int, bits: int) -> int:
        """Of REVIVING messages, those that may have a copy. Before a start knows all marks it may be any."""
        if self.state_of(entry) is not State.REVIVING:
            return 0
        if not self.marks_are_known:
            return bits
        record = self.records.get(entry)
        under_way = record.flying | record.stored if record else 0
        return int(bits & (self.memory.entry(entry).copied | under_way))

    def settle(self, entry: int) -> None:
        """After a change of bits: an entry without open messages is free, or REVIVED."""
        if self.open_bits(entry) or entry in self.records:
            return
        if not self.memory.entry(entry).copied:
            self.free(entry)
        elif self.state_of(entry) is State.REVIVING:
            self.turn(entry, State.REVIVED)

    def turn(self, entry: int, state: State) -> None:
        """Change the state and the list."""
        self.leave(entry)
        self.set_state(entry, state)
        self.enter(entry, self.mono_ms)

    def free(self, entry: int) -> None:
        """Give a slot up."""
        self.leave(entry)
        self.of_window[self.memory.entry(entry).window].discard(entry)
        self.set_state(entry, State.FREE)
        self.free_entries.append(entry)

    def give_record(self, entry: int, flying: int) -> Record:
        """The entry leaves the wheel for a record."""
        del self.wheel[entry]
        record = self.records[entry] = Record(flying)
        return record

    def leave_record(self, entry: int) -> None:
        """A record without copies under way has served. Open messages are due again."""
        record = self.records[entry]
        if record.flying | record.stored:
            return
        del self.records[entry]
        self.add_to_wheel(entry, record.due_ms)
        self.settle(entry)

    def add_to_wheel(self, entry: int, due_ms: int) -> None:
        """An entry is due then, and not before those of the same time."""
        self._added += 1
        self.wheel[entry] = (max(due_ms, self.wheel_ms), self._added)

    def enter(self, entry: int, due_ms: int) -> None:
        """Put an entry into the list of its state."""
        match self.state_of(entry):
            case State.REVIVED:
                self.revived[entry] = self.mono_ms
            case State.RETURNED:
                self.again[entry] = None
            case _:
                self.add_to_wheel(entry, due_ms)

    def leave(self, entry: int) -> None:
        """Take an entry out of the list of its state."""
        for where in (self.wheel, self.again, self.revived, self.records):
            where.pop(entry, None)

    def link(self, entry: int, due_ms: int) -> None:
        """Add an entry of the memory."""
        self.of_window[self.memory.entry(entry).window].add(entry)
        self.enter(entry, due_ms)

    # -- slots -------------------------------------------------------------------------------------------------

    @property
    def entries_free(self) -> int:
        """Slots that are not in use."""
        return len(self.free_entries) + self.memory.entries_max - self.entries_end

    def need(self, count: int) -> None:
        """REVIVED entries give way until so many slots are free. Raises NoRoomError."""
        while self.entries_free < count:
            if not self.revived:
                raise NoRoomError
            self.step(states.GivesWay(next(iter(self.revived))))

    def make_entry(self, place: int, give: Give, base: int, present: int, *, moves: bool) -> int:
        """Publish an entry in the slot that was given up last."""
        if self.free_entries:
            entry = self.free_entries.pop()
        else:
            entry, self.entries_end = self.entries_end, self.entries_end + 1
        self.step(states.Published(entry, place, give, base, present, moves))
        return entry

    def forget_revived(self, entries: int) -> None:
        """`rmq_pop_forget_revived`."""
        while self.entries_free < entries and self.revived:
            self.step(states.GivesWay(next(iter(self.revived))))
