"""POP over a simulated clock, memory, log and consumers. What the consumers have seen decides.

The memory outlives the worker, which may die before any of its stores. A power cut leaves the last snapshot on disk,
and takes unflushed records: new ones get their offsets. Groups read two queues of a topic and their retry queues.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ringmq.pop.copies_known import CopiesKnown
from ringmq.pop.entry_states import State
from ringmq.pop.entry_twin import Give, NoRoomError
from ringmq.pop.window_memory import WindowMemory
from ringmq.pop.window_twin import DONE, Due, WindowTwin, bits_of

GROUPS = ("a", "b")
TOPIC = ("topic-0", "topic-1")
INVISIBLE_MS = (50, 400, 3000)
START_MS = 1_800_000_000_000
WINDOWS_MAX = 8


class DeathError(Exception):
    """The worker dies before a store."""


class BrokenPromiseError(AssertionError):
    """A consumer saw what it must not see, or a message is lost."""


@dataclass(frozen=True)
class LogRecord:
    """A record of the simulated log. Copies have the message of their source, and name window and queue offset."""

    message: int
    queue: str
    offset: int
    mark: tuple[int, int] | None = None


@dataclass
class Log:
    """Records in order. A position is the number of records before it."""

    records: list[LogRecord] = field(default_factory=list)
    queues: dict[str, list[LogRecord]] = field(default_factory=dict)
    flushed: int = 0

    def append(self, message: int, queue: str, mark: tuple[int, int] | None = None) -> int:
        """The position behind the new record."""
        of_queue = self.queues.setdefault(queue, [])
        record = LogRecord(message, queue, len(of_queue), mark)
        of_queue.append(record)
        self.records.append(record)
        return len(self.records)

    def cut(self, position: int) -> list[LogRecord]:
        """Lose the end. Returns the lost records."""
        lost = self.records[position:]
        del self.records[position:]
        for record in reversed(lost):
            self.queues[record.queue].pop()
        self.flushed = min(self.flushed, position)
        return lost

    def copies(self, position: int) -> Iterator[tuple[int, int]]:
        """The marks of copies from a position on."""
        return (record.mark for record in self.records[position:] if record.mark is not None)


@dataclass
class Held:
    """A message that a consumer has."""

    group: str
    message: int
    queue: str
    start: int
    pop_time_ms: int
    offset: int
    until_ms: int
    is_sure: bool = True
    """False after a jump of the wall clock, or an unanswered change: the time may be another one."""


@dataclass
class Image:
    """A snapshot: the memory, where its marks begin, and what the consumers had done until then."""

    content: bytes
    copies_from: int
    step: int


@dataclass
class Request:
    """A copy that is under way. `end` is its position once it is stored."""

    due: Due
    group: str
    message: int
    end: int = 0


class World:
    """One broker and its consumers."""

    entries_max = 48
    windows: type[WindowTwin] = WindowTwin
    knowledge: type[CopiesKnown] = CopiesKnown

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms, self.mono_ms, self.steps = START_MS, 1000, 0
        self.log = Log()
        self.counts = dict.fromkeys(("deaths", "late", "withdrawn", "copies", "power cuts", "clamped"), 0)
        self.open(self.new_memory(None))
        self.ids: dict[tuple[str, str], int] = {}
        self.names: dict[int, tuple[str, str]] = {}
        """Each id that was ever given, with group and queue."""
        self.next_id, self.next_message = 1, 0
        self.table: dict[tuple[str, str], int] = {}
        """Consumer offsets."""
        self.copies_from, self.has_new = 0, False
        self.known = self.knowledge(self.tell_flushed)
        self.disk = self.pending = self.image()
        self.requests: list[Request] = []
        self.held: list[Held] = []
        self.done: set[tuple[str, int]] = set()
        """Group and message: acknowledged, and the answer received."""
        self.perhaps_done: set[tuple[str, int]] = set()
        self.touched: dict[tuple[str, int], int] = {}
        """The step of the last pop or acknowledgement."""
        self.free_to_return: set[tuple[str, int]] = set()
        """A power cut has taken a pop or an acknowledgement of theirs."""
        self.resets: list[tuple[int, set[tuple[str, int]]]] = []
        """Steps of resets, and what comes again by them."""
        self.checked: dict[int, int] = {}

    # -- the memory ------------------------------------------------------------------------------------------

    def new_memory(self, content: bytes | None) -> WindowMemory:
        """Memory with a content, None: with no windows."""
        return WindowMemory(WINDOWS_MAX, self.entries_max, content)

    def survivor(self) -> WindowMemory:
        """The memory that a dead worker leaves."""
        return self.new_memory(self.memory.content())

    def open(self, memory: WindowMemory) -> None:
        """A worker reads the memory."""
        self.memory = memory
        self.twin = self.windows(memory, self.now_ms, self.mono_ms)
        assert not self.twin.damaged

    # -- the broker ------------------------------------------------------------------------------------------

    def wants(self, group: str, message: int) -> bool:
        """True if the filter of the group takes the message."""
        return group == "a" or message % 5 != 0

    def retry_queue(self, group: str) -> str:
        """The queue of the copies of a group."""
        return f"%RETRY%{group}"

    def place_of(self, group: str, queue: str) -> int:
        """The window of a group and queue. It is made at the consumer offset if there is none."""
        window_id = self.ids.get((group, queue))
        if window_id is None or window_id not in self.twin.places:
            window_id = self.new_id((group, queue))
            self.names[window_id] = (group, queue)
            offset = min(self.table.get((group, queue), 0), len(self.queue(queue)))
            self.twin.set_unmarked(self.twin.make(window_id, 0, 0, offset), 1)
            self.ids[group, queue] = window_id
        return self.twin.places[window_id]

    def new_id(self, key: tuple[str, str]) -> int:
        """An id that no window had before."""
        self.next_id += 1
        return self.next_id - 1

    def queue(self, name: str) -> list[LogRecord]:
        """Records of a queue."""
        return self.log.queues.setdefault(name, [])

    def message_at(self, queue: str, offset: int) -> int:
        """The message of a unit."""
        if offset >= len(self.queue(queue)):
            raise BrokenPromiseError(f"an entry names offset {offset} of {queue}, which has no record")
        return self.queue(queue)[offset].message

    def send(self) -> None:
        """A producer's message."""
        self.log.append(self.next_message, self.random.choice(TOPIC))
        self.next_message += 1

    def flush(self) -> None:
        """The log reaches the disk."""
        self.log.flushed = self.random.randrange(self.log.flushed, len(self.log.records) + 1)
        self.report_flush()

    def tell_flushed(self, offset: int) -> None:
        """The windows learn of the flush."""
        self.twin.flushed(offset)

    def report_flush(self) -> None:
        """The worker learns of the flush."""
        self.known.flushed(self.log.flushed, has_new=self.has_new)
        self.has_new = False

    def image(self) -> Image:
        """The memory as it is now."""
        return Image(self.memory.content(), self.copies_from, self.steps)

    def snapshot(self) -> None:
        """Begin a snapshot, or have the last one on disk. A snapshot has all marks that the entries do not know."""
        if self.random.random() < 0.5:
            self.disk = self.pending
        else:
            self.move_copies_from()
            self.pending = self.image()

    def move_copies_from(self) -> None:
        """Copies below it are in the entries: they are flushed, and their completions are taken."""
        self.report_flush()
        in_flight = [request.end - 1 for request in self.requests if request.end]
        self.copies_from = max(self.copies_from, self.known.place(min(in_flight, default=None)))

    def commit(self) -> None:
        """Report first open offsets."""
        for (group, queue), window_id in self.ids.items():
            if window_id not in self.twin.places:
                continue
            first = self.twin.first_open(self.twin.places[window_id])
            self.check_commit(group, queue, window_id, first)
            self.table[group, queue] = first
            self.twin.set_committed(self.twin.places[window_id], first, 1)

    # -- consumers -------------------------------------------------------------------------------------------

    def pop(self, group: str, count: int, invisible_ms: int, queue: str | None = None) -> int:
        """A pop of one queue. Returns the number of messages."""
        queue = queue or self.random.choice((*TOPIC, self.retry_queue(group)))
        place = self.place_of(group, queue)
        if offsets := self.twin.returned(place, count):
            start, records = offsets[0], []
            time_ms = self.touch(group, queue, place, start, offsets)
            self.twin.give_again(place, Give(time_ms, self.mono_ms, start, 0, invisible_ms), offsets)
        else:
            start = self.twin.memory.window(place).next_offset
            records = self.queue(queue)[start : start + count]
            offsets = [record.offset for record in records if self.is_given(group, record)]
            time_ms = self.touch(group, queue, place, start, offsets)
            if offsets:
                give = Give(time_ms, self.mono_ms, start, start + len(records), invisible_ms)
                self.twin.give(place, give, offsets)
            else:
                self.twin.skip_to(place, start + len(records))
        for record in records:
            if record.mark is not None:
                self.twin.copy_seen(*record.mark)
        if self.random.random() < 0.1 and offsets and self.faults:
            self.twin.unsent(place, start, time_ms)
            return len(offsets)
        for offset in offsets:
            self.show(
                Held(group, self.message_at(queue, offset), queue, start, time_ms, offset, self.mono_ms + invisible_ms)
            )
        return len(records) + len(offsets)

    def touch(self, group: str, queue: str, place: int, start: int, offsets: list[int]) -> int:
        """A pop of these begins. Returns its time."""
        for offset in offsets:
            self.touched[group, self.message_at(queue, offset)] = self.steps
        return self.twin.time_for([place], [start], self.now_ms)

    def is_given(self, group: str, record: LogRecord) -> bool:
        """True if a consumer of the group may get the record."""
        if record.mark is not None and not self.twin.take_copy(*record.mark):
            self.counts["withdrawn"] += 1
            return False
        return self.wants(group, record.message)

    def ack(self, held: Held) -> None:
        """A consumer has worked on a message."""
        key = (held.group, held.message)
        self.touched[key] = self.steps
        place = self.place_of(held.group, held.queue)
        before, is_too_late = set(self.perhaps_done), self.is_passed(held)
        self.perhaps_done.add(key)
        found, _ = self.twin.ack(place, held.start, held.pop_time_ms, held.offset, 1)
        self.held.remove(held)
        self.perhaps_done = before
        if found == DONE:
            (self.perhaps_done if is_too_late else self.done).add(key)
            self.counts["late"] += held.until_ms < self.mono_ms

    def is_passed(self, held: Held) -> bool:
        """True if a pop has passed the copy of the message: an acknowledgement of the message comes too late."""
        mark = self.ids[held.group, held.queue], held.offset
        place = self.twin.places.get(self.ids.get((held.group, self.retry_queue(held.group)), 0))
        passed = 0 if place is None else self.memory.window(place).next_offset
        return any(record.mark == mark for record in self.queue(self.retry_queue(held.group))[:passed])

    def change(self, held: Held, invisible_ms: int) -> None:
        """A consumer wants another time."""
        self.touched[held.group, held.message] = self.steps
        until_ms, held.until_ms = held.until_ms, min(held.until_ms, self.mono_ms + invisible_ms)
        place = self.place_of(held.group, held.queue)
        time_ms = self.twin.time_for([place], [held.offset], self.now_ms)
        give = Give(time_ms, self.mono_ms, held.offset, 0, invisible_ms)
        if self.twin.change(place, held.start, held.pop_time_ms, held.offset, give) == DONE:
            held.start, held.pop_time_ms, held.until_ms = held.offset, time_ms, self.mono_ms + invisible_ms
        else:
            held.until_ms = until_ms

    def show(self, shown: Held) -> None:
        """A consumer receives a message. It must not be done, or with another consumer whose time is not over."""
        key = (shown.group, shown.message)
        if key not in self.free_to_return:
            if key in self.done:
                raise BrokenPromiseError(f"{key} was acknowledged, and came again")
            for other in self.held:
                if (other.group, other.message) == key and other.is_sure and other.until_ms > self.mono_ms:
                    raise BrokenPromiseError(f"two consumers have {key}")
        self.touched[key] = self.steps
        self.held.append(shown)

    # -- revival ---------------------------------------------------------------------------------------------

    def revive(self) -> None:
        """Due messages go to `write`."""
        for due in self.twin.due(self.mono_ms, 64):
            group, queue = self.names[due.window]
            self.requests.append(Request(due, group, self.message_at(queue, due.queue_offset)))

    def write(self) -> None:
        """`write` stores copies, and answers some requests."""
        for request in self.requests:
            if not request.end and self.random.random() < 0.6:
                self.store_copy(request)
        while self.requests and self.requests[0].end and self.random.random() < 0.7:
            request = self.requests.pop(0)
            self.twin.copied(request.due.window, request.due.queue_offset, request.end)
            self.has_new = True
        if self.requests and not self.requests[0].end and self.random.random() < 0.2:
            request = self.requests.pop(0)
            wait_ms = self.random.choice((0, 100, 1000))
            until_ms, is_counted = self.mono_ms + wait_ms, wait_ms < 1000
            self.twin.copy_failed(request.due.window, request.due.queue_offset, until_ms, is_counted)

    def store_copy(self, request: Request) -> None:
        """Append the copy of a message."""
        mark = (request.due.window, request.due.queue_offset)
        place = self.twin.places.get(request.due.window)
        if place is not None and self.memory.window(place).unmarked_start:
            raise BrokenPromiseError(f"a copy has the id of window {request.due.window}, which may be given again")
        request.end = self.log.append(request.message, self.retry_queue(request.group), mark)
        self.counts["copies"] += 1

    # -- faults ----------------------------------------------------------------------------------------------

    faults = True

    def start(self, memory: WindowMemory, copies_from: int) -> None:
        """A worker starts. The main process has compared the windows with the ends of the queues."""
        self.open(memory)
        self.ids = {self.names[window_id]: window_id for window_id in self.twin.places}
        self.clamp()
        self.read_marks(copies_from)

    def read_marks(self, copies_from: int) -> None:
        """Copies that the memory may not know."""
        end = len(self.log.records)
        for mark in self.log.copies(copies_from):
            self.twin.copied(*mark, end)
        self.known, self.has_new = self.knowledge(self.tell_flushed), False
        self.known.found(end)
        self.report_flush()

    def clamp(self) -> None:
        """No window reaches beyond the end of its queue."""
        for (_, queue), window_id in self.ids.items():
            if window_id in self.twin.places:
                self.counts["clamped"] += self.twin.clamp(self.twin.places[window_id], len(self.queue(queue)))

    def kill(self) -> None:
        """The worker dies. `write` may have its requests, or not."""
        self.counts["deaths"] += 1
        for request in self.requests:
            if not request.end and self.random.random() < 0.5:
                self.store_copy(request)
        self.requests = []
        self.start(self.survivor(), self.copies_from)

    def power_cut(self) -> None:
        """Everything dies. The snapshot on disk is what is left of the memory."""
        self.counts["power cuts"] += 1
        self.pass_time(1)  # no two pops of a place have one time
        for record in self.log.cut(self.random.randrange(self.log.flushed, len(self.log.records) + 1)):
            self.lose(record)
        self.free_to_return |= {key for key, step in self.touched.items() if step >= self.disk.step}
        for step, again in self.resets:
            self.perhaps_done |= again if step >= self.disk.step else set()
        self.requests, self.pending, self.copies_from = [], self.disk, self.disk.copies_from
        self.table = {key: min(offset, len(self.queue(key[1]))) for key, offset in self.table.items()}
        self.held = [held for held in self.held if (held.group, held.message) not in self.free_to_return]
        self.start(self.new_memory(self.disk.content), self.disk.copies_from)
        self.save_start()

    def save_start(self) -> None:
        """The main process writes what it has compared with the queues, before `write` may append."""
        self.disk = self.pending = self.image()

    def lose(self, record: LogRecord) -> None:
        """A record is lost before it was flushed. Consumers may have taken a copy: that was not flushed either."""
        for group in GROUPS:
            if record.queue == self.retry_queue(group) and self.touched.get((group, record.message)) is not None:
                place = self.twin.places.get(self.ids.get((group, record.queue), 0))
                if place is not None and self.memory.window(place).next_offset > record.offset:
                    self.free_to_return.add((group, record.message))

    def jump(self) -> None:
        """The wall clock jumps. A worker that starts later knows no other clock."""
        self.now_ms += self.random.choice((-100_000, -500, 700, 3_600_000))
        for held in self.held:
            held.is_sure = False

    def reset(self) -> None:
        """The consumer offset is set back: the window ends, and a new one begins there. All comes again."""
        key = self.random.choice(list(self.ids))
        if key[1] not in TOPIC or self.ids[key] not in self.twin.places:
            return
        place = self.twin.places[self.ids[key]]
        offset = self.random.randrange(self.twin.first_open(place) + 1)
        again = {(key[0], record.message) for record in self.queue(key[1])}
        withdrawn = {(key[0], self.queue(key[1])[at].message) for at in self.withdrawn(self.ids[key])}
        self.free_to_return |= again | withdrawn
        self.resets.append((self.steps, again))
        self.held = [held for held in self.held if (held.group, held.message) not in again]
        self.twin.drop(place)
        self.table[key] = offset
        again = {(key[0], record.message) for record in self.queue(key[1])[offset:]}
        self.done -= again
        self.perhaps_done -= again
        self.place_of(*key)

    def withdrawn(self, window_id: int) -> Iterator[int]:
        """Queue offsets of copies that late acknowledgements have withdrawn. A reset forgets them."""
        for entry in self.twin.of_window[window_id]:
            slot = self.memory.entry(entry)
            yield from (slot.base_offset + bit for bit in bits_of(slot.acked & slot.copied))

    # -- what must be ----------------------------------------------------------------------------------------

    def check_commit(self, group: str, queue: str, window_id: int, first: int) -> None:
        """The consumer offset passes no message that is neither done nor flushed as a copy."""
        if queue not in TOPIC:
            return
        copied = {record.message for record in self.log.records[: self.log.flushed] if record.mark}
        for record in self.queue(queue)[self.checked.get(window_id, 0) : first]:
            key = (group, record.message)
            is_done = key in self.done | self.perhaps_done | self.free_to_return or record.message in copied
            if self.wants(*key) and not is_done:
                raise BrokenPromiseError(f"the consumer offset {first} of {queue} has passed {key}")
        self.checked[window_id] = first

    def step(self) -> None:
        """One random event, in which the worker may die."""
        self.steps += 1
        if self.random.random() < 0.08:
            self.die_after(self.random.randrange(30))
        try:
            self.act()
        except DeathError:
            self.kill()
        except NoRoomError:
            pass
        self.memory.before_store = lambda: None

    def die_after(self, stores: int) -> None:
        """The worker dies before that store."""
        left = stores

        def count() -> None:
            nonlocal left
            if not left:
                raise DeathError
            left -= 1

        self.memory.before_store = count

    def act(self) -> None:
        """One random event."""
        group, choice = self.random.choice(GROUPS), self.random.random()
        if choice < 0.14:
            self.send()
        elif choice < 0.40:
            self.pop(group, self.random.choice((1, 2, 4, 32)), self.random.choice(INVISIBLE_MS))
        elif choice < 0.58:
            for held in self.random.sample(self.held, min(len(self.held), self.random.randrange(4))):
                self.ack(held)
        elif choice < 0.62 and self.held:
            self.change(self.random.choice(self.held), self.random.choice(INVISIBLE_MS))
        elif choice < 0.70:
            self.pass_time(self.random.choice((1, 40, 400, 3000)))
        elif choice < 0.78:
            self.revive()
        else:
            self.act_beside(choice)

    def act_beside(self, choice: float) -> None:
        """An event that no client has asked for."""
        events: list[tuple[float, Callable[[], None]]] = [
            (0.86, self.write), (0.90, self.flush), (0.93, self.snapshot), (0.955, self.commit), (0.97, self.kill),
            (0.985, self.power_cut), (0.99, self.jump), (0.995, self.reset if self.ids else self.flush),
            (1.0, self.lose_consumers),
        ]  # fmt: skip
        next(event for until, event in events if choice < until)()

    def pass_time(self, passed_ms: int) -> None:
        """Both clocks go on."""
        self.now_ms += passed_ms
        self.mono_ms += passed_ms

    def lose_consumers(self) -> None:
        """Consumers die with their messages."""
        self.held = [held for held in self.held if self.random.random() < 0.5]

    def finish(self) -> None:
        """No more faults: consumers take and acknowledge everything."""
        self.faults, self.held = False, []
        for _ in range(200):
            self.pass_time(4000)
            self.revive()
            while self.requests:
                self.write()
            self.log.flushed = len(self.log.records)
            self.report_flush()
            if not self.drain() and not self.twin.wheel and not self.requests:
                break
        self.commit()
        self.check_end()

    def drain(self) -> int:
        """Consumers take everything that can be had. Returns how much that was."""
        found = 0
        for group in GROUPS:
            for queue in (*TOPIC, self.retry_queue(group)):
                while taken := self.pop(group, 32, 3000, queue):
                    found += taken
                    for held in list(self.held):
                        self.ack(held)
        return found

    def check_end(self) -> None:
        """Nothing is lost, and nothing is left in the windows."""
        for group in GROUPS:
            for record in [record for queue in TOPIC for record in self.queue(queue)]:
                if self.wants(group, record.message) and (group, record.message) not in self.done | self.perhaps_done:
                    raise BrokenPromiseError(f"{group, record.message} is lost")
        self.pass_time(700_000)
        self.revive()
        left = [entry for entries in self.twin.of_window.values() for entry in entries]
        for entry in left:
            slot = self.memory.entry(entry)
            if self.twin.state_of(entry) is not State.REVIVED or not slot.acked & slot.copied:
                raise BrokenPromiseError(f"entry {entry} is {self.twin.state_of(entry).name} at the end")


def run(seed: int, world: type[World] = World, steps: int = 300) -> World:
    """One seed. Raises BrokenPromiseError."""
    played = world(seed)
    for _ in range(steps):
        played.step()
    played.finish()
    return played
