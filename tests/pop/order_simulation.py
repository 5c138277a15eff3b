"""The simulation of POP with an orderly group beside the others. It sees a queue in its order, and not past a batch
that a consumer has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ringmq.pop.entry_twin import Give
from ringmq.pop.window_memory import WindowMemory
from ringmq.pop.window_twin import DONE
from tests.pop.simulation import INVISIBLE_MS, TOPIC, BrokenPromiseError, World

GROUP = "o"
ORDER_SHARE = 0.25
ATTEMPTS = (b"", b"a1", b"a2", b"a3")


@dataclass
class Batch:
    """The messages of one queue that a consumer has, by their offsets."""

    queue: str
    attempt: bytes
    pop_time_ms: int
    messages: dict[int, int]
    until_ms: dict[int, int]
    acked: set[int] = field(default_factory=set)
    perhaps_acked: set[int] = field(default_factory=set)
    is_sure: bool = True
    """False if its times may be others."""

    def passed(self, more: int | None = None) -> tuple[set[int], set[int]]:
        """The messages before the first one that is open: those that are done, and those that may be."""
        done, perhaps = set[int](), set[int]()
        for offset, message in self.messages.items():
            if offset in self.acked and not perhaps:
                done.add(message)
            elif offset in self.acked | self.perhaps_acked or offset == more:
                perhaps.add(message)
            else:
                break
        return done, perhaps


@dataclass
class Given:
    """The batch that the window has, with the count of each message."""

    attempt: bytes
    counts: dict[int, int]
    is_returned: bool = False


class OrderWorld(World):
    """One broker, its consumers, and those of an orderly group."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.batches: dict[str, Batch] = {}
        self.given: dict[str, Given] = {}
        self.is_cut = False
        self.counts |= dict.fromkeys(("blocked", "again", "returned batches"), 0)

    # -- consumers -------------------------------------------------------------------------------------------

    def pop_in_order(self, queue: str, count: int, invisible_ms: int, attempt: bytes) -> int:
        """An orderly pop of one queue. Returns the number of messages."""
        place = self.place_of(GROUP, queue)
        if self.twin.order_blocks(place, attempt, self.mono_ms):
            self.counts["blocked"] += 1
            return 0
        start = self.memory.window(place).next_offset
        records = self.queue(queue)[start : start + count]
        if not records:
            return 0
        offsets = [record.offset for record in records]
        for record in records:
            self.touched[GROUP, record.message] = self.steps
        time_ms = self.twin.order_time_for([place], self.now_ms)
        before, self.given = self.given.get(queue), {key: of for key, of in self.given.items() if key != queue}
        if queue in self.batches and attempt == self.batches[queue].attempt:
            self.batches[queue].is_sure = False
        give = Give(time_ms, self.mono_ms, start, start + len(records), invisible_ms, revive_queue=999)
        self.twin.order_give(place, give, attempt, offsets)
        given = self.counted(queue, place, attempt, offsets, before)
        self.twin.order_show(place)  # the worker may die in it
        self.given[queue] = given
        if self.random.random() < 0.1 and self.faults:
            del self.given[queue]
            after = Given(attempt, self.count_of(place, offsets), is_returned=True)
            self.twin.unsent(place, start, time_ms)
            self.given[queue] = after
            self.batches.pop(queue, None)
            self.counts["returned batches"] += 1
            return len(records)
        messages = {record.offset: record.message for record in records}
        until_ms = dict.fromkeys(offsets, self.mono_ms + invisible_ms)
        self.show_batch(Batch(queue, attempt, time_ms, messages, until_ms))
        return len(records)

    def count_of(self, place: int, offsets: list[int]) -> dict[int, int]:
        """The counts of the batch of a window."""
        order = self.memory.order(self.memory.window(place).order - 1)
        return {offset: int(order.consumed[number]) for number, offset in enumerate(offsets)}

    def counted(self, queue: str, place: int, attempt: bytes, offsets: list[int], before: Given | None) -> Given:
        """The new batch of the window, whose counts are those of the batch before it, and one more."""
        found = Given(attempt, self.count_of(place, offsets))
        if before is not None:
            is_same = before.is_returned or (attempt and attempt == before.attempt)
            known = {offset: count + (not is_same) for offset, count in before.counts.items()}
            wanted = {offset: known.get(offset, 0) for offset in offsets}
            self.counts["again"] += any(wanted.values())
            if found.counts != wanted:
                raise BrokenPromiseError(f"{queue} was given with the counts {found.counts} instead of {wanted}")
        return found

    def show_batch(self, shown: Batch) -> None:
        """A consumer receives a batch."""
        first, older = min(shown.messages), self.batches.get(shown.queue)
        passed = {(GROUP, record.message) for record in self.queue(shown.queue)[:first]}
        if lost := passed - self.done - self.perhaps_done - self.free_to_return:
            raise BrokenPromiseError(f"{shown.queue} was read past {lost}, which nobody has acknowledged")
        for message in shown.messages.values():
            if (GROUP, message) in self.done - self.free_to_return:
                raise BrokenPromiseError(f"{GROUP, message} was acknowledged, and came again")
        if older is not None and older.is_sure and older.attempt != shown.attempt:
            for offset in older.messages.keys() - older.acked - older.perhaps_acked:
                if older.until_ms[offset] > self.mono_ms:
                    raise BrokenPromiseError(f"{shown.queue} was read while offset {offset} was with a consumer")
        self.batches[shown.queue] = shown

    def ack_in_order(self, batch: Batch, offset: int) -> None:
        """A consumer has worked on a message of its batch."""
        self.touched[GROUP, batch.messages[offset]] = self.steps
        place, before = self.place_of(GROUP, batch.queue), (set(self.perhaps_done), set(batch.perhaps_acked))
        self.perhaps_done |= {(GROUP, message) for message in batch.passed(offset)[1]}
        batch.perhaps_acked.add(offset)
        found = self.twin.order_ack(place, batch.pop_time_ms, offset)
        self.perhaps_done, batch.perhaps_acked = before
        if found == DONE:
            batch.acked.add(offset)
            done, perhaps = batch.passed()
            new = {(GROUP, message) for message in done} - self.done
            self.touched |= dict.fromkeys(new, self.steps)  # this one was acknowledged last, others may lie behind it
            self.done |= new
            self.perhaps_done |= {(GROUP, message) for message in perhaps}

    def change_in_order(self, batch: Batch, offset: int, invisible_ms: int) -> None:
        """A consumer wants another time for a message of its batch."""
        self.touched[GROUP, batch.messages[offset]] = self.steps
        before, after = batch.until_ms[offset], self.mono_ms + invisible_ms
        batch.until_ms[offset] = min(before, after)
        found = self.twin.order_change(self.place_of(GROUP, batch.queue), batch.pop_time_ms, offset, after)
        batch.until_ms[offset] = after if found == DONE else before

    # -- faults ----------------------------------------------------------------------------------------------

    def power_cut(self) -> None:
        self.given, self.is_cut = {}, True
        super().power_cut()

    def start(self, memory: WindowMemory, copies_from: int) -> None:
        if self.is_cut:
            self.is_cut = False
            self.batches = {queue: batch for queue, batch in self.batches.items() if self.is_kept(batch)}
        super().start(memory, copies_from)

    def is_kept(self, batch: Batch) -> bool:
        """True if a power cut has taken neither a message nor the pop of the batch."""
        keys = {(GROUP, message) for message in batch.messages.values()}
        return max(batch.messages) < len(self.queue(batch.queue)) and not keys & self.free_to_return

    def clamp(self) -> None:
        self.given = {
            queue: given for queue, given in self.given.items() if max(given.counts) < len(self.queue(queue))
        }  # fmt: skip
        super().clamp()

    def jump(self) -> None:
        super().jump()
        for batch in self.batches.values():
            batch.is_sure = False

    def reset(self) -> None:
        given, batches, windows = self.given, self.batches, dict(self.ids)
        self.given, self.batches = {}, {}
        super().reset()  # the worker may die in it
        same = [queue for queue in TOPIC if windows.get((GROUP, queue)) == self.ids.get((GROUP, queue))]
        self.given = {queue: given[queue] for queue in same if queue in given}
        self.batches = {queue: batches[queue] for queue in same if queue in batches}

    def lose_consumers(self) -> None:
        super().lose_consumers()
        for batch in self.batches.values():
            batch.is_sure &= self.random.random() < 0.5

    # -- what must be ----------------------------------------------------------------------------------------

    def act(self) -> None:
        if self.random.random() >= ORDER_SHARE:
            super().act()
            return
        queue, batch, choice = self.random.choice(TOPIC), None, self.random.random()
        acts: list[Callable[[], object]] = [
            lambda: self.pop_in_order(
                queue, self.random.choice((1, 2, 4, 32)), self.random.choice(INVISIBLE_MS), self.random.choice(ATTEMPTS)
            )
        ]
        if (batch := self.batches.get(queue)) is not None and choice < 0.6:
            offsets = list(batch.messages)
            if choice < 0.2:
                offset, invisible_ms = self.random.choice(offsets), self.random.choice(INVISIBLE_MS)
                acts = [lambda: self.change_in_order(batch, offset, invisible_ms)]
            else:
                some = offsets if choice < 0.4 else self.random.choices(offsets, k=2)
                acts = [lambda offset=offset: self.ack_in_order(batch, offset) for offset in some]  # type: ignore[misc]
        for act in acts:
            act()
        self.twin.orders_due(self.mono_ms, 4)

    def drain(self) -> int:
        found = super().drain()
        for queue in TOPIC:
            attempt = b"last %d" % self.random.randrange(1 << 30)
            while taken := self.pop_in_order(queue, 32, 3000, attempt):
                found += taken
                for offset in list(self.batches[queue].messages):
                    self.ack_in_order(self.batches[queue], offset)
            found += self.twin.order_blocks(self.place_of(GROUP, queue), attempt, self.mono_ms)
        return found

    def check_end(self) -> None:
        super().check_end()
        for record in [record for queue in TOPIC for record in self.queue(queue)]:
            if (GROUP, record.message) not in self.done | self.perhaps_done:
                raise BrokenPromiseError(f"{GROUP, record.message} is lost")
