"""The slot in which a message waits, and the millisecond of its delivery. Rules of TimerMessageStore.doEnqueue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ringmq.remoting import properties
from ringmq.store.record_numbers import decimal
from ringmq.timer.timer_log import Magic

TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
WINDOW_SLOTS, WINDOW_SLOTS_MIN, WINDOW_SLOTS_MAX = 172_800, 2, 604_740


@dataclass(frozen=True, slots=True)
class Placement:
    """The fields of a unit that say where it belongs."""

    slot_ms: int
    enqueue_ms: int
    magic: Magic

    @property
    def delay_ms(self) -> int:
        """Return the time from the write to the slot. Negative for a message that is late."""
        return self.slot_ms - self.enqueue_ms


def place(
    out_ms: int, *, write_ms: int, open_ms: int, is_delete: bool, window_slots: int, precision_ms: int
) -> Placement:
    """Place a message whose TIMER_OUT_MS is `out_ms`.

    `write_ms` is the time of the wheel, `open_ms` that of the slot that is delivered now. An earlier slot is closed, so
    a late message goes into the open one. A message beyond the window is rolled: its slot lies a window ahead, or half
    of one if less than a third of a window would be left.
    """
    slot_ms, magic = max(out_ms - out_ms % precision_ms, open_ms), Magic.DEFAULT
    window_ms = window_slots * precision_ms
    from_ms = max(write_ms, open_ms)  # the open slot lies ahead of a clock that was set back
    beyond_ms = slot_ms - from_ms - window_ms
    if beyond_ms >= 0:
        magic |= Magic.ROLL
        slots = window_slots // 2 if beyond_ms < window_slots // 3 * precision_ms else window_slots
        slot_ms = from_ms + slots * precision_ms
    if is_delete:
        magic |= Magic.DELETE
    return Placement(slot_ms, write_ms, magic)


def exact_ms(pairs: Mapping[str, str], store_ms: int, out_ms: int, precision_ms: int) -> int:
    """Return the millisecond of a message's delivery, in (out_ms, out_ms + precision_ms].

    The first of TIMER_DELAY_SEC, TIMER_DELAY_MS and TIMER_DELIVER_MS has won at the send. A delay counts from the store
    time of its first record. A rolled message has another store time, so it goes out at the end of its slot.
    """
    end_ms = out_ms + precision_ms
    if TIMER_ROLL_TIMES in pairs:
        return end_ms
    for name, unit_ms in ((properties.TIMER_DELAY_SEC, 1000), (properties.TIMER_DELAY_MS, 1)):
        if (delay := decimal(pairs.get(name, ""))) is not None:
            return _within(store_ms + delay * unit_ms, out_ms, end_ms)
    deliver_ms = decimal(pairs.get(properties.TIMER_DELIVER_MS, ""))
    return end_ms if deliver_ms is None else _within(deliver_ms, out_ms, end_ms)


def _within(time_ms: int, out_ms: int, end_ms: int) -> int:
    return min(max(time_ms, out_ms + 1), end_ms)
