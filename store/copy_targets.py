"""The queues to which copies of stored records go, in Python: the same rule as `native/src/services/copy_targets.c`.

A message that waits in a system topic keeps the topic and the queue that its sender named in two pairs.
"""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ringmq.native import lib
from ringmq.store.record_copy import Cause, CopyRefused

REAL_TOPIC, REAL_QID = b"REAL_TOPIC", b"REAL_QID"
_NUMBER = re.compile(rb"([-+]?)0*([0-9]{1,19})")
"""The numbers that rmq_text_int32 reads: int() refuses thousands of zeros in front."""
_INT32 = 1 << 31


class CopyTarget(NamedTuple):
    """The queue of a copy."""

    topic_id: int
    queue_slot: int
    queue_id: int


def copy_target(
    pairs: Mapping[bytes, bytes],
    find_topic: Callable[[bytes], int | None],
    find_queue: Callable[[int, int], int | None],
    excluded_topic_id: int | None = None,
) -> CopyTarget | CopyRefused:
    """The queue that the pairs of a record name. `pairs`: the last value of each name."""
    topic, queue = pairs.get(REAL_TOPIC), pairs.get(REAL_QID)
    if topic is None:
        return CopyRefused(Cause.NO_PAIR, lib.RMQ_COPY_REAL_TOPIC)
    number = None if queue is None else _NUMBER.fullmatch(queue)
    queue_id = _INT32 if number is None else int(number[1] + number[2])
    if not -_INT32 <= queue_id < _INT32:
        return CopyRefused(Cause.NO_PAIR, lib.RMQ_COPY_REAL_QID)
    topic_id = find_topic(topic)
    if topic_id is None or topic_id == excluded_topic_id:
        return CopyRefused(Cause.NO_TOPIC)
    slot = None if queue_id < 0 else find_queue(topic_id, queue_id)
    if slot is None:
        return CopyRefused(Cause.NO_QUEUE, queue_id)
    return CopyTarget(topic_id, slot, queue_id)
