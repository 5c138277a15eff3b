"""A store that changes hands between RingMQ and a model of RocketMQ, by clean stops and by deaths.

The log has messages of one queue, and records of open messages: check points and acknowledgements. Windows, check
points and plans are those of the product, the model of RocketMQ knows the records and the consumer offset alone. What
the consumers have seen decides. Messages whose time is over go to a retry queue, which has no part in a change.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from ringmq.native import lib
from ringmq.pop.check_points_twin import OpenEntry, check_points
from ringmq.pop.endings import endings_of
from ringmq.pop.entry_twin import Give
from ringmq.pop.open_pops import OpenPops, plan_window
from ringmq.pop.revive_records import (
    EARLIER_MS,
    Acks,
    CheckPoint,
    Pop,
    ack_body,
    batch_ack_body,
    check_point_body,
    read_record,
)
from ringmq.pop.window_memory import WindowMemory
from ringmq.pop.window_names import Key, Window
from ringmq.pop.window_twin import DONE, WindowTwin, bits_of
from tests.pop.simulation import START_MS, BrokenPromiseError

TOPIC, GROUP, BROKER, QUEUES = "T", "G", "b", 8
INVISIBLE_MS = (3000, 20_000, 300_000)
STEPS_OF_A_STOP = ("check points", "endings", "offsets", "handled")
WINDOWS_MAX, ENTRIES_MAX = 4, 256


@dataclass(frozen=True)
class Record:
    """A record of open messages. It leaves the timer at `out_ms`."""

    tag: str
    body: bytes
    revive_queue: int
    out_ms: int


@dataclass
class Store:
    """What outlives an owner. `committed`: the consumer offset on the disk, -1 = none."""

    messages: int = 0
    records: tuple[Record, ...] = ()
    retries: tuple[int, ...] = ()
    committed: int = -1

    def opened(self) -> OpenPops:
        """The open messages by the records."""
        found = OpenPops()
        for record in self.records:
            found.add(record.tag, record.body, record.revive_queue)
        assert not found.damaged
        return found

    def add(self, tag: str, body: bytes, revive_queue: int, due_ms: int) -> None:
        """A record comes to the log."""
        self.records += (Record(tag, body, revive_queue, due_ms - (EARLIER_MS if tag == "ck" else 0)),)

    def forget(self, pops: set[Pop]) -> None:
        """The records of these pops are handled."""
        self.records = tuple(one for one in self.records if read_record(one.tag, one.body).pop not in pops)


@dataclass(frozen=True)
class Held:
    """A message that a consumer has, with its receipt."""

    offset: int
    pop: Pop
    revive_queue: int
    due_ms: int


class Stock:
    """The model of RocketMQ: it begins at the consumer offset, and writes a record of each pop and acknowledgement."""

    def __init__(self, store: Store) -> None:
        self.store, self.next = store, max(store.committed, 0)

    def pop(self, count: int, invisible_ms: int, now_ms: int, revive_queue: int) -> list[Held]:
        start, end = self.next, min(self.next + count, self.store.messages)
        if start == end:
            return []
        pop, self.next = Pop(TOPIC, GROUP, 0, start, now_ms, BROKER), end
        body = check_point_body(CheckPoint(pop, invisible_ms, tuple(range(end - start))))
        self.store.add("ck", body, revive_queue, now_ms + invisible_ms)
        return [Held(offset, pop, revive_queue, now_ms + invisible_ms) for offset in range(start, end)]

    def ack(self, held: Held) -> bool:
        self.store.add("ack", ack_body(Acks(held.pop, (held.offset,))), held.revive_queue, held.due_ms)
        return True

    def revive(self, now_ms: int) -> None:
        due = [one for one in self.store.opened().all() if one.pop.pop_time_ms + one.invisible_ms <= now_ms]
        for one in due:
            self.store.retries += tuple(sorted(one.offsets))
        self.store.forget({one.pop for one in due})

    def commit(self) -> None:
        self.store.committed = self.next

    def stop(self, now_ms: int) -> None:
        self.commit()


class Ours:
    """Windows of RingMQ. `memory`: what a process of before has left, None: the records tell what is open."""

    def __init__(self, store: Store, now_ms: int, memory: bytes | None, *, was_killed: bool) -> None:
        self.store = store
        if memory is None:
            memory = self._taken_over(now_ms, was_killed=was_killed)
        self.open(memory, now_ms)

    def open(self, memory: bytes, now_ms: int) -> None:
        """A worker reads the memory."""
        self.memory = WindowMemory(WINDOWS_MAX, ENTRIES_MAX, memory)
        self.twin = WindowTwin(self.memory, now_ms, now_ms)
        assert not self.twin.damaged
        self.place = next(iter(self.twin.places.values()))

    def _taken_over(self, now_ms: int, *, was_killed: bool) -> bytes:
        """As `ringmq.pop.take_over` does it."""
        memory = WindowMemory(WINDOWS_MAX, ENTRIES_MAX)
        twin, bounds = WindowTwin(memory, now_ms, now_ms), (0, self.store.messages)
        plan = plan_window(self.store.committed, bounds, list(self.store.opened().all()), was_killed=was_killed)
        following, pops, missing = plan or (max(self.store.committed, 0), [], [])
        place = twin.make(1, 0, 0, following)
        for one in pops:
            give = Give(
                one.pop.pop_time_ms, now_ms, one.pop.start_offset, 0, one.invisible_ms, revive_queue=one.revive_queue
            )
            twin.give(place, give, sorted(one.offsets))
        if missing:
            time_ms = twin.time_for([place], [missing[0]], now_ms)
            twin.give(place, Give(time_ms, now_ms, missing[0], 0, 0), missing)
            twin.unsent(place, missing[0], time_ms)
        return memory.content()

    def pop(self, count: int, invisible_ms: int, now_ms: int, revive_queue: int) -> list[Held]:
        offsets = self.twin.returned(self.place, count)
        start = offsets[0] if offsets else int(self.memory.window(self.place).next_offset)
        fresh = [] if offsets else list(range(start, min(start + count, self.store.messages)))
        if not offsets and not fresh:
            return []
        time_ms = self.twin.time_for([self.place], [start], now_ms)
        give = Give(time_ms, now_ms, start, start + len(fresh), invisible_ms, revive_queue=revive_queue)
        if offsets:
            self.twin.give_again(self.place, give, offsets)
        else:
            self.twin.give(self.place, give, fresh)
        pop = Pop(TOPIC, GROUP, 0, start, time_ms, BROKER)
        return [Held(offset, pop, revive_queue, time_ms + invisible_ms) for offset in offsets or fresh]

    def ack(self, held: Held) -> bool:
        found, _ = self.twin.ack(self.place, held.pop.start_offset, held.pop.pop_time_ms, held.offset, 1)
        return found == DONE

    def revive(self, now_ms: int) -> None:
        for due in self.twin.due(now_ms, 64):
            self.store.retries += (due.queue_offset,)
            self.twin.copied(due.window, due.queue_offset, 1)
        self.twin.flushed(1)

    def commit(self) -> None:
        self.store.committed = self.twin.first_open(self.place)

    def entries(self) -> Iterator[OpenEntry]:
        """What consumers have."""
        for entry in self.twin.of_window[int(self.memory.window(self.place).id)]:
            slot = self.memory.entry(entry)
            start = int(slot.base_offset - slot.start_delta)
            pop = Pop(TOPIC, GROUP, 0, start, int(slot.pop_time_ms), BROKER)
            offsets = [slot.base_offset + bit for bit in bits_of(self.twin.open_bits(entry))]
            queue = int(slot.revive_queue) & ~lib.RMQ_POP_CHANGED
            yield OpenEntry(pop, int(slot.invisible_ms), queue, offsets)

    def stop(self, now_ms: int, until: str = STEPS_OF_A_STOP[-1], points_max: int | None = None) -> None:
        """Hand over. `until`: the last step, `points_max`: check points that reach the log."""
        self.commit()
        known = Known(list(self.entries()))
        windows = {Key(GROUP, TOPIC, 0): Window(self.place, 1, 0, 0)}
        following = int(self.memory.window(self.place).next_offset)
        endings = endings_of(known, windows, lambda key: self.ends_below(), self.store.opened(), now_ms)
        in_queue = {self.pop_of(one) for one in self.store.records if one.tag == "ck" and one.out_ms <= now_ms}
        points = list(check_points(known.entries, known.left_out, QUEUES))[:points_max]
        for point, queue in points:
            self.store.add("ck", check_point_body(point), queue, point.due_ms)
        if until != "check points":
            for acks, queue, due_ms in endings:
                self.store.add("bAck", batch_ack_body(acks), queue, due_ms)
        if until in ("offsets", "handled"):
            self.store.committed = max(self.store.committed, following)
        if until == "handled":
            written = {point.pop for point, _ in points}
            self.store.forget(in_queue - written)

    def ends_below(self) -> int:
        """Messages below it are done if no consumer has them."""
        return int(self.memory.window(self.place).next_offset)

    @staticmethod
    def pop_of(record: Record) -> Pop:
        """The pop that a record names."""
        return read_record(record.tag, record.body).pop


class Known:
    """`ringmq.pop.endings.Points` of the twin's entries."""

    def __init__(self, entries: list[OpenEntry]) -> None:
        self.entries = entries
        self.left_out: set[Pop] = set()

    def open(self, place: int, start_offset: int, pop_time_ms: int) -> set[int]:
        found = [one for one in self.entries if one.pop[3:5] == (start_offset, pop_time_ms)]
        return {offset for one in found for offset in one.offsets}

    def is_open(self, place: int, offset: int) -> bool:
        return any(offset in one.offsets for one in self.entries)

    def known(self, place: int, start_offset: int, pop_time_ms: int) -> set[int]:
        self.left_out |= {one.pop for one in self.entries if one.pop[3:5] == (start_offset, pop_time_ms)}
        return self.open(place, start_offset, pop_time_ms)


class OwnerWorld:
    """One store, its owners in turn, and the consumers of all of them."""

    ours: type[Ours] = Ours

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = START_MS
        self.store = Store()
        self.owner: Ours | Stock = self.new_ours(None, was_killed=False)
        self.held: list[Held] = []
        self.done: set[int] = set()
        self.free: set[int] = set()
        """Messages that a death lets come again."""
        self.counts = dict.fromkeys(("taken over", "handed over", "receipts of before", "deaths in a stop"), 0)
        self.before: set[Held] = set()
        """Messages that an earlier owner has given."""

    def new_ours(self, memory: bytes | None, *, was_killed: bool) -> Ours:
        """RingMQ opens the store."""
        return self.ours(self.store, self.now_ms, memory, was_killed=was_killed)

    # -- consumers -------------------------------------------------------------------------------------------

    def pop(self) -> int:
        """Returns the number of messages."""
        count, invisible_ms = self.random.choice((1, 4, 32)), self.random.choice(INVISIBLE_MS)
        found = self.owner.pop(count, invisible_ms, self.now_ms, self.random.randrange(QUEUES))
        for held in found:
            self.show(held.offset)
        self.held += found
        return len(found)

    def pop_retries(self) -> int:
        """Consumers take what has come again, and acknowledge it."""
        found, self.store.retries = self.store.retries, ()
        for offset in found:
            self.show(offset)
            self.done.add(offset)
        return len(found)

    def show(self, offset: int) -> None:
        """A consumer receives a message."""
        if offset in self.free:
            return
        if offset in self.done:
            raise BrokenPromiseError(f"{offset} was acknowledged, and came again")
        if any(held.offset == offset and held.due_ms > self.now_ms for held in self.held):
            raise BrokenPromiseError(f"two consumers have {offset}")

    def ack(self, held: Held) -> None:
        """A consumer has worked on a message, in time."""
        self.held.remove(held)
        if held.due_ms > self.now_ms and self.owner.ack(held):
            self.done.add(held.offset)
            self.counts["receipts of before"] += held in self.before

    # -- owners ----------------------------------------------------------------------------------------------

    def change(self) -> None:
        """The owner stops or dies, and the next one starts."""
        was_killed, is_stock = self.random.random() < 0.4, isinstance(self.owner, Stock)
        memory = None if isinstance(self.owner, Stock) else self.owner.memory.content()
        if isinstance(self.owner, Ours) and was_killed and self.random.random() < 0.5:
            step, points_max = self.random.choice(STEPS_OF_A_STOP), None
            if step == STEPS_OF_A_STOP[0]:
                points_max = self.random.randrange(4)
            self.owner.stop(self.now_ms, step, points_max)
            self.counts["deaths in a stop"] += 1
        elif not was_killed:
            self.owner.stop(self.now_ms)
        self.before |= set(self.held)
        if self.random.random() < 0.5:
            self.start_stock(was_killed=was_killed, was_ours=not is_stock)
        else:
            self.start_ours(memory, was_killed=was_killed)

    def start_stock(self, *, was_killed: bool, was_ours: bool) -> None:
        """The model of RocketMQ gets the store."""
        if was_killed:
            self.free |= set(range(max(self.store.committed, 0), self.store.messages))
        if was_killed and was_ours:  # acknowledgements of RingMQ are in no record yet
            self.free |= {offset for one in self.store.opened().all() for offset in one.offsets}
        self.owner = Stock(self.store)
        self.counts["handed over"] += was_ours

    def start_ours(self, memory: bytes | None, *, was_killed: bool) -> None:
        """RingMQ gets the store. It has its memory if it was the last owner."""
        if memory is None and was_killed:
            pops = list(self.store.opened().all())
            covered = {offset for one in pops for offset in range(one.pop.start_offset, one.end)}
            if not any(one.offsets for one in pops):  # no window is made: the group goes on at its consumer offset
                covered = set()
            self.free |= set(range(max(self.store.committed, 0), self.store.messages)) - covered
        self.owner = self.new_ours(memory, was_killed=was_killed)
        self.counts["taken over"] += memory is None

    # -- a run -----------------------------------------------------------------------------------------------

    def step(self) -> None:
        """One random event."""
        choice = self.random.random()
        if choice < 0.2:
            self.store.messages += self.random.choice((1, 3))
        elif choice < 0.45:
            self.pop()
        elif choice < 0.65 and self.held:
            self.ack(self.random.choice(self.held))
        elif choice < 0.75:
            self.now_ms += self.random.choice((1, 700, 5000, 30_000))
        elif choice < 0.85:
            self.owner.revive(self.now_ms)
            self.pop_retries()
        elif choice < 0.92:
            self.owner.commit()
        else:
            self.now_ms += 1
            self.change()

    def finish(self) -> None:
        """The last owner gives all that is left. Raises BrokenPromiseError if a message is lost."""
        for _ in range(4):
            while self.pop():
                pass
            for held in list(self.held):
                self.ack(held)
            self.now_ms += 400_000
            self.owner.revive(self.now_ms)
            self.pop_retries()
        if lost := set(range(self.store.messages)) - self.done:
            raise BrokenPromiseError(f"{sorted(lost)} are lost")


def run(seed: int, world: type[OwnerWorld] = OwnerWorld, steps: int = 150) -> OwnerWorld:
    """One seed. Raises BrokenPromiseError."""
    played = world(seed)
    for _ in range(steps):
        played.step()
    played.finish()
    return played
