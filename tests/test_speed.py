"""Budgets of time grow with the time of the reference work, and never shrink."""

from collections.abc import Callable

import pytest

from tests.speed import WORK_MS, allowed, slowness


def clock_of(times: float) -> Callable[[], int]:
    """A clock by which the reference work takes so many times as long as it should."""
    now_ns = 0

    def clock() -> int:
        nonlocal now_ns
        now_ns += int(times * WORK_MS * 1e6)
        return now_ns

    return clock


@pytest.mark.parametrize(("times", "wanted_ms"), [(0.5, 50), (1, 50), (2, 100), (7, 350)])
def test_a_budget_grows_with_the_time_of_the_work(times: float, wanted_ms: float) -> None:
    assert allowed(50, clock_of(times)) == pytest.approx(wanted_ms)


def test_a_stall_within_one_sample_does_not_count() -> None:
    ticks = iter([0, 10**9, 10**9, *(10**9 + number * 10**5 for number in range(1, 9))])
    assert slowness(lambda: next(ticks)) == 1
