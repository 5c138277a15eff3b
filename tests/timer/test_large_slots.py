"""A slot with millions of messages: its walk begins in time, beside other slots, in bounded memory."""

import random

import pytest

from ringmq.native import ffi, lib
from ringmq.timer.core import Progress, Tick, TimerCore, TimerSettings, Walk, Walked
from ringmq.timer.slots import MESSAGES_MAX, Slots
from ringmq.timer.walk_pace import LEAD_MAX_MS, lead_ms
from tests.timer.kit import PRECISION_MS, SECRET, MemoryFiles, private_bytes

NOW_MS = 1_800_000_000_000
PROMISED, COUNT = 5_000_000, 1 << 19
LARGE_MS = NOW_MS + 60_000


def begun(core: TimerCore, now_ms: int) -> list[int]:
    """Slots whose walks a tick begins. Each walk is over at once."""
    walks = [effect for effect in core.step(Tick(0), now_ms) if isinstance(effect, Walk)]
    for walk in walks:
        core.step(Walked(walk.slot_ms, walk.slot_ms + PRECISION_MS), now_ms)
    return [walk.slot_ms for walk in walks]


class Wheel(Slots):
    """Its slots in memory are empty."""

    def next_ms(self, slot_ms: int) -> int | None:
        return None

    def is_left_out(self, slot_ms: int) -> bool:
        return False

    def needs_walk(self, slot_ms: int) -> bool:
        return False


def core_of(counts: dict[int, int]) -> TimerCore:
    """A core whose wheel has these counts, and no units."""
    files = MemoryFiles(1, 1 << 20)
    for slot_ms, count in counts.items():
        chain = files.chains[slot_ms // PRECISION_MS % lib.RMQ_TIMER_SLOTS]
        chain.round, chain.last, chain.count = slot_ms // PRECISION_MS // lib.RMQ_TIMER_SLOTS + 1, -1, count
    wheel = Wheel(files)  # type: ignore[arg-type]
    return TimerCore(TimerSettings(PRECISION_MS), Progress(NOW_MS, 0, 0), wheel, -1, 0, -1)


@pytest.mark.parametrize("count", [100_000, 1_000_000, PROMISED, 100_000_000])
def test_the_walk_of_a_slot_begins_as_long_before_its_time_as_it_takes(count: int) -> None:
    core = core_of({LARGE_MS: count, LARGE_MS + PRECISION_MS: count})
    now_ms, began = NOW_MS, dict[int, int]()
    while LARGE_MS not in began:
        began |= dict.fromkeys(begun(core, now_ms), now_ms)
        now_ms += 50
    lead = lead_ms(PRECISION_MS, count)
    assert lead == {100_000: 1000, 1_000_000: 3906, PROMISED: 19_531, 100_000_000: LEAD_MAX_MS}[count]
    assert lead - PRECISION_MS <= LARGE_MS - began[LARGE_MS] <= lead
    assert sum(slot_ms >= LARGE_MS for slot_ms in began) == 1


def test_small_slots_before_a_large_one_are_read_at_their_time() -> None:
    core = core_of({LARGE_MS: PROMISED})
    began = {slot_ms: now_ms for now_ms in range(NOW_MS, LARGE_MS, 100) for slot_ms in begun(core, now_ms)}
    assert sorted(began) == list(range(NOW_MS, LARGE_MS + 1, PRECISION_MS))
    assert {slot_ms - now_ms for slot_ms, now_ms in began.items() if NOW_MS < slot_ms < LARGE_MS} <= {900, 1000}


def test_a_slot_of_five_million_needs_one_walk_and_eight_bytes_a_message() -> None:
    assert MESSAGES_MAX >= PROMISED
    before = private_bytes()
    slot = ffi.gc(lib.rmq_timer_slot_open(NOW_MS, MESSAGES_MAX, COUNT, SECRET), lib.rmq_timer_slot_close)
    record = ffi.new("struct rmq_timer_record *", {"exact_ms": NOW_MS + 500})
    for unit in reversed(range(COUNT)):
        lib.rmq_timer_slot_found(slot, unit, lib.RMQ_TIMER_DEFAULT, record)
    assert private_bytes() - before < 8 * COUNT + (2 << 20)
    assert lib.rmq_timer_slot_waiting(slot) == COUNT and not lib.rmq_timer_slot_left_out(slot)


def test_what_is_left_out_of_a_slot_is_its_later_half() -> None:
    """Keys of every size, those that came later among them."""
    dice, kept, units_end = random.Random(5), 500, 1001
    slot = ffi.gc(lib.rmq_timer_slot_open(NOW_MS, 2 * kept, units_end, SECRET), lib.rmq_timer_slot_close)
    times = [NOW_MS + dice.choice((-(10**10), 1, 300, 999, 1000)) for _ in range(units_end + 300)]
    for unit in (*range(units_end, len(times)), *reversed(range(units_end))):
        record = ffi.new("struct rmq_timer_record *", {"exact_ms": times[unit]})
        assert lib.rmq_timer_slot_add(slot, unit, lib.RMQ_TIMER_DEFAULT, record) == 0
    keys = ffi.new("uint64_t[]", len(times))
    count = lib.rmq_timer_slot_take(slot, 1 << 62, keys, len(times))
    taken = [lib.rmq_timer_slot_unit(key) for key in keys[0:count]]
    ordered = sorted(range(len(times)), key=lambda unit: (times[unit], unit))
    last = [unit for unit in ordered if unit < units_end][kept]
    assert taken == ordered[: ordered.index(last)]
    assert lib.rmq_timer_slot_left_out(slot) == units_end - kept
