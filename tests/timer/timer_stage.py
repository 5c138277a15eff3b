"""Timers for scenario files: the store and the worker of the simulation, which takes as much as it may at each step.

Between two events of a story the worker runs, and wakes when the core says. Times of effects are those of its clock.
"""

from __future__ import annotations

import random

from msgspec.structs import replace

from ringmq.services.kit.arena import ArenaRing
from ringmq.services.kit.in_order_flow import InOrderFlow
from ringmq.timer.core import Publish, Published, Refused, TimerSettings, Walk
from tests.scenario import Phrases, Scenario
from tests.timer.simulation import RECORD_BYTES, START_MS, LogRecord, TimerMessage, WalkState, World

TURNS_MAX = 10_000
phrase = Phrases()


class Most(random.Random):
    """Numbers that let the simulation take all that it may take, or as little as it may."""

    takes_least = False

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        low, end = (0, start) if stop is None else (start, stop)
        return low if self.takes_least else end - 1

    def random(self) -> float:
        return 0.0


class TimerStage(World):
    """One store, its worker, `write` and the clock."""

    def __init__(self, scenario: Scenario) -> None:
        found = {"precision_ms": 1000, "window_slots": 172_800}
        found |= {name: int(value) for name, value in scenario.properties.items()}
        self.said: list[str] = []
        self.names: dict[int, str] = {}
        self.is_running, self.is_slow, self.behind_ms = True, False, 0
        self.flow = InOrderFlow(ArenaRing(1))
        """The pauses after refusals. It counts no bytes here."""
        self.flow.settled()
        super().__init__(0, TimerSettings(**found))
        self.random = self.most = Most()
        self.now_ms = START_MS
        self.disk.checkpoint.open_ms = START_MS
        self.core = self.started()

    def play(self, event: str, now_ms: int) -> list[str]:
        self.said = []
        self.run_until(START_MS + now_ms - self.behind_ms)
        phrase.perform(self, event, now_ms)
        if self.is_running:
            self.turn_until_quiet()
        return self.said

    def say(self, text: str) -> None:
        self.said.append(f"{self.now_ms - START_MS}: {text}")

    def run_until(self, until_ms: int) -> None:
        """The worker runs and wakes when the core says."""
        while self.is_running and self.now_ms < until_ms:
            next_ms = self.core.next_ms(self.now_ms, self.flow.pause_ms(self.now_ms))
            self.now_ms = min(until_ms, max(self.now_ms + 1, next_ms))
            self.turn_until_quiet()
        self.now_ms = until_ms

    def turn_until_quiet(self) -> None:
        """A turn may only tell how far the topic is read, so that the next one delivers: two have nothing to do."""
        quiet, seen = 0, self.seen()
        for _ in range(TURNS_MAX):
            self.turn()
            quiet, before, seen = quiet + 1, seen, self.seen()
            if before != seen:
                quiet = 0
            elif quiet == 2:
                return
        raise AssertionError(f"the worker does not come to rest: {self.said[-3:]}")

    def seen(self) -> tuple[int, ...]:
        progress = self.core.progress
        return len(self.said), progress.open_ms, progress.queue_offset, len(self.slots)

    def name_of(self, record: LogRecord) -> str:
        return f"the recall of {self.names[record.message]}" if record.deletes else self.names[record.message]

    # -- the simulation, with words ------------------------------------------------------------------------

    def begin_walk(self, effect: Walk) -> None:
        is_again = effect.slot_ms in self.slots
        super().begin_walk(effect)
        if count := len(self.to_walk[-1].units):
            self.say(f"read slot {effect.slot_ms - START_MS}{' again' if is_again else ''}, {count} units")

    def join(self, walk: WalkState) -> bool:
        end_ms = self.ends[walk.slot_ms]
        if not super().join(walk):
            return False
        joined_ms = self.ends[walk.slot_ms] - self.settings.precision_ms
        assert joined_ms >= end_ms
        self.say(f"slot {joined_ms - START_MS} joins slot {walk.slot_ms - START_MS}")
        return True

    def publish(self, effect: Publish) -> None:
        if not self.flow.may_submit(self.now_ms):
            self.step(Published(0))
            return
        slot = self.slots[effect.slot_ms]
        real = slot.is_deleted

        def is_deleted(message: TimerMessage) -> bool:
            found = real(message)
            if found:
                self.say(f"{self.name_of(self.record_of(message))} is recalled")
            return found

        slot.is_deleted = is_deleted  # type: ignore[method-assign]
        super().publish(effect)
        slot.is_deleted = real  # type: ignore[method-assign]

    def record_of(self, message: TimerMessage) -> LogRecord:
        return self.disk.log[self.disk.units[message.unit].offset // RECORD_BYTES]

    def store(self) -> None:
        if self.is_slow:
            return
        if self.refuses:
            self.say(f"write refuses {', '.join(self.name_of(self.record_of(copy)) for copy in self.in_flight)}")
            self.slots[self.core.source_ms].give_back(self.in_flight)
            self.in_flight = []
            self.flow.tallied(0, "code 14, cause 74", self.now_ms)
            self.flow.settled()
            self.step(Refused())
            return
        self.flow.tallied(len(self.in_flight), "", self.now_ms)
        super().store()

    def store_copy(self, message: TimerMessage) -> None:
        name = self.name_of(self.record_of(message))
        self.say(f"{name} goes into the timer topic again" if message.is_rolled else f"deliver {name}")
        super().store_copy(message)


@phrase(r"send (?P<name>\w+), due (?P<where>in|at) (?P<ms>\d+)")
def _send(stage: TimerStage, now_ms: int, name: str, where: str, ms: int) -> None:
    delay_ms = ms if where == "in" else ms - (stage.now_ms - START_MS)
    stage.names[stage.send(delay_ms)] = name


@phrase(r"recall (?P<name>\w+)( by a message for (?P<at>\d+))?")
def _recall(stage: TimerStage, now_ms: int, name: str, at: int | None = None) -> None:
    """By a message for the same time, as clients do, or for another one."""
    source = next(stage.sent[number] for number, of in stage.names.items() if of == name and number in stage.sent)
    exact_ms = source.exact_ms if at is None else START_MS + at
    stage.names[stage.send(max(1, exact_ms - stage.now_ms), deletes=source.key)] = name
    stage.perhaps_deleted.add(source.key)


@phrase(r"time passes")
def _pass(stage: TimerStage, now_ms: int) -> None:
    """Nothing else happens."""


@phrase(r"write (?P<how>refuses|accepts|is slow|is fast)")
def _write(stage: TimerStage, now_ms: int, how: str) -> None:
    stage.refuses, stage.is_slow = how == "refuses", how == "is slow"


@phrase(r"the worker is killed(?P<takes>, and write stores what it has)?")
def _kill(stage: TimerStage, now_ms: int, takes: str = "") -> None:
    """Its replacement starts at once."""
    stage.kill(takes_requests=bool(takes))


@phrase(r"the broker stops")
def _stop(stage: TimerStage, now_ms: int) -> None:
    stage.flush()
    stage.is_running = False


@phrase(r"the broker starts")
def _start(stage: TimerStage, now_ms: int) -> None:
    stage.core, stage.is_running = stage.started(), True


@phrase(r"the broker starts with precision (?P<precision_ms>\d+)")
def _start_with(stage: TimerStage, now_ms: int, precision_ms: int) -> None:
    stage.reopen(TimerSettings(precision_ms, stage.settings.window_slots), "")
    stage.is_running = True


@phrase(r"the disk has all, and the checkpoint is written")
def _flush(stage: TimerStage, now_ms: int) -> None:
    stage.flush()


@phrase(r"power cut")
def _power_cut(stage: TimerStage, now_ms: int) -> None:
    """All is lost that the disk did not have."""
    stage.most.takes_least = True
    stage.power_cut()
    stage.most.takes_least = False


@phrase(r"wheel and TimerLog are lost")
def _lose_files(stage: TimerStage, now_ms: int) -> None:
    stage.lose_files()


@phrase(r"the clock is set (?P<where>back|forward) by (?P<ms>\d+)")
def _set_clock(stage: TimerStage, now_ms: int, where: str, ms: int) -> None:
    stage.behind_ms += ms if where == "back" else -ms
    stage.now_ms += -ms if where == "back" else ms


@phrase(r"(?P<which>enqueue|dequeue) (?P<how>stops|goes on)")
def _switch(stage: TimerStage, now_ms: int, which: str, how: str) -> None:
    """timerStopEnqueue, timerStopDequeue."""
    stops = how == "stops"
    change = {"stops_enqueue": stops} if which == "enqueue" else {"stops_dequeue": stops}
    stage.settings = stage.core.settings = replace(stage.settings, **change)


@phrase(r"waiting: (?P<names>.*)")
def _waiting(stage: TimerStage, now_ms: int, names: str) -> None:
    """A question."""
    found = ", ".join(stage.names[number] for number in sorted(stage.waiting())) or "none"
    if found != names:
        stage.say(f"waiting: {found}")
