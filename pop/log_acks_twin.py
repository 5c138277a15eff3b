"""Records of acknowledgements in Python: the same rule as `native/src/pop/pop_log_batch.c`. Tests run both."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from ringmq.pop.revive_records import Acks, CheckPoint, Pop


class LogEntry(NamedTuple):
    """An entry whose messages have a check point in the log. `offsets`: those that are open."""

    pop: Pop
    invisible_ms: int
    revive_queue: int
    offsets: Collection[int]


class Ack(NamedTuple):
    """An acknowledgement: what it names of a pop."""

    pop: Pop
    offsets: Collection[int]


class Change(NamedTuple):
    """A change of one message's time. `given`: the pop of its new receipt."""

    pop: Pop
    offset: int
    given: Pop
    invisible_ms: int
    revive_queue: int


class Written(NamedTuple):
    """A record, its revive queue, and the time at which its messages are due."""

    record: CheckPoint | Acks
    revive_queue: int
    due_ms: int
    is_tied: bool = False
    """Stored with the next one, or not at all."""


def batch(acts: Sequence[Ack | Change], entries: Sequence[LogEntry]) -> list[Written]:
    """The records of these acts, in their order. Acknowledgements of one entry share the first one's record."""
    written: list[Written] = []
    shared: dict[int, int] = {}
    for act in acts:
        offsets = act.offsets if isinstance(act, Ack) else [act.offset]
        for number, entry in enumerate(entries):
            done = sorted(set(offsets) & set(entry.offsets)) if entry.pop == act.pop else []
            if not done:
                continue
            due_ms = entry.pop.pop_time_ms + entry.invisible_ms
            ack = Written(Acks(entry.pop, tuple(done)), entry.revive_queue, due_ms)
            if isinstance(act, Change):
                point = CheckPoint(act.given, act.invisible_ms, (0,))
                written += [Written(point, act.revive_queue, point.due_ms, is_tied=True), ack]
            elif number in shared:
                before = written[shared[number]]
                both = {*before.record.offsets, *done} if isinstance(before.record, Acks) else set(done)
                written[shared[number]] = before._replace(record=Acks(entry.pop, tuple(sorted(both))))
            else:
                shared[number] = len(written)
                written.append(ack)
    return written
