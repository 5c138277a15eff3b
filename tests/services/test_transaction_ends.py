"""Ends of transactions before their halves have arrived."""

import pytest

from ringmq.services.transactions.ends import COMMIT, Arrival, End, Readiness, readiness

NOW = Arrival(append_end=900, dispatched=700, end=50, arrived=40, is_full=False)


def end(offset: int, position: int) -> End:
    return End("P", offset, position, COMMIT)


@pytest.mark.parametrize(
    ("offset", "position", "next_step"),
    [
        (39, 699, Readiness.READY),
        (40, 699, Readiness.WAITING),
        (49, 0, Readiness.WAITING),
        (50, 699, Readiness.READY),  # a lie: it would wait for ever
        (1 << 62, -1, Readiness.READY),
        (-1, -1, Readiness.READY),
        (39, 700, Readiness.WAITING),
        (60, 899, Readiness.WAITING),
        (60, 900, Readiness.MISSING),
        (0, 1 << 62, Readiness.MISSING),
    ],
)
def test_the_next_step_for_an_end(offset: int, position: int, next_step: Readiness) -> None:
    assert readiness(end(offset, position), NOW) is next_step
    full = Readiness.FULL if next_step is Readiness.WAITING and position < NOW.dispatched else next_step
    assert readiness(end(offset, position), NOW._replace(is_full=True)) is full
    arrived = next_step if position >= NOW.dispatched else Readiness.READY
    assert readiness(end(offset, position), NOW._replace(arrived=NOW.end)) is arrived
