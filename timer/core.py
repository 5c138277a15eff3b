"""The five steps of timer messages, without IO. Names and rules as of stock's TimerMessageStore, where five threads do
them.

| Step | Here |
|---|---|
| TimerEnqueueGet, TimerEnqueuePut | `Enqueue`: records of the timer topic become units of the log, chained to slots |
| TimerDequeueGet | `Walk`: the units of a slot are read, shortly before its time |
| TimerDequeueGetMessage, TimerDequeuePutMessage | `Publish`: what is due goes into the log again, by millisecond |

The core decides when. `Contents` and the loops behind it do what is done for each message
(native/src/timer/timer_steps.h).

A slot of time T holds what is due in (T, T + precision]. It is open from T on, until all of it is stored and the next
slot is due. Messages that arrive for the open slot, or too late for theirs, join it. So every message has a unit, and
the checkpoint's time of reading is that of the open slot: a stock broker that gets the store after a kill delivers at
most this slot again.

Behind a down time, small slots that are overdue join the open one, because the way of a copy through the log takes
longer than a few messages. The open slot then holds what is due up to the end of the last of them, and messages that
are too late join the last one. No join crosses a full hour, so slots that were joined once can be joined again.

A message is delivered when units are appended for all records that were answered up to a step of the precision before
its time: a delete that was answered in time works, also behind a down time, and in a worker that was stalled. A rolled
delete has been answered long before its record. So later messages wait until it has a unit. A start does not know which
records are rolled deletes: it waits for all.

The marks of copies tell what of the open slot was delivered. A start collects them from the log offset on at which the
slot was opened. The checkpoint may be older: then the start goes on to the slot that was open, even if the clock has
been set back to before it. Else an earlier slot would be delivered behind a later one, so that the newest copy would
not be of the latest slot. On this way late messages still join the slot that was open. While nothing on the way is due,
what is due of that slot is delivered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from ringmq.timer.rolled_deletes import RolledDeletes
from ringmq.timer.timer_wheel import SLOTS

ENQUEUE_MAX = 4096
IN_FLIGHT_MAX = 8192
JOIN_MS = 3_600_000
"""Overdue slots between two multiples of it become one in memory. It orders messages by the millisecond for 70
minutes."""
PAUSE_MS, PAUSE_MAX_MS = 10, 1000
"""Pause after a refusal. Each further one doubles it, until a copy is stored again."""


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
        self._pause_ms = 0
        self._resume_ms = 0
        self._steps: dict[type, Callable[[Event, int], list[Effect]]] = {
            Tick: self._tick, Enqueued: self._enqueued, Walked: self._walked, Published: self._published,
            Stored: self._stored, Refused: self._refused,
        }  # fmt: skip

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Accept an event. Returns the effects in their order."""
        return self._steps[type(event)](event, now_ms)

    def next_ms(self, now_ms: int) -> int:
        """Return the time of the next tick that has something to do, if no event comes before."""
        step_ms, open_ms = self.settings.precision_ms, self.progress.open_ms
        following = now_ms - now_ms % step_ms + step_ms
        if self.settings.stops_dequeue or open_ms not in self._ends or self.in_flight == IN_FLIGHT_MAX:
            return following
        sources = [self.source_ms] if self.in_flight else self._sources()
        due = [at for slot_ms in sources if (at := self._contents.next_ms(slot_ms)) is not None]
        return min(following, max(now_ms, min(due), self._resume_ms)) if due else following

    @property
    def is_behind(self) -> bool:
        """True while the slot that was open before the start is not open again."""
        return self.progress.open_ms < self._opened_ms

    def finish_slot(self, now_ms: int) -> bool:
        """Publish nothing behind the open slot, because the process ends. True if steps may end this slot soon."""
        self._last_ms = self.progress.open_ms
        return not self.settings.stops_dequeue and self._last_ms <= now_ms

    # -- enqueue -------------------------------------------------------------------------------------------

    def _enqueue(self, now_ms: int) -> list[Effect]:
        settings, open_ms = self.settings, self.progress.open_ms
        if self._is_reading or not self._may_enqueue(now_ms) or self._joining_ms in self._walking:
            return []
        self._is_reading = True
        write_ms = now_ms - now_ms % settings.precision_ms
        last_ms = self._ends.get(open_ms, open_ms + settings.precision_ms) - settings.precision_ms
        return [Enqueue(self.progress.queue_offset, ENQUEUE_MAX, write_ms, max(last_ms, self._opened_ms))]

    def _may_enqueue(self, now_ms: int) -> bool:
        half_round_ms = SLOTS // 2 * self.settings.precision_ms
        # a slot of the next round would take the place of one that waits
        return not self.settings.stops_enqueue and now_ms - self.progress.open_ms <= half_round_ms

    def _enqueued(self, event: Event, now_ms: int) -> list[Effect]:
        assert isinstance(event, Enqueued)
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

    # -- dequeue -------------------------------------------------------------------------------------------

    def _tick(self, event: Event, now_ms: int) -> list[Effect]:
        assert isinstance(event, Tick)
        effects = [] if self.settings.stops_dequeue else self._dequeue(event.log_end, now_ms)
        return effects + self._enqueue(now_ms)  # behind each Walk: new units join by hand

    def _dequeue(self, log_end: int, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        while self._is_over(now_ms):
            effects += self._close_slot(now_ms, log_end)
        effects += self._walks(now_ms)
        open_ms, room = self.progress.open_ms, IN_FLIGHT_MAX - self.in_flight
        if self._last_ms is not None and open_ms > self._last_ms:
            return effects
        is_paused = 0 < self._resume_ms - now_ms <= PAUSE_MAX_MS  # a clock that was set back ends the pause
        if room and not is_paused:
            effects += self._publish(self._until_ms(now_ms), room)
        return effects

    def _publish(self, until_ms: int, room: int) -> list[Effect]:
        source_ms = next((slot_ms for slot_ms in self._sources() if self._is_due(slot_ms, until_ms)), None)
        if source_ms is None or (self.in_flight and source_ms != self.source_ms):
            return []
        self.source_ms = source_ms
        return [Publish(source_ms, room, until_ms)]

    def _sources(self) -> list[int]:
        """Return the slots to deliver from: the open one, then the one that was open before the start."""
        both = dict.fromkeys((self.progress.open_ms, self._opened_ms))
        return [slot_ms for slot_ms in both if self._is_readable(slot_ms)]

    def _is_due(self, slot_ms: int, now_ms: int) -> bool:
        due_ms = self._contents.next_ms(slot_ms)
        return due_ms is not None and due_ms <= now_ms

    def _walks(self, now_ms: int) -> list[Effect]:
        """The open slot is read at any time, because the clock may have been set back. The next one is read before its
        time, so that its first message is not late. Behind a backlog most slots are empty, and `next_used` finds the
        next one. No slot joins that is in memory.
        """
        effects: list[Effect] = []
        step_ms, open_ms = self.settings.precision_ms, self.progress.open_ms
        if open_ms not in self._ends:
            end_ms = min((open_ms - open_ms % JOIN_MS + JOIN_MS, *self._ends))
            required_ms = self._opened_ms + step_ms
            until_ms = max(now_ms - now_ms % step_ms, required_ms)
            effects += self._walk(open_ms, min(until_ms, end_ms), min(required_ms, end_ms))
        if not self._is_readable(open_ms):
            return effects
        following = self._ends[open_ms]
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

    def _walked(self, event: Event, now_ms: int) -> list[Effect]:
        assert isinstance(event, Walked)
        self._walking.discard(event.slot_ms)
        self._ends[event.slot_ms] = event.end_ms
        return []

    def _is_readable(self, slot_ms: int) -> bool:
        return slot_ms in self._ends and slot_ms not in self._walking

    def _is_empty(self, slot_ms: int) -> bool:
        return not self.in_flight and self._contents.next_ms(slot_ms) is None

    def _is_over(self, now_ms: int) -> bool:
        """True if the open slot has nothing left to store and the next one is due, or was open before."""
        open_ms = self.progress.open_ms
        if not self._is_readable(open_ms) or not (now_ms >= self._ends[open_ms] or self.is_behind):
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

    # -- copies in flight ----------------------------------------------------------------------------------

    def _published(self, event: Event, now_ms: int) -> list[Effect]:
        assert isinstance(event, Published)
        if event.last_delete:
            self._rolled_deletes.submitted(self.in_flight + event.last_delete, event.delete_ms)
        self.in_flight += event.count
        return []

    def _stored(self, event: Event, now_ms: int) -> list[Effect]:
        assert isinstance(event, Stored)
        self.in_flight -= event.count
        self._rolled_deletes.stored(event.count, event.log_end)
        self._pause_ms = 0
        return []

    def _refused(self, event: Event, now_ms: int) -> list[Effect]:
        self.in_flight = 0
        self._rolled_deletes.refused()
        self._pause_ms = min(PAUSE_MAX_MS, self._pause_ms * 2 or PAUSE_MS)
        self._resume_ms = now_ms + self._pause_ms
        return []
