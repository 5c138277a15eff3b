"""The bounds of log, queues and index that a clean stop leaves for the next start (`ringmq.store.queue_ends`)."""

import logging
from collections.abc import Iterator
from pathlib import Path

from ringmq.broker.tables import protocols
from ringmq.broker.tables.publication import PlaneTables
from ringmq.ipc.plane import Plane
from ringmq.store.queue_ends import QueueBound, write_queue_ends

log = logging.getLogger(__name__)


def leave_queue_ends(plane: Plane, root: Path) -> bool:
    """Write the bounds of a broker whose workers have ended. False: they are not written, as on a full disk.

    Bounds of an earlier stop may stay then. They look as if another broker had appended since, and POP's memory would
    be dropped. The mark of an unclean stop keeps it. The next start reads the newest part of the log, as after a kill.
    """
    marks = plane.watermarks
    try:
        write_queue_ends(root, int(marks.min_offset), int(marks.append_offset), _bounds(plane))
    except OSError as error:
        log.warning("%s: the bounds of the queues cannot be written for the next start: %s", root, error)
        return False
    return True


def _bounds(plane: Plane) -> Iterator[tuple[str, int, QueueBound]]:
    tables = PlaneTables(plane)
    names = {topic_id: (name, flags) for topic_id, name, flags in tables.live_names()}
    for slot in range(int(plane.header.tables.queue_count)):
        queue = plane.queue(slot)
        topic, flags = names.get(int(queue.topic_id), ("", 0))
        if topic and queue.max_offset:
            is_batch = bool(flags & protocols.TOPIC_BATCH_QUEUE)
            yield topic, int(queue.queue_id), QueueBound(is_batch, int(queue.min_offset), int(queue.max_offset))
