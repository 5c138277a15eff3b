"""Rows of GET_BROKER_RUNTIME_INFO (28) about delay levels, under stock's keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ringmq.ipc.republish_words import PROGRESS
from ringmq.ipc.tenure import follows_master
from ringmq.native import lib
from ringmq.remoting.names import SCHEDULE_TOPIC


def rows(plane: Any, rate_of: Callable[[str, str, int, int], float], now_ms: int) -> dict[str, str]:
    """A row for each level that has had a message: the next offset to deliver, and the end of the level's queue.

    A slave delivers nothing, so it has no rows. A level whose progress is not known yet is left out.
    """
    topic_id = plane.topic_find(SCHEDULE_TOPIC)
    if topic_id is None or follows_master(plane.watermarks):
        return {}
    role = plane.role(lib.RMQ_ROLE_DELAY)
    found = {}
    for level in range(1, len(role.counters) - PROGRESS + 1):
        slot = plane.queue_find(topic_id, level - 1)
        end = 0 if slot is None else int(plane.queue(slot).max_offset)
        # Without the worker since the start, no message waits.
        following = int(role.counters[PROGRESS + level - 1]) - 1 if role.generation else end
        if end and following >= 0:
            found[f"scheduleMessageOffset_{level}"] = f"{following},{end}"
    return found
