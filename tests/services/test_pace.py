"""How fast a service publishes beside clients that send at given rates."""

import pytest

from ringmq.services.kit.pace import BUSY_PER_S, IDLE_WINDOWS, RATE_MIN, UNLIMITED, WINDOW_MS, RateLimiter

SHARE = 0.25
TURN_MS = 2
BATCH = 512


def published(limiter: RateLimiter, clients_per_s: int, began_ms: int, seconds: int, taken: int = 0) -> int:
    """What a service with a backlog publishes, that looks every 2 ms; at most 512 records a look."""
    count = 0
    for now_ms in range(began_ms, began_ms + 1000 * seconds, TURN_MS):
        made = min(BATCH, limiter.allowance(now_ms, taken + (now_ms - began_ms) * clients_per_s // 1000))
        limiter.published(made)
        count += made
    return count


@pytest.mark.parametrize(
    ("clients_per_s", "expected"),
    [
        (BUSY_PER_S, RATE_MIN),
        (100_000, RATE_MIN),
        (400_000, 100_000),
        (800_000, 200_000),
        (BUSY_PER_S // 2, 1000 // TURN_MS * BATCH),
        (0, 1000 // TURN_MS * BATCH),
    ],
)
def test_beside_clients_it_has_its_share_or_its_least_rate(clients_per_s: int, expected: int) -> None:
    limiter = RateLimiter(SHARE)
    published(limiter, clients_per_s, 0, 1)
    assert abs(published(limiter, clients_per_s, 1000, 5, clients_per_s) / 5 - expected) < expected / 50


def test_it_takes_what_it_can_when_clients_have_been_idle_for_a_while() -> None:
    limiter, taken = RateLimiter(SHARE), 400_000
    published(limiter, taken, 0, 1)
    windows = [limiter.allowance(1000 + number * WINDOW_MS, taken) for number in range(IDLE_WINDOWS + 1)]
    assert UNLIMITED not in windows[:-1] and windows[-1] == UNLIMITED
    assert limiter.allowance(1200, taken + BUSY_PER_S) < UNLIMITED, "and gives way at once when they come again"


def test_a_turn_that_comes_late_has_no_more_than_two_windows() -> None:
    limiter = RateLimiter(SHARE)
    published(limiter, 100_000, 0, 1)
    assert limiter.allowance(6000, 100_000 + 5 * 30_000) == RATE_MIN * 2 * WINDOW_MS // 1000
