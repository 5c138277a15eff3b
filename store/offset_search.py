"""Queue offset by store time (binarySearchInQueueByTime): a pure search over a function from offset to time."""

import enum
from collections.abc import Callable

from ringmq.store.consume_queue import first_index


class Boundary(enum.Enum):
    """The message of an inexact time, and the end of a run of equal times."""

    LOWER = "lower"
    UPPER = "upper"


def offset_by_time(
    store_time: Callable[[int], int | None], min_offset: int, max_offset: int, time_ms: int, boundary: Boundary
) -> int:
    """Search [min_offset, max_offset).

        LOWER: the first message stored at or after `time_ms`, `max_offset` if all are older.
        UPPER: the last message stored at or before it, the first one if all are younger.

    A message whose time cannot be read counts as too early. Store times never fall along a queue.
    """
    if max_offset <= min_offset:
        return max(0, min_offset)

    def is_at_or_after(offset: int) -> bool:
        time = store_time(offset)
        return time is not None and time >= time_ms

    def is_after(offset: int) -> bool:
        time = store_time(offset)
        return time is not None and time > time_ms

    if boundary is Boundary.LOWER:
        return first_index(min_offset, max_offset, is_at_or_after)
    return max(min_offset, first_index(min_offset, max_offset, is_after) - 1)
