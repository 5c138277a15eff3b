"""The checker of a drill's long polls finds a wake-up that was lost, and accepts what is allowed."""

import pytest

from ringmq.loadtest.drills.wakes import LATE_MS, WakeChecker

SENT_MS = 1_700_000_000_000


def run(given_ms: int, polls: list[tuple[int, int]], topic: str = "T", times: int = 0) -> WakeChecker:
    """A message, and polls that waited from one time until another, all behind the send."""
    checker = WakeChecker()
    checker.sent("T", "1", SENT_MS)
    checker.given("T", "1", SENT_MS + given_ms, times)
    for began_ms, ended_ms in polls:
        checker.waited(topic, SENT_MS + began_ms, SENT_MS + ended_ms)
    return checker


@pytest.mark.parametrize(
    ("given_ms", "polls", "witnessed", "kinds"),
    [
        (7, [(-90, 8)], 1, []),
        (LATE_MS + 1, [(-1, LATE_MS + 2)], 1, ["late look"]),
        (LATE_MS + 1, [(-1, LATE_MS + 1), (3, LATE_MS + 2)], 1, ["late look"]),
        (LATE_MS, [(-1, LATE_MS + 2)], 1, []),
        (LATE_MS + 1, [(-1, LATE_MS - 1)], 0, []),
        (LATE_MS + 1, [(0, LATE_MS + 2)], 0, []),
    ],
)
def test_a_message_wakes_a_poll_that_waits(
    given_ms: int, polls: list[tuple[int, int]], witnessed: int, kinds: list[str]
) -> None:
    checker = run(given_ms, polls)
    assert ([violation.kind for violation in checker.verdict()], checker.witnessed_count) == (kinds, witnessed)


def test_polls_of_another_topic_are_no_witnesses() -> None:
    assert run(LATE_MS + 1, [(-1, LATE_MS + 2)], "Other").verdict() == []


def test_a_message_that_comes_again_was_given_before() -> None:
    assert run(LATE_MS + 1, [(-1, LATE_MS + 2)], times=1).verdict() == []


def test_a_message_that_never_comes() -> None:
    checker = run(7, [])
    assert checker.has_all
    checker.sent("T", "2", SENT_MS)
    assert not checker.has_all
    assert [violation.kind for violation in checker.verdict()] == ["lost message"]
