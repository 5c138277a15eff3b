"""ConsumeQueue part of recovery: finds the end of each queue, and removes units that name cut records."""

from dataclasses import dataclass

from ringmq.store import layout
from ringmq.store.batch_consume_queue import BatchConsumeQueue
from ringmq.store.mapped_file import write_zeros
from ringmq.store.message_store import MessageStore


@dataclass(slots=True)
class QueueState:
    """One queue after recovery. Units exist for [min_offset, max_offset), the log holds messages up to next_offset."""

    topic: str
    queue_id: int
    is_batch: bool
    min_offset: int
    max_offset: int
    physical_end: int  # end in the log of the last unit's record, -1 = no unit
    next_offset: int = 0
    missing_from: int = -1  # commit log offset of the first record without a unit

    def __post_init__(self) -> None:
        self.next_offset = max(self.next_offset, self.max_offset)

    def replay_from(self, append_offset: int) -> int:
        """Return the log offset from which records of this topic name get units.

        Earlier records have units already, or belong to an earlier topic of this name.
        """
        return min((at for at in (self.physical_end, self.missing_from) if at >= 0), default=append_offset)


def load_queues(store: MessageStore, *, trusted: bool, remove_empty: bool = True) -> dict[tuple[str, int], QueueState]:
    """Find the end of every queue: by binary search if `trusted`, else by stock's scan of the last three files."""
    states = {}
    for name in store.queue_names():
        queue = store.queue(name.topic, name.queue_id)
        if queue is None:
            continue
        queue.files.check_sizes(remove_empty=remove_empty)
        max_offset, physical_end = queue.trusted_end() if trusted else queue.recovered_end()
        min_offset = queue.min_offset(store.commit_log.min_offset, max_offset)
        is_batch = isinstance(queue, BatchConsumeQueue)
        states[(name.topic, name.queue_id)] = QueueState(
            name.topic, name.queue_id, is_batch, min_offset, max_offset, physical_end
        )
    return states


def truncate_queues(
    store: MessageStore, states: dict[tuple[str, int], QueueState], append_offset: int, *, wipe_tails: bool
) -> None:
    """Remove units at or behind `append_offset`. With `wipe_tails` also zero the bytes behind the end of each queue.

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
        elif wipe_tails:
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
