"""The five steps of timer messages, without IO. Names and rules as of stock's TimerMessageStore, where five threads do
them.

| Step | Here |
|---|---|
| TimerEnqueueGet, TimerEnqueuePut | `Enqueue`: records of the timer topic become units of the log, chained to slots |
| TimerDequeueGet | `Walk`: the units of a slot are read, shortly before its time |
| TimerDequeueGetMessage, TimerDequeuePutMessage | `Publish`: what is due goes into the log again, by millisecond |

The core decides when. `Contents` and the loops behind it do what is done for each message
(native/src/timer/timer_steps.h). Three tables hold every pair of a state and an event: `TOPIC` for the first step,
`SLOT` for each slot, `COPIES` for what is in flight. docs/state-machines.md draws them.

A slot of time T holds what is due in (T, T + precision]. It is open from T on, until all of it is stored and the next
slot is due. Messages that arrive for the open slot, or too late for theirs, join it. So every message has a unit, and
the checkpoint's time of reading is that of the open slot: a stock broker that gets the store after a kill delivers at
most this slot again.

After a down time, small overdue slots join the open one, because a copy's way through the log takes longer than the
reading of a few messages. The open slot then holds all messages that are due up to the end of the last joined slot.
Messages that are too late join that slot. No join crosses a full hour, so slots that were joined once can be joined
again.

A message is delivered when units are appended for all records that were answered up to a step of the precision before
its time: a delete that was answered in time works, also behind a down time, and in a worker that was stalled. A rolled
delete has been answered long before its record. So later messages wait until it has a unit. A start does not know which
records are rolled deletes: it waits for all.

The marks of copies tell which messages of the open slot were delivered. A start collects the marks from the log offset
at which the slot was opened. If the checkpoint is older than that slot, the start goes on to the slot all the same,
even if the clock has been set back to before it. Otherwise an earlier slot would be delivered behind a later one, and
the newest copy would not be of the latest slot. Until the start has reached the slot, late messages still join it, and
its due messages are delivered while no slot in between is due.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from msgspec import Struct

from ringmq.ipc.transitions import Cell, Table, ignored, impossible, transitions
from ringmq.timer.rolled_deletes import RolledDeletes
from ringmq.timer.timer_wheel import SLOTS

ENQUEUE_MAX = 4096
IN_FLIGHT_MAX = 8192
JOIN_MS = 3_600_000
"""Overdue slots between two multiples of it become one in memory. It orders messages by the millisecond for 70
minutes."""


class TimerSettings(Struct, frozen=True):
    """Properties that decide. Times in ms."""

    precision_ms: int = 1000
    window_slots: int = 172_800
    stops_enqueue: bool = False
    stops_dequeue: bool = False
    skips_unknown_errors: bool = False
    """A damaged entry of the timer topic's queue is skipped. Else it and those behind it wait."""
    clean_percent: int = 75
    """diskMaxUsedSpaceRatio."""
    flush_interval_ms: int = 1000
    """Time between two checkpoints."""
    coarsest_ms: int = 0
    """The largest precision that any waiting message was admitted by."""


class Contents(Protocol):
    """The wheel, and the messages of slots in memory."""

    def next_used(self, from_ms: int, to_ms: int) -> int | None:
        """Return the time of the first slot with units in [from_ms, to_ms). None without one."""

    def next_ms(self, slot_ms: int) -> int | None:
        """Return the time of the next delivery of a slot in memory.

        None if no message of it waits there, or if those that are left out come first.
        """

    def next_large(self, from_ms: int, now_ms: int) -> int | None:
        """Return the time of the first slot at or behind `from_ms` that has too many units for a walk of one step."""

    def is_left_out(self, slot_ms: int) -> bool:
        """True if messages of a slot in memory wait outside, because it has too many. Another walk finds them."""

    def needs_walk(self, slot_ms: int) -> bool:
        """True if messages are left out, and all that walks have kept are taken. Later arrivals may wait on."""


# -- events --------------------------------------------------------------------------------------------------------


class Tick(Struct, frozen=True):
    """Time has passed. `log_end`: the offset behind the newest record of the log."""

    log_end: int


class Enqueued(Struct, frozen=True):
    """Answer to Enqueue. `next_offset` lies behind the last record, and behind what retention has taken.

    Records that were answered before `read_ms`, and those before `log_offset`, have units. Those that cannot be read do
    not count.
    """

    next_offset: int
    read_ms: int
    log_offset: int


class Walked(Struct, frozen=True):
    """All units that the slot had at its Walk are in memory, or left out. Slots before `end_ms` have joined it."""

    slot_ms: int
    end_ms: int


class Published(Struct, frozen=True):
    """Answer to Publish: copies in flight that it has added. None is due behind a rolled delete among them."""

    count: int
    last_delete: int = 0
    """Number of the last rolled delete, from 1 on. 0 without one."""
    delete_ms: int = 0
    """Its time."""


class Stored(Struct, frozen=True):
    """The oldest `count` copies in flight are in the log, before `log_end`."""

    count: int
    log_end: int


class Refused(Struct, frozen=True):
    """No copy in flight will be in the log. Their messages are back in their slot, `TimerCore.source_ms`."""


Event = Tick | Enqueued | Walked | Published | Stored | Refused


# -- effects -------------------------------------------------------------------------------------------------------


class Enqueue(Struct, frozen=True):
    """Append units for the records of the timer topic from an offset on, at most `limit`, if there are any. Units of
    slots in memory are added there."""

    offset: int
    limit: int
    write_ms: int
    open_ms: int


class Walk(Struct, frozen=True):
    """Read the messages of a slot into memory, as its chain is now. Of a slot in memory: what was left out.

    While the slot is small, slots in use before `until_ms` join it. Those before `required_ms` join a large one, too.
    """

    slot_ms: int
    until_ms: int
    required_ms: int


class Publish(Struct, frozen=True):
    """Put messages of a slot that are due by `until_ms` into the log again, the earliest first: rolled ones into the
    timer topic, others into their own."""

    slot_ms: int
    room: int
    until_ms: int


class Close(Struct, frozen=True):
    """The slot is over."""

    slot_ms: int


class ForgetDelivered(Struct, frozen=True):
    """The copies that a start has found are of slots that are over."""


Effect = Enqueue | Walk | Publish | Close | ForgetDelivered


class TopicState(Enum):
    """State of the way into the wheel."""

    RESTING = "no Enqueue is under way"
    READING = "an Enqueue is not answered yet"


class SlotState(Enum):
    """State of a slot of the wheel."""

    OUTSIDE = "its messages are in the files alone"
    WALKED = "a walk reads them into memory"
    INSIDE = "they are in memory, at least the earliest ones"


class CopiesState(Enum):
    """State of the copies on their way into the log."""

    NONE = "none is in flight"
    SOME = "some are in flight, all from one slot"
    FULL = "as many are in flight as may be"


class Progress(Struct):
    """All that a checkpoint has to know."""

    open_ms: int
    """Time of the open slot: all earlier ones are delivered."""
    queue_offset: int
    """Records of the timer topic before it have units."""
    marks_from: int
    """Log offset from which on the copies of messages of the open slot lie."""
    known_offset: int = 0
    """Records of the timer topic before it whose slot is before `known_ms` are delivered. Later records may have come
    too late for their slot."""
    known_ms: int = 0
    """Time of the open slot, an earlier one for a while after a start."""
    known_coarsest_ms: int = 0
    """TimerSettings.coarsest_ms by which these slots were found."""


class TimerCore:
    """Decides. The caller performs the effects of a step in their order, before the next step.

    `delivered_ms`: the last process may have delivered messages of slots up to this time, or put late ones into them.
    `delivered_end`: its messages lie before this offset of the timer topic. Until the open slot is later, and all these
    messages are in the wheel, the marks of copies from `progress.marks_from` on count, and `progress.known_*` stays.
    `opened_ms`: the time of the latest slot that was open, as late messages and the newest copy tell. The checkpoint
    may be older than its opening, and the clock may have been set back since.
    `log_end`: end of the log at the start.
    """

    def __init__(
        self,
        settings: TimerSettings,
        progress: Progress,
        contents: Contents,
        delivered_ms: int,
        delivered_end: int,
        opened_ms: int,
        log_end: int = 0,
    ) -> None:
        self.settings = settings
        self.progress = progress
        self.in_flight = 0
        self._coarsest_ms = settings.coarsest_ms
        self._contents = contents
        self._delivered_ms, self._delivered_end, self._opened_ms = delivered_ms, delivered_end, opened_ms
        self._ends: dict[int, int] = {}
        """Ends of the slots in memory."""
        self._walking: set[int] = set()
        self._searched_ms = -1
        """Step in which a large slot was searched for."""
        self._joining_ms: int | None = None
        """The slot that others may join while it is read."""
        self._is_reading = False
        self._read_ms = -1
        self._read_offset = -1
        self._rolled_deletes = RolledDeletes(log_end)
        self._last_ms: int | None = None
        self.source_ms = progress.open_ms
        """The slot of the copies in flight."""

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Accept an event. Returns the effects in their order."""
        match event:
            case Tick():
                return self._tick(event, now_ms)
            case Enqueued():
                cell = TOPIC[self.topic_state, Enqueued]
            case Walked(slot_ms):
                cell = SLOT[self.slot_state(slot_ms), Walked]
            case _:
                cell = COPIES[self.copies_state, type(event)]
        return list(cell.act(self, event, now_ms))

    @property
    def topic_state(self) -> TopicState:
        """State of the way into the wheel."""
        return TopicState.READING if self._is_reading else TopicState.RESTING

    def slot_state(self, slot_ms: int) -> SlotState:
        """State of the slot of this time."""
        if slot_ms not in self._ends:
            return SlotState.OUTSIDE
        return SlotState.WALKED if slot_ms in self._walking else SlotState.INSIDE

    @property
    def copies_state(self) -> CopiesState:
        """State of the copies in flight."""
        if not self.in_flight:
            return CopiesState.NONE
        return CopiesState.SOME if self.in_flight < IN_FLIGHT_MAX else CopiesState.FULL

    def next_ms(self, now_ms: int, pause_ms: int = 0) -> int:
        """Return the time of the next tick that has something to do, if no event comes before. Nothing can be published
        before `pause_ms` are over."""
        step_ms, open_ms = self.settings.precision_ms, self.progress.open_ms
        following = now_ms - now_ms % step_ms + step_ms
        if self.settings.stops_dequeue or open_ms not in self._ends or self.in_flight == IN_FLIGHT_MAX:
            return following
        sources = [self.source_ms] if self.in_flight else self._sources()
        due = [at for slot_ms in sources if (at := self._contents.next_ms(slot_ms)) is not None]
        return min(following, max(now_ms + pause_ms, min(due))) if due else following

    @property
    def is_behind(self) -> bool:
        """True while the slot that was open before the start is not open again."""
        return self.progress.open_ms < self._opened_ms

    def finish_slot(self, now_ms: int) -> bool:
        """Publish nothing behind the open slot, because the process ends. True if steps may end this slot soon."""
        self._last_ms = self.progress.open_ms
        return not self.settings.stops_dequeue and self._last_ms <= now_ms

    def _tick(self, event: Tick, now_ms: int) -> list[Effect]:
        effects = [] if self.settings.stops_dequeue else self._dequeue(event, now_ms)
        effects += TOPIC[self.topic_state, Tick].act(self, event, now_ms)  # behind each Walk: new units join by hand
        return effects

    # -- cells of TOPIC ------------------------------------------------------------------------------------

    def _enqueue(self, event: Tick, now_ms: int) -> list[Effect]:
        settings, open_ms = self.settings, self.progress.open_ms
        if not self._may_enqueue(now_ms) or self._joining_ms in self._walking:
            return []
        self._is_reading = True
        write_ms = now_ms - now_ms % settings.precision_ms
        last_ms = self._ends.get(open_ms, open_ms + settings.precision_ms) - settings.precision_ms
        return [Enqueue(self.progress.queue_offset, ENQUEUE_MAX, write_ms, max(last_ms, self._opened_ms))]

    def _may_enqueue(self, now_ms: int) -> bool:
        half_round_ms = SLOTS // 2 * self.settings.precision_ms
        # a slot of the next round would take the place of one that waits
        return not self.settings.stops_enqueue and now_ms - self.progress.open_ms <= half_round_ms

    def _enqueued(self, event: Enqueued, now_ms: int) -> list[Effect]:
        self._is_reading = False
        self.progress.queue_offset = event.next_offset
        self._read_ms, self._read_offset = event.read_ms, event.log_offset
        return []

    def _until_ms(self, now_ms: int) -> int:
        """Return the time up to which a message can go out: a delete that was answered in time has a unit."""
        if not self._may_enqueue(now_ms):
            return now_ms
        until_ms = min(now_ms, self._read_ms + self.settings.precision_ms - 1)
        return min(until_ms, self._rolled_deletes.due_ms) if self.waits_for_delete(now_ms) else until_ms

    def waits_for_delete(self, now_ms: int) -> bool:
        """True while messages wait for the unit of a rolled delete."""
        return self._may_enqueue(now_ms) and not self._rolled_deletes.are_read(self._read_offset)

    # -- cells of SLOT, and what they need -----------------------------------------------------------------

    def _dequeue(self, event: Tick, now_ms: int) -> list[Effect]:
        effects = self._tick_open_slot(event, now_ms)
        effects += COPIES[self.copies_state, Tick].act(self, event, now_ms)
        return effects

    def _tick_open_slot(self, event: Tick, now_ms: int) -> list[Effect]:
        return list(SLOT[self.slot_state(self.progress.open_ms), Tick].act(self, event, now_ms))

    def _sources(self) -> list[int]:
        """Return the slots to deliver from: the open one, then the one that was open before the start."""
        both = dict.fromkeys((self.progress.open_ms, self._opened_ms))
        return [slot_ms for slot_ms in both if self.slot_state(slot_ms) is SlotState.INSIDE]

    def _is_due(self, slot_ms: int, now_ms: int) -> bool:
        due_ms = self._contents.next_ms(slot_ms)
        return due_ms is not None and due_ms <= now_ms

    def _walk_open(self, event: Tick, now_ms: int) -> list[Effect]:
        """The open slot is read at any time, because the clock may have been set back. No slot joins that is in
        memory."""
        step_ms, open_ms = self.settings.precision_ms, self.progress.open_ms
        end_ms = min((open_ms - open_ms % JOIN_MS + JOIN_MS, *self._ends))
        required_ms = self._opened_ms + step_ms
        until_ms = max(now_ms - now_ms % step_ms, required_ms)
        return self._walk(open_ms, min(until_ms, end_ms), min(required_ms, end_ms))

    def _close_or_walk(self, event: Tick, now_ms: int) -> list[Effect]:
        """The slot behind the open one is read before its time, so that its first message is not late. Behind a backlog
        most slots are empty, and `next_used` finds the next one."""
        if self._is_over(now_ms):  # at most as often as slots are in memory
            return [*self._close_slot(now_ms, event.log_end), *self._tick_open_slot(event, now_ms)]
        effects: list[Effect] = []
        step_ms, following = self.settings.precision_ms, self._ends[self.progress.open_ms]
        if following not in self._ends and now_ms - step_ms < following <= now_ms + step_ms:
            effects += self._walk(following)
        effects += self._walk_large(following, now_ms)
        effects += self._walk_late(following, now_ms)
        if not self.in_flight:
            for slot_ms in self._sources():
                effects += self._walk(slot_ms) if self._contents.needs_walk(slot_ms) else []
        return effects

    def _walk_late(self, following: int, now_ms: int) -> list[Effect]:
        """The slot that was open before the start is read when what is left of the present one is not due."""
        if self._opened_ms < following or self._opened_ms in self._ends:
            return []
        due_ms = self._contents.next_ms(self.progress.open_ms)
        return [] if due_ms is None or due_ms <= now_ms else self._walk(self._opened_ms)

    def _walk_large(self, following: int, now_ms: int) -> list[Effect]:
        """A large slot behind the next one is begun in time. Slots of a backlog are too late for that."""
        step_ms = self.settings.precision_ms
        present_ms = now_ms - now_ms % step_ms
        if self.is_behind or present_ms == self._searched_ms or any(slot_ms > following for slot_ms in self._ends):
            return []
        self._searched_ms = present_ms
        found = self._contents.next_large(max(following, present_ms + step_ms) + step_ms, now_ms)
        return [] if found is None else self._walk(found)

    def _walk(self, slot_ms: int, until_ms: int = 0, required_ms: int = 0) -> list[Effect]:
        self._ends.setdefault(slot_ms, slot_ms + self.settings.precision_ms)
        self._walking.add(slot_ms)
        if until_ms > slot_ms + self.settings.precision_ms:
            self._joining_ms = slot_ms
        return [Walk(slot_ms, until_ms, required_ms)]

    def _walked(self, event: Walked, now_ms: int) -> list[Effect]:
        self._walking.discard(event.slot_ms)
        self._ends[event.slot_ms] = event.end_ms
        return []

    def _is_empty(self, slot_ms: int) -> bool:
        return not self.in_flight and self._contents.next_ms(slot_ms) is None

    def _is_over(self, now_ms: int) -> bool:
        """True if the open slot has nothing left to store and the next one is due, or was open before."""
        open_ms = self.progress.open_ms
        if now_ms < self._ends[open_ms] and not self.is_behind:
            return False
        return self._is_empty(open_ms) and not self._contents.is_left_out(open_ms)

    def _close_slot(self, now_ms: int, log_end: int) -> list[Effect]:
        closed_ms = self.progress.open_ms
        effects: list[Effect] = [Close(closed_ms)]
        following = self._ends.pop(closed_ms)
        if following not in self._ends:
            following = self._following(following, now_ms)
        self.progress.open_ms = following
        if following > self._delivered_ms and self.progress.queue_offset >= self._delivered_end:
            self.progress.marks_from = log_end
            self.progress.known_offset, self.progress.known_ms = self.progress.queue_offset, following
            self.progress.known_coarsest_ms = self._coarsest_ms
            effects.append(ForgetDelivered())
        return effects

    def _following(self, from_ms: int, now_ms: int) -> int:
        """Return the time of the slot to open next: the first one with units up to the present or to the slot that was
        open before the start, else the present one."""
        step_ms = self.settings.precision_ms
        present_ms = max(from_ms, now_ms - now_ms % step_ms)
        found = self._contents.next_used(from_ms, max(present_ms, self._opened_ms + step_ms))
        return min((present_ms if found is None else found, *self._ends))

    # -- cells of COPIES -----------------------------------------------------------------------------------

    def _publish(self, event: Tick, now_ms: int) -> list[Effect]:
        if self._last_ms is not None and self.progress.open_ms > self._last_ms:
            return []
        until_ms = self._until_ms(now_ms)
        source_ms = next((slot_ms for slot_ms in self._sources() if self._is_due(slot_ms, until_ms)), None)
        if source_ms is None or (self.in_flight and source_ms != self.source_ms):
            return []
        self.source_ms = source_ms
        return [Publish(source_ms, IN_FLIGHT_MAX - self.in_flight, until_ms)]

    def _published(self, event: Published, now_ms: int) -> list[Effect]:
        if event.last_delete:
            self._rolled_deletes.submitted(self.in_flight + event.last_delete, event.delete_ms)
        self.in_flight += event.count
        return []

    def _stored(self, event: Stored, now_ms: int) -> list[Effect]:
        self.in_flight -= event.count
        self._rolled_deletes.stored(event.count, event.log_end)
        return []

    def _refused(self, event: Refused, now_ms: int) -> list[Effect]:
        self.in_flight = 0
        self._rolled_deletes.refused()
        return []


TOPIC: Table = transitions(
    (
        Tick,
        TopicState.RESTING,
        Cell(TimerCore._enqueue, "reads on, unless new units may not come now", (TopicState.READING,)),
    ),
    (Tick, TopicState.READING, ignored("an Enqueue is not answered yet")),
    (Enqueued, TopicState.READING, Cell(TimerCore._enqueued, "notes how far units have come", (TopicState.RESTING,))),
    (Enqueued, TopicState.RESTING, impossible("it answers an Enqueue")),
)
SLOT: Table = transitions(
    (Tick, SlotState.OUTSIDE, Cell(TimerCore._walk_open, "reads it", (SlotState.WALKED,))),
    (Tick, SlotState.WALKED, ignored("its walk is not over")),
    (
        Tick,
        SlotState.INSIDE,
        Cell(
            TimerCore._close_or_walk,
            "closes it when it is over, else reads others",
            (SlotState.OUTSIDE, SlotState.WALKED),
        ),
    ),
    (Walked, SlotState.WALKED, Cell(TimerCore._walked, "notes which slots have joined it", (SlotState.INSIDE,))),
    (Walked, (SlotState.OUTSIDE, SlotState.INSIDE), impossible("it answers a Walk")),
)
"""A Tick is for the open slot, which has others read as well. Ends of slots, and which one is open, are in the core."""
COPIES: Table = transitions(
    (Tick, (CopiesState.NONE, CopiesState.SOME), Cell(TimerCore._publish, "publishes what is due")),
    (Tick, CopiesState.FULL, ignored("write stores some of them first")),
    (Published, CopiesState.NONE, Cell(TimerCore._published, "counts them", (CopiesState.SOME, CopiesState.FULL))),
    (Published, CopiesState.SOME, Cell(TimerCore._published, "counts them", (CopiesState.FULL,))),
    (Published, CopiesState.FULL, impossible("there was no room for a Publish")),
    (Stored, CopiesState.NONE, impossible("no copy is in flight")),
    (Stored, CopiesState.SOME, Cell(TimerCore._stored, "counts them as stored", (CopiesState.NONE,))),
    (Stored, CopiesState.FULL, Cell(TimerCore._stored, "counts them as stored", (CopiesState.NONE, CopiesState.SOME))),
    (Refused, CopiesState.NONE, Cell(TimerCore._refused, "goes on, as none is lost")),
    (
        Refused,
        (CopiesState.SOME, CopiesState.FULL),
        Cell(TimerCore._refused, "publishes them again", (CopiesState.NONE,)),
    ),
)
