"""Appends of bodies that a service has made, such as a commit record: a slot of the arena for each, results in."""

from __future__ import annotations

import time
from typing import Any, TypeVar

from msgspec import Struct

from ringmq.ipc.plane import Plane
from ringmq.native import ffi, lib
from ringmq.services.arenas import PROPERTIES_BYTES
from ringmq.services.kit.arena import Arena, fit
from ringmq.services.kit.shared_port import SharedPort
from ringmq.services.kit.submissions import EachAlone

T = TypeVar("T")
_REQUEST = ffi.typeof("struct rmq_request *")


class Origin(Struct, frozen=True):
    """The fields of a message beside body and properties: its born time and born host, and those of its producer."""

    born_time_ms: int
    born_host: bytes
    born_port: int
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0


class Appends(EachAlone[T]):
    """The access of a service to write. The result of an append carries its `what`.

    Its part of the arena is `arena`: the bytes of one append lie in a piece of it.
    """

    def __init__(
        self, plane: Plane, port: SharedPort, arena: Arena, *, properties_bytes_max: int = PROPERTIES_BYTES
    ) -> None:
        super().__init__(port, arena)
        self._plane, self._bytes = plane, port.arena
        self._properties_bytes_max = properties_bytes_max
        self.body_bytes_max = self.arena.piece_max - properties_bytes_max
        """Largest body that an append takes."""

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
        broker to `properties`. False if the arena has no free piece of this size.
        """
        size, properties_size = len(body), len(properties)
        if not self.port.room or size > self.body_bytes_max or properties_size > self._properties_bytes_max:
            return False
        if not fit(self.arena, lambda start, end: int(end - start >= max(1, size + properties_size))):
            return False
        at, _ = self.arena.piece
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
        request.flag, request.sys_flag, request.reconsume_times = origin.flag, origin.sys_flag, origin.reconsume_times
        request.kind = lib.RMQ_APPEND_SINGLE if mark is None else lib.RMQ_APPEND_BATCH
        request.prepared_transaction_offset = mark or 0
        self.submit(request, (what,), end)
        return True
