"""Tags codes of last units. A unit counts when it has its size, but a page may end behind it, within the tags code.

A full disk, or the kill of every process of a broker, can hit between two pages of one write. Such a unit has zeros
in place of its code. The log has the record, and so the code.
"""

import mmap
import os
from collections.abc import Mapping
from typing import Any

from ringmq.native import ffi, lib
from ringmq.store import layout
from ringmq.store import record as records
from ringmq.store.consume_queue import ConsumeQueue
from ringmq.store.delay_levels import native_delay_levels
from ringmq.store.message_store import MessageStore
from ringmq.store.recovery_queues import QueueState

TAGS_CODE_BYTES = 8


def mend_last_units(
    store: MessageStore, states: Mapping[tuple[str, int], QueueState], from_offset: int, append_offset: int
) -> list[str]:
    """Write the tags codes that a page's end cut off. Return a line about each.

    Looks at records from `from_offset` on: earlier ones were dispatched long before the end. Raises OSError.
    """
    levels = native_delay_levels(store.config.delay_levels_ms)
    mended = []
    for (topic, queue_id), state in states.items():
        queue = store.queue(topic, queue_id)
        if not isinstance(queue, ConsumeQueue) or state.physical_end <= from_offset:
            continue
        end = state.max_offset * queue.unit_bytes
        start = queue.files.start_of(end - queue.unit_bytes)
        if start is None or not 0 < (cut_bytes := (end - start) % mmap.PAGESIZE) <= TAGS_CODE_BYTES:
            continue
        unit = queue.unit(state.max_offset - 1)  # maps the file, so only for queues that need it
        if unit is None or unit.tags_code % (1 << 8 * cut_bytes):
            continue
        tags_code = _tags_code(store.commit_log.raw_at(unit.commit_log_offset, append_offset, unit.size), levels)
        if tags_code is None or tags_code == unit.tags_code:
            continue
        whole = layout.CONSUME_QUEUE_UNIT.pack(unit.commit_log_offset, unit.size, tags_code)
        _write(queue.files.path_text(start), end - queue.unit_bytes - start, whole)
        mended.append(f"{topic}/{queue_id}: unit {unit.queue_offset} had half of its tags code, it is whole again")
    return mended


def _tags_code(raw: memoryview | None, levels: Any) -> int | None:
    view, keys = ffi.new("struct rmq_record_view *"), ffi.new("struct rmq_dispatch_keys *")
    if raw is None:
        return None
    data = ffi.from_buffer(raw)
    if lib.rmq_record_parse(data, len(raw), 0, view) != records.OK:
        return None
    lib.rmq_dispatch_keys_find(data + view.properties_at, view.properties_length, keys)
    return int(lib.rmq_tags_code(data + view.topic_at, view.topic_length, keys, view.store_time_ms, levels))


def _write(path: str, at: int, unit: bytes) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.pwrite(descriptor, unit, at)
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
