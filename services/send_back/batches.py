"""Batches of plain send-backs (`native/src/services/send_backs.h`). C works per message, the service decides per case.

A batch goes from the inbox to write in one turn. Requests that need more (a topic that is to be made, an error, a copy
that found no room) are handed to the service, which answers each alone.

A request is a record of TABLE, which C reads from a plain request and the service from any other. The twin of the C
loop that finds the source of a request is `sound_source`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, Protocol

from ringmq.broker.requests.records import plain_request
from ringmq.broker.requests.reply_queue import ReplyQueues
from ringmq.broker.requests.request import Answer, Drop, Request, Slices
from ringmq.ipc.asks import Inbox
from ringmq.ipc.plain_requests import Record, Table, text_at, texts_of
from ringmq.ipc.plane import Plane
from ringmq.native import ffi, lib
from ringmq.services.arena_ring import ArenaRing
from ringmq.services.send_back.cases import SendBack, Source
from ringmq.services.shared_port import Completed, SharedPort
from ringmq.store import layout
from ringmq.store import record as records
from ringmq.store.native_copies import NativeEdits
from ringmq.store.queue_reader import QueueReader
from ringmq.store.record_copy import CopyLimits, PairEdit

BATCH = 256
"""Requests of one batch."""
ROWS = 4096
"""Requests without an answer."""
SPREAD = 8
"""Retry queues that the requests of one case in one batch are spread over."""
EDIT_LISTS_MAX = 1024
"""Lists of edits that are kept from batch to batch."""
LOG_FILES = 16
TICK_MS = 1000
"""Time between two checks for mapped files that retention has deleted."""
SLOT_MASK = 0xFFFFFFFF
_RING_LANE = 0
TABLE = Table.of(lib.rmq_send_back_table)
_FIELDS = ffi.typeof("struct rmq_send_back_fields *")


class CopyTarget(NamedTuple):
    """The queue of a copy (topic id, queue slot, queue id), and the edits of its pairs."""

    queue: tuple[int, int, int]
    edits: tuple[PairEdit, ...]


class SendBackPolicy(Protocol):
    """The service, as this module needs it."""

    def targets(self, asked: SendBack, source: Source, count: int) -> list[CopyTarget]:
        """Targets for copies of equal requests, at most `count`. Empty if the requests are not simply stored."""

    def take(self, request: Request, asked: SendBack) -> None:
        """Take a request. Its answer follows."""

    def take_completed(self, request: Request, asked: SendBack, completed: Completed) -> None:
        """Answer a request whose copy has this completion, or store another copy."""


class SendBackBatches:
    """Implements PlainRequests of the intake, and HostedService without codes.

    Its part of the arena are the bytes `arena`. `slow_ms`: the time from which on a request is slow. Without room,
    requests stay in the inbox for the service.
    """

    name = "send-back batches"
    codes: frozenset[int] = frozenset()
    is_polling = False

    def __init__(
        self, plane: Plane, role: int, inbox: Inbox, port: SharedPort, arena: tuple[int, int], limits: CopyLimits,
        hidden: Collection[str], replies: ReplyQueues, service: SendBackPolicy, slow_ms: Callable[[], int],
    ) -> None:  # fmt: skip
        self._plane, self._inbox, self._replies, self._service = plane, inbox, replies, service
        self._slow_ms = slow_ms
        self._port = port.native_user()
        self._first_byte = arena[0]
        self._ring = ArenaRing(arena[1] - arena[0])
        self._reader = QueueReader(plane.struct, LOG_FILES, 1)
        self._rows = Rows(hidden)
        self._latency = ffi.addressof(plane.header.latency[role][lib.RMQ_SERVICES_LATENCY_ANSWERED])
        self._copies = ffi.new("struct rmq_record_copy[]", BATCH)
        self._requests = ffi.new("struct rmq_request[]", BATCH)
        self._targets = ffi.new("struct rmq_send_back_target[]", lib.RMQ_SEND_BACK_CASES_MAX * SPREAD)
        self._completions = ffi.new("struct rmq_completion[]", BATCH)
        self._oldest_ns, self._left = ffi.new("uint64_t *"), ffi.new("uint32_t *")
        self._batch = CopyBatch(port.arena, limits)
        self._following = 0
        """Number of the next batch."""
        self._oldest = 0
        """Number of the first batch with a copy that has no answer."""
        self._next_tick_ms = 0

    # ---- PlainRequests ----

    def take(self, room: int, reader_of: Callable[[int, int], int | None], now_ms: int) -> tuple[int, list[Request]]:
        """See PlainRequests. The requests that it returns are slow."""
        rows = self._rows.native
        if self._following - self._oldest == ROWS:
            return 0, []
        room = min(room, BATCH, self._port.room)
        count = lib.rmq_send_backs_take(self._plane.struct, self._inbox.answerer, rows, max(0, room), self._oldest_ns)
        if not count:
            return 0, []
        slow = self._measure(reader_of, now_ms)
        lib.rmq_send_backs_look(self._reader.native, rows)
        self._decide(reader_of)
        self._submit()
        for number in range(rows.left_count):
            slot = rows.left[number]
            taken = self._request(slot, reader_of, now_ms)
            if taken is not None:
                self._service.take(*taken)
            lib.rmq_send_backs_release(rows, slot)
        return count, slow

    def _measure(self, reader_of: Callable[[int, int], int | None], now_ms: int) -> list[Request]:
        """Count the times of the taken requests, or return them all if one is slow."""
        rows, now_ns, slow_ms = self._rows.native, time.monotonic_ns(), self._slow_ms()
        received_ns = int(self._oldest_ns[0])
        if not (slow_ms and received_ns and now_ns - received_ns >= slow_ms * 1_000_000):
            lib.rmq_send_backs_measure(rows, self._latency, now_ns)
            return []
        found = (self._request(rows.taken[number], reader_of, now_ms) for number in range(rows.taken_count))
        return [taken[0] for taken in found if taken is not None]

    def _request(
        self, slot: int, reader_of: Callable[[int, int], int | None], now_ms: int
    ) -> tuple[Request, SendBack] | None:
        row = self._rows.native.rows[slot]
        reader = reader_of(row.record.role, row.record.role_generation)
        return None if reader is None else request_of_row(row, reader, now_ms)

    def _decide(self, reader_of: Callable[[int, int], int | None]) -> None:
        """Set the action and the targets of each case."""
        rows, targets = self._rows.native, 0
        for number in range(rows.cases_count):
            case = rows.cases[number]
            row = rows.rows[case.first]
            if reader_of(row.record.role, row.record.role_generation) is None:
                case.action = lib.RMQ_SEND_BACK_DROP
                continue
            source = Source(row.reconsume_times)
            found = self._service.targets(asked_of_row(row), source, min(case.rows, SPREAD))
            if not found:
                continue  # RMQ_SEND_BACK_LEAVE
            case.action, case.targets_from, case.targets_count = lib.RMQ_SEND_BACK_STORE, targets, len(found)
            for target in found:
                to = self._targets[targets]
                to.topic_id, to.queue_slot, to.queue_id = target.queue
                to.edits_from, to.edits_count = self._batch.range_of(target.edits)
                targets += 1

    def _submit(self) -> None:
        """Copy the sources of the batch, and submit the copies."""
        rows, requests, batch = self._rows.native, self._requests, self._batch.native
        count = lib.rmq_send_backs_fill(rows, self._targets, self._copies)
        self._batch.fill()
        done = 0
        while count:
            start, end = self._ring.span
            batch.arena_at, batch.arena_end = self._first_byte + start, self._first_byte + end
            done = lib.rmq_record_copies(self._copies, count, batch, requests)
            if done or not self._ring.wrap():
                break
        self._batch.trim()
        made = lib.rmq_send_backs_tokens(rows, requests, done, self._port.first_token, self._following)
        if made:
            self._following += 1
            self._ring.take(_RING_LANE, self._following, int(batch.arena_at) - self._first_byte)
            if self._port.submit(requests, made) < made:
                raise RuntimeError("the request ring took fewer requests than it had room for")

    # ---- HostedService ----

    def on_request(self, request: Request) -> Answer | Slices:
        """No request has one of its codes."""
        return Drop()

    @property
    def has_news(self) -> bool:
        """See HostedService."""
        return self._port.has_answers

    @property
    def is_idle(self) -> bool:
        """See HostedService."""
        return self._following == self._oldest

    def turn(self, now_ms: int) -> bool:
        """See HostedService. Answers the requests whose copies are stored."""
        if now_ms >= self._next_tick_ms:
            self._next_tick_ms = now_ms + TICK_MS
            self._reader.tick()
        if self.is_idle:
            return False
        rows, count = self._rows.native, BATCH
        total = 0
        while count == BATCH:
            count = lib.rmq_send_backs_answer(
                self._plane.struct, self._port.number, self._inbox.answerer, self._port.first_token, rows,
                self._completions, BATCH, not self._replies.is_waiting, self._left,
            )  # fmt: skip
            total += count
            for number in range(self._left[0]):
                self._take_completed(self._completions[number], now_ms)
        while self._oldest < self._following and not rows.open[self._oldest % ROWS]:
            self._oldest += 1
        self._ring.give_back([self._oldest])
        return total > 0

    def _take_completed(self, found: Any, now_ms: int) -> None:
        slot = int(found.token) & SLOT_MASK
        row = self._rows.native.rows[slot]
        request, asked = request_of_row(row, self._replies.reader_of(row.record.role), now_ms)
        lib.rmq_send_backs_release(self._rows.native, slot)
        completed = Completed(slot, found.code, found.cause, found.queue_offset, found.commit_log_offset, found.bytes)
        self._service.take_completed(request, asked, completed)

    def save_if_due(self, now_ms: int) -> None:
        """See HostedService. There is nothing to save."""

    def close(self) -> None:
        """See HostedService. Copies that write has taken may be stored without an answer."""
        self._reader.close()


class Rows:
    """A struct rmq_send_backs with its arrays. `hidden`: topics whose records no consumer gets."""

    def __init__(self, hidden: Collection[str]) -> None:
        names = b"".join(bytes([len(name)]) + name for name in (topic.encode() for topic in hidden))
        self.native = native = ffi.new("struct rmq_send_backs *")
        native.capacity = native.unused_count = ROWS
        native.rows, *lists = self._kept = (
            ffi.new("struct rmq_send_back[]", ROWS), *(ffi.new("uint32_t[]", ROWS) for _ in range(5)),
        )  # fmt: skip
        native.unused, native.open, native.taken, native.copied, native.left = lists
        native.unused[0:ROWS] = range(ROWS - 1, -1, -1)
        self._hidden = ffi.from_buffer(names)
        native.hidden, native.hidden_bytes = self._hidden, len(names)


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


# ---- requests and sources ----


def request_of_row(row: Any, reader: int, now_ms: int) -> tuple[Request, SendBack]:
    """The request in a struct rmq_send_back."""
    return plain_request(row.record, row.asked, reader, now_ms), asked_of_row(row)


def asked_of_row(row: Any) -> SendBack:
    """The send-back in a struct rmq_send_back."""
    return _asked_of(row.fields, texts_of(row))


def asked_of(record: Record) -> SendBack:
    """The send-back in a record of TABLE."""
    return _asked_of(ffi.from_buffer(_FIELDS, record.data), record.text)


def _asked_of(fields: Any, texts: bytes) -> SendBack:
    times_max = fields.times_max if fields.head.present & lib.RMQ_SEND_BACK_TIMES_MAX else None
    return SendBack(text_at(fields.group, texts), fields.offset, fields.delay_level, bool(fields.unit_mode), times_max)


def sound_source(raw: bytes | memoryview, offset: int, hidden: Collection[str]) -> Source | None:
    """The record at this position, which a client names. None if no consumer can have got it.

    The twin of rmq_send_back_is_sound.
    """
    result, record = records.parse_record(raw, offset, with_body=False)
    if result != records.OK or record is None or record.physical_offset != offset:
        return None
    if record.topic in hidden or record.transaction_type not in (0, layout.TRANSACTION_COMMIT):
        return None
    return Source(record.reconsume_times)
