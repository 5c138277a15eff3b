"""The states of an entry as data: native/src/pop/pop_entries.c and pop_revivals.c in Python. Tests compare both.

`core` of an action is `WindowTwin`. Bits are those of the entry: bit i is the message at base_offset + i.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from enum import Enum
from typing import Any

from msgspec import Struct

from ringmq.ipc.transitions import Cell, ignored, impossible, transitions
from ringmq.native import lib


class State(Enum):
    """The state of an entry."""

    FREE = "the slot is not used"
    OPEN = "a consumer has the messages"
    REVIVING = "their time is over: copies are under way, not yet flushed, or failed"
    REVIVED = "no message is open, and copies wait in the retry topic"
    RETURNED = "no consumer has received them: the next pop begins with them"
    MOVING = "it takes messages over, and an old entry may still have them"


class EntryEvent(Struct, frozen=True):
    """An event of one entry."""

    entry: int


class Published(EntryEvent, frozen=True):
    """A pop gives these messages."""

    place: int
    give: Any
    base: int
    present: int
    moves: bool


class Moved(EntryEvent, frozen=True):
    """The old entries have given the messages up."""


class Acknowledged(EntryEvent, frozen=True):
    """These messages are done, by a consumer or in a newer entry."""

    bits: int


class Unsent(EntryEvent, frozen=True):
    """The answer with the messages was not sent."""


class LeftBehind(EntryEvent, frozen=True):
    """An orderly pop goes on behind the messages."""


class CameDue(EntryEvent, frozen=True):
    """The invisible time is over, or the time until failed copies are tried again."""


class CopyStored(EntryEvent, frozen=True):
    """A message has a copy up to `end` of the log."""

    bits: int
    end: int


class CopyFailed(EntryEvent, frozen=True):
    """A copy could not be stored. It is tried again at `mono_ms`. `is_counted`: as an attempt."""

    bits: int
    mono_ms: int
    is_counted: bool


class CopyGone(EntryEvent, frozen=True):
    """A message has no record any more."""

    bits: int


class LogFlushed(EntryEvent, frozen=True):
    """The log is flushed behind these copies."""

    bits: int


class CopySeen(EntryEvent, frozen=True):
    """A pop has passed the copy."""

    bits: int


class QueueCut(EntryEvent, frozen=True):
    """The queue ends before these messages."""

    bits: int


class GivesWay(EntryEvent, frozen=True):
    """Room is needed, or ten minutes are over."""


class WindowEnded(EntryEvent, frozen=True):
    """The window is dropped."""


class Started(EntryEvent, frozen=True):
    """A worker has found the entry in the memory. `unanswered`: it lies at or above next_offset. `old`: messages that
    are open in other entries."""

    unanswered: bool
    old: int


EVENTS = (
    Published, Moved, Acknowledged, Unsent, LeftBehind, CameDue, CopyStored, CopyFailed, CopyGone, LogFlushed, CopySeen,
    QueueCut, GivesWay, WindowEnded, Started,
)  # fmt: skip
Effects = Sequence[object]


def _publish(core: Any, event: Published, now_ms: int) -> Effects:
    core.publish(event)
    return ()


def _end_move(core: Any, event: Moved, now_ms: int) -> Effects:
    core.set_state(event.entry, State.OPEN)
    return ()


def _acknowledge(core: Any, event: Acknowledged, now_ms: int) -> Effects:
    entry = core.memory.entry(event.entry)
    bits = event.bits & core.can_be_acked(event.entry)
    late = core.with_copies(event.entry, bits)
    core.memory.store(entry, "acked", entry.acked | bits)
    if late & ~entry.copied:
        core.memory.store(entry, "copied", entry.copied | late)
    core.settle(event.entry)
    return ()


def _return(core: Any, event: Unsent, now_ms: int) -> Effects:
    core.turn(event.entry, State.RETURNED)
    return ()


def _leave(core: Any, event: LeftBehind, now_ms: int) -> Effects:
    core.turn(event.entry, State.REVIVING)
    return ()


def _revive(core: Any, event: CameDue, now_ms: int) -> Effects:
    core.turn(event.entry, State.REVIVING)
    core.give_record(event.entry, core.open_bits(event.entry))
    return ()


def _revive_again(core: Any, event: CameDue, now_ms: int) -> Effects:
    core.give_record(event.entry, core.open_bits(event.entry))
    return ()


def _note_copy(core: Any, event: CopyStored, now_ms: int) -> Effects:
    if event.entry not in core.records:
        due_ms = core.wheel[event.entry][0]
        core.give_record(event.entry, 0).due_ms = due_ms
    record = core.records[event.entry]
    record.flying &= ~event.bits
    record.stored |= event.bits
    bisect.insort(core.stored, (event.entry, record, event.bits, event.end), key=lambda stored: stored[3])
    return ()


def _note_older_copy(core: Any, event: CopyStored, now_ms: int) -> Effects:
    due_ms = core.wheel[event.entry][0] if event.entry in core.wheel else now_ms
    core.turn(event.entry, State.REVIVING)
    core.give_record(event.entry, 0).due_ms = due_ms
    return _note_copy(core, event, now_ms)


def _fail(core: Any, event: CopyFailed, now_ms: int) -> Effects:
    entry, record = core.memory.entry(event.entry), core.records[event.entry]
    record.flying &= ~event.bits
    record.due_ms = max(record.due_ms, event.mono_ms)
    if event.is_counted and not record.has_failed:
        record.has_failed = True
        more = (entry.attempts & lib.RMQ_POP_ATTEMPTS_MAX) < lib.RMQ_POP_ATTEMPTS_MAX
        core.memory.store(entry, "attempts", entry.attempts + more)
    if entry.acked & entry.copied & event.bits:
        core.memory.store(entry, "copied", entry.copied & ~event.bits)
    core.leave_record(event.entry)
    return ()


def _give_up(core: Any, event: CopyGone, now_ms: int) -> Effects:
    entry = core.memory.entry(event.entry)
    core.records[event.entry].flying &= ~event.bits
    core.memory.store(entry, "acked", entry.acked | event.bits)
    core.memory.store(entry, "copied", entry.copied & ~event.bits)
    core.leave_record(event.entry)
    return ()


def _flush(core: Any, event: LogFlushed, now_ms: int) -> Effects:
    entry, record = core.memory.entry(event.entry), core.records[event.entry]
    seen = event.bits & record.seen
    record.stored &= ~event.bits
    record.seen &= ~event.bits
    core.memory.store(entry, "acked", entry.acked | seen)
    core.memory.store(entry, "copied", entry.copied | event.bits & ~entry.acked)
    core.leave_record(event.entry)
    return ()


def _pass(core: Any, event: CopySeen, now_ms: int) -> Effects:
    entry, record = core.memory.entry(event.entry), core.records.get(event.entry)
    if record is not None:
        record.seen |= (record.flying | record.stored) & event.bits
    if entry.copied & event.bits:
        core.memory.store(entry, "acked", entry.acked | event.bits)
        core.memory.store(entry, "copied", entry.copied & ~event.bits)
        core.settle(event.entry)
    return ()


def _cut(core: Any, event: QueueCut, now_ms: int) -> Effects:
    entry, record = core.memory.entry(event.entry), core.records.get(event.entry)
    core.memory.store(entry, "acked", entry.acked | event.bits)
    core.memory.store(entry, "copied", entry.copied & ~event.bits)
    if record is None:
        core.settle(event.entry)
    else:
        record.flying &= ~event.bits
        record.stored &= ~event.bits
        core.leave_record(event.entry)
    return ()


def _free(core: Any, event: EntryEvent, now_ms: int) -> Effects:
    core.free(event.entry)
    return ()


def _start(core: Any, event: Started, now_ms: int) -> Effects:
    entry = core.memory.entry(event.entry)
    if not core.open_bits(event.entry):
        core.set_state(event.entry, State.REVIVED if entry.copied else State.FREE)
    elif event.unanswered and core.state_of(event.entry) is State.OPEN:
        core.set_state(event.entry, State.RETURNED)
    return ()


def _start_move(core: Any, event: Started, now_ms: int) -> Effects:
    entry = core.memory.entry(event.entry)
    open_before = core.open_bits(event.entry)
    core.memory.store(entry, "acked", entry.acked | event.old)
    if open_before & ~event.old:
        core.set_state(event.entry, State.OPEN)
    core.settle(event.entry)
    return ()


_S = State
USED = (_S.OPEN, _S.REVIVING, _S.REVIVED, _S.RETURNED, _S.MOVING)
_NO_SLOT = impossible("no look-up finds a free slot")
_ONE_CALL = impossible("no other event comes between the stores of one call")
_NO_COPY = impossible("copies are under way for REVIVING entries alone")
TRANSITIONS = transitions(
    (Published, _S.FREE, Cell(_publish, "store the fields, then the state", (_S.OPEN, _S.MOVING))),
    (Published, USED, impossible("the slot is in use")),
    (Moved, _S.MOVING, Cell(_end_move, "store the state", (_S.OPEN,))),
    (Moved, (_S.OPEN, _S.REVIVING, _S.REVIVED, _S.RETURNED), impossible("no message moves to it")),
    (
        Acknowledged,
        (_S.OPEN, _S.RETURNED),
        Cell(_acknowledge, "store the bits. Without open messages it is free", (_S.FREE,)),
    ),
    (
        Acknowledged,
        _S.REVIVING,
        Cell(_acknowledge, "store the bits, and that copies of them are withdrawn", (_S.FREE, _S.REVIVED)),
    ),
    (Acknowledged, _S.REVIVED, Cell(_acknowledge, "store the bits: the copies are withdrawn")),
    (Acknowledged, _S.MOVING, _ONE_CALL),
    (Unsent, _S.OPEN, Cell(_return, "the next pop of the queue begins with the messages", (_S.RETURNED,))),
    (Unsent, _S.RETURNED, ignored("it was said before")),
    (Unsent, (_S.REVIVING, _S.REVIVED), ignored("the time was over before, and consumers get the copies")),
    (Unsent, _S.MOVING, _ONE_CALL),
    (LeftBehind, _S.RETURNED, Cell(_leave, "the messages are due now", (_S.REVIVING,))),
    (LeftBehind, (_S.OPEN, _S.REVIVING, _S.REVIVED, _S.MOVING), impossible("its messages are not returned")),
    (CameDue, _S.OPEN, Cell(_revive, "copy the open messages", (_S.REVIVING,))),
    (CameDue, _S.REVIVING, Cell(_revive_again, "copy those that have failed")),
    (CameDue, (_S.REVIVED, _S.RETURNED), impossible("it is not in the wheel")),
    (CameDue, _S.MOVING, _ONE_CALL),
    (CopyStored, _S.REVIVING, Cell(_note_copy, "the message waits for the flush of its copy")),
    (
        CopyStored,
        (_S.OPEN, _S.RETURNED),
        Cell(
            _note_older_copy,
            "after a power cut the log is newer. The others keep their time",
            (_S.REVIVING,),
        ),
    ),
    (CopyStored, _S.REVIVED, ignored("the copy is known")),
    (CopyStored, _S.MOVING, _ONE_CALL),
    (
        CopyFailed,
        _S.REVIVING,
        Cell(_fail, "may count an attempt. It is due again when its other copies are flushed", (_S.FREE, _S.REVIVED)),
    ),
    (CopyFailed, (_S.OPEN, _S.REVIVED, _S.RETURNED, _S.MOVING), _NO_COPY),
    (CopyGone, _S.REVIVING, Cell(_give_up, "the message is done", (_S.FREE, _S.REVIVED))),
    (CopyGone, (_S.OPEN, _S.REVIVED, _S.RETURNED, _S.MOVING), _NO_COPY),
    (
        LogFlushed,
        _S.REVIVING,
        Cell(_flush, "store which messages have copies; those that a pop has passed are done", (_S.FREE, _S.REVIVED)),
    ),
    (LogFlushed, (_S.OPEN, _S.REVIVED, _S.RETURNED, _S.MOVING), _NO_COPY),
    (CopySeen, _S.REVIVING, Cell(_pass, "a flushed copy is done, another one at its flush")),
    (CopySeen, _S.REVIVED, Cell(_pass, "the message is done. Without waiting copies it is free", (_S.FREE,))),
    (CopySeen, (_S.OPEN, _S.RETURNED, _S.MOVING), _NO_COPY),
    (
        QueueCut,
        (_S.OPEN, _S.REVIVED, _S.RETURNED),
        Cell(_cut, "the messages are done. Without others it is free", (_S.FREE,)),
    ),
    (QueueCut, _S.REVIVING, Cell(_cut, "the messages are done", (_S.FREE, _S.REVIVED))),
    (QueueCut, _S.MOVING, _ONE_CALL),
    (GivesWay, _S.REVIVED, Cell(_free, "the copies stay, and no acknowledgement withdraws them", (_S.FREE,))),
    (GivesWay, (_S.OPEN, _S.REVIVING, _S.RETURNED, _S.MOVING), impossible("it has open messages")),
    (WindowEnded, (_S.OPEN, _S.REVIVING, _S.REVIVED, _S.RETURNED), Cell(_free, "store the state", (_S.FREE,))),
    (WindowEnded, _S.MOVING, _ONE_CALL),
    (
        Started,
        _S.OPEN,
        Cell(_start, "without open messages it is free; unanswered messages are returned", (_S.FREE, _S.RETURNED)),
    ),
    (Started, _S.REVIVING, Cell(_start, "without open messages only copies are left", (_S.FREE, _S.REVIVED))),
    (Started, (_S.RETURNED, _S.REVIVED), Cell(_start, "without messages and copies it is free", (_S.FREE,))),
    (
        Started,
        _S.MOVING,
        Cell(_start_move, "messages that are open in an old entry stay there, the others here", (_S.FREE, _S.OPEN)),
    ),
    *((event, _S.FREE, _NO_SLOT) for event in EVENTS if event is not Published),
)
"""Each pair of a state and an event of an entry."""
