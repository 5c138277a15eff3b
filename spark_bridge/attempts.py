"""The number of times that consumers were given an open message: once, and in a topic of retries once more than its
record says."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import numpy as np

from ringmq.client.topics import is_retry_topic
from ringmq.spark_bridge.delivery_counts import deliveries_before
from ringmq.spark_bridge.log_segments import LogSegments, WindowCursor
from ringmq.spark_bridge.open_structs import UNKNOWN, Numbers, OpenRows
from ringmq.spark_bridge.queue_units import QueueUnits, open_queue
from ringmq.spark_bridge.slices import QueueKey, StoreLocation

WINDOW_BYTES = 16 << 20


class WindowName(Protocol):
    """The queue of a window."""

    topic: str
    queue_id: int


class Attempts:
    """Looks into the log, which retention leaves alone meanwhile. `windows`: names by id."""

    def __init__(self, place: StoreLocation, windows: Mapping[int, WindowName]) -> None:
        """Raises `DataLossError` and `ReadError`."""
        self._root, self._names = Path(place.root), windows
        self._retries = np.array([number for number, name in windows.items() if is_retry_topic(name.topic)], np.int64)
        self._log = LogSegments(place)
        self._windows = WindowCursor(self._log, WINDOW_BYTES)

    def told(self, rows: OpenRows) -> OpenRows:
        """The rows with all attempts, UNKNOWN for a message whose record is gone. Raises `ReadError`."""
        attempts, is_asked = rows.attempts.copy(), rows.attempts == UNKNOWN
        is_retry = is_asked & np.isin(rows.windows, self._retries)
        attempts[is_asked & ~is_retry] = 1
        for number in np.unique(rows.windows[is_retry]).tolist():
            of_window = is_retry & (rows.windows == number)
            attempts[of_window] = self._of_copies(self._names[number], rows.offsets[of_window])
        return rows._replace(attempts=attempts)

    def _of_copies(self, window: WindowName, offsets: Numbers) -> Numbers:
        queue = open_queue(str(self._root), QueueKey(window.topic, "", window.queue_id))
        if not isinstance(queue, QueueUnits):
            return np.full(len(offsets), UNKNOWN, np.int64)
        before = deliveries_before(queue, self._windows, offsets)
        return np.where(before < 0, UNKNOWN, before + 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._windows.close()
        self._log.close()
