"""Slots in memory, in C: the `Contents` of the core (native/src/timer/timer_slot.h, timer_steps.h)."""

from __future__ import annotations

import os
from array import array
from typing import Any

from ringmq.native import ffi, lib
from ringmq.native.table_secret import table_secret
from ringmq.store.queue_reader import QueueReader, RecordBatch
from ringmq.timer.core import IN_FLIGHT_MAX
from ringmq.timer.timer_files import TimerFiles
from ringmq.timer.walk_pace import LEAD_MAX_MS, lead_ms

MESSAGES_MAX = 6 << 20
"""Messages of a slot in memory, 8 bytes each. Further ones are found by another walk. At most three slots are in
memory: the open one, the next one, and a large one behind it."""
DELETES_MAX: int = lib.RMQ_TIMER_DELETES_MAX
"""Deletes of a slot in memory, 32 bytes each. Further ones are in files without a name."""
BATCH = 512


class Slots:
    """The wheel, the slots in memory, and the copies in flight."""

    def __init__(self, files: TimerFiles, messages_max: int = MESSAGES_MAX) -> None:
        self.files = files
        self._folder = ffi.new("char[]", os.fsencode(files.root))
        self._messages_max = messages_max
        self._secret = table_secret()
        self._slots: dict[int, Any] = {}
        self._walks: dict[int, Any] = {}
        self._delivered: Any = None
        self._rolled: Any = None
        self.work = ffi.new("struct rmq_timer_enqueue *")
        self.work.index.secret = self._secret
        self.batch = ffi.new("struct rmq_timer_batch *")
        self._arrays = (
            ffi.new("uint64_t[]", BATCH), ffi.new("struct rmq_queue_unit[]", BATCH), ffi.new("int64_t[]", BATCH),
            ffi.new("int64_t[]", BATCH), ffi.new("uint32_t[]", BATCH), ffi.new("uint32_t[]", BATCH),
            ffi.new("uint64_t[]", IN_FLIGHT_MAX), ffi.new("uint8_t[]", IN_FLIGHT_MAX),
            ffi.new("uint32_t[]", IN_FLIGHT_MAX), ffi.new("int64_t[]", IN_FLIGHT_MAX),
        )  # fmt: skip
        batch = self.batch
        batch.keys, batch.units, batch.enqueue_ms, batch.slots_ms, batch.magics, batch.topic_rows = self._arrays[:6]
        self.flight = ffi.new("struct rmq_timer_flight *", {"room": IN_FLIGHT_MAX})
        self.flight.keys, self.flight.is_rolled, self.flight.topic_rows, self.flight.due_ms = self._arrays[6:]

    @property
    def tally(self) -> Any:
        """struct rmq_timer_tally: totals since the start."""
        return self.work.tally

    def set_delivered(self, offsets: array[int]) -> None:
        """Set the queue offsets of messages whose copies are in the log, in ascending order."""
        self._delivered = ffi.from_buffer("uint64_t[]", offsets) if offsets else None
        self.work.delivered = self._delivered if self._delivered is not None else ffi.NULL
        self.work.delivered_count = len(offsets)

    def set_rolled(self, sources: array[int], end: int) -> None:
        """Set what rmq_timer_rolled_sources has found in the records before `end`, in ascending order: such messages
        get no unit."""
        self._rolled = ffi.from_buffer("uint64_t[]", sources) if sources else None
        self.work.rolled = self._rolled if self._rolled is not None else ffi.NULL
        self.work.rolled_count, self.work.rolled_end = len(sources), end

    def set_statistics(self, topics: Any, lateness: Any) -> None:
        """Count waiting messages in a struct rmq_timer_topics, and the lateness of others in a struct rmq_latency.
        Belongs before the first message."""
        self.work.topics = self.batch.topics = self.flight.topics = topics
        self.flight.lateness = lateness

    def next_used(self, from_ms: int, to_ms: int) -> int | None:
        """See Contents."""
        found = int(lib.rmq_timer_next_used(self.files.struct, from_ms, to_ms))
        self.files.check()
        return None if found < 0 else found

    def next_large(self, from_ms: int, now_ms: int) -> int | None:
        """See Contents."""
        step_ms = int(self.files.struct.precision_ms)
        for slot_ms in range(from_ms, now_ms + LEAD_MAX_MS + 1, step_ms):
            lead = lead_ms(step_ms, self.count(slot_ms))
            if lead > step_ms and slot_ms - lead <= now_ms:
                return slot_ms
        return None

    def next_ms(self, slot_ms: int) -> int | None:
        """See Contents."""
        found = int(lib.rmq_timer_slot_next_ms(self._slots[slot_ms]))
        return None if found < 0 else found

    def is_left_out(self, slot_ms: int) -> bool:
        """See Contents."""
        return int(lib.rmq_timer_slot_left_out(self._slots[slot_ms])) > 0

    def needs_walk(self, slot_ms: int) -> bool:
        """See Contents."""
        return bool(lib.rmq_timer_slot_needs_walk(self._slots[slot_ms]))

    def slot(self, slot_ms: int) -> Any:
        """Return the struct rmq_timer_slot of a slot in memory."""
        return self._slots[slot_ms]

    # -- enqueue -------------------------------------------------------------------------------------------

    def enqueue(self, batch: RecordBatch, first: int, count: int) -> int:
        """Append units for records of the batch. Returns how many were taken; `work.stop` says why not all were. Raises
        MemoryError."""
        units, records = batch.units + first, batch.records + first
        taken = int(lib.rmq_timer_enqueue(self.files.struct, records, units, count, self.work))
        self.files.check()
        if taken < 0:
            raise MemoryError("no memory for the messages of a slot")
        return taken

    # -- walks ---------------------------------------------------------------------------------------------

    def begin_walk(self, slot_ms: int, until_ms: int, required_ms: int) -> None:
        """Begin to read the slot, and those that join it: see core.Walk.

        A slot in memory is read again for what was left out.
        """
        is_again = slot_ms in self._slots
        if is_again:
            lib.rmq_timer_slot_walk_again(self._slots[slot_ms])
        else:
            opened = lib.rmq_timer_slot_open(slot_ms, self._messages_max, self.files.units_end, self._secret)
            if opened == ffi.NULL:
                raise MemoryError("no memory for a slot")
            self._slots[slot_ms] = ffi.gc(opened, lib.rmq_timer_slot_close)
            lib.rmq_timer_slot_limit_deletes(opened, DELETES_MAX, self._folder)
            lib.rmq_timer_slot_extend(opened, slot_ms + self.files.struct.precision_ms)
            self._publish_slots()
        self._walks[slot_ms] = ffi.new("struct rmq_timer_walk *", {
            "slot_ms": slot_ms, "until_ms": until_ms, "required_ms": required_ms, "is_again": is_again,
        })  # fmt: skip
        lib.rmq_timer_walk_begin(self.files.struct, self._walks[slot_ms])

    def walk(self, reader: QueueReader, units: int) -> tuple[int, int] | None:
        """Read a piece of the slot that is due first, at most so many units.

        Returns its time and its end when the walk is over.
        """
        slot_ms = min(self._walks)
        slot, walk = self._slots[slot_ms], self._walks[slot_ms]
        # an error (a file that cannot be mapped now, no memory) leaves the place, so the next call tries again
        lib.rmq_timer_walk(self.files.struct, reader.native, slot, walk, units, self.work)
        self.files.check()
        if not walk.is_over:
            return None
        del self._walks[slot_ms]
        return slot_ms, int(lib.rmq_timer_slot_end(slot))

    @property
    def walking_ms(self) -> int | None:
        """Time of the slot that `walk` reads. None: all walks are over."""
        return min(self._walks, default=None)

    def count(self, slot_ms: int) -> int:
        """Return the number of units that the wheel counts for a slot."""
        return int(lib.rmq_timer_count(self.files.struct, slot_ms))

    # -- copies in flight ----------------------------------------------------------------------------------

    def stored(self, count: int, now_ms: int) -> None:
        """Count the oldest copies in flight as stored."""
        lib.rmq_timer_stored(self.flight, count, now_ms)

    def refused(self, slot_ms: int) -> None:
        """Return all copies in flight to the slot. Raises MemoryError."""
        if self.flight.count and lib.rmq_timer_refused(self.flight, self._slots[slot_ms]):
            raise MemoryError("no memory for the messages of a slot")

    def close(self, slot_ms: int) -> None:
        """Forget a slot that is over."""
        ffi.release(self._slots.pop(slot_ms))
        self._publish_slots()

    def _publish_slots(self) -> None:
        of = list(self._slots.values())
        for number in range(lib.RMQ_TIMER_SLOTS_IN_MEMORY):
            self.work.slots[number] = of[number] if number < len(of) else ffi.NULL
