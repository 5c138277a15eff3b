"""The five steps of timer messages, without IO. Names and rules as of stock's TimerMessageStore, where five threads do
them.

| Step | Here |
|---|---|
| TimerEnqueueGet | `ReadQueue`: records of the timer topic, in the order of its queue |
| TimerEnqueuePut | `Append`: one unit for each, chained to its slot |
| TimerDequeueGet | `Walk`: the units of a slot, shortly before its time |
| TimerDequeueGetMessage | `Walked`: their records, ordered by millisecond, less those that are deleted |
| TimerDequeuePutMessage | `Publish`: what is due goes into the log again |

A slot of time T holds what is due in (T, T + precision]. It is open from T on, until all of it is stored and the next
slot is due. Messages that arrive for the open slot, or too late for theirs, join it. So every message has a unit, and
the checkpoint's time of reading is that of the open slot: a stock broker that gets the store after a kill delivers at
most this slot again.

The marks of copies tell what of the open slot was delivered. A start collects them from the log offset on at which the
slot was opened.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ringmq.timer.placement import Placement, place
from ringmq.timer.slot_content import SlotContent, TimerMessage
from ringmq.timer.timer_log import Magic

READ_MAX = 4096
IN_FLIGHT_MAX = 8192
PAUSE_MS, PAUSE_MAX_MS = 10, 1000
"""Pause after a refusal. Each further one doubles it, until a copy is stored again."""


@dataclass(frozen=True, slots=True)
class TimerSettings:
    """Properties that decide. Times in ms."""

    precision_ms: int = 1000
    window_slots: int = 172_800
    stops_enqueue: bool = False
    stops_dequeue: bool = False


@dataclass(frozen=True, slots=True)
class TimerRecord:
    """A record of the timer topic, as enqueue sees it."""

    queue_offset: int
    commit_log_offset: int
    size: int
    out_ms: int | None
    """TIMER_OUT_MS. None: a client has sent the record straight to the timer topic, so it can never be due."""
    exact_ms: int
    topic_hash: int
    is_delete: bool
    key: str


# -- events --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. `log_end`: the offset behind the newest record of the log."""

    log_end: int


@dataclass(frozen=True, slots=True)
class Records:
    """Answer to ReadQueue. `next_offset` lies behind the last record, and behind what retention has taken."""

    records: Sequence[TimerRecord]
    next_offset: int


@dataclass(frozen=True, slots=True)
class Walked:
    """A piece of the units that a slot had at its Walk."""

    slot_ms: int
    messages: Sequence[TimerMessage]
    is_last: bool


@dataclass(frozen=True, slots=True)
class Stored:
    """The oldest `count` copies in flight are in the log."""

    count: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Of the copies in flight the oldest `stored` are in the log, and no other will be."""

    stored: int


Event = Tick | Records | Walked | Stored | Refused


# -- effects -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadQueue:
    """Read records of the timer topic from an offset on, at most `limit`, if there are any."""

    offset: int
    limit: int


@dataclass(frozen=True, slots=True)
class Append:
    """Append a unit for the record and make it the last of its slot. Before any later effect."""

    record: TimerRecord
    placement: Placement


@dataclass(frozen=True, slots=True)
class Walk:
    """Find the messages of a slot, as its chain is now."""

    slot_ms: int


@dataclass(frozen=True, slots=True)
class Publish:
    """Put messages into the log again, in this order: rolled ones into the timer topic, others into their own."""

    messages: tuple[TimerMessage, ...]


Effect = ReadQueue | Append | Walk | Publish


@dataclass(slots=True)
class Progress:
    """All that a checkpoint has to know."""

    open_ms: int
    """Time of the open slot: all earlier ones are delivered."""
    queue_offset: int
    """Records of the timer topic before it have units."""
    marks_from: int
    """Log offset from which on the copies of messages of the open slot lie."""


@dataclass(slots=True)
class Counts:
    """Totals since the start."""

    enqueued: int = 0
    without_time: int = 0
    """Records without TIMER_OUT_MS, which stock would wait at for ever."""
    delivered: int = 0
    rolled: int = 0
    deleted: int = 0
    repeated: int = 0
    """Messages whose copy was found in the log after a start."""


@dataclass(slots=True)
class _Flight:
    messages: deque[TimerMessage] = field(default_factory=deque)
    again: deque[TimerMessage] = field(default_factory=deque)
    pause_ms: int = 0
    resume_ms: int = 0


class TimerCore:
    """Decides. `next_used(from_ms, to_ms)` names the first slot with units in [from_ms, to_ms), None without one.

    `delivered`: queue offsets of messages whose copies the log holds from `progress.marks_from` on. `delivered_ms`: the
    time of the latest slot that any of them belongs to. Slots are delivered in order, so none is in a later one.
    """

    def __init__(
        self,
        settings: TimerSettings,
        progress: Progress,
        next_used: Callable[[int, int], int | None],
        delivered: set[int],
        delivered_ms: int,
    ) -> None:
        self.settings = settings
        self.progress = progress
        self.counts = Counts()
        self._next_used = next_used
        self._delivered = delivered
        self._delivered_ms = delivered_ms
        self._contents: dict[int, SlotContent] = {}
        self._walking: set[int] = set()
        self._is_reading = False
        self._flight = _Flight()
        self._steps: dict[type, Callable[[Event, int], list[Effect]]] = {
            Tick: self._tick, Records: self._records, Walked: self._walked, Stored: self._stored,
            Refused: self._refused,
        }  # fmt: skip

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Accept an event. Returns the effects in their order."""
        return self._steps[type(event)](event, now_ms)

    def next_ms(self, now_ms: int) -> int:
        """Return the time of the next tick that has something to do, if no event comes before."""
        step_ms = self.settings.precision_ms
        content = self._contents.get(self.progress.open_ms)
        due = None if content is None else content.next_ms
        following = now_ms - now_ms % step_ms + step_ms
        return following if due is None else min(following, max(now_ms, due, self._flight.resume_ms))

    # -- enqueue -------------------------------------------------------------------------------------------

    def _records(self, event: Event, now_ms: int) -> list[Effect]:
        assert isinstance(event, Records)
        self._is_reading = False
        effects: list[Effect] = []
        for record in event.records:
            if record.out_ms is None:
                self.counts.without_time += 1
            else:
                effects.append(self._enqueue(record, record.out_ms, now_ms))
        self.progress.queue_offset = event.next_offset
        return effects

    def _enqueue(self, record: TimerRecord, out_ms: int, now_ms: int) -> Append:
        settings = self.settings
        placement = place(
            out_ms, write_ms=now_ms - now_ms % settings.precision_ms, open_ms=self.progress.open_ms,
            is_delete=record.is_delete, window_slots=settings.window_slots, precision_ms=settings.precision_ms,
        )  # fmt: skip
        self.counts.enqueued += 1
        content = self._contents.get(placement.slot_ms)
        if content is not None:
            self._add(content, message_of(record, placement))
        return Append(record, placement)

    # -- dequeue -------------------------------------------------------------------------------------------

    def _tick(self, event: Event, now_ms: int) -> list[Effect]:
        assert isinstance(event, Tick)
        effects = [] if self.settings.stops_dequeue else self._dequeue(event.log_end, now_ms)
        if not self._is_reading and not self.settings.stops_enqueue:
            self._is_reading = True
            effects.append(ReadQueue(self.progress.queue_offset, READ_MAX))  # behind each Walk: new units join by hand
        return effects

    def _dequeue(self, log_end: int, now_ms: int) -> list[Effect]:
        while self._is_over(now_ms):
            self._close_slot(now_ms, log_end)
        effects = self._walks(now_ms)
        if due := self._due(now_ms):
            self._flight.messages.extend(due)
            effects.append(Publish(tuple(due)))
        return effects

    def _walks(self, now_ms: int) -> list[Effect]:
        """The open slot and the next one are read before their time, so that their first message is not late."""
        effects: list[Effect] = []
        step_ms = self.settings.precision_ms
        open_ms = self.progress.open_ms
        for slot_ms in (open_ms, open_ms + step_ms):  # the open one at any time: the clock may have been set back
            if slot_ms not in self._contents and (slot_ms == open_ms or slot_ms <= now_ms + step_ms):
                self._contents[slot_ms] = SlotContent(slot_ms)
                self._walking.add(slot_ms)
                effects.append(Walk(slot_ms))
        return effects

    def _walked(self, event: Event, now_ms: int) -> list[Effect]:
        assert isinstance(event, Walked)
        content = self._contents[event.slot_ms]
        for message in event.messages:
            self._add(content, message)
        if event.is_last:
            self._walking.discard(event.slot_ms)
        return []

    def _add(self, content: SlotContent, message: TimerMessage) -> None:
        if message.queue_offset in self._delivered:
            self._delivered.discard(message.queue_offset)
            self.counts.repeated += 1
        else:
            content.add(message)

    def _due(self, now_ms: int) -> list[TimerMessage]:
        flight, open_ms = self._flight, self.progress.open_ms
        if now_ms < flight.resume_ms or open_ms in self._walking or open_ms not in self._contents:
            return []
        room = IN_FLIGHT_MAX - len(flight.messages)
        due = [flight.again.popleft() for _ in range(min(room, len(flight.again)))]
        if not flight.again:
            due += self._contents[open_ms].take_due(now_ms, room - len(due))
        return due

    def _is_over(self, now_ms: int) -> bool:
        """True if the open slot has nothing left to store and the next one is due."""
        content, open_ms = self._contents.get(self.progress.open_ms), self.progress.open_ms
        if content is None or open_ms in self._walking or now_ms < open_ms + self.settings.precision_ms:
            return False
        return content.next_ms is None and not self._flight.messages and not self._flight.again

    def _close_slot(self, now_ms: int, log_end: int) -> None:
        step_ms = self.settings.precision_ms
        content = self._contents.pop(self.progress.open_ms)
        self.counts.deleted += content.dropped
        following = self.progress.open_ms + step_ms
        if following not in self._contents:
            present_ms = now_ms - now_ms % step_ms
            found = self._next_used(following, present_ms)
            following = present_ms if found is None else found
        self.progress.open_ms = following
        if following > self._delivered_ms:
            self._delivered.clear()
            self.progress.marks_from = log_end

    # -- copies in flight ----------------------------------------------------------------------------------

    def _stored(self, event: Event, now_ms: int) -> list[Effect]:
        assert isinstance(event, Stored)
        self._settle(event.count)
        self._flight.pause_ms = 0
        return []

    def _refused(self, event: Event, now_ms: int) -> list[Effect]:
        assert isinstance(event, Refused)
        self._settle(event.stored)
        flight = self._flight
        flight.again.extendleft(reversed(flight.messages))
        flight.messages.clear()
        flight.pause_ms = min(PAUSE_MAX_MS, flight.pause_ms * 2 or PAUSE_MS)
        flight.resume_ms = now_ms + flight.pause_ms
        return []

    def _settle(self, count: int) -> None:
        for _ in range(count):
            message = self._flight.messages.popleft()
            if message.is_rolled:
                self.counts.rolled += 1
            else:
                self.counts.delivered += 1


def message_of(record: TimerRecord, placement: Placement) -> TimerMessage:
    """Return the message as its slot delivers it. A rolled one goes at the slot's time."""
    is_rolled = Magic.ROLL in placement.magic
    at_ms = placement.slot_ms if is_rolled else record.exact_ms
    return TimerMessage(at_ms, record.queue_offset, record.commit_log_offset, record.size, placement.magic, record.key)
