"""The port of `transactions`: each submission is one chain of copies, and the op record that lists their offsets.

Write stores a chain as a whole or not at all. A power cut may take its end, the op record, but never its begin alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from ringmq.ipc.plane import Plane
from ringmq.native import ffi, lib
from ringmq.services.arenas import CHAINS, NATIVE_CHAINS, OP_BYTES_MAX
from ringmq.services.kit.arena import ArenaSlots
from ringmq.services.kit.flight import AGAIN, RIDER
from ringmq.services.kit.shared_port import SharedPort
from ringmq.services.kit.submissions import EachAlone, copy_records
from ringmq.services.transactions import records
from ringmq.store.native_copies import NativeCopies
from ringmq.store.record_copy import Cause, CopyLimits, RecordCopy

COPIES_MAX: int = lib.RMQ_CHAIN_MAX - 1
SYSTEM_ERROR = 1
Queue = tuple[int, int, int]


class Item(Struct, frozen=True):
    """A piece of work for one half."""

    key: int
    """First half-queue offset of the transaction."""
    offset: int
    """Half-queue offset for the op record."""
    copy: RecordCopy | None = None
    """None if no copy is stored: a rollback, or an op record that is made again."""


class Result(Struct, frozen=True):
    """The result of an item."""

    key: int
    is_stored: bool
    queue_offset: int = -1
    """Of the copy."""
    code: int = 0
    remark: str = ""
    has_no_room: bool = False
    """True if the copy has more bytes of properties than a record may have."""


class ChainPort:
    """The port. Queues: topic id, queue slot and queue id. No other code may use the port."""

    def __init__(self, plane: Plane, role: int, half: Queue, op: Queue) -> None:
        self._plane = plane
        port = plane.port_of(role)
        plane.map_arena(port)
        self._port = SharedPort(plane, port)
        self._port.add_native_user()  # the chains of C
        self._arena = ffi.from_buffer("uint8_t[]", self._port.arena, require_writable=True)
        self._limits = CopyLimits(int(plane.header.settings.message_bytes_max))
        self.chains = self._made_chains(role, half, op)
        slots = ArenaSlots(int(self.chains.chain_bytes), CHAINS)
        self._submissions: EachAlone[Item] = EachAlone(self._port, slots)
        self._requests = ffi.new("struct rmq_request[]", lib.RMQ_CHAIN_MAX)
        self._refused: deque[Result] = deque()
        self.log_end = 0
        """End of the last chain that is known to be stored."""
        self.op_bytes_max = OP_BYTES_MAX

    def _made_chains(self, role: int, half: Queue, op: Queue) -> Any:
        """The struct rmq_end_chains for the chains of C. Those of this class use its op record."""
        chains, settings = ffi.new("struct rmq_end_chains *"), self._plane.header.settings
        chains.port, chains.role = self._port.number, role
        chains.answerer = lib.rmq_answerer_find(self._plane.struct, role)
        chains.half_topic_id, chains.half_slot, _ = half
        chains.op_topic_id, chains.op_slot, chains.op_queue_id = op
        chains.op_properties_length = len(records.OP_PROPERTIES)
        chains.op_properties = records.OP_PROPERTIES.ljust(len(chains.op_properties), b"\0")
        chains.arena, chains.first_chain = self._arena, CHAINS
        chains.chain_bytes = len(self._arena) // (CHAINS + NATIVE_CHAINS)
        chains.body_bytes_max = self._limits.body_bytes_max
        chains.properties_bytes_max = self._limits.properties_bytes_max
        chains.host, chains.host_length = settings.store_host, settings.store_host_bytes
        chains.host_port = settings.store_port
        return chains

    @property
    def is_idle(self) -> bool:
        """True if nothing is in flight."""
        return not self._submissions.in_flight and not self._refused

    @property
    def has_results(self) -> bool:
        """True if a result may be taken."""
        return bool(self._refused) or self._submissions.has_answers

    @property
    def has_room(self) -> bool:
        """True if a chain may be submitted."""
        start, end = self._submissions.arena.piece
        return start < end and self._port.room >= lib.RMQ_CHAIN_MAX

    def submit(self, items: Sequence[Item], low: int | None, wall_ms: int) -> int:
        """Submit a chain of the first items, as many as fit. Returns their number, 0 if there is no room.

        `low`: the offset for the mark of the op record (`records.op_mark`). Items whose record cannot be copied are
        refused by `results`.
        """
        if not self.has_room:
            return 0
        items, arena = self.fitting(items), self._submissions.arena
        copies = [item.copy for item in items if item.copy is not None]
        start, end = arena.piece
        native = NativeCopies(copies, self._limits, self._port.arena, start, end)
        done = copy_records(arena, native.batch, native.copies, len(copies), native.requests, kept=lib.RMQ_OP_ROOM)
        chain, count, taken = self._place(items, native, done)
        if chain:
            body, chains = records.op_body([item.offset for item, _ in chain]), self.chains
            chains.op_mark, chains.wall_ms = records.op_mark(low), wall_ms
            lib.rmq_end_chains_op(chains, start // chains.chain_bytes, body, len(body), self._requests + count)
            self._submissions.submit_tied(self._requests, count + 1, chain, end)
        return taken

    def fitting(self, items: Sequence[Item]) -> Sequence[Item]:
        """The first items, as many as one op record may list."""
        op_bytes = 0
        for number, item in enumerate(items[:COPIES_MAX]):
            op_bytes += len(str(item.offset)) + 1
            if number and op_bytes > self.op_bytes_max:
                return items[:number]
        return items[:COPIES_MAX]

    def _place(self, items: Sequence[Item], native: NativeCopies, done: int) -> tuple[list[tuple[Item, int]], int, int]:
        """(items with the numbers of their requests, number of requests, items taken). They end before the first copy
        that did not fit."""
        chain, made, count, taken = list[tuple[Item, int]](), 0, 0, 0
        for item in items:
            if item.copy is None:
                chain.append((item, RIDER))
            elif made == done:
                break
            elif native.requests[made].kind:
                self._requests[count] = native.requests[made]
                chain.append((item, count))
                made, count = made + 1, count + 1
            else:
                self._refused.append(_cannot_be_copied(item, native.copies[made]))
                made += 1
            taken += 1
        return chain, count, taken

    def results(self, completions: Iterable[Any]) -> Iterator[Result]:
        """The results since the last call. `completions`: those of the own chains (struct rmq_completion)."""
        while self._refused:
            yield self._refused.popleft()
        for found in completions:
            self._port.deliver(found)
        for result in self._submissions.results():
            self.log_end = max(self.log_end, result.commit_log_end)
            is_refused = not result.is_stored and result.code != AGAIN
            remark = f"the broker does not store it now: cause {result.cause}" if is_refused else ""
            yield Result(result.what.key, result.is_stored, result.queue_offset, result.code, remark)

    def settled_end(self) -> int | None:
        """End of the log behind all requests of a predecessor. None while write has not answered all of them."""
        port = self._port
        return port.settled_end if port.answered and not self._submissions.has_answers else None

    def free(self) -> None:
        """Return the arena's memory to the system. Nothing is in flight."""
        self._plane.free_arena(self._port.number)


def _cannot_be_copied(item: Item, copy: Any) -> Result:
    remark = f"the half message cannot be copied: {Cause(copy.cause).name} {copy.detail}"
    has_no_room = Cause(copy.cause) is Cause.PROPERTIES
    return Result(item.key, False, code=SYSTEM_ERROR, remark=remark, has_no_room=has_no_room)
