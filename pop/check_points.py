"""Check points of open messages, a batch at a time (`native/src/pop/pop_check_points.h`): texts, arena, requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ringmq.ipc.plane import Plane
from ringmq.ipc.ports import Port
from ringmq.native import ffi, lib
from ringmq.pop import revive_records
from ringmq.pop.log_room import LogRoom, LogTexts
from ringmq.pop.record_targets import Targets
from ringmq.pop.revive_records import BATCH_ACK, Acks
from ringmq.pop.window_names import Key, Window
from ringmq.services.kit.submissions import submit_all
from ringmq.store.record_numbers import LONG_MAX

BATCH = 8192
"""Requests of one batch, a half of the port's ring."""
OPEN_MAX = 4096
"""Open messages of one pop."""
ALL = 0xFFFF_FFFF
"""Entries that a call looks at, if it may take its time."""


class HandOverError(Exception):
    """The store cannot be handed over as it should. The message names the cause."""


class Ending(NamedTuple):
    """Messages of a check point in the log that are done, and the time of that check point."""

    acks: Acks
    revive_queue: int
    due_ms: int


class CheckPoints:
    """The requests for messages of some windows. No other user of the port may have requests in flight."""

    def __init__(
        self, plane: Plane, port: Port, windows: Any, named: Iterable[tuple[Key, Window]], broker: str,
        targets: Targets, now_ms: int,
    ) -> None:  # fmt: skip
        self._plane, self._port, self._targets, self._windows = plane, port, targets, windows
        texts, chosen = LogTexts(), list(named)
        places = 1 + max((window.place for _, window in chosen), default=0)
        groups, topics = (ffi.new("struct rmq_pop_log_text[]", places) for _ in range(2))
        self.native = native = ffi.new("struct rmq_pop_points *")
        self._room = room = native.room
        for key, window in chosen:
            texts.put(groups[window.place], key.group)
            texts.put(topics[window.place], key.topic)
        texts.put(room.broker, broker)
        texts.put(room.revive_topic, targets.revive_topic)
        shared = LogRoom(room, plane)
        shared.set_targets(targets)
        kept = ffi.from_buffer(bytes(texts))
        arena = ffi.from_buffer(port.arena, require_writable=True)
        self._ends = ffi.new("int64_t[]", places)
        self._kept = groups, topics, shared, kept, arena
        native.windows, native.groups, native.topics = windows, groups, topics
        native.ends, native.places = self._ends, places
        room.texts, room.now_ms = kept, now_ms
        room.arena, self._half_bytes, self._half = arena, len(port.arena) // 2, 0
        self._requests = ffi.new("struct rmq_request[]", BATCH)
        self._open = ffi.new("int64_t[]", OPEN_MAX)
        self._end, self._refused = ffi.new("uint64_t *"), ffi.new("uint32_t *")
        self._waiting = 0
        self._made = ffi.NULL
        self.begin_pass()

    def begin_pass(self, ends: Mapping[int, int] | None = None) -> None:
        """Begin with the first entry again. Pops that have check points get no other ones. `ends`: the offset of each
        window, by its place, from which on messages have none, 0 for windows without one. None: all have one."""
        native, entries = self.native, int(lib.rmq_pop_points_entries(self._windows))
        if entries > native.entries:
            made = ffi.new("uint32_t[]", entries)
            ffi.memmove(made, self._made, 4 * native.entries)
            self._made = native.made = made
            native.entries = entries
        for place in range(native.places):
            self._ends[place] = LONG_MAX if ends is None else ends.get(place, 0)
        native.next = 0

    def leave_out(self, place: int) -> None:
        """The window at this place has ended: it gets no more check points."""
        self._ends[place] = 0

    @property
    def is_over(self) -> bool:
        """True if the pass has looked at all entries."""
        return bool(lib.rmq_pop_points_is_over(self.native))

    def known(self, place: int, start_offset: int, pop_time_ms: int) -> set[int]:
        """Leave out the pop with this receipt. Returns its open messages. Raises HandOverError if they are too many."""
        return self._open_of(place, start_offset, pop_time_ms, leave_out=True)

    def open(self, place: int, start_offset: int, pop_time_ms: int) -> set[int]:
        """The open messages of the pop with this receipt. Raises HandOverError if they are too many."""
        return self._open_of(place, start_offset, pop_time_ms, leave_out=False)

    def is_open(self, place: int, offset: int) -> bool:
        """True if any pop has the message open, and no copy of it is in the log."""
        return bool(lib.rmq_pop_points_is_open(self.native, place, offset))

    def _open_of(self, place: int, start_offset: int, pop_time_ms: int, *, leave_out: bool) -> set[int]:
        to, native = self._open, self.native
        count = int(lib.rmq_pop_points_known(native, place, start_offset, pop_time_ms, leave_out, to, OPEN_MAX))
        if count > OPEN_MAX:  # those that are left out of the answer would count as done
            raise HandOverError(f"a pop has {count} open messages, the limit is {OPEN_MAX}")
        return set(to[0:count])

    @property
    def messages(self) -> int:
        """Messages of the check points so far."""
        return int(self.native.messages)

    @property
    def due_ms(self) -> int:
        """Time at which the last of them is due."""
        return int(self.native.due_ms)

    @property
    def records(self) -> int:
        """Check points so far."""
        return int(self.native.records)

    def fill(self, look: int = ALL, records: int = BATCH) -> tuple[Any, int]:
        """Make the next batch: (requests, number). `look`: entries to look at, at most. `records`: the most requests,
        up to BATCH. Raises HandOverError: a check point does not fit."""
        self._take_half()
        made = int(lib.rmq_pop_points_fill(self.native, self._requests, min(records, self._port.room), look))
        if self.native.does_not_fit:
            text = "the check points of one pop do not fit into the arena, or it has more than"
            raise HandOverError(f"{text} {lib.RMQ_POP_ENTRY_MESSAGES} entries with open messages")
        return self._requests, made

    def acknowledge(self, acks: Sequence[Ending]) -> tuple[Any, int]:
        """Make requests of the first acknowledgements, as many as a batch takes: (requests, number).
        Raises HandOverError if the first one does not fit."""
        self._take_half()
        room, at, made = self._room, int(self._room.arena_at), 0
        for ending in acks[: min(BATCH, self._port.room)]:
            request = self._requests[made]
            body, pairs, queue = self._ack(ending)
            end = at + len(body) + len(pairs)
            if end > room.arena_end and not made:
                raise HandOverError(f"an acknowledgement of {len(ending.acks.offsets)} messages has no room")
            if end > room.arena_end:
                break
            ffi.memmove(room.arena + at, body + pairs, end - at)
            request.body_at, request.body_length = at, len(body)
            request.properties_at, request.properties_length = at + len(body), len(pairs)
            request.topic_id, request.queue_slot, request.queue_id = queue
            lib.rmq_pop_log_origin(ffi.addressof(room), ffi.addressof(request))
            request.flags |= lib.RMQ_APPEND_FLAG_NO_WAIT
            at, made = end, made + 1
        return self._requests, made

    def _ack(self, ending: Ending) -> tuple[bytes, bytes, tuple[int, int, int]]:
        targets, deliver_ms = self._targets, ending.due_ms
        body, key = revive_records.batch_ack_body(ending.acks), revive_records.batch_ack_key(ending.acks)
        queue = targets.revive[ending.revive_queue % len(targets.revive)]
        if targets.timer is None or deliver_ms <= self._room.now_ms:
            return body, revive_records.plain_properties(deliver_ms, key, BATCH_ACK), queue
        out_ms = revive_records.out_ms(deliver_ms, targets.precision_ms)
        pairs = revive_records.timed_properties(
            deliver_ms, key, BATCH_ACK, targets.revive_topic, queue[2], out_ms
        )  # fmt: skip
        return body, pairs, targets.timer

    def submit(self, requests: Any, count: int) -> None:
        """Submit requests, whose bytes are in the arena. At most one other batch may have no answer."""
        submit_all(self._port, requests, count)
        self._waiting += count

    def take_answers(self) -> int:
        """The number of requests that have no answer yet."""
        self._waiting -= int(
            lib.rmq_pop_points_answers(self._plane.struct, self._port.number, self._end, self._refused)
        )
        return self._waiting

    def _take_half(self) -> None:
        """Use the other half of the arena: write still reads the batch before."""
        self._half = 1 - self._half
        self._room.arena_at = self._half * self._half_bytes
        self._room.arena_end = self._room.arena_at + self._half_bytes

    @property
    def log_end(self) -> int:
        """End of the last record."""
        return int(self._end[0])

    @property
    def refused(self) -> int:
        """The cause of write for a record that was not stored, 0 = all are."""
        return int(self._refused[0])
