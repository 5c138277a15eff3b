"""Reads what waits in the timer files of a store, without a change. The rules are those of stock's recovery.

The wheel and the checkpoint on disk may be older than the log: a process that was killed leaves units behind them, and
so does a clean stop of stock. So the log is read from one file before the checkpoint's position on, and each unit
becomes the last one of its slot (TimerMessageStore.recoverAndRevise).

A unit may be written in part. Stock sees that by its size and magic alone. Here the last units also have to name a
record of the timer topic in the CommitLog.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ringmq.remoting.properties import REAL_TOPIC
from ringmq.remoting.subscription import java_string_hash
from ringmq.store.layout import TIMER_TOPIC
from ringmq.store.mapped_file import StoreLoadError
from ringmq.store.message_store import MessageStore
from ringmq.timer import timer_log
from ringmq.timer.timer_checkpoint import TimerCheckpoint, read_timer_checkpoint
from ringmq.timer.timer_log import TimerLog, TimerUnit
from ringmq.timer.timer_wheel import SLOTS, Slot, TimerWheel

HALF_ROUND_SLOTS = 7 * 86_400
READ_AGAIN_MS = 60_000
"""A time of reading from before the wheel's half round is moved up to its begin, and one minute."""


IsWhole = Callable[[TimerUnit], bool]


def names_its_record(store: MessageStore) -> IsWhole:
    """Return a check of units: True if the CommitLog holds the timer record that the unit names, whole."""

    def check(unit: TimerUnit) -> bool:
        record = store.commit_log.record_at(unit.commit_log_offset, store.commit_log.files.end_offset, unit.size)
        if record is None or record.topic != TIMER_TOPIC:
            return False
        return java_string_hash(record.properties.get(REAL_TOPIC, "")) == unit.topic_hash

    return check


class TimerState(Struct, frozen=True):
    """Wheel and log as recovery leaves them."""

    checkpoint: TimerCheckpoint
    log_end: int
    """Position behind the last valid unit."""
    revised_from: int
    """Units from this position on have set the slots."""
    from_ms: int
    """Time of the first slot that is not delivered yet."""
    slots: tuple[Slot, ...]
    """Slots that are not delivered yet, in the order of their times. `count` is that of the wheel."""


def read_from_ms(checkpoint: TimerCheckpoint, now_ms: int, precision_ms: int) -> int:
    """Return the time of the first slot to deliver. Half a round of the wheel bounds how far it lies back."""
    oldest_ms = now_ms - HALF_ROUND_SLOTS * precision_ms + READ_AGAIN_MS
    time_ms = max(checkpoint.last_read_ms, oldest_ms)
    return time_ms - time_ms % precision_ms


def wheel_precision(wheel: TimerWheel, log: TimerLog) -> int:
    """Return the precision of the wheel, by the time of the newest unit that a slot names. 0 if no slot has one. The
    twin of rmq_timer_wheel_precision."""
    newest, found = timer_log.NO_UNIT, 0
    for time, _, last, _ in wheel.written():
        unit = log.unit(last) if time > 0 and last > newest else None
        if unit is not None and unit.slot_ms >= time and not unit.slot_ms % time:
            newest, found = last, unit.slot_ms // time
    return found


def survey(
    root: Path,
    now_ms: int,
    is_whole: IsWhole,
    precision_ms: int = 1000,
    file_bytes: int = timer_log.FILE_BYTES,
) -> TimerState:
    """Read wheel, log and checkpoint. A missing file is empty. Raises StoreLoadError for one of an impossible size."""
    checkpoint = read_timer_checkpoint(root) or TimerCheckpoint()
    log = TimerLog(root, file_bytes)
    begin = max(log.min_position, checkpoint.flushed_position - file_bytes)
    begin -= begin % file_bytes
    from_ms = read_from_ms(checkpoint, now_ms, precision_ms)
    slots = {slot.time_ms // precision_ms % SLOTS: slot for slot in _wheel_slots(root, from_ms, precision_ms)}
    end = _end_of_whole_units(log, begin, is_whole)
    for unit in log.units(begin, end):
        index = unit.slot_ms // precision_ms % SLOTS
        slots[index] = _revised(slots.get(index), unit, precision_ms)
    waiting = (slot for slot in slots.values() if slot.time_ms >= from_ms)
    return TimerState(checkpoint, end, begin, from_ms, tuple(sorted(waiting, key=lambda slot: slot.time_ms)))


def _end_of_whole_units(log: TimerLog, begin: int, is_whole: IsWhole) -> int:
    newest = deque(log.units(begin), maxlen=1)
    last = newest[0] if newest else None
    while last is not None and not is_whole(last):
        last = log.unit_before(last.position)
    return begin if last is None else max(begin, last.position + timer_log.UNIT_BYTES)


def _wheel_slots(root: Path, from_ms: int, precision_ms: int) -> list[Slot]:
    try:
        wheel = TimerWheel(root, precision_ms)
    except FileNotFoundError:
        return []
    try:
        return wheel.slots(from_ms)
    finally:
        wheel.close()


def _revised(slot: Slot | None, unit: TimerUnit, precision_ms: int) -> Slot:
    time_ms = unit.slot_ms - unit.slot_ms % precision_ms
    if slot is None or slot.time_ms != time_ms:
        return Slot(time_ms, unit.position, unit.position)
    return replace(slot, last=unit.position)


def waiting_units(log: TimerLog, slot: Slot) -> Iterator[TimerUnit]:
    """Yield the units of a slot, the newest first. Raises StoreLoadError if the chain ends in another slot."""
    for unit in log.chain(slot.last):
        if unit.slot_ms != slot.time_ms:
            raise StoreLoadError(
                f"{timer_log.FOLDER}, position {unit.position}: the unit belongs to {unit.slot_ms} ms, its slot to "
                f"{slot.time_ms} ms"
            )
        yield unit
