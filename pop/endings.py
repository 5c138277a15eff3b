"""Acknowledgements for check points of before that a RocketMQ broker would still read. No IO."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from ringmq.pop.check_points import Ending
from ringmq.pop.open_pops import OpenPops
from ringmq.pop.record_notice import LATE_MS
from ringmq.pop.revive_records import EARLIER_MS, Acks
from ringmq.pop.window_names import Key, Window


class Points(Protocol):
    """The check points of this stop (`ringmq.pop.check_points.CheckPoints`)."""

    def known(self, place: int, start_offset: int, pop_time_ms: int) -> Collection[int]: ...
    def open(self, place: int, start_offset: int, pop_time_ms: int) -> Collection[int]: ...
    def is_open(self, place: int, offset: int) -> bool: ...


def endings_of(
    points: Points, windows: Mapping[Key, Window], following: Callable[[Key], int], found: OpenPops, now_ms: int
) -> list[Ending]:
    """Compare the records in the timer with the windows. `following`: the offset at which a group goes on.

    Messages from there on are not done, whatever the windows have: the group was set back, or the records were left
    out at a start. A start behind a death would pass them over if an acknowledgement named them.

    A message that another pop has open is not done. The log may have ended the check point of that pop, for a change of
    the invisible time that the windows do not know: then no check point would be left. Else another broker gives the
    message twice.

    A pop whose check point stays in the timer gets no second one. One that leaves it about now may be handled with the
    revive queue by this stop, so the pop gets another one: a RocketMQ broker takes both for one.
    """
    endings = []
    for one in found.all():
        pop, due_ms = one.pop, one.pop.pop_time_ms + one.invisible_ms
        key = Key(pop.group, pop.topic, pop.queue_id)
        window, end = windows.get(key), following(key)
        done = {offset for offset in one.offsets if offset < end}
        if window is not None:
            opened = points.known if due_ms - EARLIER_MS > now_ms + LATE_MS else points.open
            done -= set(opened(window.place, pop.start_offset, pop.pop_time_ms))
            done = {offset for offset in done if not points.is_open(window.place, offset)}
        if done:
            endings.append(Ending(Acks(pop, tuple(sorted(done))), one.revive_queue, due_ms))
    return endings
