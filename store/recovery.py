"""Recovery: checks and repairs of a store before the first append.

The log is the truth, from which queues and index are rebuilt. The marks of the last run decide the start of the scan:

  clean      no `abort`: the newest log file is read in full, like stock's normal recovery.
  same boot  `abort`, but `ringmq.boot` still names this kernel boot and this folder. A killed process removes nothing
             from the page cache. So only the tail is read, from a record border REDISPATCH_WINDOW_BYTES before the end
             of the queues. Dispatch works in order and in batches far smaller than that window. A recovery that leaves
             dispatch more to redo removes `ringmq.boot`. The mark comes back when dispatch has done it.
  checkpoint `abort` after a reboot, a stock broker's kill, a copy, or a failed fsync: from the newest log file that
             begins before the checkpoint's time. Index files newer than the checkpoint are deleted and rebuilt.

A damaged record ends the scan. After a clean stop, a damaged record before the end of the queues stays in the log, and
the scan continues at the next record that a queue names.

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
from ringmq.store.checkpoint import Checkpoint, read_checkpoint
from ringmq.store.config import StoreConfig
from ringmq.store.config_files import ConfigFileError, load_config
from ringmq.store.mapped_file import FileQueue, MappedFileCache, StoreLoadError
from ringmq.store.message_store import MessageStore
from ringmq.store.record_values import not_indexed_line
from ringmq.store.recovery_index import recover_index
from ringmq.store.recovery_queues import QueueState, bound_queues, load_queues, truncate_queues
from ringmq.store.recovery_truncate import CUT_FOLDER, truncate_log
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
    reasons: list[str] = field(default_factory=list)
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
    window_bytes: int = REDISPATCH_WINDOW_BYTES,
    unknown_topics_from: int | None = None,
    clock: Callable[[], float] = time.perf_counter,
    tell: Callable[[str], None] = lambda what: None,
) -> RecoveredStore:
    """Load and repair the store. The caller holds its lock. Idempotent: an interrupted recovery is simply run again.

    `unknown_topics_from` concerns topics without configuration. They get queues, too, if their first record without a
    unit is at this offset or behind. On a slave and in an adopted log their settings may not have come yet. Elsewhere
    such topics are deleted. `tell` gets lines about the progress.

    Raises StoreLoadError if the files cannot be a store of this configuration, and OSError.
    """
    root = config.root
    reasons: list[str] = []
    result = RecoveredStore(_mode(root, trust_boot, reasons), reasons=reasons)
    stages = _Stages(clock, result.stage_ms)
    if markers.failed_cause(root) is not None:
        _drop_caches(config)
        stages.end("drop caches")
    store = MessageStore(config)
    tell("opening log files and queues")
    _load_log(store)
    result.checkpoint = read_checkpoint(root)
    result.min_offset = store.commit_log.min_offset
    stages.end("load log")
    result.queues = load_queues(store, trusted=result.mode == SAME_BOOT)
    if result.mode == CLEAN and not store.commit_log.files.starts and _queues_end(result) > 0:
        raise StoreLoadError(f"{config.commit_log_directories[0]}: the log is empty, but the queues hold messages")
    stages.end("load queues")
    start = _scan_start(store, result, window_bytes)
    stages.end("find start")
    start_offsets = _start_offsets(root, result)
    _scan(store, result, start, start_offsets, unknown_topics_from=unknown_topics_from, tell=tell)
    stages.end("scan log")
    tell("repairing queues and index")
    result.cut_bytes = truncate_log(store.commit_log.files, result.append_offset, root / CUT_FOLDER, result.reasons)
    stages.end("cut log")
    truncate_queues(store, result.queues, result.append_offset, wipe_tails=result.mode == CHECKPOINT)
    result.reasons += mend_last_units(store, result.queues, start, result.append_offset)
    stages.end("truncate queues")
    index_from = recover_index(
        config, result.append_offset, result.min_offset,
        give_up_after_ms=result.checkpoint.index_time_ms if result.mode == CHECKPOINT else None,
        reasons=result.reasons,
    )  # fmt: skip
    stages.end("index")
    result.redispatch_offset = _redispatch_offset(result, start, index_from)
    result.unsynced_offset = _unsynced_offset(store, result)
    tail = _queues_end(result) - window_bytes
    result.is_tail_enough = result.mode == SAME_BOOT or result.redispatch_offset >= tail
    if not result.is_tail_enough:  # after a death here, the next start must not read the tail alone
        markers.remove_boot_marker(root)
    left = within(start_offsets, result.min_offset, result.append_offset)
    if left != start_offsets:
        write_start_offsets(root, left)
    markers.remove_failed_marker(root)
    stages.end("finish")
    return result


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
    result.queues = load_queues(store, trusted=result.mode != CHECKPOINT, remove_empty=False)
    result.append_offset = max(0, _queues_end(result))
    if result.mode != CLEAN or not result.append_offset:
        confirmed = result.checkpoint.confirm_offset
        limit = max(_queues_end(result), confirmed) if confirmed else NO_LIMIT
        start = _scan_start(store, result, REDISPATCH_WINDOW_BYTES)
        _scan(store, result, start, _start_offsets(config.root, result), limit=limit)
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


def _load_log(store: MessageStore) -> None:
    files = store.commit_log.files
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


def _known_topics(root: Path) -> set[str] | None:
    """Return the topics that exist, None if they are unknown."""
    try:
        table = load_config(root, "topics.json").get("topicConfigTable")
    except ConfigFileError:
        return None
    return set(table) if isinstance(table, dict) and table else None


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
    unknown_topics_from: int | None = None,
    limit: int = NO_LIMIT,
    tell: Callable[[str], None] = lambda what: None,
) -> None:
    table = ffi.gc(lib.rmq_queue_table_new(), lib.rmq_queue_table_free)
    if table == ffi.NULL:
        raise MemoryError("no memory for the table of queues")
    for topic, offset in start_offsets.items():
        name = topic.encode()
        lib.rmq_queue_table_row(table, name, len(name), lib.RMQ_ANY_QUEUE).queue_end = offset
    for (topic, queue_id), queue in result.queues.items():
        name = topic.encode()
        row = lib.rmq_queue_table_row(table, name, len(name), queue_id)
        row.queue_max, row.is_batch = queue.max_offset, int(queue.is_batch)
        if queue.physical_end >= 0:  # the queue's units are of this topic, and so are all later records
            row.queue_end = queue.physical_end
    state = ffi.new("struct rmq_log_recovery *")
    lib.rmq_log_recovery_init(state, table)
    state.gap_max = store.config.consume_queue_file_bytes // layout.CONSUME_QUEUE_UNIT.size
    append = _scan_files(store, result, start, state, limit, tell)
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
    if state.impossible:
        result.reasons.append(not_indexed_line(state.impossible, state.impossible_offset, state.impossible_field))
    _take_rows(table, result, _known_topics(store.config.root), unknown_topics_from)


def _scan_files(
    store: MessageStore, result: RecoveredStore, start: int, state: Any, limit: int, tell: Callable[[str], None]
) -> int:
    """Scan file after file. Return the end of the last valid record (or of the blank that ends the newest file).

    Records that end above `limit` are left out. After a clean stop no record can be torn. A bad record in front of
    the queues' end is then later damage: it stays in the log and the scan continues behind it. Stock would cut the
    log there.
    """
    files = store.commit_log.files
    queues_end = _queues_end(result)
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
            damaged = result.mode == CLEAN and offset < queues_end  # beyond the queues there is no border to look for
            border = store.next_border(offset, queues_end) if damaged else None
            if border is not None:
                result.reasons.append(f"the record at {offset} is damaged ({records.REASONS[state.reason]}), it stays")
                offset = border
                continue
            if any(mapped[at : at + 8]):
                result.reasons.append(f"the log ends at {offset}: {records.REASONS[state.reason]}")
            return offset
        if file_start == files.starts[-1]:
            return offset
        offset = file_start + files.file_bytes
    return offset


def _take_rows(table: Any, result: RecoveredStore, known: set[str] | None, unknown_from: int | None) -> None:
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
        queue = result.queues[name]
        if queue.physical_end >= 0 and row.log_first != queue.max_offset:
            result.reasons.append(
                f"{topic}/{row.queue_id}: the queue ends at {queue.max_offset}, but the log goes on with queue offset "
                f"{row.log_first} at {row.missing_from}"
            )
        queue.next_offset = row.log_next
        queue.missing_from = row.missing_from


# ---- what is left to do --------------------------------------------------------------------------------------


def _redispatch_offset(result: RecoveredStore, start: int, index_from: int | None) -> int:
    append = result.append_offset
    missing = [state.missing_from for state in result.queues.values() if state.missing_from >= 0]
    wanted = min([append, *missing])
    if index_from is not None and result.mode == CHECKPOINT:
        wanted = min(wanted, index_from)
    elif index_from is not None and result.mode == SAME_BOOT:
        wanted = min(wanted, max(index_from, start))
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
