"""Ends of transactions before their halves have arrived: C and its twin agree about the next step."""

import random

import pytest

from ringmq.native import ffi, lib
from ringmq.services.transactions.ends import COMMIT, Arrival, End
from ringmq.services.transactions.ends_twin import READY, WAITS, readiness

NOW = Arrival(append_end=900, dispatched=700, end=50, arrived=40, is_full=False)
MISSING, FULL = lib.RMQ_END_MISSING, lib.RMQ_END_FULL


def both(offset: int, position: int, halves: Arrival) -> int:
    marks, fields = ffi.new("struct rmq_half_marks *"), ffi.new("struct rmq_end_fields *")
    marks.append_end, marks.dispatched, marks.end, marks.arrived, marks.is_full = halves
    fields.queue_offset, fields.position = offset, position
    found = int(lib.rmq_end_readiness(marks, fields))
    assert found == readiness(End("P", offset, position, COMMIT), halves)
    return found


@pytest.mark.parametrize(
    ("offset", "position", "next_step"),
    [
        (39, 699, READY),
        (40, 699, WAITS),
        (49, 0, WAITS),
        (50, 699, READY),  # a lie: it would wait for ever
        (1 << 62, -1, READY),
        (-1, -1, READY),
        (39, 700, WAITS),
        (60, 899, WAITS),
        (60, 900, MISSING),
        (0, 1 << 62, MISSING),
    ],
)
def test_the_next_step_for_an_end(offset: int, position: int, next_step: int) -> None:
    assert both(offset, position, NOW) == next_step
    full = FULL if next_step == WAITS and position < NOW.dispatched else next_step
    assert both(offset, position, NOW._replace(is_full=True)) == full
    arrived = next_step if position >= NOW.dispatched else READY
    assert both(offset, position, NOW._replace(arrived=NOW.end)) == arrived


def test_random_ends() -> None:
    dice = random.Random(5)
    found = set()
    for _ in range(5000):
        dispatched, arrived = dice.randrange(9), dice.randrange(9)
        halves = Arrival(
            dispatched + dice.randrange(3), dispatched, arrived + dice.randrange(3), arrived, dice.random() < 0.5
        )
        found.add(both(dice.randrange(-2, 12), dice.randrange(-2, 12), halves))
    assert found == {READY, WAITS, MISSING, FULL}
