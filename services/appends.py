"""Appends of bodies that a service has made, such as a commit record: a slot of the arena for each, results in."""

from __future__ import annotations

import time
from typing import Any, TypeVar

from msgspec import Struct

from ringmq.ipc.plane import Plane
from ringmq.native import ffi, lib
from ringmq.services.arenas import PROPERTIES_BYTES
from ringmq.services.kit.arena import ArenaSlots
from ringmq.services.kit.shared_port import SharedPort
from ringmq.services.kit.submissions import EachAlone

T = TypeVar("T")
_REQUEST = ffi.typeof("struct rmq_request *")


class Origin(Struct, frozen=True):
    """The origin of a message: the born time and born host of its records."""

    born_time_ms: int
    born_host: bytes
    born_port: int


class Appends(EachAlone[T]):
    """The access of a service to write. The result of an append carries its `what`.

    Its part of the arena begins at `first_byte` and has `size` bytes, for at most `slots` appends in flight.
    """

    def __init__(self, plane: Plane, port: SharedPort, size: int, slots: int, *, first_byte: int = 0) -> None:
        super().__init__(port, ArenaSlots(size // slots, slots, first_byte))
        self._plane, self._bytes = plane, port.arena
        self.body_bytes_max = self.arena.piece_max - PROPERTIES_BYTES
        """Largest body that a slot takes."""

    def rest(self) -> None:
        """Return the arena's memory to the system. No append may be in flight."""
        assert not self.in_flight, "an append is under way"
        self._plane.free_arena(self.port.number)

    def own_origin(self) -> Origin:
        """Origin of messages that the broker itself makes."""
        settings = self._plane.header.settings
        host = bytes(settings.store_host)[: settings.store_host_bytes]
        return Origin(time.time_ns() // 1_000_000, host, int(settings.store_port))

    def append(
        self, what: T, queue: tuple[int, int, int], body: Any, properties: bytes, origin: Origin,
        mark: int | None = None, *, is_whole: bool = False,
    ) -> bool:  # fmt: skip
        """Submit an append of `body` to `queue` (topic id, queue slot, queue id).

        With a `mark`, `body` is that of a batch whose records carry the mark. `is_whole`: write adds no pairs of the
        broker to `properties`. False if no slot is free or the body exceeds one.
        """
        at, slot_end = self.arena.piece
        size, properties_size = len(body), len(properties)
        if at == slot_end or not self.port.room or size > self.body_bytes_max or properties_size > PROPERTIES_BYTES:
            return False
        properties_at = at + size
        end = properties_at + properties_size
        self._bytes[at:properties_at] = body
        self._bytes[properties_at:end] = properties
        request, host = ffi.new(_REQUEST), origin.born_host
        request.body_at, request.body_length = at, size
        request.properties_at, request.properties_length = properties_at, properties_size
        request.topic_id, request.queue_slot, request.queue_id = queue
        request.born_time_ms, request.born_port = origin.born_time_ms, origin.born_port
        ffi.memmove(request.born_host, host, len(host))
        flags = lib.RMQ_APPEND_FLAG_BORN_V6 if len(host) == 16 else 0
        request.flags = flags | lib.RMQ_APPEND_FLAG_COPY if is_whole else flags
        request.kind = lib.RMQ_APPEND_SINGLE if mark is None else lib.RMQ_APPEND_BATCH
        request.prepared_transaction_offset = mark or 0
        self.submit(request, (what,), end)
        return True
