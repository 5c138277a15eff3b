"""The pops of a message that has come again, as its record in the topic of retries counts them."""

from __future__ import annotations

from ringmq.store.queue_reader import QueueReader, QueueReadError
from ringmq.store.record import parse_record


def attempts_of(reader: QueueReader, queue_slot: int, queue_offset: int) -> int:
    """The pops of a message, with the last one. 0: its record is not in memory, or cannot be read."""
    try:
        unit = reader.unit(queue_slot, queue_offset)
        if unit is None or not reader.in_memory(unit.commit_log_offset):
            return 0
        with reader.record(unit.commit_log_offset, unit.size) as data:
            _, record = parse_record(data, with_body=False)
    except (QueueReadError, ValueError):
        return 0
    return 0 if record is None else 1 + max(0, record.reconsume_times)
