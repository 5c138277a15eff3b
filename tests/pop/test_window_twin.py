"""The windows of C and their twin after the same random calls: results, memory, and what a start makes of it."""

import random
from collections.abc import Callable

import pytest
from msgspec import structs

from ringmq.native import lib
from ringmq.pop.entry_twin import Give, NoRoomError
from ringmq.pop.window_memory import WindowMemory
from tests.pop.window_pair import ROOM, Pair

SEEDS = range(24)
STEPS = 200
NOW_MS = 1_800_000_000_000
INVISIBLE_MS = (0, 1, 7, 60, 64, 1000, 5000, 100_000, 86_400_000)


class Play:
    """Random calls, most of them with values that mean something."""

    def __init__(self, seed: int, windows: int = 4, entries: int = 40) -> None:
        self.random = random.Random(seed)
        self.now_ms, self.mono_ms = NOW_MS, self.random.choice((5, 4_000_000, 2**32 - 900, 2**36 - 50))
        self.pair = Pair(windows, entries, self.now_ms, self.mono_ms)
        self.next_id, self.end, self.flushed = 1, 1000, 1000
        self.receipts: list[tuple[int, int, int, list[int]]] = []
        """Place, start offset, pop time, offsets."""
        self.orders: list[tuple[int, int, int, list[int]]] = []
        """Of orderly pops."""
        self.flying: list[tuple[int, int]] = []
        self.copies: list[tuple[int, int]] = []

    def places(self) -> list[int]:
        return list(self.pair.twin.places.values())

    def some_id(self) -> int:
        return self.random.choice([*self.pair.twin.places, self.random.randrange(self.next_id + 1)])

    def next_offset(self, place: int) -> int:
        return int(self.pair.twin.memory.window(place).next_offset)

    def give_at(self, start: int, following: int, places: list[int]) -> Give:
        time_ms = self.pair.call("time_for", places, [start] * len(places), self.now_ms)
        return Give(
            time_ms, self.mono_ms, start, following, self.random.choice(INVISIBLE_MS), self.random.getrandbits(32),
            self.random.randrange(8),
        )  # fmt: skip

    def make(self) -> None:
        offset = self.random.choice((0, 3, 63, 64, 1 << 40))
        self.pair.call("make", self.next_id, self.random.randrange(16), self.random.getrandbits(60), offset)
        self.next_id += 1

    def set_unmarked(self) -> None:
        self.pair.call("set_unmarked", self.random.choice(self.places()), self.random.getrandbits(60))

    def make_in_vain(self) -> None:
        self.pair.call("make", self.random.choice((0, 1 << 20, *self.pair.twin.places)), 0, 0, 0)

    def drop(self) -> None:
        if self.random.random() < 0.1:
            self.pair.call("drop", self.random.choice(self.places()))

    def pop(self) -> None:
        place = self.random.choice(self.places())
        start = self.next_offset(place)
        count = self.random.choice((1, 1, 2, 8, 32, 64, 65, 100))
        steps = [self.random.choice((1, 1, 1, 1, 2, 30, 200)) for _ in range(count)]
        offsets = [start - 1 + sum(steps[: number + 1]) for number in range(count)]
        give = self.give_at(start, offsets[-1] + 1 + self.random.choice((0, 0, 5)), [place])
        self.pair.call("give", place, give, offsets)
        self.receipts.append((place, start, give.pop_time_ms, offsets))

    def pop_again(self) -> None:
        place = self.random.choice(self.places())
        offsets = self.pair.call("returned", place, self.random.choice((1, 3, 32, 200)))
        if offsets:
            give = self.give_at(offsets[0], 0, [place])
            self.pair.call("give_again", place, give, offsets)
            self.receipts.append((place, offsets[0], give.pop_time_ms, offsets))

    def pop_in_order(self) -> None:
        place = self.random.choice(self.places())
        attempt = self.random.choice((b"", b"a1", b"a2", b"a" * 128))
        if self.pair.call("order_blocks", place, attempt, self.mono_ms) and self.random.random() < 0.8:
            return
        self.pair.call("leave_returned", place, 1 << 40)
        start = self.next_offset(place)
        steps = [self.random.choice((1, 1, 1, 2, 4000)) for _ in range(self.random.choice((1, 2, 3, 8, 32)))]
        offsets = [start - 1 + sum(steps[: number + 1]) for number in range(len(steps))]
        time_ms = self.pair.call("order_time_for", [place], self.now_ms)
        give = self.give_at(start, offsets[-1] + 1, [place])
        give = structs.replace(give, pop_time_ms=time_ms, revive_queue=999)
        if self.random.random() < 0.9:
            self.pair.call("order_give", place, give, attempt, offsets)
            if self.random.random() < 0.9:
                self.pair.call("order_show", place)
        else:
            visible_ms = [self.random.choice((0, 5, 60_000, 2**32 - 1)) for _ in offsets]
            consumed = [self.random.choice((0, 1, 65_535)) for _ in offsets]
            self.pair.call("order_adopt", place, give, attempt, offsets, visible_ms, consumed, 0)
        self.orders.append((place, start, time_ms, offsets))

    def some_order(self) -> tuple[int, int, int, list[int]]:
        if not self.orders or self.random.random() < 0.05:
            return self.random.choice(self.places()), self.random.randrange(100), self.now_ms, [1, 5]
        return self.random.choice(self.orders[-12:])

    def ack_in_order(self) -> None:
        place, _, time_ms, offsets = self.some_order()
        if place in self.places():
            for offset in offsets if self.random.random() < 0.4 else self.random.choices(offsets, k=2):
                self.pair.call("order_ack", place, time_ms, offset + self.random.choice((0, 0, 0, 0, 1)))

    def change_in_order(self) -> None:
        place, _, time_ms, offsets = self.some_order()
        if place in self.places():
            due_ms = self.mono_ms + self.random.choice((-5, 0, 100, 90_000, 2**40))
            self.pair.call("order_change", place, time_ms, self.random.choice(offsets), due_ms)

    def unsent_in_order(self) -> None:
        place, start, time_ms, _ = self.some_order()
        if place in self.places():
            self.pair.call("unsent", place, start, time_ms)

    def free_in_order(self) -> None:
        self.pair.call("orders_due", self.mono_ms, self.random.choice((1, 4)))
        if self.random.random() < 0.1:
            self.pair.call("orders_ready", self.random.choice((1, 3, 5, 6)), self.mono_ms)

    def some_receipt(self) -> tuple[int, int, int, list[int]]:
        if not self.receipts or self.random.random() < 0.05:
            return self.random.choice(self.places()), self.random.randrange(100), self.now_ms, [1, 5]
        return self.random.choice(self.receipts[-30:])

    def ack(self) -> None:
        place, start, time_ms, offsets = self.some_receipt()
        if place in self.places():
            if self.random.random() < 0.5:
                offset, bits = self.random.choice(offsets) + self.random.choice((0, 0, 0, 1)), 1
            else:
                offset, bits = start + self.random.choice((0, 0, 3, 64)), self.random.getrandbits(64) or 1
            self.pair.call("ack", place, start, time_ms, offset, bits)

    def ack_all(self) -> None:
        place, start, time_ms, offsets = self.some_receipt()
        if place in self.places():
            for offset in offsets:
                self.pair.call("ack", place, start, time_ms, offset, 1)

    def change(self) -> None:
        place, start, time_ms, offsets = self.some_receipt()
        if place in self.places():
            offset = self.random.choice(offsets)
            give = self.give_at(offset, 0, [place])
            self.pair.call("change", place, start, time_ms, offset, give)
            asked = structs.replace(give, client=self.random.choice((give.client, 1)))
            self.pair.call("changed_at", place, offset, asked)
            self.receipts.append((place, offset, give.pop_time_ms, [offset]))

    def unsent(self) -> None:
        place, start, time_ms, _ = self.some_receipt()
        if place in self.places():
            self.pair.call("unsent", place, start, time_ms)

    def due(self) -> None:
        self.mono_ms += self.random.choice((0, 1, 50, 4000, 700_000))
        found = self.pair.call("due", self.mono_ms, self.random.choice((64, 70, ROOM)))
        self.flying += [(each.window, each.queue_offset) for each in found]

    def land(self) -> None:
        for _ in range(self.random.randrange(40)):
            if not self.flying:
                return
            window, offset = self.flying.pop(self.random.randrange(len(self.flying)))
            choice = self.random.random()
            if choice < 0.7:
                self.end += 10
                self.pair.call("copied", window, offset, self.end)
                self.copies.append((window, offset))
            elif choice < 0.9:
                until_ms = self.mono_ms + self.random.choice((-5, 0, 10, 20_000))
                self.pair.call("copy_failed", window, offset, until_ms, self.random.random() < 0.7)
            else:
                self.pair.call("copy_gone", window, offset)

    def land_in_vain(self) -> None:
        self.pair.call("copied", self.some_id(), self.random.randrange(300), self.random.randrange(5000))
        self.pair.call("copy_failed", self.some_id(), self.random.randrange(300), self.random.randrange(5000), True)
        self.pair.call("copy_gone", self.some_id(), self.random.randrange(300))

    def flush(self) -> None:
        self.flushed = max(self.flushed, self.end - self.random.choice((0, 0, 15, 100)))
        self.pair.call("flushed", self.flushed)

    def pop_copies(self) -> None:
        for _ in range(self.random.randrange(20)):
            if not self.copies:
                return
            copy = self.copies.pop(0)
            self.pair.call("take_copy", *copy)
            self.pair.call("copy_seen", *copy)

    def pop_in_vain(self) -> None:
        copy = self.some_id(), self.random.randrange(300)
        self.pair.call("take_copy", *copy)
        self.pair.call("copy_seen", *copy)

    def forget(self) -> None:
        if self.random.random() < 0.2:
            self.pair.call("forget_revived", self.random.randrange(42))

    def skip(self) -> None:
        place = self.random.choice(self.places())
        self.pair.call("skip_to", place, self.next_offset(place) + self.random.choice((-1, 0, 1, 90, 500_000)))
        ahead = self.random.choice((0, 0, 1, 70, 500_000))
        committed = self.pair.call("first_open_from", place, self.pair.call("first_open", place) + ahead)
        self.pair.call("set_committed", place, committed, 7)
        self.pair.call("leave_returned", place, committed)

    def clamp(self) -> None:
        place = self.random.choice(self.places())
        self.pair.call("clamp", place, max(0, self.next_offset(place) - self.random.choice((0, 1, 10, 100))))

    def pass_time(self) -> None:
        self.mono_ms += (passed_ms := self.random.choice((1, 30, 3000)))
        self.now_ms += passed_ms + self.random.choice((0, 0, 0, -50_000, 3_600_000))

    def reopen(self) -> None:
        if self.random.random() < 0.3:
            self.mono_ms = self.random.choice((self.mono_ms, 1000))
            self.pair.reopen(self.now_ms, self.mono_ms)
            for copy in [*self.copies, *self.flying[: len(self.flying) // 2]]:
                self.end += 10
                self.pair.call("copied", *copy, self.end)
            self.flying = []

    def go(self) -> None:
        calls: list[Callable[[], None]] = [
            self.pop, self.pop, self.pop, self.pop_again, self.ack, self.ack, self.ack_all, self.ack_all, self.change,
            self.unsent, self.due, self.due, self.land, self.land, self.land_in_vain, self.flush, self.flush,
            self.pop_copies, self.pop_in_vain, self.forget, self.skip, self.clamp, self.pass_time, self.pass_time,
            self.pop_in_order, self.pop_in_order, self.ack_in_order, self.ack_in_order, self.change_in_order,
            self.unsent_in_order, self.free_in_order, self.drop, self.make, self.set_unmarked, self.make_in_vain,
            self.reopen,
        ]  # fmt: skip
        self.do_one_of(calls)

    def do_one_of(self, calls: list[Callable[[], None]]) -> None:
        while not self.places():
            self.make()
        self.random.choice(calls)()
        self.pair.compare()


class LogPlay(Play):
    """Pops of which some have a check point in the log, from their beginning or since a stop."""

    def give_at(self, start: int, following: int, places: list[int]) -> Give:
        return structs.replace(super().give_at(start, following, places), in_log=self.random.random() < 0.3)

    def note_in_log(self) -> None:
        place, start, time_ms, offsets = self.some_receipt()
        if place in self.places():
            self.pair.call("note_in_log", place, start, time_ms)
            assert self.pair.call("in_log", place, start, time_ms, offsets[0], 1) in (0, 1)

    def look_in_log(self) -> None:
        place, start, time_ms, _ = self.some_receipt()
        if place in self.places():
            offset, bits = start + self.random.choice((0, 0, 3, 64)), self.random.getrandbits(64) or 1
            self.pair.call("in_log", place, start, time_ms, offset, bits)

    def go(self) -> None:
        self.do_one_of([
            self.pop, self.pop, self.pop_again, self.ack, self.ack_all, self.change, self.unsent, self.due, self.land,
            self.flush, self.pass_time, self.note_in_log, self.look_in_log, self.look_in_log, self.make, self.reopen,
        ])  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_both_agree_after_each_call(seed: int) -> None:
    play = Play(seed)
    for _ in range(STEPS):
        play.go()


@pytest.mark.parametrize("seed", range(8))
def test_both_agree_about_messages_in_the_log(seed: int) -> None:
    play = LogPlay(seed)
    for _ in range(STEPS):
        play.go()


@pytest.mark.parametrize("place", [0, 2, lib.RMQ_NONE])
def test_a_place_without_a_window_is_not_dropped(place: int) -> None:
    """Its slot must not be given twice."""
    play = Play(4)
    play.make()
    play.make()
    play.pair.call("drop", 0)
    assert play.pair.call("drop", place) == 0
    play.pair.compare()
    play.make()
    play.make()
    play.pair.compare()
    assert len(set(play.places())) == len(play.pair.twin.places)


def test_a_large_window_agrees_after_a_start() -> None:
    """More entries than buckets at first, in and out of order."""
    play = Play(7, windows=3, entries=3000)
    for _ in range(3):
        play.make()
    for _ in range(400):
        play.pop()
        play.pass_time()
    play.pair.compare()
    for _ in range(200):
        play.ack_all()
        play.change()
        play.unsent()
    play.pair.compare()
    play.reopen()
    play.pair.reopen(play.now_ms, play.mono_ms)
    while play.pair.twin.next_due_ms() is not None:
        play.mono_ms += 86_400_000
        play.due()
    play.pair.compare()


def flipped(data: bytes, at: int) -> Callable[[WindowMemory], None]:
    """Makes a memory of these bytes, two bits of one of them flipped."""

    def change(memory: WindowMemory) -> None:
        memory.bytes[0 : len(data)] = data
        memory.bytes[at] = data[at] ^ 0x11

    return change


OF_BATCH = {*range(44, 48)}
"""The number of its batch, in a window. A damaged one ends no window."""


def damaged_bytes(play: Play, begin: int) -> set[int]:
    """The bytes of a slot that are known to be damaged after a flip of bits. No window is left then."""
    data, found = play.pair.native.memory.content(), set()
    for byte in range(64):
        play.pair.reopen(NOW_MS, 5, flipped(data, begin + byte))
        if play.pair.twin.damaged:
            found.add(byte)
            assert not play.pair.twin.places or byte in OF_BATCH
    return found


def test_flipped_bits_in_a_slot() -> None:
    """Both make the same of it. Fields below the check are damage."""
    play = Play(3)
    play.make()
    play.pair.call("give", 0, play.give_at(10, 50, [0]), [10, 12, 40])
    layout = play.pair.twin.memory.layout
    fixed = {*range(16), *range(40, 44)}
    data = play.pair.native.memory.content()
    found = damaged_bytes(play, layout.windows_at)
    assert found >= fixed and not found & {*range(24, 40)}, "the offset may change: it has no check"
    play.pair.reopen(NOW_MS, 5, flipped(data, 0))
    assert damaged_bytes(play, layout.entries_at) >= {*range(16), *range(24, 40), *range(48, 58), *range(60, 64)}


def test_flipped_bits_in_a_batch_end_it_alone() -> None:
    play = Play(3)
    play.make()
    start = play.next_offset(0)
    play.pair.call("order_give", 0, play.give_at(start, start + 9, [0]), b"a1", [start + 1, start + 8])
    data, found = play.pair.native.memory.content(), set()
    for byte in range(512):
        play.pair.reopen(NOW_MS, 5, flipped(data, play.pair.twin.memory.layout.orders_at + byte))
        assert (play.next_offset(0), play.pair.twin.first_open(0)) == (start, start)
        found |= {byte} if play.pair.twin.damaged else set()
    changing = {*range(36, 40), *range(176, 304)}
    assert set(range(512)) - found - changing == {*range(44, 48), *range(496, 512)}, "reserved"
    assert not found & {*range(176, 304)}


def test_batches_that_block_no_queue_give_way() -> None:
    """One slot more is there than windows."""
    play = Play(5, windows=3)
    for _ in range(3):
        play.make()
    for place in play.places():
        start = play.next_offset(place)
        give = Give(NOW_MS, play.mono_ms, start, start + 1, 1000 * (place + 1), revive_queue=999)
        play.pair.call("order_give", place, give, b"", [start])
        play.pair.call("order_show", place)
    assert play.pair.call("orders_ready", 1, play.mono_ms) is None
    assert play.pair.call("orders_ready", 2, play.mono_ms + 999) is NoRoomError
    assert play.pair.call("orders_ready", 3, play.mono_ms + 2000) is None
    play.pair.compare()
    assert [play.pair.call("order_blocks", place, b"", play.mono_ms) for place in play.places()] == [False, False, True]


@pytest.mark.parametrize("other", [{}, {"client": 8}, {"invisible_ms": 61}, {"revive_queue": 4}])
def test_a_change_is_told_from_a_pop(other: dict[str, int]) -> None:
    """A pop of one message by the same client, with the same time, has a receipt that no change has made."""
    play = Play(8)
    play.make()
    start = play.next_offset(0)
    popped = Give(NOW_MS, play.mono_ms, start, start + 1, 60, client=7, revive_queue=3)
    play.pair.call("give", 0, popped, [start])
    assert play.pair.call("changed_at", 0, start, popped) == -1
    changed = structs.replace(popped, pop_time_ms=NOW_MS + 1)
    assert play.pair.call("change", 0, start, NOW_MS, start, changed) == lib.RMQ_POP_DONE
    play.pair.reopen(NOW_MS, play.mono_ms)
    found = play.pair.call("changed_at", 0, start, structs.replace(changed, **other))
    assert found == (-1 if other else NOW_MS + 1)


def test_a_gap_of_many_blocks_takes_calls() -> None:
    """The native first_open passes 4,096 blocks a call, and is too low until then, never too high."""
    play = Play(5)
    play.make()
    place, start = 0, play.next_offset(0)
    far = start + 64 * 10_000
    play.pair.call("give", place, play.give_at(start, start + 1, [place]), [start])
    give = play.give_at(far, far + 1, [place])
    play.pair.call("give", place, give, [far])
    play.pair.call("ack", place, start, NOW_MS, start, 1)
    found = [lib.rmq_pop_first_open(play.pair.native.native, place) for _ in range(4)]
    assert found == sorted(found) and found[0] < found[2] == far == found[3]


@pytest.mark.parametrize(("gap", "together"), [(lib.RMQ_POP_SPAN_MAX - 1, 2), (lib.RMQ_POP_SPAN_MAX, 1), (1 << 33, 1)])
def test_returned_messages_far_apart_are_not_in_one_pop(gap: int, together: int) -> None:
    """A bit map of acknowledgements could not name the last one, and beyond 2^32 the entry could not hold the start."""
    play = Play(6)
    play.make()
    start = play.next_offset(0)
    for offset in (start, start + gap):
        give = play.give_at(offset, offset + 1, [0])
        play.pair.call("give", 0, give, [offset])
        play.pair.call("unsent", 0, offset, give.pop_time_ms)
    assert play.pair.call("returned", 0, 32) == [start, start + gap][:together]
    play.pair.call("give_again", 0, play.give_at(start, 0, [0]), [start, start + gap][:together])
    play.pair.compare()
    assert play.pair.call("returned", 0, 32) == [start, start + gap][together:]
