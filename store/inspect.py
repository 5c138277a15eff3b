"""Content of a store folder as plain values for `ringmq store inspect`: files, ranges, queues, index, records."""

import mmap
from collections.abc import Iterator
from typing import Any

from ringmq.store import markers, salvage
from ringmq.store.batch_consume_queue import BatchConsumeQueue
from ringmq.store.checkpoint import read_checkpoint
from ringmq.store.message_store import MessageStore
from ringmq.store.record import BLANK, MALFORMED, REASONS, Record, offset_message_id, parse_record, torn_properties
from ringmq.store.record_values import FIELDS, counted, impossible_value

BODY_SHOWN_BYTES = 200
TAIL_BYTES = 8 << 20


def overview(store: MessageStore, readable_offset: int) -> dict[str, Any]:
    """Return ranges, settings, markers, checkpoint, and records with impossible values in the last 8 MiB."""
    root = store.config.root
    checkpoint = read_checkpoint(root)
    border = store.tail_border(readable_offset, TAIL_BYTES)
    not_indexed = None if border is None else counted(store.commit_log.impossible(border, readable_offset))
    return {
        "root": str(root),
        "min_offset": store.commit_log.min_offset,
        "readable_offset": readable_offset,
        "earliest_store_time_ms": store.earliest_store_time(readable_offset),
        "commit_log_file_bytes": store.config.commit_log_file_bytes,
        "consume_queue_file_bytes": store.config.consume_queue_file_bytes,
        "unclean_exit": markers.has_abort(root),
        "same_boot": markers.is_same_boot(root),
        "failed": markers.failed_cause(root),
        "checkpoint": {
            "physic_time_ms": checkpoint.physic_time_ms,
            "logics_time_ms": checkpoint.logics_time_ms,
            "index_time_ms": checkpoint.index_time_ms,
            "confirm_offset": checkpoint.confirm_offset,
        },
        "not_indexed_from": border,
        "not_indexed": None if not_indexed is None else str(not_indexed),
    }


def log_files(store: MessageStore, readable_offset: int) -> list[dict[str, Any]]:
    """Return one row per log file: start, path, readable bytes in it, time of its first record."""
    files = store.commit_log.files
    rows = []
    for start in files.starts:
        time_ms = store.commit_log.store_time_at(start, readable_offset)
        used = max(0, min(readable_offset - start, files.file_bytes))
        rows.append(
            {"start": start, "path": str(files.path(start)), "used_bytes": used, "first_store_time_ms": time_ms}
        )
    return rows


def queues(store: MessageStore, readable_offset: int, topic: str | None = None) -> list[dict[str, Any]]:
    """Return one row per queue: bounds, messages, time of the newest message."""
    rows = []
    for name in store.queue_names():
        if topic is not None and name.topic != topic:
            continue
        queue = store.queue(name.topic, name.queue_id)
        if queue is None:
            continue
        max_offset = queue.max_offset(readable_offset)
        min_offset = queue.min_offset(store.commit_log.min_offset, max_offset)
        last = store.store_time(name.topic, name.queue_id, max_offset - 1, readable_offset) if max_offset else -1
        rows.append({
            "topic": name.topic, "queue_id": name.queue_id, "type": "BatchCQ" if name.is_batch else "SimpleCQ",
            "min_offset": min_offset, "max_offset": max_offset, "messages": max_offset - min_offset,
            "last_store_time_ms": last,
        })  # fmt: skip
    return rows


def index_files(store: MessageStore) -> list[dict[str, Any]]:
    """Return one row per index file. Raises StoreLoadError if the files do not have the configured size."""
    rows = []
    for file in store.index.files():
        header = file.header
        rows.append({
            "name": file.path.name, "entries": header.next_number - 1, "slots_used": header.slots_used,
            "begin_offset": header.begin_offset, "end_offset": header.end_offset,
            "begin_time_ms": header.begin_time_ms, "end_time_ms": header.end_time_ms,
        })  # fmt: skip
    return rows


def log_records(
    store: MessageStore, readable_offset: int, from_offset: int, to_offset: int, limit: int
) -> Iterator[dict[str, Any]]:
    """Yield records that begin in [from_offset, to_offset), from a record border on.

    Damage ends the rows with a row.
    """
    offset = max(from_offset, store.commit_log.min_offset)
    end = min(to_offset, readable_offset)
    while offset < end and limit > 0:
        rest = store.commit_log.files.rest(offset, readable_offset)
        if rest is None:
            return
        result, record = parse_record(rest, offset)
        if result == 0:
            offset = offset - offset % store.config.commit_log_file_bytes + store.config.commit_log_file_bytes
            continue
        if record is None:
            yield {"commit_log_offset": offset, "error": REASONS.get(result, REASONS[MALFORMED])}
            return
        yield record_row(record)
        offset += record.size
        limit -= 1


def salvage_files(store: MessageStore) -> list[dict[str, Any]]:
    """Return one row per file of `salvage/`: log bytes that were removed because the master's log differs there."""
    files = salvage.salvage_files(store.config.root)
    fields = ("from_offset", "to_offset", "saved_ms")
    return [{"name": file.path.name, **{field: getattr(file, field) for field in fields}} for file in files]


def salvage_records(store: MessageStore, name: str, from_offset: int, limit: int) -> Iterator[dict[str, Any]]:
    """Yield the records of a salvage file from a log offset on. Raises FileNotFoundError for another name."""
    file = next((file for file in salvage.salvage_files(store.config.root) if file.path.name == name), None)
    if file is None:
        raise FileNotFoundError(f"salvage file {store.config.root / salvage.SALVAGE / name} does not exist")
    with file.path.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        data, at = memoryview(mapped)[: file.to_offset - file.from_offset], 0
        with data:
            while at < len(data) and limit > 0:
                result, record = parse_record(data[at:], file.from_offset + at)
                if record is None:
                    if result != BLANK:
                        yield {"commit_log_offset": file.from_offset + at, "error": REASONS[result]}
                    return
                if record.commit_log_offset >= from_offset:
                    yield record_row(record)
                    limit -= 1
                at += record.size


def queue_records(
    store: MessageStore, readable_offset: int, topic: str, queue_id: int, from_offset: int, limit: int
) -> Iterator[dict[str, Any]]:
    """Yield messages of a queue from a queue offset on."""
    queue = store.queue(topic, queue_id)
    if queue is None:
        return
    max_offset = queue.max_offset(readable_offset)
    first = max(from_offset, queue.min_offset(store.commit_log.min_offset, max_offset))
    for unit in queue.units(first, max_offset):
        if limit <= 0:
            return
        limit -= 1
        record = store.commit_log.record_at(unit.commit_log_offset, readable_offset, unit.size, check_crc=True)
        if record is None:
            error = "the unit's record is not there or damaged"
            row = {"commit_log_offset": unit.commit_log_offset, "queue_offset": unit.queue_offset, "error": error}
            yield row
            continue
        row = record_row(record)
        if isinstance(queue, BatchConsumeQueue):
            row["messages"] = getattr(unit, "batch_size", 1)
        yield row


def record_row(record: Record) -> dict[str, Any]:
    """Return a record as plain values. A text body is shown as text, cut to BODY_SHOWN_BYTES."""
    shown = record.body[:BODY_SHOWN_BYTES]
    row: dict[str, Any] = {
        "commit_log_offset": record.commit_log_offset, "size": record.size, "magic": f"{record.magic:08X}",
        "topic": record.topic, "queue_id": record.queue_id, "queue_offset": record.queue_offset,
        "flag": record.flag, "sys_flag": record.sys_flag, "born_time_ms": record.born_time_ms,
        "born_host": record.born_host, "store_time_ms": record.store_time_ms, "store_host": record.store_host,
        "reconsume_times": record.reconsume_times,
        "prepared_transaction_offset": record.prepared_transaction_offset, "body_bytes": len(record.body),
        "body_crc": record.body_crc, "body": shown.decode("utf-8", "backslashreplace"),
        "properties": record.properties, "message_id": offset_message_id(record),
    }  # fmt: skip
    field = impossible_value(record, record.commit_log_offset)
    torn = torn_properties(record.properties_raw)
    if field or torn is not None:
        row["warning"] = f"not indexed, impossible {FIELDS[field]}" if field else torn
    return row
