"""Comparison of units with the records that a start reads anyway.

The scan of the log makes a digest of the units that its records ask for, one for each queue (`log_recovery.h`). Here
the queue files' digest is compared with it. Only a queue that differs is looked at unit by unit. A unit that does not
name its record is written again, so a flipped bit loses no message.

A record whose layout is damaged has no place in a pull's answer: RocketMQ's client decodes an answer record by record
(MessageDecoder.decodes), gives up at the first one that it cannot decode, and goes on behind the whole answer. So the
unit of such a record becomes a filler, which pulls step over, unless it is in a queue of a service. Dispatch puts a
filler there, too, when it makes the queue again. If the record is whole again, because its file came back from a copy,
it gets its unit back.

Units of older records are not compared: that takes a scan of the whole log, as `ringmq store repair` does.
BatchConsumeQueues are not compared either.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ringmq.native import ffi, lib
from ringmq.store import layout
from ringmq.store import record as records
from ringmq.store.consume_queue import ConsumeQueue, Unit
from ringmq.store.message_store import MessageStore
from ringmq.store.recovery_queues import QueueState
from ringmq.store.safe_files import open_to_write

RECORD_BYTES_MIN = 91
"""With IPv4 hosts. An IPv6 host has 12 bytes more."""
FILLER: "Place" = (0, layout.FILLER_SIZE, 0)
SERVICES = ("rmq_sys_", "RMQ_SYS_", layout.SCHEDULE_TOPIC)
"""Topics whose readers, the services, take records one by one and count damaged ones."""
ROWS_MAX = 4096
HASHES_MAX = 1 << 16
HELD_BACK = (layout.TRANSACTION_PREPARED, layout.TRANSACTION_ROLLBACK)

Place = tuple[int, int, int]
"""The fields of a unit: commit log offset, size and tags code of its record."""


def mend_units(
    store: MessageStore, states: Mapping[tuple[str, int], QueueState], table: Any, start: int, append_offset: int
) -> list[str]:
    """Write units again that differ from their records in [start, append_offset). Return a line about each.

    `table` is the struct rmq_queue_table of a scan of these records. Raises OSError.
    """
    suspects: dict[int, tuple[ConsumeQueue, QueueState, Any]] = {}
    for number in range(lib.rmq_queue_table_size(table)):
        row = lib.rmq_queue_table_at(table, number)
        if row.seen_first < 0:
            continue
        topic = bytes(ffi.buffer(row.topic, row.topic_length)).decode("utf-8", "replace")
        state, queue = states.get((topic, row.queue_id)), store.queue(topic, row.queue_id)
        if state is not None and isinstance(queue, ConsumeQueue) and (row.is_uneven or not _is_same(queue, row)):
            suspects[row.row_number] = queue, state, row
    if not suspects:
        return []
    wanted: dict[tuple[int, int], Place] = {}
    for number, queue_offset, place in _places(store, table, start, append_offset, suspects):
        queue, state, row = suspects[number]
        unit = queue.unit(queue_offset) if state.min_offset <= queue_offset < row.queue_max else None
        if unit is not None and _fields(unit, row.without_tags) == place:
            wanted.pop((number, queue_offset), None)
        elif queue.files.start_of(queue_offset * queue.unit_bytes) is not None and queue_offset < row.queue_max:
            wanted[number, queue_offset] = place
    lines = []
    for (number, queue_offset), place in sorted(wanted.items()):
        queue, _, row = suspects[number]
        line = _mend(store, queue, queue_offset, place, row.without_tags, append_offset)
        lines += [] if line is None else [line]
    return lines


def _is_same(queue: ConsumeQueue, row: Any) -> bool:
    """True if the units of the queue have the digest that the log's records ask for.

    Reads without a map: a store may have ten thousand queues.
    """
    at, end, digest = row.seen_first * queue.unit_bytes, row.seen_next * queue.unit_bytes, 0
    while at < end:
        start = queue.files.start_of(at)
        if start is None:
            return False
        stop = min(end, start + queue.files.file_bytes)
        with Path(queue.files.path_text(start)).open("rb", buffering=0) as file:
            data = os.pread(file.fileno(), stop - at, at - start)
        if len(data) != stop - at:
            return False
        digest = lib.rmq_cq_digest(digest, data, len(data) // queue.unit_bytes, row.without_tags)
        at = stop
    return digest == int(row.seen_digest)


def _places(
    store: MessageStore, table: Any, start: int, append_offset: int, suspects: Mapping[int, Any]
) -> Iterator[tuple[int, int, Place]]:
    """Yield (row number, queue offset, unit) of each record of these queues. Damaged records are left out."""
    rows, hashes = ffi.new("struct rmq_log_row[]", ROWS_MAX), ffi.new("int32_t[]", HASHES_MAX)
    hashes_count, next_at, reason = ffi.new("size_t *"), ffi.new("uint64_t *"), ffi.new("int *")
    offset: int | None = start
    while offset is not None and offset < append_offset and (found := store.commit_log.files.find(offset)) is not None:
        file_start, mapped = found
        end = min(len(mapped), append_offset - file_start)
        count = lib.rmq_log_table(
            ffi.from_buffer(mapped), offset - file_start, end, file_start, table, ffi.NULL, rows, ROWS_MAX,
            hashes, HASHES_MAX, hashes_count, next_at, reason,
        )  # fmt: skip
        if count < 0:
            raise MemoryError("no memory for the table of queues")
        for i in range(count):
            row = rows[i]
            if row.queue_row not in suspects or row.sys_flag & layout.TRANSACTION_MASK in HELD_BACK:
                continue
            limits = suspects[row.queue_row][2]
            if row.position >= limits.topic_from:
                tags_code = 0 if limits.without_tags else row.tags_code
                yield row.queue_row, row.queue_offset, (row.position, row.size, tags_code)
        offset = file_start + int(next_at[0])
        if reason[0] in (records.BLANK, records.END):
            offset = file_start + store.commit_log.files.file_bytes
        elif reason[0] != records.FULL:
            behind = store.commit_log.next_record(offset)
            offset = file_start + store.commit_log.files.file_bytes if behind is None else behind


def skip_damaged(
    store: MessageStore,
    states: Mapping[tuple[str, int], QueueState],
    damaged: Sequence[tuple[int, int]],
    append_offset: int,
) -> list[str]:
    """Make fillers of the units in these ranges of the log whose record no client can decode. Return a line about each.

    Raises OSError.
    """
    lines = []
    for (topic, queue_id), state in states.items() if damaged else ():
        queue = store.queue(topic, queue_id)
        if not isinstance(queue, ConsumeQueue) or topic.startswith(SERVICES):
            continue
        borders = queue.offsets_at([border for place in damaged for border in place])
        for begin, end in zip(borders[::2], borders[1::2], strict=True):
            for unit in queue.units(max(begin, state.min_offset), min(end, state.max_offset)):
                raw = None if unit.is_filler else store.commit_log.files.read(unit.commit_log_offset, unit.size)
                if raw is None or unit.end > append_offset or is_decodable(raw):
                    continue
                _write_unit(queue, unit.queue_offset, FILLER)
                lines.append(
                    f"{topic}/{queue_id}: message {unit.queue_offset}, at {unit.commit_log_offset}, cannot be decoded: "
                    "pulls step over it"
                )
    return lines


def is_decodable(record: memoryview) -> bool:
    """True if RocketMQ's client (MessageDecoder.decode) finds the end of these bytes.

    It takes the lengths of body, topic and properties, and not the total size in front. Short records are no records.
    """
    if len(record) < RECORD_BYTES_MIN:
        return False
    magic, flags = int.from_bytes(record[4:8], "big"), int.from_bytes(record[36:40], "big")
    width = {layout.MAGIC_V1: 1, layout.MAGIC_V2: 2}.get(magic)
    at = layout.body_length_at(flags)
    if width is None:
        return False
    at += 4 + max(0, int.from_bytes(record[at : at + 4], "big", signed=True))
    topic_length = int.from_bytes(record[at : at + width], "big", signed=True)
    at += width + topic_length
    at += 2 + max(0, int.from_bytes(record[at : at + 2], "big", signed=True))
    return topic_length >= 0 and at == len(record)


def _fields(unit: Unit, without_tags: int) -> Place:
    return unit.commit_log_offset, unit.size, 0 if without_tags else unit.tags_code


def _mend(
    store: MessageStore, queue: ConsumeQueue, queue_offset: int, place: Place, without_tags: int, append_offset: int
) -> str | None:
    """Write the unit again unless it names another record of this queue offset, which stands in front of the scan.

    Return a line about it.
    """
    raw = queue.files.read(queue_offset * queue.unit_bytes, queue.unit_bytes)
    if raw is None:
        return None
    found: Place = layout.CONSUME_QUEUE_UNIT.unpack(raw)
    record = store.commit_log.record_at(found[0], append_offset, found[1]) if found[0] != place[0] else None
    if record is not None and (record.topic, record.queue_id, record.queue_offset) == (
        queue.topic, queue.queue_id, queue_offset,
    ):  # fmt: skip
        return None
    _write_unit(queue, queue_offset, (place[0], place[1], found[2] if without_tags else place[2]))
    return (
        f"{queue.topic}/{queue.queue_id}: unit {queue_offset} named {found[1]} bytes at {found[0]}, and its record is "
        f"{place[1]} bytes at {place[0]}: it is written again"
    )


def _write_unit(queue: ConsumeQueue, queue_offset: int, place: Place) -> None:
    at = queue_offset * queue.unit_bytes
    start = queue.files.start_of(at)
    assert start is not None
    descriptor = open_to_write(queue.files.path(start), os.O_RDWR)
    try:
        os.pwrite(descriptor, layout.CONSUME_QUEUE_UNIT.pack(*place), at - start)
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
