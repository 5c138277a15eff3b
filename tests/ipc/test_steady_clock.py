"""A clock that follows the wall clock and never goes back."""

import random

from ringmq.ipc.steady_clock import SteadyClock

MS = 1_000_000
START_NS = 1_700_000_000_000 * MS


class Clocks:
    """A wall clock that can be set, a monotonic one, and the steady clock over both."""

    def __init__(self) -> None:
        self.wall_ns, self.monotonic_ns = START_NS, 5 * MS
        self.steady_ms = SteadyClock(lambda: self.wall_ns, lambda: self.monotonic_ns)

    def advance(self, ms: float) -> None:
        self.wall_ns += int(ms * MS)
        self.monotonic_ns += int(ms * MS)

    def set_wall(self, seconds: int) -> None:
        self.wall_ns += seconds * 1000 * MS

    @property
    def ahead_ms(self) -> int:
        return self.steady_ms() - self.wall_ns // MS


def test_it_is_the_wall_clock() -> None:
    clocks = Clocks()
    for _ in range(100):
        clocks.advance(3.5)
        assert clocks.ahead_ms == 0


def test_a_clock_that_is_set_forward_is_followed() -> None:
    clocks = Clocks()
    clocks.set_wall(3600)
    assert clocks.ahead_ms == 0


def test_behind_a_clock_that_is_set_back_it_goes_at_half_its_pace_until_both_agree() -> None:
    clocks = Clocks()
    clocks.set_wall(-10)
    before = clocks.steady_ms()
    assert before == START_NS // MS
    clocks.advance(4000)
    assert clocks.steady_ms() - before == 2000
    clocks.advance(15_999)
    assert clocks.ahead_ms == 0
    clocks.advance(1000)
    assert clocks.ahead_ms == 0


def test_looks_a_moment_apart_lose_no_time() -> None:
    clocks = Clocks()
    clocks.set_wall(-10)
    before = clocks.steady_ms()
    for _ in range(4000):
        clocks.advance(0.5)
        clocks.steady_ms()
    assert 999 <= clocks.steady_ms() - before <= 1000


def test_it_never_goes_back_and_never_stands() -> None:
    clocks, dice = Clocks(), random.Random(7)
    last = clocks.steady_ms()
    for _ in range(2000):
        clocks.set_wall(dice.choice((0, 0, 0, -86_400, -30, 5, 3600)))
        clocks.advance(100)
        now = clocks.steady_ms()
        assert now >= last + 50
        last = now
