"""The life of the image of the workers, as a table of events and effects."""

from itertools import pairwise
from signal import SIGABRT, SIGBUS, SIGILL, SIGKILL, SIGSEGV, SIGTERM

import pytest

from ringmq.ipc.exit_status import EXIT_HUNG_READER, EXIT_INVARIANT
from ringmq.ipc.image_core import (
    ANSWER_MS,
    BACK_OFF_MAX_MS,
    BUSY_FACTOR,
    CRASHES,
    LOAD_MS,
    LONG_LIFE_MS,
    TRANSITIONS,
    Answered,
    Cancelled,
    Crashed,
    Died,
    Effect,
    End,
    Exec,
    ImageCore,
    Loaded,
    Log,
    Make,
    Order,
    Refuse,
    State,
    Tick,
    Wanted,
)

NOW_MS = 1_000


def core_in(state: State) -> ImageCore:
    """A core that events have brought into this state. In RETIRING the order for `first` is unanswered."""
    core = ImageCore()
    if state in (State.READY, State.WORN, State.RETIRING):
        core.step(Loaded(), NOW_MS)
    if state in (State.WORN, State.RETIRING):
        core.step(Crashed(), NOW_MS)
    if state is State.RETIRING:
        core.step(Wanted("first"), NOW_MS)
    if state in (State.ABSENT, State.LOADING):
        core.step(Died("was ended by signal 9"), NOW_MS)
    if state is State.LOADING:
        core.step(Tick(), NOW_MS)
    if state in (State.OFF, State.REPLACED):
        core.step(Loaded("no", is_replaced=state is State.REPLACED), NOW_MS)
    assert core.state is state
    return core


def without_logs(effects: list[Effect]) -> list[Effect]:
    return [effect for effect in effects if not isinstance(effect, Log)]


WANTED, LOADED, USELESS, REFUSED = Wanted("w"), Loaded(), Loaded("no"), Answered("first", can_exec=True)
CELLS = [
    (State.FIRST, WANTED, [], State.FIRST),
    (State.FIRST, LOADED, [], State.READY),
    (State.FIRST, USELESS, [End()], State.OFF),
    (State.FIRST, REFUSED, [], State.FIRST),
    (State.FIRST, Crashed(), [], State.FIRST),
    (State.FIRST, Died("x"), [End()], State.ABSENT),
    (State.LOADING, WANTED, [Exec("w")], State.LOADING),
    (State.LOADING, LOADED, [], State.READY),
    (State.LOADING, USELESS, [End()], State.OFF),
    (State.LOADING, REFUSED, [], State.LOADING),
    (State.LOADING, Crashed(), [], State.LOADING),
    (State.LOADING, Died("x"), [End()], State.ABSENT),
    (State.READY, WANTED, [Order("w")], State.READY),
    (State.READY, LOADED, [], State.READY),
    (State.READY, REFUSED, [Exec("first")], State.READY),
    (State.READY, Crashed(), [], State.WORN),
    (State.READY, Died("x"), [End()], State.ABSENT),
    (State.WORN, WANTED, [Order("w")], State.RETIRING),
    (State.WORN, LOADED, [], State.WORN),
    (State.WORN, REFUSED, [Exec("first")], State.WORN),
    (State.WORN, Crashed(), [], State.WORN),
    (State.WORN, Died("x"), [End()], State.ABSENT),
    (State.RETIRING, WANTED, [Exec("w")], State.RETIRING),
    (State.RETIRING, LOADED, [], State.RETIRING),
    (State.RETIRING, REFUSED, [Exec("first")], State.RETIRING),
    (State.RETIRING, Crashed(), [], State.RETIRING),
    (State.RETIRING, Died("x"), [End(), Exec("first")], State.ABSENT),
    (State.ABSENT, WANTED, [Exec("w")], State.ABSENT),
    (State.ABSENT, LOADED, [], State.ABSENT),
    (State.ABSENT, REFUSED, [], State.ABSENT),
    (State.ABSENT, Crashed(), [], State.ABSENT),
    (State.ABSENT, Died("x"), [], State.ABSENT),
    (State.OFF, WANTED, [Exec("w")], State.OFF),
    (State.OFF, LOADED, [], State.OFF),
    (State.OFF, REFUSED, [], State.OFF),
    (State.OFF, Crashed(), [], State.OFF),
    (State.OFF, Died("x"), [], State.OFF),
    (State.REPLACED, WANTED, [Exec("w")], State.REPLACED),
    (State.REPLACED, LOADED, [], State.REPLACED),
    (State.REPLACED, REFUSED, [], State.REPLACED),
    (State.REPLACED, Crashed(), [], State.REPLACED),
    (State.REPLACED, Died("x"), [], State.REPLACED),
]


@pytest.mark.parametrize(("state", "event", "effects", "then"), CELLS)
def test_each_cell(state: State, event: object, effects: list[Effect], then: State) -> None:
    core = core_in(state)
    assert without_logs(core.step(event, NOW_MS)) == effects  # type: ignore[arg-type]
    assert core.state is then


def test_the_cells_are_all_cells() -> None:
    assert {(state, type(event)) for state, event, _, _ in CELLS} == set(TRANSITIONS)
    assert {state for state, _ in TRANSITIONS} == set(State)


def test_workers_wait_for_the_first_image_and_for_no_later_one() -> None:
    core = ImageCore()
    assert core.step(Wanted("flush"), 0) == core.step(Wanted("write"), 0) == []
    assert core.step(Loaded(), 400) == [Order("flush"), Order("write")]
    core.step(Answered("flush"), 401)
    assert without_logs(core.step(Died("x"), 402)) == [End(), Exec("write")], "flush runs"
    assert core.step(Tick(), 403) == [Make()]
    assert core.step(Wanted("flush"), 404) == [Exec("flush")]


@pytest.mark.parametrize("state", [State.READY, State.WORN, State.RETIRING])
def test_an_image_that_cannot_be_used_any_more_ends(state: State) -> None:
    """A module that it has loaded later has started a thread."""
    core = core_in(state)
    unanswered = [Exec("first")] if state is State.RETIRING else []
    assert without_logs(core.step(USELESS, NOW_MS)) == [End(), *unanswered]
    assert core.state is State.OFF


@pytest.mark.parametrize("event", [Died("x"), Loaded("no")])
def test_a_first_image_that_cannot_be_used_costs_its_workers_an_exec(event: Died | Loaded) -> None:
    core = ImageCore()
    core.step(Wanted("flush"), 0)
    assert without_logs(core.step(event, 1)) == [End(), Exec("flush")]
    assert core.step(Answered("flush"), 2) == []


def test_a_dead_worker_is_not_replaced_by_one_of_another_build() -> None:
    assert core_in(State.REPLACED).step(Wanted("w", may_exec_new=False), NOW_MS) == [Refuse("w")]
    assert core_in(State.OFF).step(Wanted("w", may_exec_new=False), NOW_MS) == [Exec("w")]
    assert core_in(State.READY).step(Wanted("w", may_exec_new=False), NOW_MS) == [Order("w")]


def test_a_cancelled_worker_is_not_started() -> None:
    core = ImageCore()
    core.step(Wanted("flush"), 0)
    assert core.step(Cancelled("flush"), 1) == core.step(Loaded(), 2) == []
    assert core.step(Wanted("flush"), 3) == [Order("flush")]
    core.step(Cancelled("flush"), 4)
    assert core.step(Tick(), 3 + ANSWER_MS) == [], "no answer is due"


@pytest.mark.parametrize(
    ("state", "limit_ms"),
    [(State.FIRST, LOAD_MS), (State.LOADING, NOW_MS + LOAD_MS), (State.RETIRING, NOW_MS + ANSWER_MS)],
)
def test_an_image_that_hangs_is_given_up(state: State, limit_ms: int) -> None:
    core = core_in(state)
    assert core.step(Tick(), limit_ms - 1) == []
    assert End() in core.step(Tick(), limit_ms)
    assert core.state is State.ABSENT


@pytest.mark.parametrize("state", [State.FIRST, State.RETIRING])
def test_an_image_that_waits_for_a_cpu_has_more_time(state: State) -> None:
    core, limit_ms = core_in(state), LOAD_MS if state is State.FIRST else ANSWER_MS
    began_ms = 0 if state is State.FIRST else NOW_MS
    assert not core.is_overdue(began_ms + limit_ms - 1) and core.is_overdue(began_ms + limit_ms)
    assert core.step(Tick(is_busy=True), began_ms + BUSY_FACTOR * limit_ms - 1) == []
    assert End() in core.step(Tick(is_busy=True), began_ms + BUSY_FACTOR * limit_ms)


def test_a_loaded_image_without_an_order_may_be_silent() -> None:
    assert core_in(State.READY).step(Tick(), 1_000 * LOAD_MS) == []


def test_after_a_crash_one_worker_comes_from_the_old_image_and_the_second_from_none() -> None:
    core = core_in(State.READY)
    core.step(Crashed(), 10)
    core.step(Crashed(), 10)
    assert core.step(Wanted("read-0"), 10) == [Order("read-0")]
    assert core.step(Wanted("write"), 10) == [Exec("write")]
    assert core.step(Tick(), 10) == [], "the order is not answered"
    core.step(Answered("read-0"), 11)
    assert core.step(Tick(may_make=False), 12) == []
    assert without_logs(core.step(Tick(), 13)) == [End(), Make()]
    assert core.step(Wanted("flush"), 14) == [Exec("flush")]
    core.step(Loaded(), 500)
    assert core.step(Wanted("flush"), 501) == [Order("flush")]


def test_a_crash_after_which_the_last_order_is_cancelled_renews_the_image_too() -> None:
    core = core_in(State.RETIRING)
    core.step(Cancelled("first"), NOW_MS)
    assert without_logs(core.step(Tick(), NOW_MS)) == [End(), Make()]


def test_images_that_die_young_come_less_and_less_often() -> None:
    core, now_ms, waits = ImageCore(), 0, []
    for _ in range(10):
        core.step(Loaded(), now_ms)
        core.step(Died("x"), now_ms)
        died_ms = now_ms
        assert core.step(Tick(may_make=False), now_ms + BACK_OFF_MAX_MS) == [], "a stop makes no image"
        while core.step(Tick(), now_ms) != [Make()]:
            now_ms += 500
        waits.append(now_ms - died_ms)
    assert waits[0] == 0, "the first one is missed at once"
    assert all(later == min(BACK_OFF_MAX_MS, max(1_000, 2 * earlier)) for earlier, later in pairwise(waits)), waits
    core.step(Loaded(), now_ms)
    now_ms += LONG_LIFE_MS
    core.step(Died("x"), now_ms)
    assert core.step(Tick(), now_ms) == [Make()]


def test_deaths_that_an_attack_may_cause_are_crashes() -> None:
    assert {-SIGSEGV, -SIGBUS, -SIGILL, -SIGABRT, EXIT_INVARIANT} == CRASHES
    assert not CRASHES & {-SIGKILL, -SIGTERM, 0, 1, EXIT_HUNG_READER}
