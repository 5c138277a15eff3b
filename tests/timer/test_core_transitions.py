"""The transition tables of timers, cell by cell and arrow by arrow."""

from enum import Enum

import pytest

from ringmq.ipc.transitions import ImpossibleEventError, Kind
from ringmq.timer.core import (
    IN_FLIGHT_MAX,
    Close,
    CopiesState,
    Enqueue,
    Enqueued,
    Event,
    ForgetDelivered,
    Progress,
    Publish,
    Published,
    Refused,
    SlotState,
    Stored,
    Tick,
    TimerCore,
    TimerSettings,
    TopicState,
    Walk,
    Walked,
)
from tests.state_machine import Machine
from tests.timer.kit import PRECISION_MS
from tests.timer.machines import COPIES, SLOT, TOPIC

OPEN_MS = 1_800_000_000_000
NOW_MS = OPEN_MS + 500
OVER_MS = OPEN_MS + PRECISION_MS
TICK, REFUSED = Tick(0), Refused()
WALKED, ENQUEUED = Walked(OPEN_MS, OVER_MS), Enqueued(0, NOW_MS, 0)
RESTING, READING = TopicState
OUTSIDE, IN_WALK, INSIDE = SlotState
NONE, SOME, FULL = CopiesState


class Memory:
    """Contents that a test sets."""

    def __init__(self) -> None:
        self.next: dict[int, int] = {OPEN_MS: NOW_MS}
        """Slot -> time of its next message."""
        self.with_walk: set[int] = set()
        """Slots of which walks have left messages out."""

    def next_used(self, from_ms: int, to_ms: int) -> int | None:
        return None

    def next_ms(self, slot_ms: int) -> int | None:
        return self.next.get(slot_ms)

    def next_large(self, from_ms: int, now_ms: int) -> int | None:
        return None

    def is_left_out(self, slot_ms: int) -> bool:
        return slot_ms in self.with_walk

    def needs_walk(self, slot_ms: int) -> bool:
        return slot_ms in self.with_walk


def core_after(events: list[Event], memory: Memory | None = None, **settings: bool) -> TimerCore:
    core = TimerCore(TimerSettings(**settings), Progress(OPEN_MS, 0, 0), memory or Memory(), -1, 0, -1)
    for event in events:
        core.step(event, NOW_MS)
    return core


def kinds(core: TimerCore, event: Event, now_ms: int, *of: type) -> list[type]:
    """The effects of these kinds."""
    return [type(effect) for effect in core.step(event, now_ms) if isinstance(effect, of)]


# -- the timer topic -----------------------------------------------------------------------------------------------

TO_TOPIC: dict[TopicState, list[Event]] = {RESTING: [], READING: [TICK]}
TOPIC_CASES: list[tuple[TopicState, Event, dict[str, bool], list[type], TopicState]] = [
    (RESTING, TICK, {}, [Enqueue], READING),
    (RESTING, TICK, {"stops_enqueue": True}, [], RESTING),
    (READING, TICK, {}, [], READING),
    (READING, ENQUEUED, {}, [], RESTING),
]


@pytest.mark.parametrize(("state", "event", "settings", "effects", "then"), TOPIC_CASES)
def test_a_cell_of_the_topic(
    state: TopicState, event: Event, settings: dict[str, bool], effects: list[type], then: TopicState
) -> None:  # fmt: skip
    core = core_after(TO_TOPIC[state], **settings)
    assert core.topic_state is state
    assert kinds(core, event, NOW_MS, Enqueue) == effects
    assert core.topic_state is then


# -- slots ---------------------------------------------------------------------------------------------------------

TO_SLOT: dict[SlotState, list[Event]] = {OUTSIDE: [], IN_WALK: [TICK], INSIDE: [TICK, WALKED]}
SLOT_CASES: list[tuple[SlotState, Event, int, str, list[type], SlotState]] = [
    # state of the open slot, event, time, what is special, effects, state then
    (OUTSIDE, TICK, NOW_MS, "", [Walk], IN_WALK),
    (IN_WALK, TICK, OVER_MS, "", [], IN_WALK),
    (IN_WALK, WALKED, NOW_MS, "", [], INSIDE),
    (INSIDE, TICK, NOW_MS, "", [Walk], INSIDE),  # the next one is read before its time
    (INSIDE, TICK, OVER_MS, "", [Walk], INSIDE),  # its message is not stored yet
    (INSIDE, TICK, OVER_MS - 1, "is empty", [Walk], INSIDE),
    (INSIDE, TICK, OVER_MS, "is empty", [Close, ForgetDelivered, Walk], OUTSIDE),
    (INSIDE, TICK, OVER_MS, "is large", [Walk, Walk], IN_WALK),
]


@pytest.mark.parametrize(("state", "event", "now_ms", "special", "effects", "then"), SLOT_CASES)
def test_a_cell_of_a_slot(
    state: SlotState, event: Event, now_ms: int, special: str, effects: list[type], then: SlotState
) -> None:  # fmt: skip
    memory = Memory()
    core = core_after(TO_SLOT[state], memory, stops_enqueue=True)
    if special:
        memory.next.clear()
    if special == "is large":
        memory.with_walk.add(OPEN_MS)
    assert core.slot_state(OPEN_MS) is state
    assert kinds(core, event, now_ms, Walk, Close, ForgetDelivered) == effects
    assert core.slot_state(OPEN_MS) is then


def test_slots_in_memory_that_are_over_close_in_one_tick() -> None:
    memory = Memory()
    core = core_after([TICK, WALKED, TICK, Walked(OVER_MS, OVER_MS + PRECISION_MS)], memory)
    memory.next.clear()
    assert kinds(core, TICK, OVER_MS + PRECISION_MS, Walk, Close) == [Close, Close, Walk]


# -- copies --------------------------------------------------------------------------------------------------------

ONE, ALL = Published(1), Published(IN_FLIGHT_MAX)
TO_COPIES: dict[CopiesState, list[Event]] = {NONE: [], SOME: [Published(2)], FULL: [ALL]}
COPIES_CASES: list[tuple[CopiesState, Event, list[type], CopiesState]] = [
    (NONE, TICK, [Publish], NONE),
    (NONE, Published(0), [], NONE),
    (NONE, ONE, [], SOME),
    (NONE, ALL, [], FULL),
    (NONE, REFUSED, [], NONE),
    (SOME, TICK, [Publish], SOME),
    (SOME, ONE, [], SOME),
    (SOME, Published(IN_FLIGHT_MAX - 2), [], FULL),
    (SOME, Stored(1, 100), [], SOME),
    (SOME, Stored(2, 100), [], NONE),
    (SOME, REFUSED, [], NONE),
    (FULL, TICK, [], FULL),
    (FULL, Stored(1, 100), [], SOME),
    (FULL, Stored(IN_FLIGHT_MAX, 100), [], NONE),
    (FULL, REFUSED, [], NONE),
]


@pytest.mark.parametrize(("state", "event", "effects", "then"), COPIES_CASES)
def test_a_cell_of_the_copies(state: CopiesState, event: Event, effects: list[type], then: CopiesState) -> None:
    core = core_after([TICK, ENQUEUED, WALKED, *TO_COPIES[state]])
    assert core.copies_state is state
    assert kinds(core, event, NOW_MS, Publish) == effects
    assert core.copies_state is then


# -- all -----------------------------------------------------------------------------------------------------------

WALKS: list[tuple[Machine, list[tuple[Enum, type, Enum]]]] = [
    (TOPIC, [(state, type(event), then) for state, event, _, _, then in TOPIC_CASES]),
    (SLOT, [(state, type(event), then) for state, event, _, _, _, then in SLOT_CASES]),
    (COPIES, [(state, type(event), then) for state, event, _, then in COPIES_CASES]),
]


@pytest.mark.parametrize(("machine", "cases"), WALKS, ids=[machine.title for machine, _ in WALKS])
def test_the_cases_are_all_cells_and_all_arrows(machine: Machine, cases: list[tuple[Enum, type, Enum]]) -> None:
    machine.check_walked(cases)
    assert {(state, event) for state, event, _ in cases} >= set(machine.cells(Kind.IGNORED))


@pytest.mark.parametrize(
    ("state", "event"), [pair for machine, _ in WALKS for pair in machine.cells(Kind.IMPOSSIBLE)]
)  # fmt: skip
def test_an_impossible_event(state: TopicState | SlotState | CopiesState, event: type[Event]) -> None:
    events: dict[Enum, list[Event]] = {**TO_TOPIC, **TO_SLOT, **TO_COPIES}
    core = core_after(events[state])
    sample = next(sample for sample in (ENQUEUED, WALKED, ONE, Stored(1, 100)) if type(sample) is event)
    with pytest.raises(ImpossibleEventError):
        core.step(sample, NOW_MS)
