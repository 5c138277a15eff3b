"""Recovery: checks and repairs of a store before the first append.

The log is the truth, from which queues and index are rebuilt. The marks of the last run decide the start of the scan:

  clean      no `abort`: the newest log file is read in full, like stock's normal recovery.
  same boot  `abort`, but `ringmq.boot` still names this kernel boot and this folder. A killed process removes nothing
             from the page cache. So only the tail is read, from a record border REDISPATCH_WINDOW_BYTES before the end
             of the queues. Dispatch works in order and in batches far smaller than that window. A recovery that leaves
             dispatch more to redo removes `ringmq.boot`. The mark comes back when dispatch has done it.
  checkpoint `abort` after a reboot, a stock broker's kill, a copy, or a failed fsync: from the newest log file that
             begins before the checkpoint's time. Index files newer than the checkpoint are deleted and rebuilt.

Units of the records that the scan reads are compared with them (`recovery_unit_check`). If one is written again, the
recovery is repeated, because the end of its queue may be another.

If queues or index lack entries (`recovery_damage`), the scan begins where the first of them is missing. If the log
goes on behind a gap after the end of a queue, the scan is repeated from that end on: after a kill nothing else shows
that a file is lost.

A damaged record ends the scan, if it can be torn. It cannot be if it was whole once: in front of the end that a clean
stop left, in front of the queues' end after a clean stop or in the same boot, and in front of a record that the
checkpoint covers. Such a record stays in the log, and the scan continues at the next record. If only the body's CRC is
wrong, the record counts for its queue.

Afterwards the log ends with its last valid record. Bytes behind it are zero, and their old content is in
`ringmq.cut/`. Queues and index name nothing behind it. Dispatch has to replay from `redispatch_offset` on. A record
with an impossible value (`record_values`) is valid, stays in the log, and no queue has it. Rules:
CommitLog.recoverNormally / recoverAbnormally, ConsumeQueue.recover / truncateDirtyLogicFiles. Stock cuts away files
with data, RingMQ moves them aside.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ringmq.native import ffi, lib
from ringmq.store import layout, markers
from ringmq.store import record as records
from ringmq.store.bad_bodies import bad_body_lines
from ringmq.store.checkpoint import SAFETY_MS, Checkpoint, read_checkpoint
from ringmq.store.config import StoreConfig
from ringmq.store.config_files import ConfigFileError
from ringmq.store.mapped_file import FileQueue, MappedFileCache, StoreLoadError
from ringmq.store.message_store import MessageStore
from ringmq.store.queue_ends import QueueEnds, read_queue_ends, write_rebuild
from ringmq.store.record_values import not_indexed_line
from ringmq.store.recovery_damage import Damage, existing_topics, named
from ringmq.store.recovery_index import recover_index
from ringmq.store.recovery_queues import QueueState, bound_queues, load_queues, truncate_queues
from ringmq.store.recovery_truncate import CUT_FOLDER, truncate_log
from ringmq.store.recovery_unit_check import mend_units, skip_damaged
from ringmq.store.recovery_units import mend_last_units
from ringmq.store.segment_lock import lock_for_deletion
from ringmq.store.topic_start_offsets import read_start_offsets, within, write_start_offsets

REDISPATCH_WINDOW_BYTES = 32 << 20
NO_LIMIT = 1 << 63
BORDER_QUEUES = 16
_PROPERTIES_STATE = {
    -1: "its properties hold a NUL byte",
    -2: "its properties lack the final 0x02",
    -3: "its properties hold a pair without 0x01",
}

CLEAN = "clean"
SAME_BOOT = "same boot"
CHECKPOINT = "checkpoint"


@dataclass(slots=True)
class RecoveredStore:
    """The state of a store that is ready for writes."""

    mode: str
    append_offset: int = 0
    redispatch_offset: int = 0
    min_offset: int = 0
    unsynced_offset: int = 0  # log bytes from here on may be in the page cache only
    is_tail_enough: bool = True  # a start in this boot would find all that dispatch has to redo
    last_store_time_ms: int = 0
    scanned_records: int = 0
    cut_bytes: int = 0
    queues: dict[tuple[str, int], QueueState] = field(default_factory=dict)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    not_indexed: int = 0  # records with impossible values that the scan has met
    not_indexed_from: int = 0  # the first of them
    bad_bodies: int = 0  # records that the scan has met whose body has a wrong CRC
    damaged: list[tuple[int, int]] = field(default_factory=list)  # log ranges of records that the scan passed over
    reasons: list[str] = field(default_factory=list)
    """Lines about damage, and about bytes or entries that it has cost."""
    notes: list[str] = field(default_factory=list)
    """Lines about usual steps after a kill."""
    stage_ms: dict[str, float] = field(default_factory=dict)

    @property
    def next_offsets(self) -> dict[tuple[str, int], int]:
        """Return the queue offset table: the offset of each queue's next message."""
        return {name: state.next_offset for name, state in self.queues.items()}


class LogInUseError(StoreLoadError):
    """A log file whose cached pages have to be dropped is being read by another process."""


class _Stages:
    """Adds up the times of named stages."""

    def __init__(self, clock: Callable[[], float], out: dict[str, float]) -> None:
        self._clock, self._out, self._last = clock, out, clock()

    def end(self, name: str) -> None:
        now = self._clock()
        self._out[name] = self._out.get(name, 0.0) + (now - self._last) * 1000
        self._last = now


def recover(
    config: StoreConfig,
    *,
    trust_boot: bool = True,
    accept_loss: bool = False,
    window_bytes: int = REDISPATCH_WINDOW_BYTES,
    unknown_topics_from: int | None = None,
    clock: Callable[[], float] = time.perf_counter,
    tell: Callable[[str], None] = lambda what: None,
) -> RecoveredStore:
    """Load and repair the store. The caller holds its lock. Idempotent: an interrupted recovery is simply run again.

    `unknown_topics_from` concerns topics without configuration. They get queues, too, if their first record without a
    unit is at this offset or behind. On a slave and in an adopted log their settings may not have come yet. Elsewhere
    such topics are deleted. `accept_loss` goes on without log files of the last clean stop. `tell` gets the progress.

    Raises StoreLoadError if the files cannot be a store of this configuration, and OSError.
    """
    reasons: dict[str, None] = {}
    notes: dict[str, None] = {}
    while True:
        result, is_done = _attempt(config, trust_boot, accept_loss, window_bytes, unknown_topics_from, clock, tell)
        reasons |= dict.fromkeys(result.reasons)
        notes |= dict.fromkeys(result.notes)
        if is_done:
            result.reasons[:], result.notes[:] = reasons, notes
            return result


def _attempt(
    config: StoreConfig,
    trust_boot: bool,
    accept_loss: bool,
    window_bytes: int,
    unknown_topics_from: int | None,
    clock: Callable[[], float],
    tell: Callable[[str], None],
) -> tuple[RecoveredStore, bool]:
    """Recover, or find that the scan has to begin earlier: the second value is False then, and the place is on disk."""
    root, reasons = config.root, list[str]()
    result = RecoveredStore(_mode(root, trust_boot, reasons), reasons=reasons)
    stages = _Stages(clock, result.stage_ms)
    if markers.failed_cause(root) is not None:
        _drop_caches(config)
        stages.end("drop caches")
    store = MessageStore(config)
    tell("opening log files and queues")
    ends = read_queue_ends(root) if result.mode == CLEAN else None
    _load_log(store, ends, accept_loss)
    result.checkpoint = read_checkpoint(root)
    result.min_offset = store.commit_log.min_offset
    stages.end("load log")
    damage = Damage(store, result.min_offset, ends)
    result.queues = damage.load_queues(trusted=result.mode == SAME_BOOT)
    if not accept_loss:
        _check_log_exists(store, result)
    index_damaged_from = damage.check_index()
    stages.end("load queues")
    usual = _scan_start(store, result, window_bytes)
    start = usual if damage.rebuild_from is None else min(usual, _file_below(store, damage.rebuild_from))
    damage.set_aside(start)
    result.reasons += damage.reasons
    stages.end("find start")
    start_offsets = _start_offsets(root, result)
    table = _scan(
        store, result, start, start_offsets,
        stays_below=usual, log_end_at_stop=damage.log_end_at_stop, known_topics=existing_topics(root, ends),
        unknown_topics_from=unknown_topics_from, tell=tell,
    )  # fmt: skip
    stages.end("scan log")
    behind = _gap_from(result)
    if behind is not None and behind < start:
        write_rebuild(root, behind)
        return result, False
    result.reasons += _lost_end(store, result, damage.log_end_at_stop)
    tell("repairing queues and index")
    result.cut_bytes = truncate_log(
        store.commit_log.files, result.append_offset, root / CUT_FOLDER, reasons=result.reasons, notes=result.notes
    )
    stages.end("cut log")
    has_mended = _mend_units(store, result, table, start)
    stages.end("compare units")
    if has_mended:
        return result, False
    truncate_queues(store, result.queues, result.append_offset, wipe_tails=result.mode == CHECKPOINT)
    stages.end("truncate queues")
    index_from = recover_index(
        config, result.append_offset, result.min_offset,
        give_up_after_ms=result.checkpoint.index_time_ms if result.mode == CHECKPOINT else None,
        notes=result.notes,
    )  # fmt: skip
    stages.end("index")
    result.redispatch_offset = _redispatch_offset(result, start, index_from, index_damaged_from)
    result.unsynced_offset = _unsynced_offset(store, result)
    is_tail = result.redispatch_offset >= _queues_end(result) - window_bytes
    result.is_tail_enough = damage.rebuild_from is None and (result.mode == SAME_BOOT or is_tail)
    _write_marks(root, result, start_offsets)
    stages.end("finish")
    return result, True


def _mend_units(store: MessageStore, result: RecoveredStore, table: Any, start: int) -> bool:
    """Write wrong units of the scanned records again. True if the end of a queue may be another now."""
    result.reasons += mend_last_units(store, result.queues, start, result.append_offset)
    mended = mend_units(store, result.queues, table, start, result.append_offset)
    result.reasons += named(mended, "units are written again")
    skipped = skip_damaged(store, result.queues, result.damaged, result.append_offset)
    result.reasons += named(skipped, "units are fillers now")
    return bool(mended)


def _gap_from(result: RecoveredStore) -> int | None:
    """Return the log offset from which queues lack entries in front of the scanned records, None without such a gap."""
    ends = [max(result.min_offset, state.physical_end) for state in result.queues.values() if state.is_gap]
    return min(ends, default=None)


def _check_log_exists(store: MessageStore, result: RecoveredStore) -> None:
    files = store.commit_log.files
    if result.mode == CLEAN and not files.starts and _queues_end(result) > 0:
        raise StoreLoadError(
            f"{files.directories[0]} has no log file with records, but the queues name records up to "
            f"{_queues_end(result)}; put the files back from a copy, or run `ringmq store repair --accept-loss`"
        )


def _lost_end(store: MessageStore, result: RecoveredStore, log_end_at_stop: int) -> list[str]:
    """Return a line if the log ends before records that it had when the broker ended, by its bounds or its queues.

    After a kill queues may name records that never came to the disk. So only a log without files counts then.
    """
    files = store.commit_log.files
    wanted = max(log_end_at_stop, _queues_end(result)) if result.mode == CLEAN or not files.starts else 0
    if result.append_offset >= wanted:
        return []
    place = f"{files.directories[0]}: the log" if not files.starts else "the log"
    return [
        f"{place} ends at {result.append_offset}, and had records up to {wanted} when the broker ended: they are "
        "lost, unless a copy of the log or a slave has them"
    ]


def _write_marks(root: Path, result: RecoveredStore, start_offsets: Mapping[str, int]) -> None:
    if not result.is_tail_enough:  # after a death here, the next start must not read the tail alone
        markers.remove_boot_marker(root)
    left = within(start_offsets, result.min_offset, result.append_offset)
    if left != start_offsets:
        write_start_offsets(root, left)
    markers.remove_failed_marker(root)


def survey(config: StoreConfig) -> RecoveredStore:
    """Return the result that `recover` would have, and write nothing: for readers of a store without an owner.

    After a clean stop the queues are complete and the log is not scanned. If the owner waited for replicas, records
    that they had not confirmed are left out. Raises StoreLoadError, OSError.
    """
    result = RecoveredStore(_mode(config.root, True, []))
    store = MessageStore(config)
    store.commit_log.files.check_sizes()
    result.checkpoint = read_checkpoint(config.root)
    result.min_offset = store.commit_log.min_offset
    result.queues = load_queues(store, trusted=result.mode != CHECKPOINT, remove_empty=False).states
    result.append_offset = max(0, _queues_end(result))
    if result.mode != CLEAN or not result.append_offset:
        confirmed = result.checkpoint.confirm_offset
        limit = max(_queues_end(result), confirmed) if confirmed else NO_LIMIT
        start = _scan_start(store, result, REDISPATCH_WINDOW_BYTES)
        topics = existing_topics(config.root, None)
        _scan(store, result, start, _start_offsets(config.root, result), known_topics=topics, limit=limit)
        bound_queues(store, result.queues, result.append_offset)
    return result


def _mode(root: Path, trust_boot: bool, reasons: list[str]) -> str:
    cause = markers.failed_cause(root)
    if cause is not None:
        reasons.append(f"the last run ended with a failed fsync ({cause.strip()}): the log is read from the disk")
        return CHECKPOINT
    if not markers.has_abort(root):
        return CLEAN
    return SAME_BOOT if trust_boot and markers.is_same_boot(root) else CHECKPOINT


def _drop_caches(config: StoreConfig) -> None:
    """Drop cached pages: after a failed fsync they look clean though the disk never got them.

    The file system as a whole still has that failure to report, and dispatch would get it in its first sync round.
    Mapped pages cannot be dropped: raises LogInUseError if a reader has claimed a log file.
    """
    lib.rmq_file_system_sync(os.fsencode(config.root))
    log = FileQueue(config.commit_log_directories, config.commit_log_file_bytes, MappedFileCache(1))
    for path in map(log.path, log.starts):
        descriptor = lock_for_deletion(path)
        if descriptor is None:
            raise LogInUseError(
                f"{path} is being read by another process: end the readers (Spark tasks), then start again; "
                "after a failed fsync the log has to be read from the disk, and what a reader maps stays in memory"
            )
        _drop_pages(descriptor)
    for name in (layout.CONSUME_QUEUE, layout.BATCH_CONSUME_QUEUE, layout.INDEX):
        for path in (config.root / name).rglob("*"):
            if path.is_file():
                _drop_pages(os.open(path, os.O_RDONLY))


def _drop_pages(descriptor: int) -> None:
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def _load_log(store: MessageStore, ends: QueueEnds | None, accept_loss: bool) -> None:
    files = store.commit_log.files
    files.check_sizes()
    whole = files.starts[:-1] if files.is_newest_empty() else files.starts
    if ends is not None and not accept_loss:
        last = max(ends.log_end - 1, ends.log_min) // files.file_bytes * files.file_bytes
        end = whole[-1] + files.file_bytes if whole else ends.log_min // files.file_bytes * files.file_bytes
        if ends.log_end > ends.log_min and last not in whole:
            lost = files.directories[0] / layout.file_name(min(end, last))
            raise StoreLoadError(
                f"{lost} is missing or empty: the log ended at {ends.log_end} when the broker stopped; put the file "
                "back from a copy, or run `ringmq store repair --accept-loss`"
            )
    files.check_sizes(remove_empty=True)
    for before, after in zip(files.starts, files.starts[1:], strict=False):
        if after != before + files.file_bytes:
            missing = layout.file_name(before + files.file_bytes)
            raise StoreLoadError(f"the log has a gap: file {missing} before {files.path(after)} is missing")


# ---- where to begin ----------------------------------------------------------------------------------------


def _queues_end(result: RecoveredStore) -> int:
    return max((state.physical_end for state in result.queues.values()), default=-1)


def _first_record(store: MessageStore, start: int) -> records.Record | None:
    return store.commit_log.record_at(start, start + store.commit_log.files.file_bytes, check_crc=True)


def _scan_start(store: MessageStore, result: RecoveredStore, window_bytes: int) -> int:
    """Return the record border at which the scan begins."""
    starts = store.commit_log.files.starts
    if not starts:
        return 0
    queues_end = _queues_end(result)
    if result.mode == SAME_BOOT:
        border = _border_below(store, result, queues_end - window_bytes)
        return border if border is not None else _file_below(store, queues_end - window_bytes)
    safe_ms = result.checkpoint.min_time_ms
    if store.config.message_index_safe:
        safe_ms = result.checkpoint.min_time_with_index_ms
    for start in reversed(starts):
        first = _first_record(store, start)
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


def _file_below(store: MessageStore, offset: int) -> int:
    """Return the newest file that begins with a record at or below `offset`, else the oldest: the log was cut there."""
    starts = store.commit_log.files.starts
    below = (start for start in reversed(starts) if start <= offset and _first_record(store, start) is not None)
    return next(below, starts[0])


# ---- scan and cut --------------------------------------------------------------------------------------------


def _start_offsets(root: Path, result: RecoveredStore) -> dict[str, int]:
    try:
        return read_start_offsets(root)
    except ConfigFileError as error:
        result.reasons.append(f"{error}: messages of topics that were deleted before may come back")
        return {}


def _scan(
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
    table = ffi.gc(lib.rmq_queue_table_new(), lib.rmq_queue_table_free)
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
        state.whole_until = max(log_end_at_stop, _queues_end(result))
    append = _scan_files(store, result, start, state, limit, stays_below, tell)
    torn = state.last_properties_state
    was_readable = result.mode == CLEAN or (result.mode == SAME_BOOT and state.last_offset < _queues_end(result))
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


# ---- what is left to do --------------------------------------------------------------------------------------


def _redispatch_offset(
    result: RecoveredStore, start: int, index_from: int | None, index_damaged_from: int | None
) -> int:
    append = result.append_offset
    missing = [state.missing_from for state in result.queues.values() if state.missing_from >= 0]
    wanted = min([append, *missing])
    if index_from is not None and result.mode == CHECKPOINT:
        wanted = min(wanted, index_from)
    elif index_from is not None and result.mode == SAME_BOOT:
        wanted = min(wanted, max(index_from, start))
    if index_damaged_from is not None:
        wanted = min(wanted, index_damaged_from)
    return max(result.min_offset, wanted)


def _unsynced_offset(store: MessageStore, result: RecoveredStore) -> int:
    """Return the start of the newest log file that begins before the checkpoint's log time.

    After a clean stop all files are on disk, and the end of the log is returned.
    """
    if result.mode == CLEAN:
        return result.append_offset
    for start in reversed(store.commit_log.files.starts):
        first = _first_record(store, start)
        if first is not None and first.store_time_ms <= result.checkpoint.physic_time_ms:
            return start
    return result.min_offset
