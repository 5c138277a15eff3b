"""The core of timers over simulated faults, with seeds."""

import bisect
from collections import Counter
from collections.abc import Iterator

import pytest

from ringmq.timer.core import TimerSettings
from ringmq.timer.placement import Target
from tests.timer.simulation import LogRecord, World

SEEDS = range(10)
BACK_SEEDS = (94, 218, 2012)
"""The clock is set back after the last checkpoint, messages come too late, and a start finds slots that are not due."""
FAR_SEEDS = (1495,)
"""These slots lie months before the one that was open."""
PRECISIONS_MS, WINDOWS = (100, 200, 500, 1000), (20, 50, 172_800)
DELAYS_MS = (1, 50, 999, 1000, 5000, 20_000, 45_000)
STALL_MS = 5000
"""A worker that is stopped for so long may find messages due that a delete has named in time."""
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
JUMPS_MS = tuple(sign * ms for ms in (1500, 120_000, 3 * HOUR_MS, 30 * DAY_MS, 365 * DAY_MS) for sign in (1, -1))


def new_world(seed: int) -> World:
    return World(seed, TimerSettings(PRECISIONS_MS[seed % 4], WINDOWS[seed % 3]))


def send_some(world: World) -> int:
    """Returns the time of the latest of them."""
    delays = [world.random.choice(DELAYS_MS) + world.random.randrange(3) for _ in range(world.random.randrange(1, 12))]
    for delay_ms in delays:
        world.send(delay_ms)
    return world.now_ms + max(delays)


def go_on(world: World) -> None:
    world.turn()
    world.now_ms += world.random.choice((0, 1, 7, 100, 900))


@pytest.mark.parametrize("seed", SEEDS)
def test_each_message_is_delivered_once_and_never_early(seed: int) -> None:
    world, last_ms = new_world(seed), 0
    for _ in range(400):
        choice = world.random.random()
        if choice < 0.30:
            last_ms = max(last_ms, send_some(world))
        elif choice < 0.33:
            world.kill()
        elif choice < 0.34:
            world.lose_files()
        elif choice < 0.40:
            world.flush()
        elif choice < 0.44:
            world.refuses = not world.refuses
        else:
            go_on(world)
    world.finish(last_ms)
    assert sorted(world.deliveries()) == sorted(world.sent)
    assert not world.early


@pytest.mark.parametrize("seed", [*SEEDS, *(pytest.param(seed, id=f"back-{seed}") for seed in BACK_SEEDS)])
def test_a_clock_that_jumps_delivers_once_and_never_early(seed: int) -> None:
    world, last_ms = new_world(seed), 0
    for _ in range(300):
        choice = world.random.random()
        if choice < 0.30:
            last_ms = max(last_ms, send_some(world))
        elif choice < 0.33:
            world.now_ms += world.random.choice(JUMPS_MS)
        elif choice < 0.36:
            world.flush()
        elif choice < 0.38:
            world.kill()
        else:
            go_on(world)
    world.finish(max(last_ms, world.now_ms))
    assert sorted(world.deliveries()) == sorted(world.sent)
    assert not world.early


@pytest.mark.parametrize("seed", [*SEEDS, *(pytest.param(seed, id=f"far-{seed}") for seed in FAR_SEEDS)])
def test_a_clock_that_jumps_beside_other_faults(seed: int) -> None:
    """A power cut at which the machine's clock is reset, files that are lost, and a full disk."""
    world, last_ms, again = new_world(seed), 0, set()
    for _ in range(250):
        choice = world.random.random()
        if choice < 0.30:
            last_ms = max(last_ms, send_some(world))
        elif choice < 0.33:
            world.now_ms += world.random.choice(JUMPS_MS)
        elif choice < 0.36:
            world.flush()
        elif choice < 0.38:
            again |= world.power_cut()
        elif choice < 0.385:
            world.lose_files()
        elif choice < 0.40:
            world.kill()
        elif choice < 0.42:
            world.refuses = not world.refuses
        else:
            go_on(world)
    world.finish(max(last_ms, world.now_ms))
    copies = Counter(world.deliveries())
    assert set(copies) == set(world.sent) and not world.early
    assert {number for number, count in copies.items() if count > 1} <= again


@pytest.mark.parametrize("seed", [*SEEDS, pytest.param(38, id="stalled-38")])
def test_deleted_messages_do_not_come(seed: int) -> None:
    world, last_ms = new_world(seed), 0
    for _ in range(300):
        choice = world.random.random()
        if choice < 0.25:
            last_ms = max(last_ms, send_some(world))
        elif choice < 0.35:
            waiting = sorted(world.waiting(), key=lambda number: world.sent[number].exact_ms)
            if waiting:
                first = bisect.bisect(waiting, world.now_ms, key=lambda number: world.sent[number].exact_ms)
                number = world.random.choice((*waiting, *waiting[first : first + len(waiting) // 4]))
                world.delete(number, names_its_time=world.random.random() < 0.5)
            world.now_ms += world.random.choice((0, 0, STALL_MS))
        elif choice < 0.38:
            world.flush()
        elif choice < 0.41:
            world.kill()
        else:
            go_on(world)
    world.finish(last_ms)
    found = world.deliveries()
    assert len(found) == len(set(found)) and not world.early and world.deleted and world.elsewhere
    kept = {number for number, record in world.sent.items() if not record.deletes and record.key not in world.deleted}
    assert set(found) <= kept
    assert {number for number in kept if world.sent[number].key not in world.perhaps_deleted} <= set(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_power_cut_loses_nothing_that_was_flushed(seed: int) -> None:
    """What comes twice is bounded by the copies that the cut has taken."""
    world, last_ms, again = new_world(seed), 0, set()
    for _ in range(300):
        choice = world.random.random()
        if choice < 0.30:
            last_ms = max(last_ms, send_some(world))
        elif choice < 0.34:
            again |= world.power_cut()
        elif choice < 0.42:
            world.flush()
        else:
            go_on(world)
    world.finish(last_ms)
    found = world.deliveries()
    copies = Counter(found)
    assert set(found) == set(world.sent)
    twice = {number for number in found if copies[number] > 1}
    assert twice <= again and not world.early


@pytest.mark.parametrize("seed", range(6))
def test_messages_that_wait_for_forty_days_are_rolled_and_come_once(seed: int) -> None:
    """timerMaxDelaySec allows 40 days, and the window is that of two days."""
    world = World(seed, TimerSettings(1000, 172_800))
    for _ in range(20):
        world.send(world.random.randrange(40 * DAY_MS))
    world.send(40 * DAY_MS)
    last_ms = max(record.exact_ms for record in world.sent.values())
    while world.now_ms < last_ms:
        world.now_ms += world.random.randrange(6 * HOUR_MS)
        for _ in range(8):
            world.turn()
        choice = world.random.random()
        if choice < 0.1:
            world.kill()
        elif choice < 0.4:
            world.flush()
        elif choice < 0.5:
            world.refuses = not world.refuses
    world.finish(last_ms)
    assert sorted(world.deliveries()) == sorted(world.sent)
    assert not world.early
    assert max(record.rolls for record in world.disk.log) >= 10


@pytest.mark.parametrize("seed", range(6))
def test_overdue_messages_come_in_the_order_of_their_times(seed: int) -> None:
    world = World(seed, TimerSettings(PRECISIONS_MS[seed % 4], 172_800))
    for _ in range(80):
        world.send(world.random.randrange(3000, 500_000))
        world.turn()
    while world.core.progress.queue_offset < len(world.sent):
        world.turn()
    world.now_ms += 600_000
    world.finish(world.now_ms)
    times = [world.sent[number].exact_ms for number in world.deliveries()]
    assert times == sorted(times) and len(times) == 80 and world.joined > 20


@pytest.mark.parametrize("seed", range(6))
def test_a_jump_over_a_large_slot_that_is_in_memory_delivers_it_once_and_in_order(seed: int) -> None:
    world = World(seed, TimerSettings(PRECISIONS_MS[seed % 4], 172_800))
    step_ms = world.settings.precision_ms
    begin_ms = world.now_ms + 10 * step_ms - world.now_ms % step_ms
    for at in range(1, 30):  # a few in each slot, many in the middle one
        for _ in range(40 if at == 7 else world.random.randrange(3)):
            world.send(begin_ms + at * step_ms - world.now_ms - world.random.randrange(step_ms))
    while world.core.progress.queue_offset < len(world.sent):
        world.turn()
    while not world.large and world.now_ms < begin_ms:
        for _ in range(5):  # walks take some
            world.turn()
        world.now_ms += step_ms
    assert world.large
    world.now_ms += 100 * step_ms
    world.finish(world.now_ms)
    times = [world.sent[number].exact_ms for number in world.deliveries()]
    assert times == sorted(times) and len(times) == len(world.sent) and not world.early


class OfStock(World):
    """A wheel of a stock broker, until `is_taken_over`: deletes wait at their own time, so they are rolled as their
    targets."""

    enqueue_max = 4
    is_taken_over = False

    def targets(self, record: LogRecord) -> Iterator[Target]:
        return super().targets(record) if self.is_taken_over else iter(())


@pytest.mark.parametrize("seed", SEEDS)
def test_rolled_deletes_work_though_all_is_overdue(seed: int) -> None:
    """A message and its delete are rolled one behind the other, and are due at once as they come back."""
    world = OfStock(seed, TimerSettings(PRECISIONS_MS[seed % 4], 20))
    for _ in range(30):
        number = world.send(world.random.randrange(60_000, 200_000))
        for _ in range(world.random.randrange(3)):
            world.turn()
        if world.random.random() < 0.5:
            world.now_ms += world.random.randrange(2000)
            assert world.delete(number)
        world.turn()
    world.now_ms += 600_000
    world.is_taken_over = True
    for _ in range(world.random.randrange(120)):
        world.turn()
        world.now_ms += world.random.randrange(3)
        if world.random.random() < 0.05:
            world.flush()
        if world.random.random() < 0.1:
            world.kill()
    world.finish(world.now_ms)
    found, kept = world.deliveries(), {of for of, sent in world.sent.items() if sent.key not in world.deleted}
    assert sorted(found) == sorted(kept)
    assert any(record.rolls and record.deletes for record in world.disk.log)
