"""Timer messages over a simulated clock, log and disk. A sorted list of what was sent is the judge.

The log keeps the sends, the rolled copies and the delivered ones. A kill leaves log, units and slots as they are, and
takes the core. A power cut also takes what was not flushed: the ends of CommitLog and TimerLog, and any slots.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field

from ringmq.timer.core import (
    Append,
    Event,
    Progress,
    Publish,
    ReadQueue,
    Records,
    Refused,
    Stored,
    Tick,
    TimerCore,
    TimerRecord,
    TimerSettings,
    Walk,
    Walked,
)
from ringmq.timer.placement import Placement
from ringmq.timer.slot_content import TimerMessage
from ringmq.timer.timer_log import Magic

START_MS = 1_800_000_000_000
RECORD_BYTES = 100
DAY_MS = 86_400_000


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
    flushed_units: int = 0
    flushed_records: int = 0

    @property
    def end(self) -> int:
        return len(self.log) * RECORD_BYTES

    def timer_records(self) -> list[LogRecord]:
        return [record for record in self.log if record.queue_offset >= 0]


class World:
    """One store and its timer worker."""

    def __init__(self, seed: int, settings: TimerSettings) -> None:
        self.random = random.Random(seed)
        self.settings = settings
        self.disk = Disk()
        self.now_ms = START_MS + self.random.randrange(1000)
        self.numbers = itertools.count()
        self.sent: dict[int, LogRecord] = {}
        self.deleted: set[str] = set()
        self.perhaps_deleted: set[str] = set()
        self.in_flight: list[TimerMessage] = []
        self.to_walk: list[tuple[int, list[Unit]]] = []
        self.early: list[int] = []
        self.refuses = False
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

    def delete(self, number: int) -> bool:
        """Recall a message by another one for the same slot. True if it must work: a whole step is left, and it is not
        rolled between. False if it may come too late."""
        source = self.sent[number]
        delay_ms = source.exact_ms - self.now_ms
        if delay_ms <= 0:
            return False
        step_ms, window_ms = self.settings.precision_ms, self.settings.window_slots * self.settings.precision_ms
        self.send(delay_ms, deletes=source.key)
        must_work = delay_ms > 2 * step_ms and source.out_ms - source.store_ms < window_ms - step_ms
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
        known = {unit.queue_offset for unit in disk.units}
        progress = disk.checkpoint
        queue_offset = progress.queue_offset
        while queue_offset in known:
            queue_offset += 1
        delivered = {record.mark for record in disk.log if record.mark >= 0 and record.offset >= progress.marks_from}
        delivered_ms = max((unit.slot_ms for unit in disk.units if unit.queue_offset in delivered), default=0)
        if delivered:  # a power cut may have taken their units
            delivered_ms = max(delivered_ms, self.now_ms)
        self.in_flight, self.to_walk = [], []
        begin = Progress(progress.open_ms, queue_offset, progress.marks_from)
        return TimerCore(self.settings, begin, self.next_used, delivered, delivered_ms)

    def next_used(self, from_ms: int, to_ms: int) -> int | None:
        return min((slot_ms for slot_ms in self.disk.slots if from_ms <= slot_ms < to_ms), default=None)

    def step(self, event: Event) -> None:
        for effect in self.core.step(event, self.now_ms):
            match effect:
                case ReadQueue(offset, limit):
                    self.read(offset, min(limit, self.random.randrange(1, 40)))
                case Append(record, placement):
                    self.append_unit(record, placement)
                case Walk(slot_ms):
                    self.to_walk.append((slot_ms, self.chain(slot_ms)))
                case Publish(messages):
                    self.in_flight += messages
                    self.early += [message.queue_offset for message in messages if message.exact_ms > self.now_ms]

    def read(self, offset: int, limit: int) -> None:
        found = self.disk.timer_records()[offset : offset + limit]
        records = [
            TimerRecord(
                record.queue_offset, record.offset, RECORD_BYTES, record.out_ms,
                record.out_ms + self.settings.precision_ms if record.rolls else record.exact_ms, 0,
                bool(record.deletes), record.key,
            )
            for record in found
        ]  # fmt: skip
        self.step(Records(records, offset + len(found)))

    def append_unit(self, record: TimerRecord, placement: Placement) -> None:
        disk = self.disk
        position = len(disk.units)
        previous = disk.slots.get(placement.slot_ms, -1)
        disk.units.append(
            Unit(position, previous, placement.slot_ms, placement.magic, record.queue_offset, record.commit_log_offset)
        )
        disk.slots[placement.slot_ms] = position

    def chain(self, slot_ms: int) -> list[Unit]:
        found, position = [], self.disk.slots.get(slot_ms, -1)
        while position >= 0:
            unit = self.disk.units[position]
            found.append(unit)
            position = unit.previous
        return found

    def walk(self) -> None:
        """A piece of the oldest walk."""
        slot_ms, units = self.to_walk.pop(0)
        count = self.random.randrange(1, 30)
        piece, rest = units[:count], units[count:]
        if rest:
            self.to_walk.insert(0, (slot_ms, rest))
        self.step(Walked(slot_ms, [self.message(unit) for unit in piece], not rest))

    def message(self, unit: Unit) -> TimerMessage:
        record = self.disk.log[unit.offset // RECORD_BYTES]
        exact_ms = record.out_ms + self.settings.precision_ms if record.rolls else record.exact_ms
        at_ms = unit.slot_ms if unit.magic & Magic.ROLL else exact_ms
        return TimerMessage(at_ms, unit.queue_offset, unit.offset, RECORD_BYTES, unit.magic, record.key)

    def store(self) -> None:
        """`write` takes some of the requests, or refuses the rest."""
        count = self.random.randrange(len(self.in_flight) + 1)
        taken, self.in_flight = self.in_flight[:count], self.in_flight[count:]
        for message in taken:
            self.store_copy(message)
        if self.refuses:
            self.in_flight = []
            self.step(Refused(count))
        elif count:
            self.step(Stored(count))

    def store_copy(self, message: TimerMessage) -> None:
        source = self.disk.log[message.commit_log_offset // RECORD_BYTES]
        if message.is_rolled:
            self.append(
                message=source.message, out_ms=source.out_ms, exact_ms=source.exact_ms, deletes=source.deletes,
                key=source.key, rolls=source.rolls + 1, mark=message.queue_offset,
                queue_offset=len(self.disk.timer_records()),
            )  # fmt: skip
            return
        self.append(message=source.message, mark=message.queue_offset)

    def flush(self) -> None:
        """The checkpoint follows what is on disk."""
        progress, disk = self.core.progress, self.disk
        disk.flushed_units, disk.flushed_records = len(disk.units), len(disk.log)
        disk.checkpoint = Progress(progress.open_ms, progress.queue_offset, progress.marks_from)

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

    # -- the judge -----------------------------------------------------------------------------------------

    def deliveries(self) -> list[int]:
        return [record.message for record in self.disk.log if record.queue_offset < 0]

    def finish(self, until_ms: int) -> None:
        """Go on without faults until everything sent before is due."""
        self.refuses = False
        for number in range(200_000):
            self.turn()
            if self.now_ms > until_ms and number % 64 == 0 and not self.waiting():
                return
            self.now_ms = max(self.now_ms + 1, min(self.core.next_ms(self.now_ms), self.now_ms + 250))
        raise AssertionError(f"{len(self.waiting())} messages were not delivered: {sorted(self.waiting())[:5]}")

    def waiting(self) -> set[int]:
        done = set(self.deliveries())
        return {
            number for number, record in self.sent.items()
            if number not in done and not record.deletes and record.key not in self.deleted | self.perhaps_deleted
        }  # fmt: skip
