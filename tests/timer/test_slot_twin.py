"""Messages of a slot: C and Python agree on every operation."""

import random

import pytest

from ringmq.native import ffi, lib
from ringmq.timer.slot_content import SlotContent, TimerMessage
from ringmq.timer.timer_log import Magic
from tests.timer.kit import SECRET

SLOT_MS = 1_800_000_000_000
ROOM = 64


class Both:
    """The same slot in both languages."""

    def __init__(self, dice: random.Random, messages_max: int, units_end: int) -> None:
        self.dice, self.units_end = dice, units_end
        self.twin = SlotContent(SLOT_MS, messages_max, units_end)
        self.slot = ffi.gc(lib.rmq_timer_slot_open(SLOT_MS, messages_max, units_end, SECRET), lib.rmq_timer_slot_close)
        self.chain: dict[int, TimerMessage] = {}
        self.taken: list[tuple[TimerMessage, int]] = []
        self.keys = ffi.new("uint64_t[]", ROOM)

    def record(self, message: TimerMessage) -> object:
        found = ffi.new("struct rmq_timer_record *", {"exact_ms": message.at_ms, "has_key": bool(message.key)})
        found.key = key_of(message.key)
        return found

    def add(self, unit: int, by_walk: bool) -> None:
        at_ms = SLOT_MS + self.dice.choice((-(10**11), -90_000_000, -4_194_305, -4_194_304, -50, 1, 2, 500, 999, 1000))
        magic = self.dice.choice((Magic.DEFAULT, Magic.DEFAULT, Magic.DEFAULT, Magic.ROLL, Magic.DELETE))
        if magic is Magic.ROLL:
            at_ms = SLOT_MS
        message = self.chain.setdefault(unit, TimerMessage(at_ms, unit, magic, self.dice.choice(("a", "b", "", "c"))))
        if by_walk:
            self.twin.found(message)
            assert lib.rmq_timer_slot_found(self.slot, unit, message.magic, self.record(message)) == 0
        else:
            self.twin.add(message)
            assert lib.rmq_timer_slot_add(self.slot, unit, message.magic, self.record(message)) == 0

    def walk(self) -> None:
        for unit in reversed(range(self.units_end)):
            self.add(unit, by_walk=True)

    def take(self, now_ms: int) -> None:
        room = self.dice.randrange(1, ROOM)
        expected = self.twin.take(now_ms, room)
        count = lib.rmq_timer_slot_take(self.slot, now_ms, self.keys, room)
        assert [lib.rmq_timer_slot_unit(key) for key in self.keys[0:count]] == [message.unit for message in expected]
        for message, key in zip(expected, self.keys[0:count], strict=True):
            assert lib.rmq_timer_slot_exact_ms(self.slot, key) == message.at_ms
            named = bool(lib.rmq_timer_slot_deletes(self.slot, key_of(message.key)))
            assert (named and Magic.DELETE not in message.magic) == self.twin.is_deleted(message)
            self.taken.append((message, key))

    def give_back(self) -> None:
        keys = ffi.new("uint64_t[]", [key for _, key in self.taken])
        assert lib.rmq_timer_slot_return(self.slot, keys, len(self.taken)) == 0
        self.twin.give_back([message for message, _ in self.taken])
        self.taken = []

    def check(self) -> None:
        next_ms = lib.rmq_timer_slot_next_ms(self.slot)
        assert (None if next_ms < 0 else next_ms) == self.twin.next_ms
        assert lib.rmq_timer_slot_left_out(self.slot) == self.twin.left_out
        assert lib.rmq_timer_slot_needs_walk(self.slot) == self.twin.needs_walk


def key_of(text: str) -> object:
    return ffi.new("uint64_t[2]", (ord(text or "\0"), 77 * bool(text)))


@pytest.mark.parametrize("seed", range(200))
def test_random_operations_have_the_same_results(seed: int) -> None:
    dice = random.Random(seed)
    both, following = Both(dice, dice.choice((2, 5, 40, 1000)), dice.choice((0, 3, 60, 200))), 1000
    both.walk()
    for _ in range(150):
        choice = dice.random()
        if choice < 0.3:
            both.add(following, by_walk=False)
            following += 1
        elif choice < 0.7:
            both.take(SLOT_MS + dice.choice((-(10**10), -100, 1, 400, 2000)))
        elif choice < 0.75 and both.taken:
            both.give_back()
        elif choice < 0.9:
            both.taken = []  # stored
        elif both.twin.next_ms is None and both.twin.left_out and not both.taken:
            both.twin.walk_again()
            lib.rmq_timer_slot_walk_again(both.slot)
            both.walk()
        both.check()


@pytest.mark.parametrize("messages_max", [2, 3, 50])
def test_each_message_of_a_large_slot_goes_out_once_and_in_order(messages_max: int) -> None:
    both = Both(random.Random(messages_max), messages_max, 400)
    both.walk()
    for _ in range(10_000):
        both.take(SLOT_MS + 2000)
        if both.twin.next_ms is None:
            if not both.twin.left_out:
                break
            both.twin.walk_again()
            lib.rmq_timer_slot_walk_again(both.slot)
            both.walk()
    waiting = [message for message in both.chain.values() if not message.deletes]
    assert [message for message, _ in both.taken] == sorted(map(both.twin._rounded, waiting))
    assert len(waiting) > 200
