"""A start goes on to the slot that was open and enqueues before it delivers. An end finishes the open slot."""

import pytest

from ringmq.timer.core import (
    Enqueue,
    Enqueued,
    Progress,
    Publish,
    Published,
    Refused,
    Stored,
    Tick,
    TimerCore,
    TimerSettings,
    Walk,
    Walked,
)
from ringmq.timer.timer_wheel import SLOTS
from tests.timer.kit import PRECISION_MS

NOW_MS = 1_800_000_000_000
SLOT_MS = NOW_MS - 10 * PRECISION_MS
AT_START = 5
DAY_MS = 86_400_000


class OneSlot:
    """Contents whose only message waits in the slot SLOT_MS."""

    def next_used(self, from_ms: int, to_ms: int) -> int | None:
        return SLOT_MS if from_ms <= SLOT_MS < to_ms else None

    def next_ms(self, slot_ms: int) -> int | None:
        return SLOT_MS if slot_ms == SLOT_MS else None

    def next_large(self, from_ms: int, now_ms: int) -> int | None:
        return None

    def is_left_out(self, slot_ms: int) -> bool:
        return False

    def needs_walk(self, slot_ms: int) -> bool:
        return False


def core_of(queue_offset: int, settings: TimerSettings) -> TimerCore:
    progress = Progress(SLOT_MS, queue_offset, 0)
    return TimerCore(settings, progress, OneSlot(), -1, AT_START, -1)


def tick(core: TimerCore, now_ms: int = NOW_MS) -> list[type]:
    """The kinds of effects of a tick. Each walk is over at once."""
    effects = core.step(Tick(0), now_ms)
    for effect in effects:
        if isinstance(effect, Walk):
            core.step(Walked(effect.slot_ms, effect.slot_ms + PRECISION_MS), now_ms)
    return [type(effect) for effect in effects]


@pytest.mark.parametrize(
    ("answer", "is_delivered"),
    [
        (Enqueued(AT_START - 1, SLOT_MS - PRECISION_MS, 0), False),  # one of the same millisecond may follow
        (Enqueued(AT_START - 1, SLOT_MS - PRECISION_MS + 1, 0), True),  # a later delete may come too late
    ],
)
def test_what_waits_behind_the_checkpoint_is_enqueued_first(answer: Enqueued, is_delivered: bool) -> None:
    core = core_of(0, TimerSettings(PRECISION_MS))
    assert tick(core) == [Walk]
    assert tick(core) == [Enqueue], "a delete may follow"
    core.step(answer, NOW_MS)
    assert (Publish in tick(core)) == is_delivered


@pytest.mark.parametrize(
    ("queue_offset", "settings", "now_ms"),
    [
        (0, TimerSettings(PRECISION_MS, stops_enqueue=True), NOW_MS),
        (0, TimerSettings(PRECISION_MS), NOW_MS + SLOTS // 2 * PRECISION_MS),
    ],
)
def test_nothing_waits_for_units_that_do_not_come(queue_offset: int, settings: TimerSettings, now_ms: int) -> None:
    core = core_of(queue_offset, settings)
    tick(core, now_ms)
    assert Publish in tick(core, now_ms)


@pytest.mark.parametrize(
    ("settings", "now_ms", "may_end"),
    [
        (TimerSettings(PRECISION_MS), NOW_MS, True),
        (TimerSettings(PRECISION_MS), SLOT_MS, True),
        (TimerSettings(PRECISION_MS), SLOT_MS - 1, False),  # the clock was set back
        (TimerSettings(PRECISION_MS, stops_dequeue=True), NOW_MS, False),
    ],
)
def test_an_end_waits_only_for_a_slot_that_can_end(settings: TimerSettings, now_ms: int, may_end: bool) -> None:
    core = core_of(AT_START, settings)
    tick(core, now_ms)
    assert core.finish_slot(now_ms) == may_end


class TwoSlots(OneSlot):
    """Contents whose messages wait in two slots, each for a time of its own."""

    def __init__(self, waiting: dict[int, int]) -> None:
        self.waiting = waiting

    def next_used(self, from_ms: int, to_ms: int) -> int | None:
        return min((slot_ms for slot_ms in self.waiting if from_ms <= slot_ms < to_ms), default=None)

    def next_ms(self, slot_ms: int) -> int | None:
        return self.waiting.get(slot_ms)


def test_late_messages_do_not_wait_for_slots_that_are_not_due() -> None:
    """The clock was set back to before all slots. The last of them was open, and a late message waits there."""
    opened_ms, clock_ms = SLOT_MS + 40 * DAY_MS, SLOT_MS - DAY_MS
    slots = TwoSlots({SLOT_MS: SLOT_MS + 1, opened_ms: clock_ms - 1})
    progress = Progress(SLOT_MS, AT_START, 0)
    core = TimerCore(TimerSettings(PRECISION_MS), progress, slots, opened_ms, AT_START, opened_ms)
    for _ in range(2):
        assert tick(core, clock_ms)[:1] == [Walk], "the open slot, then the one that was open"
    core.step(Enqueued(AT_START, clock_ms, 0), clock_ms)
    assert core.next_ms(clock_ms) == clock_ms
    publish = next(effect for effect in core.step(Tick(0), clock_ms) if isinstance(effect, Publish))
    assert publish.slot_ms == core.source_ms == opened_ms
    core.step(Published(1), clock_ms)
    del slots.waiting[opened_ms]
    core.step(Enqueued(AT_START, clock_ms, 0), clock_ms)
    due = core.step(Tick(0), SLOT_MS + 1)
    assert not any(isinstance(effect, Publish) for effect in due), "its copies are in flight"
    assert core.next_ms(SLOT_MS + 1) > SLOT_MS + 1, "and their completion wakes the worker"
    core.step(Enqueued(AT_START, SLOT_MS + 1, 0), SLOT_MS + 1)
    core.step(Stored(1, 0), SLOT_MS + 1)
    publish = next(effect for effect in core.step(Tick(0), SLOT_MS + 1) if isinstance(effect, Publish))
    assert publish.slot_ms == core.source_ms == core.progress.open_ms == SLOT_MS
    assert core.is_behind


@pytest.mark.parametrize(("late_ms", "until_ms"), [(0, 0), (999, 999), (PRECISION_MS, 999), (60_000, 999)])
def test_a_worker_that_was_stalled_reads_deletes_before_it_delivers(late_ms: int, until_ms: int) -> None:
    """What is due a step behind the last read may have a delete in the topic that it has not read."""
    core = core_of(AT_START, TimerSettings(PRECISION_MS))
    tick(core)
    tick(core)
    core.step(Enqueued(AT_START, NOW_MS, 0), NOW_MS)
    effects = core.step(Tick(0), NOW_MS + late_ms)
    publish = next(effect for effect in effects if isinstance(effect, Publish))
    assert publish.until_ms == NOW_MS + until_ms
    core.step(Published(0), NOW_MS + late_ms)
    core.step(Enqueued(AT_START, NOW_MS + 7, 0), NOW_MS + late_ms)
    publish = next(effect for effect in core.step(Tick(0), NOW_MS + late_ms) if isinstance(effect, Publish))
    assert publish.until_ms == min(NOW_MS + late_ms, NOW_MS + 6 + PRECISION_MS)


def published_until(core: TimerCore, now_ms: int = NOW_MS) -> int | None:
    """Time up to which a tick publishes. None if it publishes nothing."""
    effects = core.step(Tick(0), now_ms)
    return next((effect.until_ms for effect in effects if isinstance(effect, Publish)), None)


def test_a_start_reads_all_that_was_rolled_before_it_delivers() -> None:
    """A rolled delete behind a down time is stored after its message is due, so the times of records tell nothing."""
    core = TimerCore(TimerSettings(PRECISION_MS), Progress(SLOT_MS, 0, 0), OneSlot(), -1, AT_START, -1, log_end=500)
    tick(core)
    tick(core)
    core.step(Enqueued(AT_START - 1, NOW_MS, 499), NOW_MS)
    assert published_until(core) is None and core.waits_for_delete(NOW_MS)
    core.step(Enqueued(AT_START, NOW_MS, 500), NOW_MS)
    assert published_until(core) == NOW_MS and not core.waits_for_delete(NOW_MS)


@pytest.mark.parametrize("is_refused", [False, True])
def test_what_is_due_behind_a_rolled_delete_waits_for_its_unit(is_refused: bool) -> None:
    contents = TwoSlots({SLOT_MS: SLOT_MS})
    core = TimerCore(TimerSettings(PRECISION_MS), Progress(SLOT_MS, AT_START, 0), contents, -1, AT_START, -1)
    tick(core)
    tick(core)
    core.step(Enqueued(AT_START, NOW_MS, 1000), NOW_MS)
    assert published_until(core) == NOW_MS
    core.step(Published(5, last_delete=4, delete_ms=SLOT_MS), NOW_MS)
    core.step(Enqueued(AT_START + 2, NOW_MS, 1200), NOW_MS)
    assert published_until(core) == SLOT_MS, "what is due with the delete"
    contents.waiting[SLOT_MS] = SLOT_MS + 500
    for stored, log_end, read in ((3, 1300, 1300), (1, 1400, 1399)):
        core.step(Stored(stored, log_end), NOW_MS)
        core.step(Enqueued(AT_START + 3, NOW_MS, read), NOW_MS)
        assert published_until(core) is None
    if is_refused:
        core.step(Refused(), NOW_MS)
        assert published_until(core, NOW_MS + 20) is None, "its copy is in the log"
    core.step(Enqueued(AT_START + 4, NOW_MS + 20, 1400), NOW_MS + 20)
    assert published_until(core, NOW_MS + 20) == NOW_MS + 20


def test_a_refused_delete_is_waited_for_no_longer() -> None:
    core = core_of(AT_START, TimerSettings(PRECISION_MS))
    tick(core)
    tick(core)
    core.step(Enqueued(AT_START, NOW_MS, 1000), NOW_MS)
    core.step(Published(2, last_delete=1, delete_ms=SLOT_MS), NOW_MS)
    core.step(Refused(), NOW_MS)
    assert not core.waits_for_delete(NOW_MS)
