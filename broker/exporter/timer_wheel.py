"""Waiting messages of the wheel file, by time to delivery. The worker `timer` writes it (native/src/timer_files.h)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ringmq.native import lib
from ringmq.store.layout import TIMER_WHEEL_FILE

BOUNDS_S = (5, 60, 300, 900, 3600, 14_400, 28_800, 86_400)
"""Times to delivery, as of stock (TimerMetrics.timerDist)."""
_SLOT = np.dtype([("time", ">i8"), ("first", ">i8"), ("last", ">i8"), ("count", ">i4"), ("reserved", ">i4")])
assert _SLOT.itemsize == lib.RMQ_TIMER_SLOT_BYTES


@dataclass(frozen=True, slots=True)
class WheelView:
    """Messages of the slots from now on, less deletes."""

    by_bound: tuple[int, ...] = (0,) * len(BOUNDS_S)
    """For each of BOUNDS_S: messages up to it, and behind the bound before it."""
    full_slots: int = 0
    """Slots with more than timerCongestNumEachSlot messages. Sends for them are refused."""
    fullest_messages: int = 0
    fullest_in_ms: int = 0
    """Time until the slot with most messages."""


def read_wheel(root: Path, now_ms: int, precision_ms: int, window_slots: int, full_from: int) -> WheelView:
    """Read a day of slots, or the window if it is longer: 32 bytes a slot. Without a file nothing waits."""
    first = now_ms // precision_ms
    count = min(lib.RMQ_TIMER_SLOTS, max(BOUNDS_S[-1] * 1000 // precision_ms, window_slots + 2))
    slots = _slots(root, first, count)
    if not len(slots):
        return WheelView()
    is_of_round = slots["time"] == first + np.arange(count)
    messages = np.where(is_of_round, np.maximum(0, slots["count"].astype(np.int64)), 0)
    ends = np.minimum(count, np.array(BOUNDS_S) * 1000 // precision_ms)
    upto = np.concatenate([[0], np.cumsum(messages)])[ends]
    fullest = int(np.argmax(messages))
    return WheelView(
        tuple(np.diff(upto, prepend=0).tolist()),
        int(np.count_nonzero(messages > full_from)),
        int(messages[fullest]),
        max(0, (first + fullest) * precision_ms - now_ms) if messages[fullest] else 0,
    )


def _slots(root: Path, first: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """The slots of `count` steps, in the order of their times. Empty without a readable file of full size."""
    begin = first % lib.RMQ_TIMER_SLOTS
    ahead = min(count, lib.RMQ_TIMER_SLOTS - begin)
    with contextlib.suppress(OSError), (root / TIMER_WHEEL_FILE).open("rb") as file:
        pieces: Sequence[tuple[int, int]] = ((begin, ahead), (0, count - ahead))
        size = lib.RMQ_TIMER_SLOT_BYTES
        data = b"".join(os.pread(file.fileno(), slots * size, at * size) for at, slots in pieces)
        if len(data) == count * size:
            return np.frombuffer(data, _SLOT)
    return np.zeros(0, _SLOT)
