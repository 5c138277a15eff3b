"""Counts what waits in TimerLog by real topic, one array operation a file instead of a walk over each slot.

A unit waits if its slot is not delivered yet: every unit of the log is in the chain of its slot.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from msgspec import Struct

from ringmq.remoting.subscription import java_string_hash
from ringmq.timer.survey import TimerState
from ringmq.timer.timer_log import UNIT_BYTES, Magic, TimerLog, units_per_file

_UNITS = np.dtype(
    [
        ("size", ">i4"), ("previous", ">i8"), ("magic", ">i4"), ("enqueue_ms", ">i8"), ("delay_ms", ">i4"),
        ("commit_log_offset", ">i8"), ("record_bytes", ">i4"), ("topic_hash", ">i4"), ("reserved", ">i8"),
    ]
)  # fmt: skip
_Units = np.ndarray[tuple[int], np.dtype[np.void]]
assert _UNITS.itemsize == UNIT_BYTES


class WaitingTopic(Struct):
    """Waiting messages of one real topic. Topics whose hashes are equal are one."""

    topic: str
    """The name, or `hash N` if no topic of the store has this hash."""
    messages: int = 0
    """Units that deliver a message, or roll one."""
    rolls: int = 0
    """Those of them that are rolled at their slot's time, and wait on."""
    deletes: int = 0
    first_slot_ms: int = 1 << 62
    last_slot_ms: int = 0
    """Times of the first and last slot, when messages are delivered or rolled. Stock is one step of precision later."""


def waiting_topics(log: TimerLog, state: TimerState, topics: Iterable[str]) -> list[WaitingTopic]:
    """Return a row for each topic, the one with most messages first."""
    names = {java_string_hash(name): name for name in topics}
    found: dict[int, WaitingTopic] = {}
    for start in log.files.starts:
        units = _waiting_units(log, state, start)
        for topic_hash in np.unique(units["topic_hash"]).tolist():
            row = found.setdefault(topic_hash, WaitingTopic(names.get(topic_hash, f"hash {topic_hash}")))
            _count(row, units[units["topic_hash"] == topic_hash])
    return sorted(found.values(), key=lambda row: (-row.messages, row.topic))


def _waiting_units(log: TimerLog, state: TimerState, start: int) -> _Units:
    count = min(units_per_file(log.files.file_bytes), max(0, state.log_end - start) // UNIT_BYTES)
    data = log.files.read(start, count * UNIT_BYTES)
    units = np.frombuffer(data or b"", _UNITS)
    slots = units["enqueue_ms"].astype(np.int64) + units["delay_ms"]
    waiting: _Units = units[(units["size"] == UNIT_BYTES) & (slots >= state.from_ms)]
    return waiting


def _count(row: WaitingTopic, units: _Units) -> None:
    magic = units["magic"]
    is_delete = (magic & Magic.DELETE) != 0
    slots = units["enqueue_ms"].astype(np.int64) + units["delay_ms"]
    row.messages += int(np.count_nonzero(~is_delete))
    row.rolls += int(np.count_nonzero(~is_delete & ((magic & Magic.ROLL) != 0)))
    row.deletes += int(np.count_nonzero(is_delete))
    row.first_slot_ms = min(row.first_slot_ms, int(slots.min()))
    row.last_slot_ms = max(row.last_slot_ms, int(slots.max()))
