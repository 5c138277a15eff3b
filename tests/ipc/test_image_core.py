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
    Answered,
    Cancelled,
    Crashed,
    Died,
    Effect,
    End,
    Event,
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
from ringmq.ipc.transitions import Kind
from tests.ipc.image_machine import IMAGE

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
NEWER, DIED, SOON, LATE_MS = Loaded("no", is_replaced=True), Died("x"), Tick(), NOW_MS + LOAD_MS
FIRST, LOADING, READY, WORN, RETIRING, ABSENT, OFF, REPLACED = State
Case = tuple[State, Event, int, list[Effect], State, tuple[Event, ...]]


def case(
    state: State, event: Event, effects: list[Effect], then: State, *before: Event, at_ms: int = NOW_MS
) -> Case:  # fmt: skip
    """`before`: what a loaded image has met, if that is not as in `core_in`."""
    return state, event, at_ms, effects, then, before


CASES = [
    case(FIRST, WANTED, [], FIRST),
    case(FIRST, LOADED, [], READY),
    case(FIRST, USELESS, [End()], OFF),
    case(FIRST, NEWER, [End()], REPLACED),
    case(FIRST, DIED, [End()], ABSENT),
    case(FIRST, SOON, [], FIRST),
    case(FIRST, SOON, [End()], ABSENT, at_ms=LATE_MS),
    case(LOADING, WANTED, [Exec("w")], LOADING),
    case(LOADING, LOADED, [], READY),
    case(LOADING, USELESS, [End()], OFF),
    case(LOADING, NEWER, [End()], REPLACED),
    case(LOADING, DIED, [End()], ABSENT),
    case(LOADING, SOON, [End()], ABSENT, at_ms=LATE_MS),
    case(READY, WANTED, [Order("w")], READY),
    case(READY, LOADED, [], READY),
    case(READY, USELESS, [End()], OFF),
    case(READY, NEWER, [End()], REPLACED),
    case(READY, REFUSED, [Exec("first")], READY),
    case(READY, Crashed(), [], WORN),
    case(READY, DIED, [End()], ABSENT),
    case(READY, SOON, [End(), Exec("lost")], ABSENT, Wanted("lost"), at_ms=LATE_MS),
    case(WORN, WANTED, [Order("w")], RETIRING),
    case(WORN, LOADED, [], WORN),
    case(WORN, USELESS, [End()], OFF),
    case(WORN, NEWER, [End()], REPLACED),
    case(WORN, REFUSED, [Exec("first")], WORN),
    case(WORN, DIED, [End()], ABSENT),
    case(WORN, SOON, [End(), Exec("lost")], ABSENT, Wanted("lost"), Crashed(), at_ms=LATE_MS),
    case(RETIRING, WANTED, [Exec("w")], RETIRING),
    case(RETIRING, LOADED, [], RETIRING),
    case(RETIRING, USELESS, [End(), Exec("first")], OFF),
    case(RETIRING, NEWER, [End(), Exec("first")], REPLACED),
    case(RETIRING, REFUSED, [Exec("first")], RETIRING),
    case(RETIRING, DIED, [End(), Exec("first")], ABSENT),
    case(RETIRING, SOON, [], RETIRING),
    case(RETIRING, SOON, [End(), Make()], LOADING, Crashed(), Wanted("last"), Answered("last")),
    case(RETIRING, SOON, [End(), Exec("first")], ABSENT, at_ms=LATE_MS),
    case(ABSENT, WANTED, [Exec("w")], ABSENT),
    case(ABSENT, Tick(may_make=False), [], ABSENT),
    case(ABSENT, SOON, [Make()], LOADING),
    case(OFF, WANTED, [Exec("w")], OFF),
    case(REPLACED, WANTED, [Exec("w")], REPLACED),
    *[case(state, Cancelled("w"), [], state) for state in State],
]
SAMPLES: list[Event] = [WANTED, LOADED, REFUSED, Cancelled("w"), Crashed(), DIED, SOON]


@pytest.mark.parametrize(("state", "event", "at_ms", "effects", "then", "before"), CASES)
def test_each_cell(
    state: State, event: Event, at_ms: int, effects: list[Effect], then: State, before: tuple[Event, ...]
) -> None:
    core = core_in(READY if before else state)
    for earlier in before:
        core.step(earlier, NOW_MS)
    assert core.state is state
    assert without_logs(core.step(event, at_ms)) == effects
    assert core.state is then


@pytest.mark.parametrize(("state", "event"), IMAGE.cells(Kind.IGNORED))
def test_an_ignored_event_changes_nothing(state: State, event: type[Event]) -> None:
    core, untouched = core_in(state), core_in(state)
    assert core.step(next(sample for sample in SAMPLES if type(sample) is event), LATE_MS) == []
    assert core == untouched


def test_the_cases_are_all_cells_and_all_arrows() -> None:
    IMAGE.check_walked((state, type(event), then) for state, event, _, _, then, _ in CASES)
    assert not IMAGE.cells(Kind.IMPOSSIBLE)


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
