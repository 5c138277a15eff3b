"""The order of snapshots: each pair of a state and an event, and each arrow."""

from __future__ import annotations

import pytest

from ringmq.ipc.transitions import ImpossibleEventError, Kind
from ringmq.pop.snapshot_core import (
    INTERVAL_MS,
    AllTaken,
    Apply,
    Begin,
    Broken,
    Due,
    Effect,
    Event,
    Failed,
    Finish,
    GiveUp,
    ImageFull,
    JournalFull,
    Measure,
    Measured,
    OnDisk,
    Refuse,
    Saved,
    SnapshotCore,
    State,
)  # fmt: skip
from tests.pop.snapshot_machine import SNAPSHOT

FAULT = Failed("Input/output error", 5)
NO_WRITES = State.WAITS, State.FAILED
CASES: list[tuple[State, Event, list[Effect], State]] = [
    (State.RESTS, Due(), [Measure()], State.MEASURES),
    (State.MEASURES, Measured(), [Begin()], State.TAKES),
    (State.TAKES, AllTaken(), [Finish()], State.WRITES),
    (State.TAKES, Broken(), [GiveUp()], State.RESTS),
    (State.TAKES, JournalFull(), [GiveUp()], State.RESTS),
    (State.WRITES, JournalFull(), [GiveUp()], State.RESTS),
    (State.WRITES, ImageFull(), [], State.WAITS),
    (State.WAITS, Due(), [Apply()], State.WRITES),
    (State.WRITES, OnDisk(), [Saved()], State.RESTS),
    *((state, FAULT, [GiveUp(), Refuse(5)], State.FAILED) for state in State if state not in NO_WRITES),
]
EXAMPLES = {type(event): event for _, event, _, _ in CASES}


def in_state(state: State) -> SnapshotCore:
    core = SnapshotCore()
    core.state = state
    return core


@pytest.mark.parametrize(("state", "event", "effects", "then"), CASES)
def test_cases(state: State, event: Event, effects: list[Effect], then: State) -> None:
    core = in_state(state)
    assert core.step(event, 5000) == effects
    assert core.state is then
    assert core.failure == ("Input/output error" if then is State.FAILED else "")


@pytest.mark.parametrize(("state", "event"), SNAPSHOT.cells(Kind.IGNORED))
def test_ignored_events_change_nothing(state: State, event: type) -> None:
    core = in_state(state)
    assert (core.step(EXAMPLES[event], 5000), core.state) == ([], state)


@pytest.mark.parametrize(("state", "event"), SNAPSHOT.cells(Kind.IMPOSSIBLE))
def test_impossible_events_raise(state: State, event: type) -> None:
    with pytest.raises(ImpossibleEventError):
        in_state(state).step(EXAMPLES[event], 5000)


def test_each_cell_and_each_arrow_has_a_case() -> None:
    SNAPSHOT.check()
    SNAPSHOT.check_walked((state, type(event), then) for state, event, _, then in CASES)


def test_one_snapshot_a_second() -> None:
    """The second counts from beginning to beginning. One that takes longer is followed at once."""
    core = SnapshotCore()
    began = []
    for now_ms in range(10_000, 14_000, 100):
        if core.step(Due(), now_ms):
            began.append(now_ms)
            for event in (Measured(), AllTaken(), OnDisk()):
                core.step(event, now_ms + 50)
    assert began == [10_000, 11_000, 12_000, 13_000]
    core.step(Due(), 14_000)
    core.step(Measured(), 14_000 + 3 * INTERVAL_MS)
    core.step(Broken(), 14_000 + 3 * INTERVAL_MS)
    assert core.step(Due(), 14_001 + 3 * INTERVAL_MS) == [Measure()]


def test_an_image_without_room_is_written_again_a_second_later() -> None:
    core = in_state(State.WRITES)
    core.step(ImageFull(), 5000)
    assert [core.step(Due(), now_ms) for now_ms in (5000, 5999, 6000)] == [[], [], [Apply()]]


def test_a_failure_of_a_predecessor_stays() -> None:
    core = SnapshotCore("an earlier write failed")
    assert core.step(Due(), 5000) == []
    assert (core.state, core.failure) == (State.FAILED, "an earlier write failed")
