"""The supervisor's decisions, without processes."""

import logging

import pytest

from ringmq.ipc.exit_status import (
    EXIT_BAD_CONFIG,
    EXIT_CLEAN,
    EXIT_CRASH_LOOP,
    EXIT_HUNG_READER,
    EXIT_INVARIANT,
    EXIT_PACKAGE_REPLACED,
    EXIT_RESTART_STORE,
    EXIT_RESTED,
    EXIT_UNCLEAN_STOP,
    EXIT_USAGE,
)
from ringmq.ipc.supervisor_core import (
    BACK_OFF_MAX_MS,
    CRASH_LOOP_MS,
    EARLY_EXIT_MS,
    EARLY_EXITS_FREE,
    INVARIANT_AGAIN_MS,
    START_FAILURES_MAX,
    TRANSITIONS,
    ActivationRequested,
    Effect,
    Exited,
    Finished,
    Kill,
    Log,
    Serving,
    Silent,
    Spawn,
    State,
    Stop,
    SupervisorCore,
    Terminate,
    Tick,
)
from ringmq.ipc.workers import WORKERS, CpuClass, Start, StopPhase, WorkerRow, WorkerTable
from ringmq.native import lib

NAMES = ["read-0", "read-1", "write", "flush", "dispatch", "control"]


def serving_core() -> SupervisorCore:
    core = SupervisorCore(NAMES)
    assert core.start() == [Spawn(name) for name in NAMES]
    for name in NAMES:
        core.step(Serving(name), 10)
    assert core.all_serving()
    return core


def without_logs(effects: list[Effect]) -> list[Effect]:
    return [effect for effect in effects if not isinstance(effect, Log)]


def test_a_dead_worker_is_started_again_at_once() -> None:
    core = serving_core()
    assert without_logs(core.step(Exited("write", -9), 20)) == [Spawn("write")]
    assert not core.all_serving()
    assert core.deaths("write") == 1


def test_a_reader_that_heard_nothing_is_replaced_alone_and_the_line_says_why() -> None:
    core = serving_core()
    text = "worker read-1 received nothing for 5 s while bytes waited on its sockets; starting it again (death 1)"
    assert core.step(Exited("read-1", EXIT_HUNG_READER), 20) == [Log(text, logging.ERROR), Spawn("read-1")]


def test_a_worker_that_dies_while_starting_waits_longer_each_time() -> None:
    core = serving_core()
    now_ms, waits = 20, []
    core.step(Exited("write", -9), now_ms)
    for _ in range(START_FAILURES_MAX - 1):
        assert without_logs(core.step(Exited("write", 1), now_ms)) == []
        started_ms = now_ms
        while not core.step(Tick(), now_ms):
            now_ms += 1
        waits.append(now_ms - started_ms)
    assert waits == sorted(set(waits)), waits
    effects = core.step(Exited("write", 1), now_ms)
    assert Terminate("read-0") in effects, "it gives up and stops the others"


def test_a_worker_that_keeps_dying_soon_after_it_came_up_waits_longer_each_time_and_ends_nobody() -> None:
    core = serving_core()
    now_ms, waits = 20, []
    for _ in range(12):
        effects = core.step(Exited("read-0", -11), now_ms)
        died_ms = now_ms
        while Spawn("read-0") not in effects:
            now_ms += 1
            effects = core.step(Tick(), now_ms)
        waits.append(now_ms - died_ms)
        core.step(Serving("read-0"), now_ms + 200)
        now_ms += 200 + EARLY_EXIT_MS - 1
    assert waits[:EARLY_EXITS_FREE] == [0] * EARLY_EXITS_FREE
    assert waits[EARLY_EXITS_FREE:] == sorted(waits[EARLY_EXITS_FREE:]) and waits[EARLY_EXITS_FREE] > 0, waits
    assert waits[-1] <= BACK_OFF_MAX_MS and not core.stopping
    assert without_logs(core.step(Exited("read-0", -11), now_ms + 1)) == [Spawn("read-0")], "it has served for a while"


def test_giving_up_ends_with_its_own_status() -> None:
    core = serving_core()
    now_ms = 20
    core.step(Exited("flush", -9), now_ms)
    for _ in range(START_FAILURES_MAX):
        core.step(Exited("flush", 1), now_ms)
        now_ms += 3_000
        core.step(Tick(), now_ms)
    for name in ["read-0", "read-1", "control", "write"]:
        core.step(Exited(name, 0), now_ms)
    assert core.step(Exited("dispatch", 0), now_ms) == [Finished(EXIT_CRASH_LOOP)]


def test_a_refused_configuration_is_not_tried_again() -> None:
    core = serving_core()
    effects = core.step(Exited("read-0", 69), 20)
    assert Spawn("read-0") not in effects
    assert core.stopping


def test_stop_goes_in_phases() -> None:
    core = serving_core()
    assert core.step(Stop(), 100) == [Terminate("read-0"), Terminate("read-1")]
    assert core.step(Exited("read-0", 0), 110) == []
    assert core.step(Exited("read-1", 0), 120) == [Terminate("control")]
    assert core.step(Exited("control", 0), 130) == [Terminate("write")]
    assert core.step(Exited("write", 0), 140) == [Terminate("flush")]
    assert core.step(Exited("flush", 0), 150) == [Terminate("dispatch")]
    assert core.step(Exited("dispatch", 0), 160) == [Finished(0)]


def test_a_worker_that_does_not_stop_is_killed_and_the_stop_is_unclean() -> None:
    core = serving_core()
    core.step(Stop(), 0)
    assert core.step(Tick(), 9_999) == []
    killed = without_logs(core.step(Tick(), 10_000))
    assert killed == [Kill("read-0"), Kill("read-1")]
    for name in ["read-0", "read-1", "control", "write", "flush"]:
        core.step(Exited(name, -9 if name.startswith("read") else 0), 10_010)
    assert core.step(Exited("dispatch", 0), 10_020) == [Finished(EXIT_UNCLEAN_STOP)]


def test_a_reader_that_waits_for_its_restart_does_not_hold_up_a_stop() -> None:
    core = serving_core()
    core.step(Exited("read-0", -9), 20)
    core.step(Exited("read-0", 1), 21)
    assert core.step(Stop(), 22) == [Terminate("read-1")]
    assert core.step(Exited("read-1", 0), 23) == [Terminate("control")]


def test_a_worker_that_was_not_up_yet_may_end_by_the_signal_itself() -> None:
    core = SupervisorCore(NAMES)
    core.start()
    assert core.step(Stop(), 21) == [Terminate("read-0"), Terminate("read-1")]
    for name in ("read-0", "read-1", "control"):
        core.step(Exited(name, -15), 22)
    assert core.step(Exited("write", -15), 25) == [], "flush has to come up first"
    assert core.step(Serving("flush"), 26) == [Terminate("flush")]
    core.step(Exited("flush", 0), 27)
    core.step(Serving("dispatch"), 28)
    assert core.step(Exited("dispatch", 0), 29) == [Finished(0)]


@pytest.mark.parametrize("failed_starts", [0, 1])
@pytest.mark.parametrize("name", ["write", "control", "flush", "dispatch"])
def test_a_stop_waits_for_the_heir_of_a_worker_that_died(name: str, failed_starts: int) -> None:
    core = serving_core()
    core.step(Exited(name, -9), 20)
    for _ in range(failed_starts):  # waits for its next start
        core.step(Exited(name, 1), 21)
    effects = core.step(Stop(), 22)
    assert (Spawn(name) in effects) == (failed_starts > 0), "readers may wait for its answers"
    for other in ("read-0", "read-1", "control", "write", "flush", "dispatch"):
        if other == name:
            assert Terminate(name) not in effects, "it has to come up before it can finish"
            assert core.step(Serving(name), 25) == [Terminate(name)]
        effects = core.step(Exited(other, 0), 30)
    assert effects == [Finished(0)]


def test_an_heir_that_comes_up_before_its_turn_ends_when_it_is() -> None:
    core = serving_core()
    core.step(Exited("write", -9), 20)
    core.step(Stop(), 22)
    assert core.step(Serving("write"), 23) == []
    core.step(Exited("read-0", 0), 24)
    core.step(Exited("read-1", 0), 25)
    assert core.step(Exited("control", 0), 26) == [Terminate("write")]


def test_an_heir_that_dies_in_a_stop_makes_it_unclean() -> None:
    core = serving_core()
    core.step(Exited("write", -9), 20)
    core.step(Stop(), 22)
    for name in ("write", "read-0", "read-1", "control", "flush"):
        core.step(Exited(name, 1 if name == "write" else 0), 30)
    assert core.step(Exited("dispatch", 0), 31) == [Finished(EXIT_UNCLEAN_STOP)]


def test_a_dormant_worker_starts_when_it_is_wanted_and_comes_back_like_any_other() -> None:
    core = SupervisorCore(["write", "ha"], dormant=frozenset({"ha"}))
    assert core.start() == [Spawn("write")]
    core.step(Serving("write"), 10)
    assert core.all_serving(), "nobody waits for a worker that is not wanted"
    assert core.step(ActivationRequested("ha"), 20) == [Spawn("ha")]
    assert not core.is_dormant("ha") and not core.all_serving()
    assert core.step(ActivationRequested("ha"), 21) == []
    core.step(Serving("ha"), 30)
    assert without_logs(core.step(Exited("ha", -9), 40)) == [Spawn("ha")]


def test_a_dormant_worker_does_not_hold_up_a_stop_nor_starts_in_it() -> None:
    core = SupervisorCore(["write", "ha"], dormant=frozenset({"ha"}))
    core.start()
    core.step(Serving("write"), 10)
    assert core.step(Stop(), 20) == [Terminate("write")]
    assert core.step(ActivationRequested("ha"), 21) == []
    assert core.step(Exited("write", 0), 30) == [Finished(0)]


def test_ha_of_a_master_ends_last_and_of_a_slave_in_the_phase_of_write() -> None:
    for owner, names, order in (
        (lib.RMQ_ROLE_WRITE, ["ha", "dispatch", "flush", "write"], ["write", "flush", "dispatch", "ha"]),
        (lib.RMQ_ROLE_HA, ["ha", "dispatch", "flush", "control"], ["control", "ha", "flush", "dispatch"]),
    ):
        core = SupervisorCore(names, journal_owner=owner)
        core.start()
        for name in names:
            core.step(Serving(name), 10)
        effects = core.step(Stop(), 20)
        for name in order:
            assert effects == [Terminate(name)]
            assert core.phase == WORKERS.row(name).beside(owner).stop_phase
            effects = core.step(Exited(name, 0), 30)
        assert effects == [Finished(0)]


def test_a_worker_that_wants_the_store_opened_again_ends_all_of_them_cleanly() -> None:
    core = serving_core()
    effects = core.step(Exited("control", EXIT_RESTART_STORE), 20)
    assert without_logs(effects) == [Terminate("read-0"), Terminate("read-1")]
    core.step(Exited("read-0", 0), 30)
    assert without_logs(core.step(Exited("read-1", 0), 30)) == [Terminate("write")]
    core.step(Exited("write", 0), 40)
    core.step(Exited("flush", 0), 50)
    assert core.step(Exited("dispatch", 0), 60) == [Finished(EXIT_CLEAN)]
    assert core.restart_wanted


def test_the_wish_counts_in_the_middle_of_a_stop_too() -> None:
    core = serving_core()
    core.step(Stop(), 20)
    for name in ("read-0", "read-1"):
        core.step(Exited(name, 0), 30)
    assert without_logs(core.step(Exited("control", EXIT_RESTART_STORE), 40)) == [Terminate("write")]
    for name in ("write", "flush"):
        core.step(Exited(name, 0), 50)
    assert core.step(Exited("dispatch", 0), 60) == [Finished(EXIT_CLEAN)]
    assert core.restart_wanted


SERVICE = WorkerRow(
    "errand", 24, "ringmq.errands.worker", StopPhase.CONTROL, CpuClass.SERVICE, start=Start.ON_REQUEST, is_optional=True
)
READ, *ROWS = WORKERS
TABLE = WorkerTable(READ, (*ROWS, SERVICE))


def service_core() -> SupervisorCore:
    """`flush` serves, the service is dormant."""
    core = SupervisorCore(["flush", "errand"], dormant=frozenset({"errand"}), table=TABLE)
    assert core.start() == [Spawn("flush")]
    core.step(Serving("flush"), 0)
    return core


def in_state(state: State, *, stopping: bool) -> SupervisorCore:
    """The service is in this state; read-0 keeps a stop in its first phase, before the service's."""
    core = SupervisorCore(["read-0", "errand"], dormant=frozenset({"errand"}), table=TABLE)
    core.start()
    core.step(Serving("read-0"), 0)
    if state is not State.DORMANT:
        core.step(ActivationRequested("errand"), 1)
    if state is State.SERVING:
        core.step(Serving("errand"), 2)
    if state is State.WAITING:
        core.step(Exited("errand", 1), 2)
    if stopping:
        core.step(Stop(), 3)
    if state is State.ENDED:
        core.step(Exited("errand", 0), 4)
    assert core._workers["errand"].state is state
    return core


STARTING, SERVING, WAITING, DORMANT, ENDED = (
    State.STARTING, State.SERVING, State.WAITING, State.DORMANT, State.ENDED
)  # fmt: skip
DIES = Exited("errand", -9)
RESTS = Exited("errand", EXIT_RESTED)
CELLS = {
    # (state, event): (state and effects while the broker runs, the same in a stop); "log" = a line alone
    (DORMANT, ActivationRequested("errand")): ((STARTING, [Spawn("errand")]), (DORMANT, [])),
    (DORMANT, Serving("errand")): ((DORMANT, "log"), (DORMANT, "log")),
    (DORMANT, Silent("errand")): ((DORMANT, "log"), (DORMANT, "log")),
    (DORMANT, DIES): ((DORMANT, "log"), (DORMANT, "log")),
    (STARTING, ActivationRequested("errand")): ((STARTING, []), (STARTING, [])),
    (STARTING, Serving("errand")): ((SERVING, []), (SERVING, [])),
    (STARTING, Silent("errand")): ((STARTING, [Kill("errand")]), (STARTING, [])),
    (STARTING, DIES): ((WAITING, "log"), (ENDED, "log")),
    (STARTING, RESTS): ((DORMANT, []), (ENDED, [])),
    (SERVING, ActivationRequested("errand")): ((SERVING, []), (SERVING, [])),
    (SERVING, Serving("errand")): ((SERVING, []), (SERVING, [])),
    (SERVING, Silent("errand")): ((SERVING, [Kill("errand")]), (SERVING, [])),
    (SERVING, DIES): ((STARTING, [Spawn("errand")]), (ENDED, "log")),
    (SERVING, RESTS): ((DORMANT, []), (ENDED, [])),
    (WAITING, ActivationRequested("errand")): ((WAITING, []), (WAITING, [])),
    (WAITING, Serving("errand")): ((WAITING, "log"), (WAITING, "log")),
    (WAITING, Silent("errand")): ((WAITING, "log"), (WAITING, "log")),
    (WAITING, DIES): ((WAITING, "log"), (WAITING, "log")),
    (ENDED, ActivationRequested("errand")): (None, (ENDED, [])),
    (ENDED, Serving("errand")): (None, (ENDED, "log")),
    (ENDED, Silent("errand")): (None, (ENDED, "log")),
    (ENDED, DIES): (None, (ENDED, "log")),
}
"""No worker is ended while the broker runs: the end of one begins the stop."""


def test_every_cell_of_the_table_has_a_case() -> None:
    events = {ActivationRequested, Serving, Silent, Exited}
    assert set(TRANSITIONS) == {(state, event) for state in State for event in events}
    assert {(state, type(event)) for state, event in CELLS} == set(TRANSITIONS)


@pytest.mark.parametrize("stopping", [False, True])
@pytest.mark.parametrize(("state", "event"), CELLS)
def test_a_cell(state: State, event: ActivationRequested | Serving | Silent | Exited, *, stopping: bool) -> None:
    cell = CELLS[state, event][stopping]
    if cell is None:
        return
    core = in_state(state, stopping=stopping)
    effects = core.step(event, 5)
    assert core._workers["errand"].state is cell[0]
    if cell[1] == "log":
        assert effects and not without_logs(effects)
    else:
        assert without_logs(effects) == cell[1]


def test_a_worker_that_has_nothing_to_do_is_dormant_again_and_that_is_no_death() -> None:
    core = service_core()
    for now_ms in range(0, 100_000, 10_000):
        assert core.step(ActivationRequested("errand"), now_ms) == [Spawn("errand")]
        core.step(Serving("errand"), now_ms + 10)
        assert core.step(Exited("errand", EXIT_RESTED), now_ms + 5_000) == []
        assert core.is_dormant("errand") and core.all_serving()
    assert core.deaths("errand") == 0 and not core.in_crash_loop("errand", 100_000)


def test_a_worker_that_is_wanted_and_finds_nothing_to_do_again_and_again_starts_more_and_more_rarely() -> None:
    core, now_ms, waits = service_core(), 0, []
    for _ in range(12):
        wanted_ms, effects = now_ms, core.step(ActivationRequested("errand"), now_ms)
        while Spawn("errand") not in effects:
            now_ms += 1
            effects = core.step(Tick(), now_ms)
        waits.append(now_ms - wanted_ms)
        core.step(Exited("errand", EXIT_RESTED), now_ms)
    assert waits[:EARLY_EXITS_FREE] == [0] * EARLY_EXITS_FREE
    assert waits == sorted(waits) and 0 < waits[-1] <= BACK_OFF_MAX_MS, waits
    assert core.deaths("errand") == 0 and not core.stopping


@pytest.mark.parametrize("event", [Exited("errand", EXIT_CLEAN), Exited("flush", EXIT_RESTED)])
def test_a_clean_end_that_nobody_asked_for_is_a_death(event: Exited) -> None:
    """A SIGTERM from elsewhere: it may have had work. A worker that never rests has no such end."""
    core = service_core()
    for worker in ("errand", "flush"):
        core.step(ActivationRequested(worker), 0)
        core.step(Serving(worker), 10)
    assert without_logs(core.step(event, 20)) == [Spawn(event.worker)]
    assert core.deaths(event.worker) == 1


def test_a_worker_that_does_not_come_up_is_told_apart_from_one_that_stands_still() -> None:
    core = service_core()
    core.step(ActivationRequested("errand"), 0)
    assert core.step(Silent("errand"), 60_000)[0] == Log("worker errand has not come up for 60 s, killing it")
    core.step(Serving("errand"), 60_010)
    assert core.step(Silent("errand"), 90_000)[0] == Log("worker errand has not turned its loop for 20 s, killing it")


@pytest.mark.parametrize(("worker", "readers"), [("write", Kill), ("control", Kill), ("flush", Terminate)])
def test_a_worker_of_which_only_another_build_is_there_ends_the_broker(
    worker: str, readers: type[Kill] | type[Terminate]
) -> None:
    """Readers would wait for the answers of `write` and `control` until their stop is late."""
    core = serving_core()
    assert without_logs(core.step(Exited(worker, -9), 10_000)) == [Spawn(worker)]
    effects = without_logs(core.step(Exited(worker, EXIT_PACKAGE_REPLACED), 10_001))
    assert effects == [readers("read-0"), readers("read-1")]
    effects += core.step(Exited("read-0", -9), 10_002) + core.step(Exited("read-1", -9), 10_003)
    for name in ("control", "write", "flush", "dispatch"):
        effects += core.step(Exited(name, 0), 10_004) if name != worker else []
    assert effects[-1] == Finished(EXIT_PACKAGE_REPLACED)
    assert Terminate("dispatch") in effects, "the others stop as always"


@pytest.mark.parametrize("status", [-9, 1, 70, EXIT_USAGE, EXIT_BAD_CONFIG])
@pytest.mark.parametrize("comes_up", [False, True])
def test_an_optional_worker_may_die_for_ever(status: int, *, comes_up: bool) -> None:
    core, now_ms, deaths = service_core(), 0, 100
    effects = core.step(ActivationRequested("errand"), now_ms)
    for _ in range(deaths):
        while Spawn("errand") not in effects:
            now_ms += 1
            effects = core.step(Tick(), now_ms)
        if comes_up:
            core.step(Serving("errand"), now_ms)
        effects = core.step(Exited("errand", status), now_ms)
        assert not any("the broker stops" in effect.text for effect in effects if isinstance(effect, Log))
    assert core.deaths("errand") == deaths and core.all_serving() and not core.stopping
    assert core.in_crash_loop("errand", now_ms) and not core.in_crash_loop("flush", now_ms)
    assert not core.in_crash_loop("errand", now_ms + CRASH_LOOP_MS), "it is forgotten in a minute"


def test_two_deaths_are_no_habit() -> None:
    core = service_core()
    core.step(ActivationRequested("errand"), 0)
    for now_ms in (10, 20):
        core.step(Serving("errand"), now_ms)
        core.step(Exited("errand", -9), now_ms)
    assert not core.in_crash_loop("errand", 21)


def test_a_clean_end_of_a_worker_that_does_not_start_by_its_word_is_a_death() -> None:
    core = service_core()
    assert without_logs(core.step(Exited("flush", EXIT_CLEAN), 10)) == [Spawn("flush")]
    assert core.deaths("flush") == 1


def test_a_service_stops_in_the_phase_of_its_row() -> None:
    core = SupervisorCore(["read-0", "errand", "write"], table=TABLE)
    core.start()
    for name in ("read-0", "errand", "write"):
        core.step(Serving(name), 1)
    assert core.step(Stop(), 2) == [Terminate("read-0")]
    assert core.step(Exited("read-0", 0), 3) == [Terminate("errand")]
    assert core.step(ActivationRequested("errand"), 4) == [], "wanted in a stop"
    assert core.step(Exited("errand", 0), 5) == [Terminate("write")]
    assert core.step(Exited("write", 0), 6) == [Finished(0)]


def test_a_state_that_cannot_be_is_a_death_like_any_other() -> None:
    core = serving_core()
    effects = core.step(Exited("flush", EXIT_INVARIANT, line=7), 20)
    assert without_logs(effects) == [Spawn("flush")]
    (told,) = (effect.text for effect in effects if isinstance(effect, Log))
    assert told == ("worker flush has met a broken invariant (the line before names it); starting it again (death 1)")


@pytest.mark.parametrize(
    ("worker", "line", "after_ms", "reopens"),
    [
        ("flush", 7, INVARIANT_AGAIN_MS - 1, True),
        ("write", 7, 5, True),  # the state is in the plane, whoever meets it
        ("flush", 8, 5, False),
        ("flush", 7, INVARIANT_AGAIN_MS, False),
    ],
)
def test_the_same_line_soon_again_kills_all_and_opens_the_store_anew(
    worker: str, line: int, after_ms: int, reopens: bool
) -> None:
    core = serving_core()
    core.step(Exited("flush", EXIT_INVARIANT, line=7), 1000)
    core.step(Serving("flush"), 1001)
    effects = without_logs(core.step(Exited(worker, EXIT_INVARIANT, line=line), 1000 + after_ms))
    assert core.is_abandoned == core.restart_wanted == core.stopping == reopens
    if not reopens:
        assert effects == [Spawn(worker)]
        return
    others = [name for name in NAMES if name != worker]
    assert effects == [Kill(name) for name in others]
    assert core.step(Tick(), 1000 + after_ms + 9_999) == []
    late = core.step(Tick(), 1000 + after_ms + 10_000)
    assert [effect for effect in late if isinstance(effect, Kill)] == [Kill(name) for name in others], "once more"
    ends = [core.step(Exited(name, -9), 13_000 + after_ms) for name in others]
    assert ends == [[]] * (len(others) - 1) + [[Finished(EXIT_UNCLEAN_STOP)]]


def test_workers_without_a_process_do_not_hold_a_broken_plane() -> None:
    core = SupervisorCore(["flush", "metrics", "ha"], dormant=frozenset({"metrics"}))
    core.start()
    core.step(Exited("ha", 1), 5)  # waits for its next start
    core.step(Serving("flush"), 10)
    core.step(Exited("flush", EXIT_INVARIANT, line=7), 20)
    assert core.step(Exited("flush", EXIT_INVARIANT, line=7), 30)[1:] == [Finished(EXIT_UNCLEAN_STOP)]


def test_an_optional_worker_gets_one_new_plane() -> None:
    """What it meets again is in the store, and says nothing of the plane. Others have to meet the same state twice."""
    core = SupervisorCore(["flush", "metrics"])
    core.start()
    core.step(Serving("flush"), 10)
    core.step(Serving("metrics"), 10)
    core.step(Exited("metrics", EXIT_INVARIANT, line=7), 20)
    assert without_logs(core.step(Exited("metrics", EXIT_INVARIANT, line=7), 30)) == [Kill("flush")]
    assert core.replaced_only == {"metrics"}
    later = SupervisorCore(["flush", "metrics"], replaced_only=core.replaced_only)
    later.start()
    later.step(Serving("flush"), 10)
    later.step(Exited("metrics", EXIT_INVARIANT, line=7), 20)
    later.step(Tick(), 5000)
    later.step(Exited("metrics", EXIT_INVARIANT, line=7), 5001)
    assert not later.is_abandoned and later.in_crash_loop("metrics", 5002) is False
    assert without_logs(later.step(Exited("flush", EXIT_INVARIANT, line=7), 5003)) == [Spawn("flush")]
    later.step(Serving("flush"), 5010)
    assert without_logs(later.step(Exited("flush", EXIT_INVARIANT, line=7), 5020)) == [Finished(EXIT_UNCLEAN_STOP)]


def test_two_optional_workers_with_one_state_in_the_store_get_one_new_plane_each() -> None:
    """After them nothing that they meet ends the plane, though each other worker's same state would."""
    names, planes, replaced = ["flush", "metrics", "services"], 0, frozenset[str]()
    for _ in range(5):
        core = SupervisorCore(names, replaced_only=replaced)
        core.start()
        for name in names:
            core.step(Serving(name), 10)
        for now_ms, name in enumerate(("services", "metrics") * 4, 20):
            core.step(Exited(name, EXIT_INVARIANT, line=7), now_ms)
            core.step(Serving(name), now_ms)
            if core.is_abandoned:
                planes += 1
                break
        replaced = core.replaced_only
    assert planes == 2 and replaced == {"metrics", "services"}
