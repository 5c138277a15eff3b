"""Waiting messages of the wheel file, by time to delivery.

The worker `timer` writes the file (native/src/timer/timer_files.h).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ringmq.native import lib
from ringmq.store.layout import TIMER_WHEEL_FILE

BOUNDS_S = (5, 60, 300, 900, 3600, 14_400, 28_800, 86_400)
"""Times to delivery, as of stock (TimerMetrics.timerDist)."""
_SLOT = np.dtype([("time", ">i8"), ("first", ">i8"), ("last", ">i8"), ("count", ">i4"), ("reserved", ">i4")])
assert _SLOT.itemsize == lib.RMQ_TIMER_SLOT_BYTES


class WheelView(Struct, frozen=True):
    """Messages of the slots that are not closed, less deletes. All but `messages` are about those from now on."""

    messages: int = 0
    by_bound: tuple[int, ...] = (0,) * len(BOUNDS_S)
    """For each of BOUNDS_S: messages up to it, and behind the bound before it."""
    beyond: int = 0
    """Messages behind the last bound."""
    full_slots: int = 0
    """Slots with more than timerCongestNumEachSlot messages. Sends for them are refused."""
    fullest_messages: int = 0
    fullest_in_ms: int = 0
    """Time until the slot with most messages."""


def read_wheel(
    root: Path, now_ms: int, precision_ms: int, window_slots: int, full_from: int, open_ms: int = 0
) -> WheelView:
    """Read a day of slots, or the window if it is longer: 32 bytes a slot. Without a file nothing waits.

    `open_ms`: time of the slot that is being delivered, 0 if none is.
    """
    first = now_ms // precision_ms
    count = min(lib.RMQ_TIMER_SLOTS, max(BOUNDS_S[-1] * 1000 // precision_ms, window_slots + 2))
    overdue = min(first - open_ms // precision_ms, lib.RMQ_TIMER_SLOTS - count) if 0 < open_ms < now_ms else 0
    waiting = _messages(root, first - overdue, overdue + count)
    messages = waiting[overdue:]
    if not len(messages):
        return WheelView()
    ends = np.minimum(count, np.array(BOUNDS_S) * 1000 // precision_ms)
    upto = np.concatenate([[0], np.cumsum(messages)])[ends]
    fullest = int(np.argmax(messages))
    return WheelView(
        int(waiting.sum()),
        tuple(np.diff(upto, prepend=0).tolist()),
        int(messages.sum() - upto[-1]),
        int(np.count_nonzero(messages > full_from)),
        int(messages[fullest]),
        max(0, (first + fullest) * precision_ms - now_ms) if messages[fullest] else 0,
    )


def _messages(root: Path, first: int, count: int) -> NDArray[np.int64]:
    """The messages of each slot, less deletes. A delete without a message takes one off all the same."""
    slots = _slots(root, first, count)
    is_of_round = slots["time"] == first + np.arange(len(slots))
    return np.where(is_of_round, np.maximum(0, slots["count"].astype(np.int64)), 0)


def _slots(root: Path, first: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """The slots of `count` steps, in the order of their times. Empty without a readable file of full size."""
    begin = first % lib.RMQ_TIMER_SLOTS
    ahead = min(count, lib.RMQ_TIMER_SLOTS - begin)
    with contextlib.suppress(OSError), contextlib.ExitStack() as opened:
        descriptor = os.open(root / TIMER_WHEEL_FILE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        opened.callback(os.close, descriptor)
        pieces: Sequence[tuple[int, int]] = ((begin, ahead), (0, count - ahead))
        size = lib.RMQ_TIMER_SLOT_BYTES
        data = b"".join(os.pread(descriptor, slots * size, at * size) for at, slots in pieces)
        if len(data) == count * size:
            return np.frombuffer(data, _SLOT)
    return np.zeros(0, _SLOT)
