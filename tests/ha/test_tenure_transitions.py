"""The transition table of a broker's role, cell by cell and arrow by arrow."""

import pytest

from ringmq.ha.epochs import Position
from ringmq.ha.tenure_core import RETRY_MS, TenureCore
from ringmq.ha.tenure_events import (
    Accepted,
    AnswerPromise,
    Ask,
    Began,
    Changed,
    Demote,
    Ended,
    Event,
    FileFailed,
    FileWritten,
    Follow,
    Log,
    MayStop,
    Order,
    Peer,
    PeerSeen,
    PromiseAsked,
    Promote,
    Publish,
    Refuse,
    Register,
    Reject,
    Release,
    Released,
    RoundEnded,
    Step,
    StepDone,
    StepFailed,
    Stop,
    Stream,
    Tick,
    Unfollow,
    WriteFile,
)
from ringmq.ha.tenure_memory import STEP_MS_MAX, Own
from ringmq.ha.tenure_states import STEPS, TAKING, YIELDING, State
from ringmq.ipc.tenure import Tenure, TenureState
from ringmq.ipc.transitions import ImpossibleEventError, Kind
from ringmq.store.tenure_file import Addresses, Found, Policy, TenureRecord
from tests.ha.tenure_machine import TENURE

SYNC = Policy("SYNC_MASTER")
SLAVE_1, MASTER_0 = Own("b:1", 1, is_master=False, policy=SYNC), Own("a:1", 0, is_master=True, policy=SYNC)
E1, E2, E9 = 65537, 131072, 9 << 16
AS_SLAVE = Found(TenureRecord(is_master=False, epoch=65536, policy=SYNC, master=Addresses("a:1"), peers=("a:1",)))
AS_MASTER = Found(TenureRecord(is_master=True, epoch=65536, policy=SYNC, peers=("b:1",)))
SOON_MS, LATE_MS = 1, STEP_MS_MAX


def peer(address: str, state: TenureState, epoch: int, **given: object) -> Peer:
    values = {"position": Position(0, 0), "broker_id": 2, **given}
    return Peer(addresses=Addresses(address, f"ha-{address}"), tenure=Tenure(state, epoch), **values)  # type: ignore[arg-type]


NEWER = PeerSeen(peer("c:1", TenureState.MASTER, E9))
NEWER_SLAVE = PeerSeen(peer("c:1", TenureState.SLAVE, E9))
OLDER = PeerSeen(peer("c:1", TenureState.SLAVE, 65536))
HELPER = PeerSeen(peer("b:1", TenureState.SLAVE, 65536), 1)
MASTER_LIVES = PeerSeen(peer("a:1", TenureState.MASTER, 65536), 1)
FORGOTTEN = PeerSeen(peer("c:1", TenureState.SLAVE, 65536), 1)
KEPT, UNKNOWN = FileFailed("disk full", is_old_kept=True), FileFailed("EIO", is_old_kept=False)
WRITTEN, TICK, STOP = FileWritten(), Tick(), Stop()
ACCEPTED, STALE = Accepted(Addresses("c:1", "c:2"), E9), Accepted(Addresses("z:1", "z:2"), 0)
PROMISED = PromiseAsked(E9 + 2, "c:1", is_linked=False)
PROMISE_OF_C = (PROMISED, WRITTEN)


def done(step: Step) -> StepDone:
    return StepDone(step, 100)


TAKE = [Promote(), RoundEnded(1), RoundEnded(2), done(Step.STAND), done(Step.WRITE), done(Step.SERVE), WRITTEN]
GO_ON = [RoundEnded(1), done(Step.STAND), done(Step.WRITE), done(Step.SERVE)]
YIELD = [Demote(), done(Step.STAND), WRITTEN, done(Step.CLOSE), done(Step.RECEIVE)]
WAYS: dict[str, tuple[Own, Found, dict[State, list[Event]]]] = {
    "slave": (SLAVE_1, AS_SLAVE, {
        State.BEGINNING: [],
        State.SLAVE: [Began()],
        State.NOTES: [Began(), ACCEPTED],
        State.LOOKS: [Began(), *TAKE[:1]],
        State.PREPARES: [Began(), *TAKE[:2]],
        State.TAKE_STAND: [Began(), *TAKE[:3]],
        State.TAKE_JOURNAL: [Began(), *TAKE[:4]],
        State.TAKE_SERVE: [Began(), *TAKE[:5]],
        State.TAKE_FILE: [Began(), *TAKE[:6]],
        State.MASTER: [Began(), *TAKE],
        State.UNDO_FILE: [Began(), *TAKE[:6], UNKNOWN],
        State.UNDO_JOURNAL: [Began(), *TAKE[:3], StepFailed(Step.STAND, "it died")],
        State.YIELD_STAND: [Began(), *TAKE, *YIELD[:1]],
        State.YIELD_FILE: [Began(), *TAKE, *YIELD[:2]],
        State.YIELD_CLOSE: [Began(), *TAKE, *YIELD[:3]],
        State.YIELD_JOURNAL: [Began(), *TAKE, *YIELD[:4]],
        State.ENDED: [Began(), STOP],
    }),
    "master": (MASTER_0, AS_MASTER, {
        State.BEGINNING: [],
        State.ASKS: [Began()],
        State.HOLDS: [Began(), RoundEnded(1)],
        State.LOOKS: [Began(), RoundEnded(1), Promote()],
        State.PREPARES: [Began(), RoundEnded(1), Promote(), RoundEnded(2)],
        State.TAKE_STAND: [Began(), HELPER, *GO_ON[:1]],
        State.TAKE_JOURNAL: [Began(), HELPER, *GO_ON[:2]],
        State.TAKE_SERVE: [Began(), HELPER, *GO_ON[:3]],
        State.TAKE_FILE: [Began(), RoundEnded(1), *[Promote(), RoundEnded(2), RoundEnded(3)], *GO_ON[1:]],
        State.UNDO_FILE: [Began(), RoundEnded(1), Promote(), RoundEnded(2), RoundEnded(3), *GO_ON[1:], UNKNOWN],
        State.MASTER: [Began(), HELPER, *GO_ON],
    }),
    "held": (MASTER_0, AS_MASTER, {State.YIELD_FILE: [Began(), RoundEnded(1), *YIELD[:2]]}),
}  # fmt: skip
"""Own configuration and file, and the events that lead to a state."""


def core_in(way: str, state: State, *before: Event) -> TenureCore:
    own, found, steps = WAYS[way]
    core = TenureCore.of(own, found)
    for event in (*steps[state], *before):
        core.step(event, 0)
    assert core.state is state, (way, state, core.state, core.failure)
    return core


IS_SLAVE: list[type] = [Publish, Changed, Register, Ended, Follow]
REMAINS: list[type] = [Ended, Register, Follow]
UNDOES = (*YIELDING, State.UNDO_JOURNAL)
CASES: list[tuple[str, State, Event, list[type], State, int, tuple[Event, ...]]] = [
    # way, state, event, effects but for log lines, then, after ms, before
    ("slave", State.BEGINNING, Began(), [Publish, Register, Follow], State.SLAVE, 0, ()),
    ("slave", State.BEGINNING, Began(Tenure(TenureState.SLAVE, 65536)), [Register, Follow], State.SLAVE, 0, ()),
    ("slave", State.BEGINNING, Began(Tenure(TenureState.TAKING, E1)), [Order], State.UNDO_JOURNAL, 0, ()),
    ("slave", State.BEGINNING, Began(Tenure(TenureState.YIELDING, E1)), [Publish, Order], State.YIELD_STAND, 0, ()),
    ("slave", State.BEGINNING, Began(Tenure(TenureState.MASTER, E1)), [Publish, Order], State.YIELD_STAND, 0, ()),
    ("master", State.BEGINNING, Began(), [Publish, Ask], State.ASKS, 0, ()),
    ("master", State.BEGINNING, Began(Tenure(TenureState.TAKING, 65536)), [Ask], State.ASKS, 0, ()),
    ("master", State.BEGINNING, Began(Tenure(TenureState.MASTER, 65536)), [Register, Ask], State.MASTER, 0, ()),
    ("master", State.BEGINNING, Began(Tenure(TenureState.YIELDING, 65536)), [Order], State.YIELD_STAND, 0, ()),
    ("slave", State.BEGINNING, STOP, [MayStop], State.ENDED, 0, ()),
    ("master", State.ASKS, RoundEnded(7), [], State.ASKS, 0, ()),
    ("master", State.ASKS, RoundEnded(1), [], State.HOLDS, 0, ()),
    ("master", State.ASKS, RoundEnded(1), [Order], State.TAKE_STAND, 0, (HELPER,)),
    ("master", State.ASKS, OLDER, [], State.ASKS, 0, ()),
    ("master", State.ASKS, NEWER, [Publish, Order], State.YIELD_STAND, 0, ()),
    ("master", State.ASKS, NEWER_SLAVE, [Publish, Order], State.YIELD_STAND, 0, ()),
    ("master", State.ASKS, STOP, [MayStop], State.ENDED, 0, ()),
    ("master", State.HOLDS, Promote(), [Ask], State.LOOKS, 0, ()),
    ("master", State.HOLDS, Demote(), [Publish, Order], State.YIELD_STAND, 0, ()),
    ("master", State.HOLDS, NEWER, [Publish, Order], State.YIELD_STAND, 0, ()),
    ("master", State.HOLDS, TICK, [], State.HOLDS, SOON_MS, ()),
    ("master", State.HOLDS, TICK, [Ask], State.ASKS, LATE_MS, ()),
    ("master", State.HOLDS, STOP, [MayStop], State.ENDED, 0, ()),
    ("slave", State.SLAVE, Promote(), [Ask], State.LOOKS, 0, ()),
    ("slave", State.SLAVE, Promote(obstacles=("the disk is read-only",)), [Refuse], State.SLAVE, 0, ()),
    ("slave", State.SLAVE, Demote(), [Refuse], State.SLAVE, 0, ()),
    ("slave", State.SLAVE, NEWER, [Follow], State.SLAVE, 0, ()),
    ("slave", State.SLAVE, OLDER, [], State.SLAVE, 0, ()),
    ("slave", State.SLAVE, NEWER_SLAVE, [], State.SLAVE, 0, ()),
    ("slave", State.SLAVE, FORGOTTEN, [WriteFile], State.NOTES, 0, (*PROMISE_OF_C, Tick())),
    ("slave", State.SLAVE, PROMISED, [Unfollow, WriteFile], State.NOTES, 0, ()),
    ("slave", State.SLAVE, PROMISED, [AnswerPromise], State.SLAVE, 0, PROMISE_OF_C),
    ("slave", State.SLAVE, PromiseAsked(65536, "c:1", is_linked=False), [AnswerPromise], State.SLAVE, 0, ()),
    ("slave", State.SLAVE, PromiseAsked(E9, "c:1", is_linked=True), [AnswerPromise], State.SLAVE, 0, ()),
    ("slave", State.SLAVE, Released(E9 + 2), [WriteFile], State.NOTES, 0, PROMISE_OF_C),
    ("slave", State.SLAVE, Released(E9), [], State.SLAVE, 0, PROMISE_OF_C),
    ("slave", State.SLAVE, ACCEPTED, [WriteFile], State.NOTES, 0, ()),
    ("slave", State.SLAVE, ACCEPTED, [Stream], State.SLAVE, 0, (ACCEPTED, WRITTEN)),
    ("slave", State.SLAVE, STALE, [Reject], State.SLAVE, 0, ()),
    ("slave", State.SLAVE, Accepted(Addresses("s:1"), is_stock=True), [Reject], State.SLAVE, 0, ()),
    ("slave", State.SLAVE, TICK, [], State.SLAVE, LATE_MS, ()),
    ("slave", State.SLAVE, TICK, [Ask], State.SLAVE, LATE_MS, PROMISE_OF_C),
    ("slave", State.SLAVE, STOP, [MayStop], State.ENDED, 0, ()),
    ("slave", State.NOTES, WRITTEN, [Stream], State.SLAVE, 0, ()),
    ("slave", State.NOTES, WRITTEN, [Stream, Reject], State.SLAVE, 0, (STALE,)),
    ("slave", State.NOTES, WRITTEN, [Stream, MayStop], State.ENDED, 0, (STOP,)),
    ("slave", State.NOTES, KEPT, [Reject], State.SLAVE, 0, ()),
    ("slave", State.NOTES, UNKNOWN, [Reject], State.SLAVE, 0, ()),
    ("slave", State.NOTES, KEPT, [Reject, MayStop], State.ENDED, 0, (STOP,)),
    ("slave", State.NOTES, ACCEPTED, [], State.NOTES, 0, ()),
    ("slave", State.NOTES, Promote(), [Refuse], State.NOTES, 0, ()),
    ("slave", State.NOTES, STOP, [], State.NOTES, 0, ()),
    ("slave", State.LOOKS, RoundEnded(7), [], State.LOOKS, 0, ()),
    ("slave", State.LOOKS, RoundEnded(1), [Unfollow, Ask], State.PREPARES, 0, ()),
    ("slave", State.LOOKS, RoundEnded(1), REMAINS, State.SLAVE, 0, (MASTER_LIVES,)),
    ("slave", State.LOOKS, RoundEnded(1), [*REMAINS, WriteFile], State.NOTES, 0, (MASTER_LIVES, ACCEPTED)),
    ("master", State.LOOKS, RoundEnded(2, asked=("c:1",)), [Ended], State.HOLDS, 0, ()),
    ("slave", State.LOOKS, ACCEPTED, [], State.LOOKS, 0, ()),
    ("slave", State.LOOKS, STOP, [*REMAINS, MayStop], State.ENDED, 0, ()),
    ("slave", State.PREPARES, RoundEnded(7), [], State.PREPARES, 0, ()),
    ("slave", State.PREPARES, RoundEnded(2), [Publish, Order], State.TAKE_STAND, 0, ()),
    ("slave", State.PREPARES, RoundEnded(2), REMAINS, State.SLAVE, 0, (NEWER,)),
    ("slave", State.PREPARES, RoundEnded(2), [Release, *REMAINS], State.SLAVE, 0, (
        PeerSeen(peer("a:1", TenureState.SLAVE, 65536, position=Position(65536, 9), promised=E2 + 1), 2),
    )),
    ("master", State.PREPARES, RoundEnded(3), [Ended], State.HOLDS, 0, (NEWER,)),
    ("slave", State.PREPARES, STOP, [*REMAINS, MayStop], State.ENDED, 0, ()),
    ("slave", State.TAKE_STAND, done(Step.STAND), [Order], State.TAKE_JOURNAL, 0, ()),
    ("slave", State.TAKE_STAND, done(Step.SERVE), [], State.TAKE_STAND, 0, ()),
    ("slave", State.TAKE_STAND, done(Step.STAND), [Order], State.UNDO_JOURNAL, 0, (NEWER,)),
    ("master", State.TAKE_STAND, done(Step.STAND), [], State.HOLDS, 0, (NEWER,)),
    ("slave", State.TAKE_JOURNAL, done(Step.WRITE), [Order], State.TAKE_SERVE, 0, ()),
    ("slave", State.TAKE_JOURNAL, done(Step.WRITE), [Order], State.UNDO_JOURNAL, 0, (NEWER,)),
    ("master", State.TAKE_JOURNAL, done(Step.WRITE), [], State.HOLDS, 0, (NEWER,)),
    ("slave", State.TAKE_SERVE, done(Step.SERVE), [WriteFile], State.TAKE_FILE, 0, ()),
    ("slave", State.TAKE_SERVE, done(Step.SERVE), [Order], State.UNDO_JOURNAL, 0, (NEWER,)),
    ("master", State.TAKE_SERVE, done(Step.SERVE), [Publish, Changed, Register, Ask], State.MASTER, 0, ()),
    ("master", State.TAKE_SERVE, done(Step.SERVE), [], State.HOLDS, 0, (NEWER,)),
    *(("slave", state, StepFailed(STEPS[state], "died"), [Order], State.UNDO_JOURNAL, 0, ()) for state in TAKING),
    *(("master", state, StepFailed(STEPS[state], "died"), [], State.HOLDS, 0, ()) for state in TAKING),
    *(("slave", state, StepFailed(Step.RECEIVE, "died"), [], state, 0, ()) for state in TAKING),
    *(("slave", state, TICK, [Order], State.UNDO_JOURNAL, LATE_MS, ()) for state in TAKING),
    *(("master", state, TICK, [], State.HOLDS, LATE_MS, ()) for state in TAKING),
    *(("slave", state, TICK, [], state, SOON_MS, ()) for state in TAKING),
    *(("slave", state, STOP, [Order], State.UNDO_JOURNAL, 0, ()) for state in TAKING),
    *(("master", state, STOP, [MayStop], State.ENDED, 0, ()) for state in TAKING),
    ("slave", State.TAKE_FILE, WRITTEN, [Publish, Changed, Register, Ended, Ask], State.MASTER, 0, ()),
    ("slave", State.TAKE_FILE, WRITTEN, [Publish, Order], State.YIELD_STAND, 0, (NEWER,)),
    ("slave", State.TAKE_FILE, WRITTEN, [Publish, Changed, Register, Ended, MayStop], State.ENDED, 0, (STOP,)),
    ("slave", State.TAKE_FILE, KEPT, [Order], State.UNDO_JOURNAL, 0, ()),
    ("master", State.TAKE_FILE, KEPT, [Ended, Publish], State.HOLDS, 0, ()),
    ("slave", State.TAKE_FILE, UNKNOWN, [WriteFile], State.UNDO_FILE, 0, ()),
    ("slave", State.TAKE_FILE, UNKNOWN, [MayStop], State.ENDED, 0, (STOP,)),
    ("slave", State.TAKE_FILE, STOP, [], State.TAKE_FILE, 0, ()),
    ("slave", State.UNDO_FILE, TICK, [], State.UNDO_FILE, LATE_MS, ()),
    ("slave", State.UNDO_FILE, TICK, [], State.UNDO_FILE, RETRY_MS - 1, (KEPT,)),
    ("slave", State.UNDO_FILE, TICK, [WriteFile], State.UNDO_FILE, RETRY_MS, (KEPT,)),
    ("slave", State.UNDO_FILE, KEPT, [], State.UNDO_FILE, 0, ()),
    ("slave", State.UNDO_FILE, WRITTEN, [Order], State.UNDO_JOURNAL, 0, ()),
    ("master", State.UNDO_FILE, WRITTEN, [Ended, Publish], State.HOLDS, 0, ()),
    ("slave", State.UNDO_FILE, STOP, [MayStop], State.ENDED, 0, ()),
    ("slave", State.UNDO_JOURNAL, done(Step.STAND), [], State.UNDO_JOURNAL, 0, ()),
    ("slave", State.UNDO_JOURNAL, done(Step.RECEIVE), IS_SLAVE, State.SLAVE, 0, ()),
    ("slave", State.UNDO_JOURNAL, done(Step.RECEIVE), [*IS_SLAVE, WriteFile], State.NOTES, 0, (ACCEPTED,)),
    ("slave", State.UNDO_JOURNAL, done(Step.RECEIVE), [*IS_SLAVE, MayStop], State.ENDED, 0, (STOP,)),
    ("slave", State.UNDO_JOURNAL, ACCEPTED, [], State.UNDO_JOURNAL, 0, ()),
    ("slave", State.UNDO_JOURNAL, STOP, [], State.UNDO_JOURNAL, 0, ()),
    ("slave", State.MASTER, Promote(), [Refuse], State.MASTER, 0, ()),
    ("slave", State.MASTER, Demote(), [Publish, Order], State.YIELD_STAND, 0, ()),
    ("slave", State.MASTER, OLDER, [], State.MASTER, 0, ()),
    ("slave", State.MASTER, NEWER, [Publish, Order], State.YIELD_STAND, 0, ()),
    ("slave", State.MASTER, TICK, [], State.MASTER, SOON_MS, ()),
    ("slave", State.MASTER, TICK, [Ask], State.MASTER, LATE_MS, ()),
    ("slave", State.MASTER, STOP, [MayStop], State.ENDED, 0, ()),
    ("slave", State.YIELD_STAND, done(Step.STAND), [WriteFile], State.YIELD_FILE, 0, ()),
    ("slave", State.YIELD_STAND, done(Step.CLOSE), [], State.YIELD_STAND, 0, ()),
    ("slave", State.YIELD_FILE, WRITTEN, [Order], State.YIELD_CLOSE, 0, ()),
    ("slave", State.YIELD_FILE, KEPT, [Ended, Publish, Order], State.TAKE_JOURNAL, 0, ()),
    ("slave", State.YIELD_FILE, KEPT, [], State.YIELD_FILE, 0, (NEWER,)),
    ("held", State.YIELD_FILE, KEPT, [Ended, Publish], State.HOLDS, 0, ()),
    ("held", State.YIELD_FILE, KEPT, [], State.YIELD_FILE, 0, (NEWER,)),
    ("slave", State.YIELD_FILE, UNKNOWN, [], State.YIELD_FILE, 0, ()),
    ("slave", State.YIELD_FILE, UNKNOWN, [MayStop], State.ENDED, 0, (STOP,)),
    ("slave", State.YIELD_FILE, TICK, [], State.YIELD_FILE, LATE_MS, ()),
    ("slave", State.YIELD_FILE, TICK, [WriteFile], State.YIELD_FILE, LATE_MS, (UNKNOWN,)),
    ("slave", State.YIELD_CLOSE, done(Step.CLOSE), [Order], State.YIELD_JOURNAL, 0, ()),
    ("slave", State.YIELD_JOURNAL, done(Step.RECEIVE), IS_SLAVE, State.SLAVE, 0, ()),
    ("slave", State.YIELD_JOURNAL, done(Step.RECEIVE), [*IS_SLAVE, WriteFile], State.NOTES, 0, (ACCEPTED,)),
    ("slave", State.YIELD_JOURNAL, done(Step.RECEIVE), [*IS_SLAVE, MayStop], State.ENDED, 0, (STOP,)),
    ("slave", State.YIELD_JOURNAL, ACCEPTED, [], State.YIELD_JOURNAL, 0, ()),
    *(("slave", state, StepFailed(STEPS[state], "died"), [Order], state, 0, ()) for state in UNDOES),
    *(("slave", state, TICK, [Order], state, LATE_MS, ()) for state in UNDOES),
    *(("slave", state, STOP, [], state, 0, ()) for state in (*YIELDING, State.YIELD_FILE)),
]  # fmt: skip
"""Cells that a state shares with most others are below."""
ASKED = PromiseAsked(E9 << 1, "c:1", is_linked=False)
WAY_TO = {state: way for way in ("master", "slave") for state in WAYS[way][2]}
ACTS_ON_PEERS = (State.SLAVE, State.ASKS, State.HOLDS, State.MASTER, State.BEGINNING, State.ENDED)
SHARED: list[tuple[str, State, Event, list[type], State, int, tuple[Event, ...]]] = [
    *((WAY_TO[state], state, Promote(), [Refuse], state, 0, ()) for state in set(State) - {State.SLAVE, State.HOLDS}),
    *((WAY_TO[state], state, Demote(), [Refuse], state, 0, ()) for state in set(State) - {State.MASTER, State.HOLDS}),
    *((WAY_TO[state], state, ASKED, [AnswerPromise], state, 0, ()) for state in set(State) - {State.SLAVE}),
    *((WAY_TO[state], state, OLDER, [], state, 0, ()) for state in set(State) - set(ACTS_ON_PEERS)),
]  # fmt: skip
SAMPLES: dict[type, Event] = {
    type(event): event
    for event in (
        Began(), Promote(), Demote(), OLDER, RoundEnded(7), PROMISED, Released(E9), ACCEPTED, done(Step.STAND),
        StepFailed(Step.STAND, "died"), WRITTEN, KEPT, STOP, TICK,
    )
}  # fmt: skip


@pytest.mark.parametrize(("way", "state", "event", "effects", "then", "after_ms", "before"), [*CASES, *SHARED])
def test_a_cell(
    way: str, state: State, event: Event, effects: list[type], then: State, after_ms: int, before: tuple[Event, ...]
) -> None:  # fmt: skip
    core = core_in(way, state)
    for earlier in before:
        core.step(earlier, core.due_ms or 0 if isinstance(earlier, Tick) else 0)
    assert core.state is state, before
    happened = [type(effect) for effect in core.step(event, after_ms) if not isinstance(effect, Log)]
    assert (happened, core.state) == (effects, then)


@pytest.mark.parametrize(("state", "event"), TENURE.cells(Kind.IGNORED))
def test_an_ignored_event_changes_nothing(state: State, event: type[Event]) -> None:
    core, untouched = core_in(WAY_TO[state], state), core_in(WAY_TO[state], state)
    assert core.step(SAMPLES[event], LATE_MS) == []
    assert core == untouched


@pytest.mark.parametrize(("state", "event"), TENURE.cells(Kind.IMPOSSIBLE))
def test_an_impossible_event_raises(state: State, event: type[Event]) -> None:
    with pytest.raises(ImpossibleEventError):
        core_in(WAY_TO[state], state).step(SAMPLES[event], LATE_MS)


def test_the_cases_are_all_cells_and_all_arrows() -> None:
    TENURE.check()
    TENURE.check_walked((state, type(event), then) for _, state, event, _, then, _, _ in [*CASES, *SHARED])
