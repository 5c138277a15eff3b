"""ConsumeQueue part of recovery: finds the end of each queue, and removes units that name cut records."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct, field

from ringmq.store import layout
from ringmq.store.batch_consume_queue import BatchConsumeQueue
from ringmq.store.mapped_file import FileQueue, StoreLoadError, has_data, write_zeros
from ringmq.store.message_store import MessageStore
from ringmq.store.queue_ends import QueueBound

NO_LIMIT = 1 << 62


class QueueState(Struct):
    """One queue after recovery. Units exist for [min_offset, max_offset), the log holds messages up to next_offset."""

    topic: str
    queue_id: int
    is_batch: bool
    min_offset: int
    max_offset: int
    physical_end: int  # end in the log of the last unit's record, -1 = no unit
    next_offset: int = 0
    missing_from: int = -1  # commit log offset of the first record without a unit
    damage: str = ""  # the reason why units in front of the end are missing, though the log may have their records
    is_gap: bool = False  # the log's records behind the end begin at a higher queue offset
    is_lost: bool = False  # no file is left: the offsets are those of the log's records, or else `max_offset`

    def __post_init__(self) -> None:
        self.next_offset = max(self.next_offset, self.max_offset)

    def replay_from(self, append_offset: int) -> int:
        """Return the log offset from which records of this topic name get units.

        Earlier records have units already, or belong to an earlier topic of this name.
        """
        return min((at for at in (self.physical_end, self.missing_from) if at >= 0), default=append_offset)


class LoadedQueues(Struct):
    """All queues, and the files that cannot be theirs, with the reason. Those files are left out and stay in place."""

    states: dict[tuple[str, int], QueueState] = field(default_factory=dict)
    unusable: list[tuple[Path, str]] = field(default_factory=list)


def load_queues(
    store: MessageStore,
    *,
    trusted: bool,
    remove_empty: bool = True,
    log_end: int = NO_LIMIT,
    known: Mapping[tuple[str, int], QueueBound] = MappingProxyType({}),
) -> LoadedQueues:
    """Find the end of every queue: by binary search if `trusted`, else by a scan of the last three files.

    The scan is stock's, and also ends at a unit that cannot have been written there, such as one behind `log_end`.
    A queue ends in front of its first unusable or missing file. `known`: the bounds at the last clean stop. Raises
    StoreLoadError if all queue files have one other length, and OSError.
    """
    loaded = LoadedQueues()
    lengths: dict[tuple[bool, int], Counter[int]] = defaultdict(Counter)
    for name in store.queue_names():
        queue = store.queue(name.topic, name.queue_id)
        if queue is None:
            continue
        faults = list(queue.files.faults(remove_empty=remove_empty))
        is_batch = isinstance(queue, BatchConsumeQueue)
        found = lengths[is_batch, queue.files.file_bytes]
        found.update(length for _, length, _ in faults)
        found[queue.files.file_bytes] += len(queue.files.starts) - len(faults)
        damage = _leave_out(queue.files, faults, loaded.unusable)
        is_cut = False
        if trusted:
            max_offset, physical_end = queue.trusted_end()
        elif isinstance(queue, BatchConsumeQueue):
            max_offset, physical_end = queue.recovered_end()
            is_cut = _is_data_behind(queue, physical_end)
        else:
            bound = known.get((name.topic, name.queue_id))
            max_offset, physical_end, is_cut = queue.sound_end(log_end, None if bound is None else bound.following)
        min_offset = queue.min_offset(store.commit_log.min_offset, max_offset)
        state = QueueState(name.topic, name.queue_id, is_batch, min_offset, max_offset, physical_end)
        state.damage = damage or ("an impossible unit in front of its end" if is_cut else "")
        state.is_lost = bool(damage) and not queue.files.starts
        loaded.states[(name.topic, name.queue_id)] = state
    for (is_batch, configured), found in lengths.items():
        unit_bytes = (layout.BATCH_UNIT if is_batch else layout.CONSUME_QUEUE_UNIT).size
        could_be = not any(length % unit_bytes for length in found)
        if could_be and len(+found) == 1 and not found[configured] and found.total() > 1:
            raise StoreLoadError(loaded.unusable[0][1])  # not damage: another configuration
    return loaded


def _leave_out(files: FileQueue, faults: list[tuple[int, int, str]], unusable: list[tuple[Path, str]]) -> str:
    """Leave out the first unusable file and all behind it: their units are made again. Return the reason, "" if none
    is left out."""
    unusable += [(Path(path), f"{path} is no file") for path in files.strange]
    bad = {start: fault for start, _, fault in faults}
    bad |= {int(Path(path).name): f"{path} is no file" for path in files.strange}
    for before, after in itertools.pairwise(files.starts):
        if after != before + files.file_bytes and before not in bad:
            bad.setdefault(after, f"{files.path(after)}: the file before it is missing")
    if not bad:
        return ""
    first = min(bad)
    for start in [start for start in files.starts if start >= first]:
        path = files.path(start)
        unusable.append((path, bad.get(start, f"{path} lies behind a damaged file")))
        files.leave_out(start)
    return bad[first]


def _is_data_behind(queue: BatchConsumeQueue, physical_end: int) -> bool:
    """True if the newest file has data behind the last valid unit."""
    if not queue.files.starts:
        return False
    start = queue.files.starts[-1]
    used = queue.bytes_below(NO_LIMIT) - start if physical_end >= 0 else 0
    return has_data(queue.files.path_text(start), max(0, used))


def truncate_queues(
    store: MessageStore, states: dict[tuple[str, int], QueueState], append_offset: int, *, wipe_tails: bool
) -> None:
    """Remove units at or behind `append_offset`. With `wipe_tails` also zero the bytes behind the end of each queue,
    without it those behind the end of damaged ones.

    The first file of a queue stays even if it is empty: its name keeps the queue's offsets from starting again.
    """
    for name, state in states.items():
        queue = store.queue(*name)
        if queue is None:
            continue
        if state.physical_end > append_offset:
            if isinstance(queue, BatchConsumeQueue):
                end_bytes = queue.bytes_below(append_offset)
            else:
                end_bytes = queue.end_below(append_offset) * queue.unit_bytes
        elif wipe_tails or state.damage:
            end_bytes = _end_bytes(queue, state)
        else:
            continue
        for start in [start for start in queue.files.starts[1:] if start >= end_bytes]:
            queue.files.unlink(start)
        start_of = queue.files.start_of(end_bytes)
        if start_of is not None:
            write_zeros(queue.files.path(start_of), end_bytes - start_of, queue.files.file_bytes)
        if state.physical_end > append_offset:
            state.max_offset, state.physical_end = queue.trusted_end()
            state.next_offset = state.max_offset if state.missing_from < 0 else state.next_offset
            state.min_offset = queue.min_offset(store.commit_log.min_offset, state.max_offset)


def bound_queues(store: MessageStore, states: dict[tuple[str, int], QueueState], append_offset: int) -> None:
    """End each queue in front of `append_offset` as `truncate_queues` would, without touching its files."""
    for name, state in states.items():
        queue = store.queue(*name)
        if queue is not None and state.physical_end > append_offset:
            state.max_offset, state.physical_end = queue.offsets_at((append_offset,))[0], append_offset
            state.next_offset = state.max_offset if state.missing_from < 0 else state.next_offset


def _end_bytes(queue: object, state: QueueState) -> int:
    if isinstance(queue, BatchConsumeQueue):
        return queue.bytes_below(1 << 62)
    return state.max_offset * layout.CONSUME_QUEUE_UNIT.size
