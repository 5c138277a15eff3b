"""The port of `transactions`: each submission is one chain of copies, and the op record that lists their offsets.

Write stores a chain as a whole or not at all. A power cut may take its end, the op record, but never its begin alone.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct, field

from ringmq.ipc.plane import Plane
from ringmq.ipc.ports import Port, tie
from ringmq.native import ffi, lib
from ringmq.services.arenas import CHAINS, NATIVE_CHAINS, OP_BYTES_MAX
from ringmq.services.transactions import records
from ringmq.store.native_copies import NativeCopies
from ringmq.store.record_copy import Cause, CopyLimits, RecordCopy

COPIES_MAX: int = lib.RMQ_CHAIN_MAX - 1
SYSTEM_ERROR = 1
OF_ONE_REQUEST = (lib.RMQ_CAUSE_MESSAGE_SIZE, lib.RMQ_CAUSE_QUEUE_SLOT, lib.RMQ_CAUSE_CHAIN_BYTES)
"""Causes that are in one request of a chain. Without it, the others may be stored."""


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


class _Chain(Struct):
    items: list[Item]
    requests: list[int]
    """Number of each item's request. -1 = it has none."""
    waiting: int
    offsets: list[int] = field(default_factory=list)
    """Queue offset of each request's record."""
    refusals: list[tuple[int, int, int]] = field(default_factory=list)
    """(request, code, cause) of refused requests."""
    end: int = 0


class ChainPort:
    """The port. `op_queue`: topic id, queue slot and queue id of the op queue. No other code may use the port."""

    def __init__(self, plane: Plane, role: int, op_queue: tuple[int, int, int]) -> None:
        self._plane, self._op_queue = plane, op_queue
        self.port = Port(plane, plane.port_of(role))
        plane.map_arena(self.port.number)
        self._arena = self.port.arena
        settings = plane.header.settings
        self._limits = CopyLimits(int(settings.message_bytes_max))
        self._slot_bytes = len(self._arena) // (CHAINS + NATIVE_CHAINS)
        self._free = list(range(CHAINS))
        self._chains: dict[int, _Chain] = {}
        self._requests = ffi.new("struct rmq_request[]", lib.RMQ_CHAIN_MAX)
        self._store_host = bytes(settings.store_host)[: settings.store_host_bytes], int(settings.store_port)
        self._refused: deque[Result] = deque()
        self.log_end = 0
        """End of the last chain that is known to be stored."""
        self.op_bytes_max = OP_BYTES_MAX
        self.port.claim()

    @property
    def is_idle(self) -> bool:
        """True if nothing is in flight."""
        return not self._chains and not self._refused

    @property
    def has_results(self) -> bool:
        """True if a result may be taken."""
        return bool(self._refused) or self.port.has_answers

    @property
    def has_room(self) -> bool:
        """True if a chain may be submitted."""
        return bool(self._free) and self.port.room >= lib.RMQ_CHAIN_MAX

    def give_chains(self, chains: Any) -> Any:
        """Give chains behind the own ones to a struct rmq_end_chains. Returns a buffer that lives as long as it."""
        arena = ffi.from_buffer("uint8_t[]", self._arena, require_writable=True)
        chains.arena, chains.chain_bytes, chains.first_chain = arena, self._slot_bytes, CHAINS
        chains.body_bytes_max = self._limits.body_bytes_max
        chains.properties_bytes_max = self._limits.properties_bytes_max
        host, chains.host_port = self._store_host
        chains.host, chains.host_length = host.ljust(16, b"\0"), len(host)
        return arena

    def submit(self, items: Sequence[Item], low: int | None) -> int:
        """Submit a chain of the first items, as many as fit. Returns their number, 0 if there is no room.

        `low`: the offset for the mark of the op record (`records.op_mark`). Items whose record cannot be copied are
        refused by `results`.
        """
        if not self.has_room:
            return 0
        items = self.fitting(items)
        slot = self._free[-1]
        start = slot * self._slot_bytes
        copies = [item.copy for item in items if item.copy is not None]
        end = start + self._slot_bytes - OP_BYTES_MAX
        native = NativeCopies(copies, self._limits, self._arena, start, end)
        done = native.run() if copies else 0
        chain, count, taken = self._place(items, native, done)
        if not chain.items:
            return taken
        self._add_op(self._requests[count], [item.offset for item in chain.items], end, low)
        for number in range(count + 1):
            self._requests[number].token = slot << 8 | number
        tie(self._requests, 0, count + 1)
        chain.waiting, chain.offsets = count + 1, [0] * (count + 1)
        if self.port.submit(self._requests, count + 1) != count + 1:
            raise RuntimeError("the request ring took no chain that it had room for")
        self._free.pop()
        self._chains[slot] = chain
        return taken

    def fitting(self, items: Sequence[Item]) -> Sequence[Item]:
        """The first items, as many as one op record may list."""
        op_bytes = 0
        for number, item in enumerate(items[:COPIES_MAX]):
            op_bytes += len(str(item.offset)) + 1
            if number and op_bytes > self.op_bytes_max:
                return items[:number]
        return items[:COPIES_MAX]

    def _place(self, items: Sequence[Item], native: NativeCopies, done: int) -> tuple[_Chain, int, int]:
        """(chain, number of its copies, number of items taken). It ends before the first copy that did not fit."""
        chain, made, count, taken = _Chain([], [], 0), 0, 0, 0
        for item in items:
            if item.copy is not None and made == done:
                break
            taken += 1
            number = -1
            if item.copy is not None:
                made += 1
                if not native.requests[made - 1].kind:
                    self._refused.append(_cannot_be_copied(item, native.copies[made - 1]))
                    continue
                size = ffi.sizeof("struct rmq_request")
                ffi.memmove(self._requests + count, native.requests + (made - 1), size)
                number, count = count, count + 1
            chain.items.append(item)
            chain.requests.append(number)
        if not taken:
            raise ValueError(f"a copy needs {native.batch.needed} bytes, a chain has {self._slot_bytes}")
        return chain, count, taken

    def _add_op(self, request: Any, offsets: Sequence[int], at: int, low: int | None) -> None:
        body = records.op_body(offsets)
        self._arena[at : at + len(body)] = body
        properties_at = at + len(body)
        self._arena[properties_at : properties_at + len(records.OP_PROPERTIES)] = records.OP_PROPERTIES
        ffi.buffer(ffi.addressof(request))[:] = bytes(ffi.sizeof("struct rmq_request"))
        request.body_at, request.body_length = at, len(body)
        request.properties_at, request.properties_length = properties_at, len(records.OP_PROPERTIES)
        request.topic_id, request.queue_slot, request.queue_id = self._op_queue
        host, request.born_port = self._store_host
        ffi.memmove(request.born_host, host, len(host))
        request.born_time_ms = time.time_ns() // 1_000_000
        request.flags = lib.RMQ_APPEND_FLAG_COPY | (lib.RMQ_APPEND_FLAG_BORN_V6 if len(host) == 16 else 0)
        request.kind = lib.RMQ_APPEND_SINGLE
        request.prepared_transaction_offset = records.op_mark(low)

    def results(self, completions: Iterable[Any]) -> Iterator[Result]:
        """The results since the last call. `completions`: those of the own chains (struct rmq_completion)."""
        while self._refused:
            yield self._refused.popleft()
        for found in completions:
            slot, number = found.token >> 8, found.token & 0xFF
            chain = self._chains[slot]
            chain.waiting -= 1
            chain.offsets[number] = int(found.queue_offset)
            chain.end = max(chain.end, int(found.commit_log_offset) + int(found.bytes))
            if not found.bytes:
                chain.refusals.append((number, int(found.code), int(found.cause)))
            if not chain.waiting:
                del self._chains[slot]
                self._free.append(slot)
                yield from self._ended(chain)

    def _ended(self, chain: _Chain) -> Iterator[Result]:
        if chain.refusals:
            yield from _refused_results(chain)
            return
        self.log_end = max(self.log_end, chain.end)
        for item, number in zip(chain.items, chain.requests, strict=True):
            yield Result(item.key, True, chain.offsets[number] if number >= 0 else -1)

    def settled_end(self) -> int | None:
        """End of the log behind all requests of a predecessor. None while write has not answered all of them."""
        return self.port.settled_end if self.port.answered and not self.port.has_answers else None

    def free(self) -> None:
        """Return the arena's memory to the system. Nothing is in flight."""
        self._plane.free_arena(self.port.number)


AGAIN = -1
"""Code of an item that may be submitted again: another item of its chain was refused."""


def _cannot_be_copied(item: Item, copy: Any) -> Result:
    remark = f"the half message cannot be copied: {Cause(copy.cause).name} {copy.detail}"
    has_no_room = Cause(copy.cause) is Cause.PROPERTIES
    return Result(item.key, False, code=SYSTEM_ERROR, remark=remark, has_no_room=has_no_room)


def _refused_results(chain: _Chain) -> Iterator[Result]:
    behind = (lib.RMQ_CAUSE_CHAIN_REFUSED, lib.RMQ_CAUSE_BEHIND_REFUSED)
    number, code, cause = next((found for found in chain.refusals if found[2] not in behind), chain.refusals[0])
    remark = f"the broker does not store it now: cause {cause}"
    for item, request in zip(chain.items, chain.requests, strict=True):
        if cause in OF_ONE_REQUEST and number in chain.requests and request != number:
            yield Result(item.key, False, code=AGAIN)
        else:
            yield Result(item.key, False, code=code, remark=remark)
