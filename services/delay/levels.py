"""The queues of the schedule topic in the plane."""

from __future__ import annotations

from collections.abc import Sequence

from ringmq.ipc.plane import Plane
from ringmq.remoting.names import SCHEDULE_TOPIC
from ringmq.store.config import DELAY_LEVELS_MAX


def schedule_slots(plane: Plane, levels: int) -> list[int]:
    """The queue slot of each level, level 1 first. Control makes the queues before any worker starts."""
    topic_id = plane.topic_find(SCHEDULE_TOPIC)
    slots = [None if topic_id is None else plane.queue_find(topic_id, queue_id) for queue_id in range(levels)]
    found = [slot for slot in slots if slot is not None]
    if len(found) < levels:
        raise LookupError(f"topic {SCHEDULE_TOPIC} has {len(found)} queues, messageDelayLevel needs {levels}")
    return found


def known_slots(plane: Plane) -> list[int]:
    """The queue slots of the schedule topic, those of levels that messageDelayLevel has lost included."""
    topic_id = plane.topic_find(SCHEDULE_TOPIC)
    slots = [None if topic_id is None else plane.queue_find(topic_id, queue_id) for queue_id in range(DELAY_LEVELS_MAX)]
    return [slot for slot in slots if slot is not None]


def queue_ends(plane: Plane, slots: Sequence[int]) -> list[int]:
    """The offset behind the last message of each of these queues."""
    return [int(plane.queue(slot).max_offset) for slot in slots]
