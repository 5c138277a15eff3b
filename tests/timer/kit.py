"""Records of the timer topic for tests, and the C core's timer files over plain memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from ringmq.native import ffi, lib

PRECISION_MS = 1000
SECRET = ffi.new("uint64_t[2]", (0x0706050403020100, 0x0F0E0D0C0B0A0908))


def encode(
    queue_offset: int, position: int, pairs: bytes, *, store_ms: int = 0, mark: int = 0, born_ms: int | None = None
) -> bytes:  # fmt: skip
    """Encode a record of the timer topic with these properties."""
    value = ffi.new("struct rmq_record_in *")
    kept = [ffi.from_buffer(b"body"), ffi.from_buffer(b"rmq_sys_wheel_timer"), ffi.from_buffer(pairs)]
    value.body, value.topic, value.properties[0] = kept
    value.body_length, value.topic_length, value.properties_length[0] = 4, 19, len(pairs)
    value.queue_offset, value.physical_offset = queue_offset, position
    value.store_time_ms, value.born_time_ms = store_ms, store_ms if born_ms is None else born_ms
    value.prepared_transaction_offset = mark
    size = lib.rmq_record_size(value)
    room = ffi.new("uint8_t[]", size)
    assert lib.rmq_record_encode(room, size, value) == size
    return bytes(ffi.buffer(room))


def private_bytes() -> int:
    """Memory of this process without files and shared segments, which other tests may have touched."""
    of = psutil.Process().memory_info()
    return int(of.rss - of.shared)


def joined(pairs: Mapping[str, str]) -> bytes:
    """Return the pairs as a properties string."""
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs.items()).encode()


class MemoryFiles:
    """struct rmq_timer_files over memory, with a number of empty log files."""

    def __init__(self, files: int, file_bytes: int, *, window_slots: int = 172_800, precision_ms: int = 1000) -> None:
        self.root = Path("nowhere")
        self.wheel = ffi.new("uint8_t[]", lib.RMQ_TIMER_SLOTS * lib.RMQ_TIMER_SLOT_BYTES)
        self.logs = [ffi.new("uint8_t[]", file_bytes) for _ in range(files)]
        self.table = ffi.new("uint8_t *[]", self.logs)
        self.struct = ffi.new("struct rmq_timer_files *")
        self.struct.wheel, self.struct.log, self.struct.file_bytes = self.wheel, self.table, file_bytes
        self.chains = ffi.new("struct rmq_timer_chain[]", lib.RMQ_TIMER_SLOTS)
        self.struct.chains, self.struct.log_room = self.chains, files * file_bytes
        self.struct.file_count, self.struct.precision_ms, self.struct.window_slots = files, precision_ms, window_slots
        self.struct.coarsest_ms, self.widest_slots = precision_ms, max(window_slots, 172_800)

    def chain(self, slot_ms: int) -> list[Any]:
        """The units of a slot, the newest first."""
        found, position = [], lib.rmq_timer_last(self.struct, slot_ms)
        while position >= 0:
            unit = ffi.new("struct rmq_timer_unit *")
            assert lib.rmq_timer_unit_at(self.struct, position, unit)
            found.append(unit)
            position = unit.previous
        return found


def held(records: Sequence[bytes]) -> tuple[Any, Any, list[Any]]:
    """Units and held records for C loops, with what has to live as long."""
    units, of = ffi.new("struct rmq_queue_unit[]", len(records)), ffi.new("struct rmq_held_record[]", len(records))
    kept = [ffi.from_buffer(record) for record in records]
    for number, record in enumerate(records):
        of[number].at = ffi.cast("uint8_t *", kept[number])
        units[number].size = len(record)
        units[number].queue_offset = int.from_bytes(record[20:28], "big")
        units[number].commit_log_offset = int.from_bytes(record[28:36], "big")
    return units, of, kept
