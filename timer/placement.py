"""The slot in which a message waits, and the millisecond of its delivery. Rules of TimerMessageStore.doEnqueue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from ringmq.remoting import properties
from ringmq.store.record_numbers import decimal
from ringmq.timer.timer_log import Magic
from ringmq.timer.timer_wheel import PRECISIONS_MS

TIMER_OUT_MS = properties.TIMER_OUT_MS
TIMER_ROLL_TIMES = properties.TIMER_ROLL_TIMES
TIMER_DEL_UNIQKEY = properties.TIMER_DEL_UNIQKEY
STEPS_MS = PRECISIONS_MS[::-1]
WINDOW_SLOTS, WINDOW_SLOTS_MIN, WINDOW_SLOTS_MAX = 172_800, 2, 604_740


class Placement(Struct, frozen=True):
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
    """Place a message that is due in the step behind `out_ms`.

    A message beyond the window from `write_ms` on is rolled: its slot lies a window ahead, or half of one if less than
    a third of a window would be left. `open_ms` is the time of the slot that is delivered now. An earlier slot is
    closed, so a late message goes into the open one.

    `write_ms` is the store time of the record, on a step of the precision. So a slave finds the slot of its master. In
    the wheel of a stock broker it is the time of the write.
    """
    slot_ms, magic = out_ms - out_ms % precision_ms, Magic.DEFAULT
    beyond_ms = slot_ms - write_ms - window_slots * precision_ms
    if beyond_ms >= 0 and slot_ms > open_ms:
        magic |= Magic.ROLL
        slots = window_slots // 2 if beyond_ms < window_slots // 3 * precision_ms else window_slots
        slot_ms = write_ms + slots * precision_ms
    slot_ms = max(slot_ms, open_ms)
    if is_delete:
        magic |= Magic.DELETE
    return Placement(slot_ms, write_ms, magic)


class Target(Struct, frozen=True):
    """A message that a delete may name."""

    slot_ms: int
    magic: Magic
    is_named: bool
    """True if the delete names its topic and key, False if only the hashes are equal."""


def place_delete(own: Placement, targets: Iterable[Target], *, open_ms: int, open_end_ms: int) -> Placement:
    """Place a delete that `place` would place at `own`. `targets` are in the order of their records, the newest first.

    A delete works in the slot of its target alone, for a stock broker as well. A target in the delete's own slot comes
    first, as for stock, then the newest one. A target of the open slot that is rolled may be on its way into the timer
    topic, so the delete is rolled behind that slot, where it finds the target's next record.
    """
    named = [
        target for target in targets
        if target.is_named and target.slot_ms >= open_ms and Magic.DELETE not in target.magic
    ]  # fmt: skip
    if not named or (Magic.ROLL not in own.magic and any(target.slot_ms == own.slot_ms for target in named)):
        return own
    target, magic = named[0], Magic.DEFAULT | Magic.DELETE
    if target.slot_ms < open_end_ms and Magic.ROLL in target.magic:
        return Placement(open_end_ms, own.enqueue_ms, magic | Magic.ROLL)
    return Placement(target.slot_ms, own.enqueue_ms, magic)


def step_of(out_ms: int, coarsest_ms: int) -> int:
    """Return the largest step of precision up to `coarsest_ms` that a message may have been admitted by."""
    return next((step for step in STEPS_MS if step <= coarsest_ms and out_ms % step == 0), coarsest_ms)


def exact_ms(pairs: Mapping[str, str], store_ms: int, out_ms: int, coarsest_ms: int) -> int:
    """Return the millisecond of a message's delivery, in (out_ms, out_ms + step_of(out_ms, coarsest_ms)].

    `coarsest_ms` is the largest precision that any waiting message was admitted by: the present one may be finer.

    The first of TIMER_DELAY_SEC, TIMER_DELAY_MS and TIMER_DELIVER_MS has won at the send. A delay counts from the store
    time of its first record. A rolled message has another store time, so it goes out at the end of its step.
    """
    end_ms = out_ms + step_of(out_ms, coarsest_ms)
    for name, unit_ms in ((properties.TIMER_DELAY_SEC, 1000), (properties.TIMER_DELAY_MS, 1)):
        if (delay := decimal(pairs.get(name, ""))) is not None:
            return end_ms if TIMER_ROLL_TIMES in pairs else _within(store_ms + delay * unit_ms, out_ms, end_ms)
    deliver_ms = decimal(pairs.get(properties.TIMER_DELIVER_MS, ""))
    return end_ms if deliver_ms is None else _within(deliver_ms, out_ms, end_ms)


def _within(time_ms: int, out_ms: int, end_ms: int) -> int:
    return min(max(time_ms, out_ms + 1), end_ms)
