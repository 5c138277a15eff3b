"""The drill of the test worker in a short form (`make answers-drill` is the long one)."""

from pathlib import Path

import pytest

from tests.polls.poll_checker import PollChecker
from tests.polls.poll_drill import TOPIC, PollDrill, drilling
from tests.polls.poll_load import LoadPlan
from tests.polls.poll_wire import FOUND, NOTHING

TRIES = 5
"""Of a fault that finds no poll held where the machine stands still for longer than polls wait."""
PLAN = LoadPlan(TOPIC, connections=10, depth=30, wait_ms=(300, 6000))


@pytest.mark.drill
@pytest.mark.timeout(300)
def test_polls_are_answered_once_and_messages_come_over_a_kill(tmp_path: Path) -> None:
    any_time = 3_600_000_000_000  # the suite's machine is busy, so it measures nothing
    checker = PollChecker(any_time, any_time)
    with drilling(PollDrill(tmp_path, PLAN, seed=49, checker=checker)) as drill:
        drill.begin()
        for kind in ("half", "worker", "abort"):
            drill.inject(kind)
        for _ in range(TRIES):
            drill.inject("gone")
            if drill.has_taken_back:
                break
        figures = drill.check()
    assert figures.is_good, figures
    assert figures.found.freed, figures
    assert figures.found.answers[FOUND] and figures.found.answers[NOTHING], figures
