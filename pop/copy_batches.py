"""Copies of messages that come again, a batch at a time (`native/src/pop/pop_copies.h`): arena, port, arrays.

C works per message, `Revival` decides per window. A batch goes from the windows to write in one turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from ringmq.ipc.plane import Plane
from ringmq.ipc.ports import Port
from ringmq.native import ffi, lib
from ringmq.pop.arena import LOG_ACKS_BYTES
from ringmq.pop.copy_targets import Copy
from ringmq.pop.log_acks import LogAcks
from ringmq.services.kit.arena import ArenaRing
from ringmq.services.kit.submissions import copy_records, submit_all
from ringmq.store.queue_reader import QueueReader
from ringmq.store.record_copy import PROPERTIES_BYTES_MAX, EditKind, From

ROWS: int = lib.RMQ_POP_COPIES_MAX
BATCH: int = lib.RMQ_POP_COPY_BATCH
LOG_FILES = 16
FIRST_POP_TIME = b"1ST_POP_TIME"
"""Pair of a message that came again: the time at which it was popped first."""
DEAD_TEXTS = FIRST_POP_TIME + b"RETRY_TOPIC" + b"ORIGIN_MESSAGE_ID" + b"DELAY" + b"WAIT" + b"false"
TEXTS_BYTES = 65_536


class CopyBatches:
    """One batch: `begin`, a decision for each case, `submit`. Then `answers`, which yields what has no copy."""

    def __init__(self, plane: Plane, port: Port, windows: Any, index: Any, log_acks: LogAcks) -> None:
        self._port, self._log_acks = port, log_acks
        self._arena = ArenaRing(len(port.arena) - LOG_ACKS_BYTES, LOG_ACKS_BYTES)
        self._reader = QueueReader(plane.struct, LOG_FILES, LOG_FILES)
        self._plane = plane
        self._copies = ffi.new("struct rmq_record_copy[]", BATCH)
        self._requests = ffi.new("struct rmq_request[]", BATCH)
        self._out, self._arena_at = ffi.new("struct rmq_request[]", 2 * BATCH), ffi.new("uint64_t *")
        self._texts = ffi.new("uint8_t[]", TEXTS_BYTES)
        self._texts_bytes = len(DEAD_TEXTS)
        ffi.memmove(self._texts, DEAD_TEXTS, len(DEAD_TEXTS))
        self._edits = ffi.new("struct rmq_pair_edit[]", lib.RMQ_POP_COPY_EDITS)
        self.native = native = ffi.new("struct rmq_pop_copies *")
        self._arrays = {
            "rows": ffi.new("struct rmq_pop_copy[]", ROWS),
            "unused": ffi.new("uint32_t[]", list(range(ROWS - 1, -1, -1))),
            "ready": ffi.new("uint32_t[]", ROWS),
            "open": ffi.new("uint32_t[]", ROWS),
            "left": ffi.new("uint32_t[]", ROWS),
            "taken": ffi.new("uint32_t[]", BATCH),
            "copied": ffi.new("uint32_t[]", BATCH),
            "edits": self._edits,
        }
        for name, array in self._arrays.items():
            setattr(native, name, array)
        native.windows, native.plane, native.port, native.unused_count = windows, plane.struct, port.number, ROWS
        native.log_acks, native.index = log_acks.native, index
        native.name_at, native.name_length = 0, len(FIRST_POP_TIME)
        self._batch = batch = ffi.new("struct rmq_copy_batch *")
        self._kept = batch.arena = ffi.from_buffer(port.arena, require_writable=True)
        batch.edits, batch.texts, batch.edits_count = self._edits, self._texts, lib.RMQ_POP_COPY_EDITS
        batch.body_bytes_max = int(plane.header.settings.message_bytes_max)
        batch.properties_bytes_max = PROPERTIES_BYTES_MAX
        self._places: deque[int] = deque()
        """End of the log when each open batch was submitted, the oldest first."""
        self._oldest = 0
        """Number of the first batch with a copy that has no answer. The arena counts the batches."""
        self._has_room = True
        """False from a batch that did not fit into the arena until the next answer."""

    @property
    def in_flight(self) -> int:
        """Messages that have left their windows for a copy, and whose result the windows do not know yet."""
        return ROWS - int(self.native.unused_count)

    @property
    def is_answered(self) -> bool:
        """True if no request is with write."""
        return self._arena.following == self._oldest and self._log_acks.is_answered

    @property
    def log_place(self) -> int | None:
        """The first offset of the log at which a copy without an answer may lie. None: there is no such copy."""
        return self._places[0] if self._places else None

    def begin(self) -> int:
        """Begin a batch of ready messages. Returns their number, 0 if there is no room for copies."""
        if not self.native.ready_count or not self._has_room:
            return 0
        self._texts_bytes = len(DEAD_TEXTS)
        return int(lib.rmq_pop_copies_look(self.native, max(0, min(BATCH, self._port.room // 2))))

    def copy(self, number: int, aim: Copy, origin_topic: str) -> None:
        """Have the messages of this case copied. `origin_topic`: for pairs of dead letters."""
        case = self.native.cases[number]
        case.is_copied, case.source_slot = 1, aim.source_slot
        case.times_max = min(aim.times_max, lib.RMQ_POP_TIMES_NEVER)
        case.again.topic_id, case.again.queue_slot, case.again.queue_id = aim.again
        case.dead.topic_id, case.dead.queue_slot, case.dead.queue_id = aim.dead or (0, lib.RMQ_NONE, 0)
        case.dead_edits = BATCH + number * lib.RMQ_POP_CASE_EDITS
        if aim.dead:
            self._fill_dead_edits(case.dead_edits, origin_topic.encode())

    def _fill_dead_edits(self, at: int, topic: bytes) -> None:
        """The edits of a dead letter: those of a message that is sent back for the last time."""
        place = self._texts_bytes
        ffi.memmove(self._texts + place, topic, len(topic))
        self._texts_bytes += len(topic)
        self._edit(at, EditKind.DEFAULT, b"RETRY_TOPIC", lib.RMQ_FROM_TEXT, place, len(topic))
        self._edit(at + 1, EditKind.DEFAULT, b"ORIGIN_MESSAGE_ID", From.MESSAGE_ID)
        self._edit(at + 2, EditKind.SET, b"DELAY", lib.RMQ_FROM_NUMBER)
        self._edit(at + 3, EditKind.SET, b"WAIT", lib.RMQ_FROM_TEXT, DEAD_TEXTS.index(b"false"), len(b"false"))

    def _edit(self, at: int, kind: int, name: bytes, value_from: int, place: int = 0, length: int = 0) -> None:
        edit = self._edits[at]
        edit.kind, edit.value_from, edit.number = kind, value_from, 0
        edit.name_at, edit.name_length = DEAD_TEXTS.index(name), len(name)
        edit.value_at, edit.value_length = place, length

    def submit(self) -> int:
        """Copy the messages of the batch that are in memory, and submit the copies. Returns the number of requests."""
        native, batch = self.native, self._batch
        batch.texts_bytes = self._texts_bytes
        count = int(lib.rmq_pop_copies_fill(native, self._reader.native, self._copies))
        kept = native.acks_count * lib.RMQ_POP_LOG_RECORD_BYTES
        done = copy_records(self._arena, batch, self._copies, count, self._requests, kept=kept)
        place, at = int(self._plane.watermarks.append_offset), self._arena_at
        at[0], batch_number = batch.arena_at, self._arena.following
        made = int(
            lib.rmq_pop_copies_tokens(native, self._copies, self._requests, done, batch_number, self._out, at)
        )  # fmt: skip
        if made:
            self._arena.take(int(at[0]))
            self._places.append(place)
            submit_all(self._port, self._out, made)
        self._has_room = done == count or self._arena.following == self._oldest
        return made

    def answers(self) -> int:
        """Take the completions: windows learn of stored copies. Returns their number."""
        count = int(lib.rmq_pop_copies_answers(self.native))
        self._has_room |= count > 0
        while self._oldest < self._arena.following and not self.native.open[self._oldest % ROWS]:
            self._arena.free(self._oldest)
            self._places.popleft()
            self._oldest += 1
        return count

    def take_left(self) -> Iterator[tuple[int, Any]]:
        """(slot, row) of each message that has no copy. The caller releases it, or makes it ready again."""
        native = self.native
        slots = native.left[0 : native.left_count]
        native.left_count = 0
        for slot in slots:
            yield slot, native.rows[slot]

    def tick(self) -> None:
        """Unmap files that retention has deleted, about once a second."""
        self._reader.tick()

    def close(self) -> None:
        """Unmap the files."""
        self._reader.close()
