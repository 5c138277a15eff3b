"""The decisions of a wait that serves: C beside its twin, and what they are for."""

import itertools

import pytest

from ringmq.native import ffi, lib
from ringmq.services.kit.serving_twin import BUSY_NS, Decision, Seen, ServingTwin

START_NS = 5_000_000_000
TIMES_NS = (START_NS, START_NS + 1, START_NS + BUSY_NS - 1, START_NS + BUSY_NS, START_NS + 10 * BUSY_NS)


def native_step(twin: ServingTwin, seen: Seen) -> tuple[int, ServingTwin]:
    """The decision of C from this state, and its state behind it."""
    state, found = ffi.new("struct rmq_serving *"), ffi.new("struct rmq_serving_seen *")
    state.until_ns, state.has_served, state.is_rung, state.is_late = (
        twin.until_ns, twin.has_served, twin.is_rung, twin.is_late,
    )  # fmt: skip
    found.now_ns, found.has_ask, found.has_news = seen.now_ns, seen.has_ask, seen.has_news
    decision = int(lib.rmq_serving_step(state, found))
    return decision, ServingTwin(
        int(state.until_ns), bool(state.has_served), bool(state.is_rung), bool(state.is_late)
    )  # fmt: skip


def test_both_decide_alike_from_any_state() -> None:
    flags = (False, True)
    seen_decisions = set[Decision]()
    for until_ns, now_ns in itertools.product(TIMES_NS, repeat=2):
        for served, rung, late, ask, news in itertools.product(flags, repeat=5):
            twin, seen = ServingTwin(until_ns, served, rung, late), Seen(now_ns, ask, news)
            native = native_step(twin, seen)
            decision = twin.step(seen)
            assert native == (decision, twin), (until_ns, now_ns, served, rung, late, ask, news)
            seen_decisions.add(decision)
    assert seen_decisions == set(Decision)


def test_python_has_a_turn_soon_behind_the_first_ask() -> None:
    wait = ServingTwin(START_NS + 100 * BUSY_NS)
    assert wait.step(Seen(START_NS)) is Decision.SLEEP
    assert wait.step(Seen(START_NS + 7, has_ask=True)) is Decision.SERVE
    assert wait.step(Seen(START_NS + BUSY_NS, has_ask=True)) is Decision.SERVE
    assert wait.step(Seen(START_NS + 7 + BUSY_NS, has_ask=True)) is Decision.DUE
    assert wait.step(Seen(START_NS + 7 + BUSY_NS)) is Decision.DUE


@pytest.mark.parametrize("late", [False, True])
def test_a_bell_without_an_ask_is_for_python_unless_it_rang_late(late: bool) -> None:
    wait = ServingTwin(START_NS + BUSY_NS, is_rung=True, is_late=late)
    assert wait.step(Seen(START_NS)) is (Decision.SLEEP if late else Decision.NEWS)
    wait.is_rung = True
    assert wait.step(Seen(START_NS)) is Decision.NEWS, "one waker can be late, not two"
