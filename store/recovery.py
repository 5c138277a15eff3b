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

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ringmq.store import markers
from ringmq.store.checkpoint import read_checkpoint
from ringmq.store.config import StoreConfig
from ringmq.store.config_files import ConfigFileError
from ringmq.store.log_loss import check_log
from ringmq.store.message_store import MessageStore
from ringmq.store.queue_ends import read_queue_ends, write_rebuild
from ringmq.store.recovery_caches import drop_caches
from ringmq.store.recovery_damage import Damage, existing_topics, named
from ringmq.store.recovery_index import recover_index
from ringmq.store.recovery_queues import bound_queues, load_queues, truncate_queues
from ringmq.store.recovery_scan import NO_LIMIT, REDISPATCH_WINDOW_BYTES, file_below, first_record, scan, scan_start
from ringmq.store.recovery_state import CHECKPOINT, CLEAN, SAME_BOOT, RecoveredStore
from ringmq.store.recovery_truncate import CUT_FOLDER, truncate_log
from ringmq.store.recovery_unit_check import mend_units, skip_damaged
from ringmq.store.recovery_units import mend_last_units
from ringmq.store.topic_start_offsets import read_start_offsets, within, write_start_offsets


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
        drop_caches(config)
        stages.end("drop caches")
    store = MessageStore(config)
    tell("opening log files and queues")
    ends = read_queue_ends(root) if result.mode == CLEAN else None
    _load_log(store, accept_loss)
    result.checkpoint = read_checkpoint(root, reasons.append)
    result.min_offset = store.commit_log.min_offset
    stages.end("load log")
    damage = Damage(store, result.min_offset, ends)
    result.queues = damage.load_queues(trusted=result.mode == SAME_BOOT)
    index_damaged_from = damage.check_index()
    stages.end("load queues")
    usual = scan_start(store, result, window_bytes)
    start = usual if damage.rebuild_from is None else min(usual, file_below(store, damage.rebuild_from))
    damage.set_aside(start)
    result.reasons += damage.reasons
    stages.end("find start")
    start_offsets = _start_offsets(root, result)
    table = scan(
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
    is_tail = result.redispatch_offset >= result.queues_end - window_bytes
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


def _lost_end(store: MessageStore, result: RecoveredStore, log_end_at_stop: int) -> list[str]:
    """Return a line if the log ends before records that it had when the broker ended, by its bounds or its queues.

    After a kill queues may name records that never came to the disk. So only a log without files counts then.
    """
    files = store.commit_log.files
    wanted = max(log_end_at_stop, result.queues_end) if result.mode == CLEAN or not files.starts else 0
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
    result.append_offset = max(0, result.queues_end)
    if result.mode != CLEAN or not result.append_offset:
        confirmed = result.checkpoint.confirm_offset
        limit = max(result.queues_end, confirmed) if confirmed else NO_LIMIT
        start = scan_start(store, result, REDISPATCH_WINDOW_BYTES)
        topics = existing_topics(config.root, None)
        scan(store, result, start, _start_offsets(config.root, result), known_topics=topics, limit=limit)
        bound_queues(store, result.queues, result.append_offset)
    return result


def _start_offsets(root: Path, result: RecoveredStore) -> dict[str, int]:
    try:
        return read_start_offsets(root)
    except ConfigFileError as error:
        result.reasons.append(f"{error}: messages of topics that were deleted before may come back")
        return {}


def _mode(root: Path, trust_boot: bool, reasons: list[str]) -> str:
    cause = markers.failed_cause(root)
    if cause is not None:
        reasons.append(f"the last run ended with a failed fsync ({cause.strip()}): the log is read from the disk")
        return CHECKPOINT
    if not markers.has_abort(root):
        return CLEAN
    return SAME_BOOT if trust_boot and markers.is_same_boot(root) else CHECKPOINT


def _load_log(store: MessageStore, accept_loss: bool) -> None:
    if not accept_loss:
        check_log(store)
    store.commit_log.files.check_sizes(remove_empty=True)


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
        first = first_record(store, start)
        if first is not None and first.store_time_ms <= result.checkpoint.physic_time_ms:
            return start
    return result.min_offset
