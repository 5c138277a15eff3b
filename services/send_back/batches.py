"""Copies of the messages that rows send back, a batch at a time (`native/src/services/send_backs.h`).

C works per message, the service decides per case. A batch goes from the rows to write in one turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ringmq.ipc.plane import Plane
from ringmq.native import ffi, lib
from ringmq.services.kit.arena import ArenaRing
from ringmq.services.kit.shared_port import SharedPort
from ringmq.services.kit.submissions import copy_records, submit_all
from ringmq.services.send_back.rows import ROWS, Rows
from ringmq.store.native_copies import NativeEdits
from ringmq.store.queue_reader import QueueReader
from ringmq.store.record_copy import CopyLimits, PairEdit

BATCH = 256
"""Rows of one batch."""
SPREAD = 8
"""Retry queues that the rows of one case in one batch are spread over."""
EDIT_LISTS_MAX = 1024
"""Lists of edits that are kept from batch to batch."""
LOG_FILES = 16
TICK_MS = 1000
"""Time between two checks for mapped files that retention has deleted."""
SLOT_MASK = 0xFFFFFFFF


class CopyTarget(NamedTuple):
    """The queue of a copy (topic id, queue slot, queue id), and the edits of its pairs."""

    queue: tuple[int, int, int]
    edits: tuple[PairEdit, ...]


class CopyBatches:
    """One batch: `begin`, an action for each case, `submit`. Its part of the arena are the bytes `arena`."""

    def __init__(
        self, plane: Plane, answerer: int, rows: Rows, port: SharedPort, arena: tuple[int, int], limits: CopyLimits
    ) -> None:
        self._plane, self._answerer, self._rows = plane, answerer, rows.native
        self._port, self._first_token = port, port.add_native_user()
        self._arena = ArenaRing(arena[1] - arena[0], arena[0])
        self._reader = QueueReader(plane.struct, LOG_FILES, 1)
        self._copies = ffi.new("struct rmq_record_copy[]", BATCH)
        self._requests = ffi.new("struct rmq_request[]", BATCH)
        self._targets = ffi.new("struct rmq_send_back_target[]", lib.RMQ_SEND_BACK_CASES_MAX * SPREAD)
        self._targets_count = 0
        self._completions = ffi.new("struct rmq_completion[]", BATCH)
        self._left = ffi.new("uint32_t *")
        self._batch = CopyBatch(port.arena, limits)
        self._oldest = 0
        """Number of the first batch with a copy that has no answer. The arena counts the batches."""
        self._has_room = True
        """False from a batch that did not fit into the arena until the next answer."""
        self._next_tick_ms = 0

    @property
    def has_answers(self) -> bool:
        """True if the answer to a copy may wait."""
        return self._port.has_answers

    @property
    def is_idle(self) -> bool:
        """True if no copy is in flight."""
        return self._arena.following == self._oldest

    def begin(self) -> int:
        """Begin a batch of ready rows. Returns their number, 0 if there is no room for copies."""
        if not self._rows.ready_count or not self._has_room or self._arena.following - self._oldest == ROWS:
            return 0
        self._targets_count = 0
        return int(lib.rmq_send_backs_look(self._reader.native, self._rows, max(0, min(BATCH, self._port.room))))

    def store(self, case: Any, targets: Sequence[CopyTarget]) -> None:
        """Have the rows of this case copied, to these targets in turn. At most SPREAD."""
        case.action, case.targets_from, case.targets_count = (
            lib.RMQ_SEND_BACK_STORE, self._targets_count, len(targets),
        )  # fmt: skip
        for target in targets:
            to = self._targets[self._targets_count]
            to.topic_id, to.queue_slot, to.queue_id = target.queue
            to.edits_from, to.edits_count = self._batch.range_of(target.edits)
            self._targets_count += 1

    def submit(self) -> tuple[int, list[int]]:
        """Copy the sources of the batch, and submit the copies. Rows without room are ready again.

        Returns the number of the others, and the slots of those without a copy.
        """
        rows, requests, batch = self._rows, self._requests, self._batch.native
        count = lib.rmq_send_backs_fill(rows, self._targets, self._copies)
        self._batch.fill()
        done = copy_records(self._arena, batch, self._copies, count, requests)
        self._batch.trim()
        following = self._arena.following
        made = lib.rmq_send_backs_tokens(rows, self._copies, requests, done, self._first_token, following)
        if made:
            self._arena.take(int(batch.arena_at))
            submit_all(self._port, requests, made)
        self._has_room = done == count or self.is_idle
        return int(rows.taken_count), list(rows.left[0 : rows.left_count])

    def answers(self, *, may_answer: bool) -> Iterator[Any]:
        """Take the completions: C answers those rows whose copies are stored, if it `may_answer`. Yields the others
        (struct rmq_completion), whose rows the caller has to end."""
        count = BATCH
        while count == BATCH:
            count = lib.rmq_send_backs_answer(
                self._plane.struct, self._port.number, self._answerer, self._first_token, self._rows,
                self._completions, BATCH, may_answer, self._left,
            )  # fmt: skip
            self._has_room |= count > 0
            for number in range(self._left[0]):
                yield self._completions[number]
        while self._oldest < self._arena.following and not self._rows.open[self._oldest % ROWS]:
            self._arena.free(self._oldest)
            self._oldest += 1

    def tick(self, now_ms: int) -> None:
        """Let go of files that retention has deleted, now and then."""
        if now_ms >= self._next_tick_ms:
            self._next_tick_ms = now_ms + TICK_MS
            self._reader.tick()

    def close(self) -> None:
        """Unmap the files. Copies that write has taken may be stored without an answer."""
        self._reader.close()


class CopyBatch:
    """A struct rmq_copy_batch that stays from batch to batch, with its edits."""

    def __init__(self, arena: Any, limits: CopyLimits) -> None:
        self.native = native = ffi.new("struct rmq_copy_batch *")
        self._arena = native.arena = ffi.from_buffer(arena, require_writable=True)
        native.body_bytes_max, native.properties_bytes_max = limits.body_bytes_max, limits.properties_bytes_max
        self._edits = NativeEdits()
        self._kept: list[Any] = []

    def range_of(self, edits: tuple[PairEdit, ...]) -> tuple[int, int]:
        """(edits_from, edits_count) of a list of edits. Call `fill` before the copies are made."""
        return self._edits.range_of(edits)

    def fill(self) -> None:
        """Write the new edits into the struct."""
        if self._edits.count != self.native.edits_count:
            self._kept = self._edits.fill(self.native)

    def trim(self) -> None:
        """Forget the edits if there are many. The copies must have been made."""
        if self._edits.lists > EDIT_LISTS_MAX:
            self._edits, self.native.edits_count = NativeEdits(), 0
