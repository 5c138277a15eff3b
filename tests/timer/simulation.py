"""Timer messages over a simulated clock, log and disk. A sorted list of what was sent decides.

The log keeps the sends, the rolled copies and the delivered ones. A kill leaves log, units and slots as they are, and
takes the core. A power cut also takes what was not flushed: the ends of CommitLog and TimerLog, and any slots.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from ringmq.timer.core import (
    Close,
    Enqueue,
    Enqueued,
    Event,
    ForgetDelivered,
    Progress,
    Publish,
    Published,
    Refused,
    Stored,
    Tick,
    TimerCore,
    TimerSettings,
    Walk,
    Walked,
)
from ringmq.timer.placement import Placement, Target, place, place_delete, step_of
from ringmq.timer.rolled_copies import DoneBefore
from ringmq.timer.slot_content import SlotContent, TimerMessage
from ringmq.timer.timer_log import Magic
from ringmq.timer.timer_wheel import PRECISIONS_MS, SLOTS
from tests.timer.machines import COPIES, TOPIC

START_MS = 1_800_000_000_000
RECORD_BYTES = 100
STEP_MAX_MS = 900
"""The clock of a test goes on by no more at a time."""
SLOTS_IN_MEMORY = 3
FAR_MS = 60_000
"""`finish` passes over longer times in which nothing is due."""


@dataclass(frozen=True)
class LogRecord:
    """A record of the simulated log. `message` numbers the send that it stems from."""

    offset: int
    message: int
    queue_offset: int = -1
    """In the timer topic, -1 for a delivered record."""
    out_ms: int = 0
    exact_ms: int = 0
    deletes: str = ""
    key: str = ""
    rolls: int = 0
    mark: int = -1
    """Queue offset of the source of a copy."""
    store_ms: int = 0


@dataclass(frozen=True)
class Unit:
    position: int
    previous: int
    slot_ms: int
    enqueue_ms: int
    magic: Magic
    queue_offset: int
    offset: int


@dataclass
class Disk:
    """The files: log, TimerLog as a list of units, slots by time, checkpoint."""

    log: list[LogRecord] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)
    slots: dict[int, int] = field(default_factory=dict)
    """Time -> index of the last unit."""
    checkpoint: Progress = field(default_factory=lambda: Progress(START_MS, 0, 0))
    coarsest_ms: int = 0
    """Of the checkpoint."""
    flushed_units: int = 0
    flushed_records: int = 0
    _read: list[LogRecord] = field(default_factory=list)
    _timer_records: list[LogRecord] = field(default_factory=list)
    """Those of `_read`, the log as it was at the last look."""

    @property
    def end(self) -> int:
        return len(self.log) * RECORD_BYTES

    def timer_records(self) -> list[LogRecord]:
        """The records of the timer topic, not to be changed. Each look reads on where the last one has ended."""
        seen = len(self._read)
        if seen and (len(self.log) < seen or self.log[seen - 1] is not self._read[-1]):  # a power cut took the end
            self._read, self._timer_records, seen = [], [], 0
        more = self.log[seen:]
        self._read += more
        self._timer_records += [record for record in more if record.queue_offset >= 0]
        return self._timer_records


@dataclass
class WalkState:
    """A walk that is not over."""

    slot_ms: int
    until_ms: int
    required_ms: int
    units: list[Unit]
    count: int = 0


class World:
    """One store and its timer worker."""

    messages_max, join_units = 8, 12
    large_units, lead_steps = 10, 12
    enqueue_max = 40

    def __init__(self, seed: int, settings: TimerSettings) -> None:
        self.random = random.Random(seed)
        self.settings = replace(settings, coarsest_ms=settings.precision_ms)
        self.disk = Disk()
        self.disk.coarsest_ms = self.disk.checkpoint.known_coarsest_ms = settings.precision_ms
        self.now_ms = START_MS + self.random.randrange(1000)
        self.numbers = itertools.count()
        self.sent: dict[int, LogRecord] = {}
        self.deleted: set[str] = set()
        self.perhaps_deleted: set[str] = set()
        self.in_flight: list[TimerMessage] = []
        self.slots: dict[int, SlotContent] = {}
        self.delivered: set[int] = set()
        self.to_walk: list[WalkState] = []
        self.ends: dict[int, int] = {}
        self.large = 0
        """Large slots that were read behind the next one."""
        self.joined = 0
        """Slots of the wheel that have joined another one."""
        self.early: list[int] = []
        self.refuses = False
        self.read_ms = self.read_offset = 0
        self.elsewhere = 0
        """Deletes in the slot of a target of another time."""
        self.core = self.started()

    # -- clients -------------------------------------------------------------------------------------------

    def send(self, delay_ms: int, *, deletes: str = "") -> int:
        """Store a timer message as admission does. Returns its number."""
        step_ms = self.settings.precision_ms
        number, exact_ms = next(self.numbers), self.now_ms + delay_ms
        out_ms = exact_ms - step_ms if exact_ms % step_ms == 0 else exact_ms - exact_ms % step_ms
        record = self.append(
            message=number, out_ms=out_ms, exact_ms=exact_ms, deletes=deletes, key=deletes or f"T+{number}",
            queue_offset=len(self.disk.timer_records()),
        )  # fmt: skip
        self.sent[number] = record
        return number

    def delete(self, number: int, *, names_its_time: bool = True) -> bool:
        """Recall a message by another one, for the same time or for any. True if it must work: whole steps are left.
        False if it may come too late."""
        source = self.sent[number]
        left_ms, step_ms = source.exact_ms - self.now_ms, self.settings.precision_ms
        if left_ms <= 0:
            return False
        self.send(left_ms if names_its_time else self.random.randrange(1, 60_000), deletes=source.key)
        must_work = left_ms >= step_ms
        if must_work:
            self.deleted.add(source.key)
        else:
            self.perhaps_deleted.add(source.key)
        return must_work

    def append(self, **fields: object) -> LogRecord:
        record = LogRecord(offset=self.disk.end, store_ms=self.now_ms, **fields)  # type: ignore[arg-type]
        self.disk.log.append(record)
        return record

    # -- the worker ----------------------------------------------------------------------------------------

    def started(self) -> TimerCore:
        """Recover as a start does: cut units without a record, mend slots, find the marks."""
        disk = self.disk
        while disk.units and disk.units[-1].offset >= disk.end:
            disk.units.pop()
        disk.slots = {}
        for unit in disk.units:
            disk.slots[unit.slot_ms] = unit.position
        progress = replace(disk.checkpoint, open_ms=self.floored(disk.checkpoint.open_ms))
        queue_offset = max(disk.units[-1].queue_offset + 1, progress.queue_offset) if disk.units else 0
        if not disk.units:
            disk.checkpoint, disk.coarsest_ms = replace(progress, queue_offset=0), self.settings.coarsest_ms
        rolled = {r.mark for r in disk.timer_records() if r.mark >= 0}
        self.done = DoneBefore(rolled, len(disk.timer_records()), progress.known_offset, progress.known_ms)
        self.known_coarsest_ms = progress.known_coarsest_ms
        copies = [r for r in disk.log if r.mark >= 0 and r.offset >= progress.marks_from]
        self.delivered = {copy.mark for copy in copies}
        opened_ms = max((unit.slot_ms for unit in disk.units if unit.slot_ms == unit.enqueue_ms - 1), default=-1)
        late_ms = max((unit.slot_ms for unit in disk.units if unit.slot_ms <= unit.enqueue_ms), default=-1)
        newest = next((unit for unit in disk.units if copies and unit.queue_offset == copies[-1].mark), None)
        opened_ms = max([opened_ms, *self.slots_of(copies), -1 if newest is None else newest.slot_ms])
        sources = disk.timer_records()
        rolled_ms = max((min(sources[r.mark].out_ms, r.store_ms) for r in copies if r.queue_offset >= 0), default=0)
        latest_ms = max(self.now_ms, progress.open_ms, late_ms, opened_ms, rolled_ms)
        delivered_ms = latest_ms + self.settings.coarsest_ms
        self.in_flight, self.to_walk, self.slots, self.ends = [], [], {}, {}
        begin, end = replace(progress, queue_offset=queue_offset), len(disk.timer_records())
        return TimerCore(self.settings, begin, self, delivered_ms, end, opened_ms, disk.end)

    def slots_of(self, copies: list[LogRecord]) -> list[int]:
        """Times of the slots that delivered messages have asked for."""
        sources, step_ms = self.disk.timer_records(), self.settings.precision_ms
        out_ms = [sources[copy.mark].out_ms for copy in copies if copy.queue_offset < 0]
        return [at - at % step_ms for at in out_ms]

    def next_used(self, from_ms: int, to_ms: int) -> int | None:
        return min((slot_ms for slot_ms in self.disk.slots if from_ms <= slot_ms < to_ms), default=None)

    def next_large(self, from_ms: int, now_ms: int) -> int | None:
        until_ms = now_ms + self.lead_steps * self.settings.precision_ms
        near = sorted(slot_ms for slot_ms in self.disk.slots if from_ms <= slot_ms <= until_ms)
        found = next((slot_ms for slot_ms in near if len(self.chain(slot_ms)) >= self.large_units), None)
        self.large += found is not None
        return found

    def next_ms(self, slot_ms: int) -> int | None:
        return self.slots[slot_ms].next_ms

    def is_left_out(self, slot_ms: int) -> bool:
        return self.slots[slot_ms].left_out > 0

    def needs_walk(self, slot_ms: int) -> bool:
        return self.slots[slot_ms].needs_walk

    def step(self, event: Event) -> None:
        copies, topic = self.core.copies_state, self.core.topic_state
        effects = self.core.step(event, self.now_ms)
        if isinstance(event, COPIES.events):
            assert COPIES.allows(copies, event, self.core.copies_state), (copies, event)
        if isinstance(event, TOPIC.events):
            assert TOPIC.allows(topic, event, self.core.topic_state), (topic, event)
        for effect in effects:
            match effect:
                case Enqueue():
                    self.enqueue(effect)
                case Walk():
                    self.begin_walk(effect)
                case Publish():
                    self.publish(effect)
                case Close(slot_ms):
                    del self.slots[slot_ms], self.ends[slot_ms]
                case ForgetDelivered():
                    self.delivered.clear()

    def enqueue(self, effect: Enqueue) -> None:
        limit = min(effect.limit, self.random.randrange(1, self.enqueue_max))
        found = self.disk.timer_records()[effect.offset : effect.offset + limit]
        for record in found:
            unit = self.enqueued(record, effect.open_ms, effect.write_ms)
            for slot_ms, end_ms in self.ends.items():
                if unit is not None and slot_ms <= unit.slot_ms < end_ms and unit.queue_offset not in self.delivered:
                    self.slots[slot_ms].add(self.message(unit))
        following = effect.offset + len(found)
        if found:
            self.read_ms, self.read_offset = found[-1].store_ms, found[-1].offset + RECORD_BYTES
        if following < len(self.disk.timer_records()):
            self.step(Enqueued(following, self.read_ms, self.read_offset))
        else:
            self.step(Enqueued(following, self.now_ms, self.disk.end))

    def enqueued(self, record: LogRecord, open_ms: int, write_ms: int) -> Unit | None:
        """Append the unit of a record. None if it is known to be delivered."""
        own = placement = self.placed(record, open_ms)
        if record.deletes:
            slots = (slot for slot in self.ends.items() if slot[0] <= open_ms < slot[1])
            from_ms, end_ms = next(slots, (open_ms, open_ms + self.settings.precision_ms))
            placement = place_delete(own, self.targets(record), open_ms=from_ms, open_end_ms=end_ms)
            self.elsewhere += placement.slot_ms != own.slot_ms
        if placement == own and self.is_done(record):
            return None
        is_late = placement.slot_ms == open_ms and self.exact_of(record, self.settings.coarsest_ms) <= open_ms
        enqueue_ms = open_ms + 1 if is_late else max(write_ms, open_ms)
        return self.append_unit(record, placement.slot_ms, placement.magic, enqueue_ms)

    def is_done(self, record: LogRecord) -> bool:
        """True if the record was delivered or rolled before it came."""
        exact_ms = self.exact_of(record, self.known_coarsest_ms)
        return self.done.has(record.queue_offset, exact_ms=exact_ms, slot_ms=self.placed(record, 0).slot_ms)

    def exact_of(self, record: LogRecord, coarsest_ms: int) -> int:
        """See placement.exact_ms. Messages with odd numbers have a delay, the others a time."""
        end_ms = record.out_ms + step_of(record.out_ms, coarsest_ms)
        return end_ms if record.rolls and record.message % 2 else min(max(record.exact_ms, record.out_ms + 1), end_ms)

    def floored(self, time_ms: int) -> int:
        return time_ms - time_ms % self.settings.precision_ms

    def placed(self, record: LogRecord, open_ms: int) -> Placement:
        step_ms = self.settings.precision_ms
        return place(
            self.exact_of(record, self.settings.coarsest_ms) - 1, write_ms=self.floored(record.store_ms),
            open_ms=open_ms, is_delete=bool(record.deletes),
            window_slots=self.settings.window_slots, precision_ms=step_ms,
        )  # fmt: skip

    def targets(self, record: LogRecord) -> Iterator[Target]:
        """Entries of the index under the key that a delete names, and some of equal hash, the newest first."""
        for unit in reversed(self.disk.units):
            of = self.disk.log[unit.offset // RECORD_BYTES]
            if of.key == record.key or unit.queue_offset % 7 == 0:
                yield Target(unit.slot_ms, unit.magic, of.key == record.key)

    def append_unit(self, record: LogRecord, slot_ms: int, magic: Magic, enqueue_ms: int) -> Unit:
        disk = self.disk
        position = len(disk.units)
        previous = disk.slots.get(slot_ms, -1)
        disk.units.append(Unit(position, previous, slot_ms, enqueue_ms, magic, record.queue_offset, record.offset))
        disk.slots[slot_ms] = position
        return disk.units[-1]

    def begin_walk(self, effect: Walk) -> None:
        slot_ms = effect.slot_ms
        if slot_ms not in self.slots:
            self.slots[slot_ms] = SlotContent(slot_ms, self.messages_max, len(self.disk.units))
            assert len(self.slots) <= SLOTS_IN_MEMORY
            self.ends[slot_ms] = slot_ms + self.settings.precision_ms
            self.to_walk.append(WalkState(slot_ms, effect.until_ms, effect.required_ms, self.chain(slot_ms)))
            return
        slot = self.slots[slot_ms]
        slot.walk_again()
        slots = sorted(at for at in self.disk.slots if slot_ms <= at < self.ends[slot_ms])
        units = [unit for at in slots for unit in self.chain(at) if unit.position < slot.units_end]
        self.to_walk.append(WalkState(slot_ms, 0, 0, units))

    def chain(self, slot_ms: int) -> list[Unit]:
        found, position = [], self.disk.slots.get(slot_ms, -1)
        while position >= 0:
            unit = self.disk.units[position]
            found.append(unit)
            position = unit.previous
        return found

    def walk(self) -> None:
        """A piece of the oldest walk."""
        walk = self.to_walk[0]
        count = self.random.randrange(1, 30)
        piece, walk.units = walk.units[:count], walk.units[count:]
        walk.count += len(piece)
        for unit in piece:
            if unit.queue_offset not in self.delivered:
                self.slots[walk.slot_ms].found(self.message(unit))
        if walk.units or self.join(walk):
            return
        self.to_walk.pop(0)
        self.step(Walked(walk.slot_ms, self.ends[walk.slot_ms]))

    def join(self, walk: WalkState) -> bool:
        """The next slot in use joins. False without one."""
        until_ms = walk.until_ms if walk.count < self.join_units else walk.required_ms
        following = self.next_used(self.ends[walk.slot_ms], until_ms)
        if following is None:
            return False
        self.ends[walk.slot_ms] = following + self.settings.precision_ms
        walk.units = self.chain(following)
        self.joined += 1
        return True

    def message(self, unit: Unit) -> TimerMessage:
        record = self.disk.log[unit.offset // RECORD_BYTES]
        at_ms = unit.slot_ms if unit.magic & Magic.ROLL else self.exact_of(record, self.settings.coarsest_ms)
        return TimerMessage(at_ms, unit.position, unit.magic, f"{unit.slot_ms}/{record.key}")

    def publish(self, effect: Publish) -> None:
        slot = self.slots[effect.slot_ms]
        due = slot.take(effect.until_ms, min(effect.room, self.random.randrange(1, 40)))
        deletes = [message for message in due if message.is_rolled and Magic.DELETE in message.magic]
        if deletes:
            slot.give_back(message for message in due if message.at_ms > deletes[0].at_ms)
            due = [message for message in due if message.at_ms <= deletes[0].at_ms]
        copies = [message for message in due if not slot.is_deleted(message)]
        self.in_flight += copies
        self.early += [message.unit for message in copies if self.is_early(message)]
        numbers = [number for number, message in enumerate(copies, 1) if message in deletes]
        self.step(Published(len(copies), max(numbers, default=0), deletes[0].at_ms if deletes else 0))

    def is_early(self, message: TimerMessage) -> bool:
        """The slot may have rounded the time. A rolled message may go at its slot's time."""
        unit = self.disk.units[message.unit]
        due_ms = unit.slot_ms if message.is_rolled else self.disk.log[unit.offset // RECORD_BYTES].exact_ms
        return due_ms > self.now_ms

    def store(self) -> None:
        """`write` takes some of the requests, or refuses the rest."""
        count = self.random.randrange(len(self.in_flight) + 1)
        taken, self.in_flight = self.in_flight[:count], self.in_flight[count:]
        for message in taken:
            self.store_copy(message)
        if count:
            self.step(Stored(count, self.disk.end))
        if self.refuses:
            if self.in_flight:
                self.slots[self.core.source_ms].give_back(self.in_flight)
            self.in_flight = []
            self.step(Refused())

    def store_copy(self, message: TimerMessage) -> None:
        unit = self.disk.units[message.unit]
        source = self.disk.log[unit.offset // RECORD_BYTES]
        if message.is_rolled:
            self.append(
                message=source.message, out_ms=source.out_ms, exact_ms=source.exact_ms, deletes=source.deletes,
                key=source.key, rolls=source.rolls + 1, mark=unit.queue_offset,
                queue_offset=len(self.disk.timer_records()),
            )  # fmt: skip
            return
        self.append(message=source.message, mark=unit.queue_offset)

    def flush(self) -> None:
        """The checkpoint follows what is on disk."""
        progress, disk = self.core.progress, self.disk
        disk.flushed_units, disk.flushed_records = len(disk.units), len(disk.log)
        disk.checkpoint, disk.coarsest_ms = replace(progress), self.settings.coarsest_ms

    def turn(self) -> None:
        self.step(Tick(self.disk.end))
        while self.to_walk and self.random.random() < 0.8:
            self.walk()
        if self.in_flight and self.random.random() < 0.9:
            self.store()

    # -- faults --------------------------------------------------------------------------------------------

    def kill(self, takes_requests: bool = True) -> None:
        """The worker dies. `write` still stores what it has in its ring."""
        if takes_requests:
            for message in self.in_flight[: self.random.randrange(len(self.in_flight) + 1)]:
                self.store_copy(message)
        self.core = self.started()

    def lose_files(self) -> None:
        """The worker dies, and its files are rebuilt from the log."""
        self.kill()
        self.disk.units, self.disk.slots, self.disk.flushed_units = [], {}, 0
        self.core = self.started()

    def reopen(self, settings: TimerSettings, lost: str) -> None:
        """The worker starts with other properties. `lost`: "files" for wheel or TimerLog, "progress", or nothing."""
        disk, before_ms = self.disk, self.settings.precision_ms
        coarsest_ms = PRECISIONS_MS[-1] if lost == "progress" else disk.coarsest_ms
        self.settings = replace(settings, coarsest_ms=max(coarsest_ms, settings.precision_ms))
        if lost == "files" or before_ms != settings.precision_ms:
            disk.units, disk.slots, disk.flushed_units = [], {}, 0
        if lost == "progress":
            oldest_ms = min((unit.slot_ms for unit in disk.units), default=None)
            open_ms = self.now_ms - SLOTS // 2 * settings.precision_ms if oldest_ms is None else oldest_ms
            disk.checkpoint = Progress(open_ms, 0, 0, known_coarsest_ms=PRECISIONS_MS[0])
        self.core = self.started()

    def power_cut(self) -> set[int]:
        """Everything dies, and what was not flushed may be gone. Returns the messages that may come again."""
        disk = self.disk
        kept = self.random.randrange(disk.flushed_records, len(disk.log) + 1)
        lost = disk.log[kept:]
        del disk.log[kept:]
        del disk.units[self.random.randrange(disk.flushed_units, len(disk.units) + 1) :]
        for record in lost:
            if record.message in self.sent and self.sent[record.message].offset >= disk.end:
                del self.sent[record.message]
        self.core = self.started()
        return {record.message for record in lost}

    # -- what must be -----------------------------------------------------------------------------------------

    def deliveries(self) -> list[int]:
        return [record.message for record in self.disk.log if record.queue_offset < 0]

    def finish(self, until_ms: int) -> None:
        """Go on without faults until everything sent before is due."""
        self.refuses = False
        for number in range(200_000):
            self.turn()
            if number % 64 == 0 and not self.in_flight:
                due_ms = min((self.sent[message].exact_ms for message in self.waiting()), default=until_ms)
                if self.now_ms > until_ms and not self.waiting():
                    return
                self.now_ms = max(self.now_ms, due_ms - FAR_MS)
            self.now_ms = max(self.now_ms + 1, min(self.core.next_ms(self.now_ms), self.now_ms + 250))
        raise AssertionError(f"{len(self.waiting())} messages were not delivered: {sorted(self.waiting())[:5]}")

    def waiting(self) -> set[int]:
        done = set(self.deliveries())
        return {
            number for number, record in self.sent.items()
            if number not in done and not record.deletes and record.key not in self.deleted | self.perhaps_deleted
        }  # fmt: skip
