"""The scan of a recovery: where it begins, what it takes from each record, and where the log ends."""

from collections.abc import Callable, Mapping
from typing import Any

from ringmq.native import ffi, lib
from ringmq.native.table_secret import table_secret
from ringmq.store import layout
from ringmq.store import record as records
from ringmq.store.bad_bodies import bad_body_lines
from ringmq.store.checkpoint import SAFETY_MS
from ringmq.store.message_store import MessageStore
from ringmq.store.record_values import not_indexed_line
from ringmq.store.recovery_queues import QueueState
from ringmq.store.recovery_state import CHECKPOINT, CLEAN, SAME_BOOT, RecoveredStore

REDISPATCH_WINDOW_BYTES = 32 << 20
NO_LIMIT = 1 << 63
BORDER_QUEUES = 16
_PROPERTIES_STATE = {
    -1: "its properties hold a NUL byte",
    -2: "its properties lack the final 0x02",
    -3: "its properties hold a pair without 0x01",
}


def first_record(store: MessageStore, start: int) -> records.Record | None:
    """Return the record with which the file at `start` begins, None if it is damaged or missing."""
    return store.commit_log.record_at(start, start + store.commit_log.files.file_bytes, check_crc=True)


def scan_start(store: MessageStore, result: RecoveredStore, window_bytes: int) -> int:
    """Return the record border at which the scan begins."""
    starts = store.commit_log.files.starts
    if not starts:
        return 0
    queues_end = result.queues_end
    if result.mode == SAME_BOOT:
        border = _border_below(store, result, queues_end - window_bytes)
        return border if border is not None else file_below(store, queues_end - window_bytes)
    safe_ms = result.checkpoint.min_time_ms
    if store.config.message_index_safe:
        safe_ms = result.checkpoint.min_time_with_index_ms
    for start in reversed(starts):
        first = first_record(store, start)
        if first is None or first.store_time_ms == 0:
            continue
        if result.mode == CLEAN and start <= queues_end:
            return start
        if result.mode == CHECKPOINT and first.store_time_ms <= safe_ms:
            return start
    return starts[0]


def _border_below(store: MessageStore, result: RecoveredStore, offset: int) -> int | None:
    """Return a record border at or below `offset` that a queue's unit names, the newest one found."""
    best: int | None = None
    by_end = sorted(result.queues.items(), key=lambda item: -item[1].physical_end)
    for number, (name, state) in enumerate(by_end):
        if number >= BORDER_QUEUES and best is not None and best > offset - REDISPATCH_WINDOW_BYTES:
            break  # near enough: a search of thousands of queues would cost more than it saves
        if state.is_batch or state.physical_end < 0:
            continue
        queue = store.queue(*name)
        assert queue is not None
        unit = queue.unit(queue.min_offset(offset + 1, state.max_offset) - 1)
        if unit is None or unit.commit_log_offset > offset or unit.size == layout.FILLER_SIZE:
            continue
        if best is None or unit.commit_log_offset > best:
            best = unit.commit_log_offset
    if best is None or store.commit_log.record_at(best, store.commit_log.files.end_offset, check_crc=True) is None:
        return None
    return best


def file_below(store: MessageStore, offset: int) -> int:
    """Return the newest file that begins with a record at or below `offset`, else the oldest: the log was cut there."""
    starts = store.commit_log.files.starts
    below = (start for start in reversed(starts) if start <= offset and first_record(store, start) is not None)
    return next(below, store.commit_log.min_offset)


# ---- the scan --------------------------------------------------------------------------------------------


def scan(
    store: MessageStore,
    result: RecoveredStore,
    start: int,
    start_offsets: Mapping[str, int],
    *,
    stays_below: int = 0,
    log_end_at_stop: int = 0,
    known_topics: frozenset[str] | None,
    unknown_topics_from: int | None = None,
    limit: int = NO_LIMIT,
    tell: Callable[[str], None] = lambda what: None,
) -> Any:
    """Scan the log from `start` on and take over what it says of each queue. Return the table of queues."""
    table = ffi.gc(lib.rmq_queue_table_new(table_secret()), lib.rmq_queue_table_free)
    if table == ffi.NULL:
        raise MemoryError("no memory for the table of queues")
    for topic, offset in start_offsets.items():
        name = topic.encode()
        lib.rmq_queue_table_row(table, name, len(name), lib.RMQ_ANY_QUEUE).queue_end = offset
    for (topic, queue_id), queue in result.queues.items():
        name = topic.encode()
        row = lib.rmq_queue_table_row(table, name, len(name), queue_id)
        row.queue_max, row.is_batch = 0 if queue.is_lost else queue.max_offset, int(queue.is_batch)
        row.topic_from, row.without_tags = start_offsets.get(topic, 0), int(topic == layout.SCHEDULE_TOPIC)
        if queue.physical_end >= 0:  # the queue's units are of this topic, and so are all later records
            row.queue_end = queue.physical_end
    state = ffi.new("struct rmq_log_recovery *")
    lib.rmq_log_recovery_init(state, table)
    state.gap_max = store.config.consume_queue_file_bytes // layout.CONSUME_QUEUE_UNIT.size
    if result.mode == CHECKPOINT:
        state.whole_before_ms = result.checkpoint.physic_time_ms - SAFETY_MS
    else:
        state.whole_until = max(log_end_at_stop, result.queues_end)
    append = _scan_files(store, result, start, state, limit, stays_below, tell)
    torn = state.last_properties_state
    was_readable = result.mode == CLEAN or (result.mode == SAME_BOOT and state.last_offset < result.queues_end)
    keep = state.last_offset < 0 or torn == 0 or was_readable
    if not keep:
        append = state.last_offset
        result.reasons.append(f"the last record, at {append}, is torn: {_PROPERTIES_STATE[torn]}")
    lib.rmq_log_recovery_finish(state, int(keep))
    result.append_offset = append
    result.scanned_records = state.records
    result.last_store_time_ms = state.last_store_time_ms
    result.not_indexed, result.not_indexed_from = state.impossible, state.impossible_offset
    result.bad_bodies = state.bad_bodies
    result.reasons += bad_body_lines(store.commit_log, state.bad_bodies, list(state.bad_body_offsets))
    if state.impossible:
        result.reasons.append(not_indexed_line(state.impossible, state.impossible_offset, state.impossible_field))
    _take_rows(table, result, known_topics, unknown_topics_from)
    return table


def _scan_files(
    store: MessageStore,
    result: RecoveredStore,
    start: int,
    state: Any,
    limit: int,
    stays_below: int,
    tell: Callable[[str], None],
) -> int:
    """Scan file after file. Return the end of the last valid record (or of the blank that ends the newest file).

    Records that end above `limit` are left out. A bad record below `stays_below`, a file border, is never the end. Nor
    is one that was whole once: it stays in the log, and the scan continues behind it. Stock would cut the log there.
    """
    files = store.commit_log.files
    offset = start
    while offset < limit and (found := files.find(offset)) is not None:
        file_start, mapped = found
        tell(f"reading the log, {offset - start >> 20} of at most {files.end_offset - start >> 20} MiB")
        data, end = ffi.from_buffer(mapped), min(len(mapped), limit - file_start)
        check_crc = int(store.config.check_crc_on_recover)
        at = lib.rmq_log_recovery_scan(state, data, offset - file_start, end, file_start, check_crc)
        if at < 0:
            raise MemoryError("no memory for the table of queues")
        offset = file_start + int(at)
        if end < len(mapped):
            return offset
        if state.reason not in (records.BLANK, records.END):
            border = _border_behind(store, state, offset, stays_below)
            if border is not None:
                result.reasons.append(f"the record at {offset} is damaged ({records.REASONS[state.reason]}), it stays")
                result.damaged.append((offset, border))
                offset = border
                continue
            if any(mapped[at : at + 8]):
                result.reasons.append(f"the log ends at {offset}: {records.REASONS[state.reason]}")
            return offset
        if file_start == files.starts[-1]:
            return offset
        offset = file_start + files.file_bytes
    return offset


def _border_behind(store: MessageStore, state: Any, offset: int, stays_below: int) -> int | None:
    """Return where a scan goes on behind the bad record at `offset`, None if the log ends there."""
    log = store.commit_log
    border = log.next_record(offset)
    next_file = offset - offset % log.files.file_bytes + log.files.file_bytes
    if border is None and log.record_at(next_file, log.files.end_offset) is not None:
        border = next_file
    was_whole = offset < state.whole_until
    if border is not None and state.whole_before_ms > 0:
        record = log.record_at(border, log.files.end_offset)
        was_whole = record is not None and record.store_time_ms < state.whole_before_ms
    if was_whole and border is not None:
        return border
    if offset >= stays_below:
        return None
    return border if border is not None and border < stays_below else stays_below


def _take_rows(table: Any, result: RecoveredStore, known: frozenset[str] | None, unknown_from: int | None) -> None:
    """Copy the results of the scan into the queue states. New queues are added, those of deleted topics are not."""
    for i in range(lib.rmq_queue_table_size(table)):
        row = lib.rmq_queue_table_at(table, i)
        if row.missing_from < 0:
            continue
        topic = bytes(ffi.buffer(row.topic, row.topic_length)).decode("utf-8", "replace")
        name = (topic, row.queue_id)
        if name not in result.queues:
            may_come = unknown_from is not None and row.missing_from >= unknown_from
            if known is not None and topic not in known and not may_come:
                continue
            result.queues[name] = QueueState(topic, row.queue_id, bool(row.is_batch), row.log_first, row.log_first, -1)
            result.queues[name].is_gap = row.log_first > 0
        queue = result.queues[name]
        if queue.is_lost:
            queue.min_offset = queue.max_offset = row.log_first
        queue.is_gap |= not queue.is_lost and row.log_first > queue.max_offset
        if queue.physical_end >= 0 and row.log_first != queue.max_offset:
            result.reasons.append(
                f"{topic}/{row.queue_id}: the queue ends at {queue.max_offset}, but the log goes on with queue offset "
                f"{row.log_first} at {row.missing_from}"
            )
        queue.next_offset = row.log_next
        queue.missing_from = row.missing_from
