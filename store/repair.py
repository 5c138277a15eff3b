"""The repairs of a start on a closed store, and a description of them that changes nothing.

A start reads the newest files of each queue. Here each unit and each index entry is compared with the log, too.
"""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct, field

from ringmq.store import layout
from ringmq.store.config import StoreConfig
from ringmq.store.consume_queue import ConsumeQueue
from ringmq.store.index_file import index_paths
from ringmq.store.log_loss import checked_loss, is_stopped, loss_lines, mend
from ringmq.store.message_store import MessageStore
from ringmq.store.queue_ends import QueueBound, read_queue_ends, read_rebuild, write_queue_ends, write_rebuild
from ringmq.store.recovery import recover, survey
from ringmq.store.recovery_damage import NAMED_MAX, Damage
from ringmq.store.recovery_state import CLEAN, RecoveredStore
from ringmq.store.recovery_truncate import CUT_FOLDER
from ringmq.store.safe_files import free_name
from ringmq.store.verify import verify


class Repairs(Struct, frozen=True):
    """Lines about single repairs, and the part of the log whose queue and index entries a start makes."""

    append_offset: int
    rebuild_from: int
    lines: list[str] = field(default_factory=list)
    is_log_mended: bool = True
    """False in a plan that ends at the log: the rest can be compared only after the log is mended."""

    def text(self) -> str:
        """The summary as a line."""
        if not self.is_log_mended:
            return "the log is mended first; queues and index are compared with it afterwards"
        missing = self.append_offset - self.rebuild_from
        if missing <= 0:
            return f"the log ends at {self.append_offset}; queues and index are complete"
        return (
            f"the log ends at {self.append_offset}; the next start reads {missing >> 10} KiB from offset "
            f"{self.rebuild_from} on and makes missing entries of queues and index"
        )


def repair(
    config: StoreConfig, *, accept_loss: bool, thorough: bool, tell: Callable[[str], None] = lambda step: None
) -> Repairs:
    """Repair the store, whose lock the caller holds. `thorough` compares all queues and the index with the log.

    Without `accept_loss` a log that has lost messages stays as it is. Raises StoreLoadError, OSError.
    """
    store = MessageStore(config)
    loss = checked_loss(store, accept_loss=accept_loss)
    lines, has_lost_ends = loss_lines(store, loss), bool(loss.lost) and is_stopped(config.root)
    if loss.faults:
        mend(store, loss)
    result = recover(config, accept_loss=accept_loss, tell=tell)
    lines += [*result.reasons, *result.notes]
    if thorough:
        wrong = _Wrong(config, result.append_offset, tell)
        lines += wrong.lines
        if wrong.paths:
            write_rebuild(config.root, wrong.rebuild_from)
            for path in wrong.paths:
                target = free_name(config.root / CUT_FOLDER / path.relative_to(config.root))
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(path, target)
            again = recover(config, accept_loss=accept_loss, tell=tell)
            lines += [line for line in (*again.reasons, *again.notes) if line not in lines]
            result = again
    if has_lost_ends:
        _leave_ends(config.root, result)
    return Repairs(result.append_offset, result.redispatch_offset, lines)


def _leave_ends(root: Path, result: RecoveredStore) -> None:
    """Write the bounds that a clean stop would leave now. The next start would miss the lost files by the old ones."""
    rows = (
        (topic, queue_id, QueueBound(state.is_batch, state.min_offset, state.max_offset))
        for (topic, queue_id), state in result.queues.items()
    )
    write_queue_ends(root, result.min_offset, result.append_offset, rows)


def planned_repairs(
    config: StoreConfig,
    *,
    accept_loss: bool = False,
    thorough: bool,
    tell: Callable[[str], None] = lambda step: None,
) -> Repairs:
    """Return the repairs that `repair` would make, or raise its error. Writes nothing.

    Raises StoreLoadError, OSError.
    """
    store = MessageStore(config)
    loss = checked_loss(store, accept_loss=accept_loss)
    if loss.faults:
        end = loss.lost[-1][0] if loss.lost else store.queue_end()
        return Repairs(end, store.commit_log.min_offset, loss_lines(store, loss), is_log_mended=False)
    found = survey(config)
    ends = read_queue_ends(config.root) if found.mode == CLEAN else None
    damage = Damage(store, found.min_offset, ends)
    damage.load_queues(trusted=False, remove_empty=False)
    damage.check_index()
    end = max(found.append_offset, damage.log_end_at_stop)
    starts = [end, *_missing(found)]
    starts += [] if damage.rebuild_from is None else [damage.rebuild_from]
    lines = [*found.reasons, *damage.reasons]
    lines += [f"{path} is going to be moved to {damage.folder}: {why}" for path, why in damage.unusable]
    if thorough and not damage.unusable:
        wrong = _Wrong(config, found.append_offset, tell)
        starts += [wrong.rebuild_from] if wrong.paths else []
        lines += wrong.lines
    return Repairs(end, max(found.min_offset, min(starts)), lines)


def _missing(found: RecoveredStore) -> list[int]:
    return [state.missing_from for state in found.queues.values() if state.missing_from >= 0]


class _Wrong:
    """Files of queues and index that differ from the log, found by a check of the whole store.

    Entries that the next start makes anyway do not count.
    """

    def __init__(self, config: StoreConfig, log_end: int, tell: Callable[[str], None]) -> None:
        self.paths: list[Path] = []
        self.lines: list[str] = []
        self.rebuild_from = self._log_end = log_end
        self._store = store = MessageStore(config)
        rebuilt = read_rebuild(config.root)

        def progress(stage: str, done: int, total: int) -> None:
            tell(f"comparing queues and index with the {stage}, {done >> 20} of {total >> 20} MiB")

        report = verify(store, log_end, progress=progress, check_index=rebuilt is None)
        for name, queue_offset in sorted(report.bad_units.items()):
            self._add_queue(*name, queue_offset)
        if report.is_index_bad:
            self.rebuild_from = store.commit_log.min_offset
            self.paths += index_paths(config.root / layout.INDEX)
            self.lines.append("the index differs from the log: it is made again")
        self._name_records(report.bad_records)

    def _add_queue(self, topic: str, queue_id: int, queue_offset: int) -> None:
        queue = self._store.queue(topic, queue_id)
        if queue is None or queue_offset >= queue.max_offset(self._log_end):
            return  # behind the queue's end: dispatch makes it
        starts, log_min = queue.files.starts, self._store.commit_log.min_offset
        from_offset = log_min
        if isinstance(queue, ConsumeQueue):  # files of a batch queue are not addressed by offsets of messages
            starts = [start for start in starts if start + queue.files.file_bytes > queue_offset * queue.unit_bytes]
            before = queue.unit(starts[0] // queue.unit_bytes - 1)
            from_offset = log_min if before is None else max(log_min, before.commit_log_offset)
        self.rebuild_from = min(self.rebuild_from, from_offset)
        self.paths += [Path(queue.files.path(start)) for start in starts]
        self.lines.append(
            f"queue {topic}/{queue_id}: the entry of message {queue_offset} is not that of its record; its entries "
            f"from {Path(queue.files.path(starts[0])).name} on are made again"
        )

    def _name_records(self, bad_records: Mapping[int, str]) -> None:
        named = [f"the record at {offset} is damaged ({why}), it stays" for offset, why in bad_records.items()]
        self.lines += named[:NAMED_MAX]
        if len(named) > NAMED_MAX:
            self.lines.append(f"{len(named) - NAMED_MAX} more records are damaged: `ringmq store verify` names them")
