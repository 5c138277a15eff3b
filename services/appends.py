"""Appends of bodies that a service has made: a part of the arena cut into slots, requests out, answers in.

The arena of `services` has the slots of staged writes first, then those of recalls, then two rings of `send_back` for
copies: of single requests, of batches.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from msgspec import Struct

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.ipc.plane import Plane
from ringmq.native import ffi, lib
from ringmq.services.shared_port import SharedPort

SLOTS = 6
"""Appends in flight at a time: those of staged writes, a decision and a done record."""
PAGE_BYTES = 4096
PROPERTIES_BYTES = 4096
"""Bytes of a slot behind the body."""
RECALL_SLOTS = 256
RECALLS_BYTES = RECALL_SLOTS * (PROPERTIES_BYTES + 64)

COPIES_BYTES_MIN = 8 << 20
COPY_PROPERTIES_BYTES = 1 << 16

T = TypeVar("T")


def arena_bytes(config: BrokerConfig) -> int:
    """Size of the arena. Each slot takes the largest body. Unused pages take no memory."""
    return slots_bytes(config) + RECALLS_BYTES + 2 * copies_bytes(config)


def copies_bytes(config: BrokerConfig) -> int:
    """Size of a ring for copies. Two of the largest messages fit."""
    return max(COPIES_BYTES_MIN, 2 * (config.max_message_size + COPY_PROPERTIES_BYTES))


def slots_bytes(config: BrokerConfig) -> int:
    """Size of the slots of staged writes. maxMessageSize needs a restart."""
    slot = config.max_message_size + PROPERTIES_BYTES
    return SLOTS * (slot + PAGE_BYTES - 1 & ~(PAGE_BYTES - 1))


class Origin(Struct, frozen=True):
    """The origin of a message: the born time and born host of its records."""

    born_time_ms: int
    born_host: bytes
    born_port: int


class AppendResult(Struct, Generic[T], frozen=True):
    """The result of an append. Code 0, 10 (not synced in time), 11 or 12 (replicas lost, or late): the record is in the
    log."""

    what: T
    code: int
    cause: int
    queue_offset: int
    commit_log_offset: int
    commit_log_end: int


class Appends(Generic[T]):
    """The access of a service to write. The answer to an append carries its `what`.

    Its part of the arena begins at `first_byte` and has `size` bytes.
    """

    def __init__(self, plane: Plane, port: SharedPort, size: int, *, first_byte: int = 0, slots: int = SLOTS) -> None:
        self._plane = plane
        self._port = port.user()
        self._arena = port.arena
        self._first_byte = first_byte
        self._slot_bytes = size // slots
        self._free = list(range(slots))
        self._waiting: dict[int, T] = {}

    @property
    def in_flight(self) -> int:
        """Appends without an answer."""
        return len(self._waiting)

    @property
    def body_bytes_max(self) -> int:
        """Largest body that a slot takes."""
        return self._slot_bytes - PROPERTIES_BYTES

    def settled(self) -> int | None:
        """End of the log behind all requests of a dead process. None while write has not processed all of them."""
        return self._port.settled_end

    @property
    def has_answers(self) -> bool:
        """True if an answer waits."""
        return self._port.has_answers

    def rest(self) -> None:
        """Return the arena's memory to the system. No append may be in flight."""
        assert not self._waiting, "an append is under way"
        self._plane.free_arena(self._port.number)

    def own_origin(self) -> Origin:
        """Origin of messages that the broker itself makes."""
        settings = self._plane.header.settings
        host = bytes(settings.store_host)[: settings.store_host_bytes]
        return Origin(time.time_ns() // 1_000_000, host, int(settings.store_port))

    def submit(
        self,
        what: T,
        queue: tuple[int, int, int],
        body: Any,
        properties: bytes,
        origin: Origin,
        mark: int | None = None,
        *,
        is_whole: bool = False,
    ) -> bool:
        """Submit an append of `body` to `queue` (topic id, queue slot, queue id).

        With a `mark`, `body` is that of a batch whose records carry the mark. `is_whole`: write adds no pairs of the
        broker to `properties`. False if no slot is free or the body exceeds one.
        """
        if not self._free or len(body) > self.body_bytes_max or len(properties) > PROPERTIES_BYTES:
            return False
        slot = self._free.pop()
        at = self._first_byte + slot * self._slot_bytes
        self._arena[at : at + len(body)] = body
        properties_at = at + self.body_bytes_max
        self._arena[properties_at : properties_at + len(properties)] = properties
        request = ffi.new("struct rmq_request *")
        request.body_at, request.body_length = at, len(body)
        request.properties_at, request.properties_length = properties_at, len(properties)
        request.token = slot
        request.topic_id, request.queue_slot, request.queue_id = queue
        request.born_time_ms, request.born_port = origin.born_time_ms, origin.born_port
        ffi.memmove(request.born_host, origin.born_host, len(origin.born_host))
        request.flags = lib.RMQ_APPEND_FLAG_BORN_V6 if len(origin.born_host) == 16 else 0
        request.flags |= lib.RMQ_APPEND_FLAG_COPY if is_whole else 0
        request.kind = lib.RMQ_APPEND_SINGLE if mark is None else lib.RMQ_APPEND_BATCH
        request.prepared_transaction_offset = mark or 0
        if not self._port.submit(request):
            self._free.append(slot)
            return False
        self._waiting[slot] = what
        return True

    def answers(self) -> Iterator[AppendResult[T]]:
        """The results of appends since the last call."""
        while found := self._port.take():
            what = self._waiting.pop(found.token)
            self._free.append(found.token)
            end = found.commit_log_offset + found.bytes
            yield AppendResult(what, found.code, found.cause, found.queue_offset, found.commit_log_offset, end)
