"""The core of timers over simulated faults, with seeds."""

from collections import Counter

import pytest

from ringmq.timer.core import TimerSettings
from tests.timer.simulation import World

SEEDS = range(60)
PRECISIONS_MS, WINDOWS = (100, 200, 500, 1000), (20, 50, 172_800)
DELAYS_MS = (1, 50, 999, 1000, 5000, 20_000, 45_000)


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
        elif choice < 0.34:
            world.kill()
        elif choice < 0.40:
            world.flush()
        elif choice < 0.44:
            world.refuses = not world.refuses
        else:
            go_on(world)
    world.finish(last_ms)
    assert sorted(world.deliveries()) == sorted(world.sent)
    assert not world.early


@pytest.mark.parametrize("seed", SEEDS)
def test_a_clock_that_jumps_delivers_once_and_never_early(seed: int) -> None:
    world, last_ms = new_world(seed), 0
    for _ in range(300):
        choice = world.random.random()
        if choice < 0.30:
            last_ms = max(last_ms, send_some(world))
        elif choice < 0.33:
            world.now_ms += world.random.choice((-120_000, -1500, 1500, 120_000))
        elif choice < 0.36:
            world.flush()
        elif choice < 0.38:
            world.kill()
        else:
            go_on(world)
    world.finish(max(last_ms, world.now_ms))
    assert sorted(world.deliveries()) == sorted(world.sent)
    assert not world.early


@pytest.mark.parametrize("seed", SEEDS)
def test_deleted_messages_do_not_come(seed: int) -> None:
    world, last_ms = new_world(seed), 0
    for _ in range(300):
        choice = world.random.random()
        if choice < 0.25:
            last_ms = max(last_ms, send_some(world))
        elif choice < 0.35:
            waiting = sorted(world.waiting())
            if waiting:
                world.delete(world.random.choice(waiting))
        elif choice < 0.38:
            world.flush()
        elif choice < 0.41:
            world.kill()
        else:
            go_on(world)
    world.finish(last_ms)
    found = world.deliveries()
    assert len(found) == len(set(found)) and not world.early
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
