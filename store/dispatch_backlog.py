"""Records of an ownerless store without a unit in a queue: recovery would dispatch them, readers count them."""

from typing import NamedTuple

from ringmq.store import layout
from ringmq.store.message_store import MessageStore
from ringmq.store.record_numbers import message_count
from ringmq.store.recovery_state import RecoveredStore


class BacklogRecord(NamedTuple):
    """A record with messages [`queue_offset`, `queue_offset` + `messages`) of its queue."""

    queue_offset: int
    commit_log_offset: int
    size: int
    store_time_ms: int
    messages: int


Backlog = dict[tuple[str, int], list[BacklogRecord]]


def dispatch_backlog(store: MessageStore, state: RecoveredStore) -> Backlog:
    """Return the records behind the end of each queue, by topic and queue id, in order. `state` is that of a survey."""
    begin = {name: queue.missing_from for name, queue in state.queues.items() if queue.missing_from >= 0}
    tails: Backlog = {name: [] for name in begin}
    if not begin:
        return tails
    for _, record in store.commit_log.scan(min(begin.values()), state.append_offset, check_crc=False):
        name = (record.topic, record.queue_id)
        is_queued = record.transaction_type not in (layout.TRANSACTION_PREPARED, layout.TRANSACTION_ROLLBACK)
        if is_queued and name in begin and record.commit_log_offset >= begin[name]:
            is_batch_queue = state.queues[name].is_batch
            count = message_count(record.properties, record.sys_flag, is_batch_queue=is_batch_queue)
            tails[name].append(
                BacklogRecord(record.queue_offset, record.commit_log_offset, record.size, record.store_time_ms, count)
            )
    return tails
