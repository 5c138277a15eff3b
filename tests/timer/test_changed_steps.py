"""A start with another precision or window, with and without the files: each message comes once, and none early.

Precisions are all that the core can have: `timerPrecisionMs` counts as the step below it, so 333 is 200, and 1 and 10
are 100. A smaller fileReservedTime is a smaller window (timer.worker.roll_slots). A missing wheel and a missing
TimerLog both end in the same: neither is used, and all records are read again.
"""

import itertools

import pytest

from ringmq.timer.core import TimerSettings
from ringmq.timer.timer_wheel import PRECISIONS_MS
from tests.timer.simulation import World

WINDOWS = ((40, 8), (40, 40), (8, 40))
LOST = ("", "files", "progress")


def run_for(world: World, span_ms: int) -> None:
    end_ms = world.now_ms + span_ms
    while world.now_ms < end_ms:
        world.turn()
        world.now_ms += world.random.choice((1, 30, 190, 450))


def send_some(world: World) -> None:
    """Some are rolled in each window. Many are due in the steps around the stop."""
    step_ms = world.settings.precision_ms
    for span_ms in (1000, 4 * step_ms, 30 * step_ms, 30 * step_ms, 100 * step_ms, 100 * step_ms, 60_000):
        world.send(world.random.randrange(1, span_ms))
        world.send(world.random.randrange(1, span_ms))


@pytest.mark.parametrize("is_killed", [False, True], ids=["stop", "kill"])
@pytest.mark.parametrize("lost", LOST, ids=["whole", "files", "progress"])
@pytest.mark.parametrize("before_ms", PRECISIONS_MS)
def test_each_message_comes_once_over_changes(before_ms: int, lost: str, is_killed: bool, is_thorough: bool) -> None:
    seeds = range(2 if is_thorough else 1)
    for after_ms, windows, seed in itertools.product(PRECISIONS_MS, WINDOWS, seeds):
        world = World(seed, TimerSettings(before_ms, windows[0]))
        for _ in range(4):
            send_some(world)
            run_for(world, world.random.randrange(10 * before_ms))
        for settings in (TimerSettings(after_ms, windows[1]), TimerSettings(before_ms, windows[0])):
            if not is_killed or world.random.random() < 0.5:
                world.flush()
            if is_killed:
                run_for(world, world.random.randrange(3 * before_ms))
                world.kill()
            world.reopen(settings, lost)
            send_some(world)
            run_for(world, world.random.randrange(20 * after_ms))
        world.finish(max(record.exact_ms for record in world.sent.values()))
        place = f"{before_ms} -> {after_ms} ms, windows {windows}, seed {seed}"
        assert sorted(world.deliveries()) == sorted(world.sent), place
        assert not world.early, place
