"""Last units of queues. A unit counts when it has a size, but it may end in zeros.

A full disk, or the kill of every process of a broker, can hit between two pages of one write. Such a unit has zeros in
place of its tags code, or of a part. Damage may also begin within the size. The log has the record, and so the unit.
"""

import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ringmq.native import ffi, lib
from ringmq.store import layout
from ringmq.store import record as records
from ringmq.store.consume_queue import ConsumeQueue, Unit
from ringmq.store.delay_levels import native_delay_levels
from ringmq.store.message_store import MessageStore
from ringmq.store.recovery_queues import QueueState
from ringmq.store.safe_files import open_to_write

TAGS_CODE_BYTES = 8


def mend_last_units(
    store: MessageStore, states: Mapping[tuple[str, int], QueueState], from_offset: int, append_offset: int
) -> list[str]:
    """Write last units whole that end in zeros, or name another size than their record. Return a line about each.

    Looks at records from `from_offset` on: earlier ones were dispatched long before the end. Raises OSError.
    """
    levels = native_delay_levels(store.config.delay_levels_ms)
    mended = []
    for (topic, queue_id), state in states.items():
        queue = store.queue(topic, queue_id)
        if not isinstance(queue, ConsumeQueue) or state.physical_end <= from_offset:
            continue
        at = (state.max_offset - 1) * queue.unit_bytes
        start = queue.files.start_of(at)
        if start is None:
            continue
        path, at = queue.files.path_text(start), at - start
        unit = _read(path, at, state.max_offset - 1)
        raw = store.commit_log.raw_at(unit.commit_log_offset, append_offset)
        if raw is None:
            continue
        if len(raw) != unit.size:
            if not _is_of(store, unit, topic, queue_id, append_offset):
                continue
            fault = f"named {unit.size} bytes of a record of {len(raw)}"
        elif _may_be_cut(unit, at + queue.unit_bytes):
            fault = "had half of its tags code"
        else:
            continue
        tags_code = _tags_code(raw, levels)
        if tags_code is None or (tags_code, len(raw)) == (unit.tags_code, unit.size):
            continue
        _write(path, at, layout.CONSUME_QUEUE_UNIT.pack(unit.commit_log_offset, len(raw), tags_code))
        state.physical_end = max(state.physical_end, unit.commit_log_offset + len(raw))
        mended.append(f"{topic}/{queue_id}: unit {unit.queue_offset} {fault}, it is whole again")
    return mended


def _read(path: str, at: int, queue_offset: int) -> Unit:
    """Read without a map: a store may have ten thousand queues."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return Unit(
            queue_offset, *layout.CONSUME_QUEUE_UNIT.unpack(os.pread(descriptor, layout.CONSUME_QUEUE_UNIT.size, at))
        )
    finally:
        os.close(descriptor)


def _may_be_cut(unit: Unit, end: int) -> bool:
    """True if a page ends within the tags code, and what lies behind is zero."""
    cut_bytes = end % mmap.PAGESIZE
    return 0 < cut_bytes <= TAGS_CODE_BYTES and not unit.tags_code % (1 << 8 * cut_bytes)


def _is_of(store: MessageStore, unit: Unit, topic: str, queue_id: int, append_offset: int) -> bool:
    """True if the record at the unit's place is the message of this queue offset."""
    record = store.commit_log.record_at(unit.commit_log_offset, append_offset)
    return record is not None and (record.topic, record.queue_id, record.queue_offset) == (
        topic, queue_id, unit.queue_offset,
    )  # fmt: skip


def _tags_code(raw: memoryview, levels: Any) -> int | None:
    view, keys = ffi.new("struct rmq_record_view *"), ffi.new("struct rmq_dispatch_keys *")
    data = ffi.from_buffer(raw)
    if lib.rmq_record_parse(data, len(raw), 0, view) != records.OK:
        return None
    lib.rmq_dispatch_keys_find(data + view.properties_at, view.properties_length, keys)
    return int(lib.rmq_tags_code(data + view.topic_at, view.topic_length, keys, view.store_time_ms, levels))


def _write(path: str, at: int, unit: bytes) -> None:
    descriptor = open_to_write(Path(path), os.O_RDWR)
    try:
        os.pwrite(descriptor, unit, at)
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
