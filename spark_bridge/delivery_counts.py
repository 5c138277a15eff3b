"""The number of times that messages in topics of retries were given before, from their records in the log.

A record of such a topic is a copy, and its field reconsumeTimes counts the deliveries before it. Units and records are
read by numpy, many at a time.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringmq.spark_bridge.errors import DataLossError
from ringmq.spark_bridge.log_segments import Window, WindowCursor
from ringmq.spark_bridge.queue_units import UNIT_BYTES, QueueUnits
from ringmq.store import layout

UNITS_MAX = 4096
"""Units that are read together."""
UNKNOWN = -1
Numbers = NDArray[np.int64]
_UNIT = np.dtype({"names": ["position", "size"], "formats": [">i8", ">i4"], "offsets": [0, 8], "itemsize": UNIT_BYTES})
_QUEUE_OFFSET_AT, _POSITION_AT, _SYS_FLAG_AT = 20, 28, 36
_COUNT_AT = 72
"""Behind two hosts of IPv4. Each host of IPv6 takes _V6_BYTES more."""
_V6_BYTES = 12
_HEAD_BYTES = _COUNT_AT + 2 * _V6_BYTES + 4


def deliveries_before(queue: QueueUnits, windows: WindowCursor, offsets: Numbers) -> Numbers:
    """Return the reconsumeTimes of each of these messages of a queue, UNKNOWN for one whose record is gone.

    Raises `ReadError` for a file of the log that cannot be read.
    """
    wanted, places = np.unique(offsets, return_inverse=True)
    counts, positions = np.full(len(wanted), UNKNOWN, np.int64), _positions(queue, wanted)
    rows = np.flatnonzero(positions >= 0)
    rows = rows[np.argsort(positions[rows], kind="stable")]
    positions, at = positions[rows], 0
    while at < len(rows):
        try:
            window = windows.at(int(positions[at]), _HEAD_BYTES)
        except DataLossError:  # retention has taken the file
            start = windows.segments.next_start(int(positions[at]))
            at = len(rows) if start is None else max(at + 1, int(np.searchsorted(positions, start)))
            continue
        end = int(np.searchsorted(positions, window.end - _HEAD_BYTES, side="right"))
        part = rows[at:end]
        counts[part] = _counts_in(window, positions[at:end], wanted[part])
        at = end
    return counts[places]


def _positions(queue: QueueUnits, wanted: Numbers) -> Numbers:
    """The log offsets of the records of ascending queue offsets, UNKNOWN for one without a record."""
    positions, at = np.full(len(wanted), UNKNOWN, np.int64), 0
    while at < len(wanted):
        first = int(wanted[at])
        units: NDArray[Any] = np.frombuffer(queue.read(first, first + UNITS_MAX), _UNIT)
        behind = first + len(units) if len(units) else queue.next_offset(first)
        end = len(wanted) if behind is None else int(np.searchsorted(wanted, behind))
        if len(units):
            found = units[wanted[at:end] - first]
            positions[at:end] = np.where(found["size"] > _HEAD_BYTES, found["position"], UNKNOWN)
        at = end
    return positions


def _counts_in(window: Window, positions: Numbers, offsets: Numbers) -> Numbers:
    """The counts of records of a window, UNKNOWN where another record lies."""
    data, at = np.frombuffer(window.data, np.uint8), positions - window.start
    flags = _numbers(data, at + _SYS_FLAG_AT, ">u4")
    hosts = ((flags & layout.BORN_HOST_V6) != 0).astype(np.int64) + ((flags & layout.STORE_HOST_V6) != 0)
    counts = _numbers(data, at + _COUNT_AT + _V6_BYTES * hosts, ">i4")
    is_same = _numbers(data, at + _QUEUE_OFFSET_AT, ">i8") == offsets
    is_same &= _numbers(data, at + _POSITION_AT, ">i8") == positions
    return np.where(is_same, counts, UNKNOWN)


def _numbers(data: NDArray[np.uint8], at: Numbers, kind: str) -> Numbers:
    """The numbers of a type that begin at these bytes."""
    size = np.dtype(kind).itemsize
    found: Numbers = data[at[:, None] + np.arange(size)].view(kind)[:, 0].astype(np.int64)
    return found
