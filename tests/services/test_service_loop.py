"""The loop of a worker over a real plane: turns, sleep, rest and stop of its parts."""

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ringmq.ipc.exit_status import EXIT_CLEAN, EXIT_RESTED
from ringmq.ipc.plane import Capacity, Plane
from ringmq.ipc.segment import remove_segments
from ringmq.ipc.tenure import AS_MASTER, Tenure, TenureState
from ringmq.ipc.worker import STATE_SERVING, STATE_STOPPING
from ringmq.native import lib
from ringmq.services.kit.clocks import monotonic_ms
from ringmq.services.kit.log_lines import LINES_PER_MINUTE, LogLines
from ringmq.services.kit.loop import Part, ServiceLoop, sleep

ROLE, REST_MS = lib.RMQ_ROLE_SERVICES, 5000
SMALL = Capacity(
    topics=64, queues=64, groups=64, subscriptions=64, offsets=64, parked_slots=64, commit_slots=64, arrived_slots=64
)


@dataclass
class Stop:
    """A StopFlag without signals."""

    is_set: bool = False


@dataclass
class Worker(Part):
    """Writes down what the loop asks of it. The test sets what it reports."""

    calls: list[str]
    name: str = "one"
    work: list[bool] = field(default_factory=list)
    idle: bool = True
    states: list[int] = field(default_factory=list)
    plane: Plane | None = None

    def begin(self) -> None:
        self.calls.append(f"{self.name} begins")

    def turn(self, now_ms: int) -> bool:
        self.calls.append(f"{self.name} turns")
        if self.plane is not None:
            self.states.append(int(self.plane.role(ROLE).state))
        return self.work.pop(0) if self.work else False

    def sleep_ms(self, now_ms: int) -> int:
        return 0

    @property
    def is_idle(self) -> bool:
        self.calls.append(f"{self.name} is looked at")
        return self.idle

    def close(self, *, rests: bool) -> None:
        self.calls.append(f"{self.name} closes{' to rest' if rests else ''}")
        if self.plane is not None:
            self.states.append(int(self.plane.role(ROLE).state))

    def rest(self) -> None:
        self.calls.append(f"{self.name} rests")


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    name = f"test-{uuid.uuid4().hex[:12]}"
    yield Plane.create(name, SMALL, tmp_path.stat(), 1)
    remove_segments(name)


def clock(*times_ms: int) -> Iterator[int]:
    """These times, then the last one for ever."""
    yield from times_ms
    while True:
        yield times_ms[-1]


def test_a_worker_without_work_ends_behind_its_parts(plane: Plane) -> None:
    calls = list[str]()
    loop = ServiceLoop(plane, ROLE, [Worker(calls), Worker(calls, "two")], rest_after_ms=REST_MS)
    times = clock(1, 1, 1, 1 + REST_MS)
    assert loop.run(Stop(), lambda: next(times)) == EXIT_RESTED  # type: ignore[arg-type]
    turns = ["one turns", "two turns"]
    assert calls == [
        "one begins", "two begins", *turns, *turns, "one is looked at", "two is looked at",
        "one closes to rest", "two closes to rest", "one rests", "two rests",
    ]  # fmt: skip
    assert plane.role(ROLE).state == STATE_STOPPING and plane.role(ROLE).progress == 2


@pytest.mark.parametrize("follows", [False, True])
@pytest.mark.parametrize("state", TenureState)
def test_a_worker_ends_when_the_broker_changes_its_side(plane: Plane, state: TenureState, follows: bool) -> None:
    """Its parts close as for a stop: the next process may be that of another side, or comes much later."""
    calls = list[str]()
    plane.watermarks.tenure = (Tenure(TenureState.SLAVE) if follows else AS_MASTER).word
    plane.role(ROLE).activation_requested = 1
    part = Worker(calls, work=[True] * 5)
    loop = ServiceLoop(plane, ROLE, [part], rest_after_ms=REST_MS, follows=follows)
    stop, stays = Stop(), state in ((TenureState.SLAVE, TenureState.TAKING) if follows else (TenureState.MASTER,))

    def now_ms() -> int:
        if calls.count("one turns") == 2:
            plane.watermarks.tenure = Tenure(state, epoch=4).word
        stop.is_set = calls.count("one turns") == 4
        return 1

    assert loop.run(stop, now_ms) == (EXIT_CLEAN if stays else EXIT_RESTED)  # type: ignore[arg-type]
    assert calls == ["one begins", *["one turns"] * (5 if stays else 3), "one closes"]
    assert plane.role(ROLE).activation_requested == stays
    port = plane.header.ports.port[plane.port_of(ROLE)]
    assert bool(port.stands) == follows, "a follower submits no requests, so write need not wait for it"


def test_a_stop_ends_a_worker_with_work(plane: Plane) -> None:
    calls, stop = list[str](), Stop()
    part = Worker(calls, work=[True, True], plane=plane)
    times = clock(1, 2, 3)

    def now_ms() -> int:
        stop.is_set = calls.count("one turns") == 1
        return next(times)

    loop = ServiceLoop(plane, ROLE, [part], rest_after_ms=REST_MS)
    assert loop.run(stop, now_ms) == EXIT_CLEAN  # type: ignore[arg-type]
    assert calls == ["one begins", "one turns", "one turns", "one closes"]
    assert part.states == [STATE_SERVING] * 3, "askers wait for its answers to its end"


def test_the_time_of_rest_begins_with_the_last_work(plane: Plane) -> None:
    part = Worker([], work=[False, True])
    loop = ServiceLoop(plane, ROLE, [Worker([]), part], rest_after_ms=REST_MS)
    assert not loop.turn(1)
    assert loop.turn(REST_MS) and not loop.may_rest(2 * REST_MS - 1)
    part.idle = False
    assert not loop.may_rest(2 * REST_MS), "a message waits for its time"
    part.idle = True
    assert not loop.may_rest(3 * REST_MS - 1)
    plane.role(ROLE).activation_requested = 1
    assert loop.may_rest(3 * REST_MS) and plane.role(ROLE).activation_requested == 0, "later work sets it again"
    plane.role(ROLE).needed_until_s = 3600
    assert not loop.may_rest(3 * REST_MS), "control holds it"


def test_a_part_says_what_is_work(plane: Plane) -> None:
    """A message may have nothing to follow at once. A slot that ends goes on at once, and is no work."""
    part = Worker([], work=[True, False, True])
    part.has_worked = False
    loop = ServiceLoop(plane, ROLE, [part], rest_after_ms=REST_MS)
    assert loop.turn(1)
    part.has_worked = True
    assert not loop.turn(REST_MS) and not loop.may_rest(2 * REST_MS - 1)
    part.has_worked = False
    assert loop.turn(2 * REST_MS - 1) and loop.may_rest(2 * REST_MS)


def test_a_worker_whose_row_starts_it_at_once_never_rests(plane: Plane) -> None:
    loop = ServiceLoop(plane, ROLE, [Part()])
    assert not loop.turn(1) and not loop.may_rest(1 << 40)


def test_a_loop_may_wait_in_another_way(plane: Plane) -> None:
    """The bell is armed, so that what rings it meanwhile is seen."""
    waits = list[tuple[int, int]]()

    class Sleeper(Part):
        due_ms = 7

        def sleep_ms(self, now_ms: int) -> int:
            return self.due_ms

    part = Sleeper()
    loop = ServiceLoop(
        plane, ROLE, [Part(), part], wait=lambda timeout_ms: waits.append((timeout_ms, plane.role(ROLE).bell.sleeping))
    )  # fmt: skip
    loop.park(1)
    part.due_ms = 0
    loop.park(1)
    assert waits == [(7, lib.RMQ_BELL_ASLEEP)] and plane.role(ROLE).bell.sleeping == 0


def test_a_long_look_is_taken_at_the_end_of_the_time_alone(plane: Plane) -> None:
    """A timer looks at all slots of its wheel."""
    calls = list[str]()
    loop = ServiceLoop(plane, ROLE, [Worker(calls, idle=False)], rest_after_ms=REST_MS)
    for now_ms in range(1, 2 * REST_MS, 100):
        loop.turn(now_ms)
        loop.may_rest(now_ms)
    assert calls.count("one is looked at") == 1


def test_a_sleep_asks_for_news_behind_the_armed_bell(plane: Plane) -> None:
    armed = list[bool]()

    def news() -> int:
        armed.append(bool(plane.role(ROLE).bell.sleeping))
        return 0

    sleep(plane, ROLE, news)
    assert armed == [True] and not plane.role(ROLE).bell.sleeping
    began_ms = monotonic_ms()
    sleep(plane, ROLE, lambda: 20)
    assert monotonic_ms() - began_ms >= 20 and not plane.role(ROLE).bell.sleeping


def test_deadlines_go_by_a_clock_that_is_never_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    before = monotonic_ms()
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert monotonic_ms() >= before > 0


def test_log_lines_that_recur_are_few() -> None:
    lines, now_ms = list[str](), [0]
    log = LogLines(lines.append, now_ms=lambda: now_ms[0])
    for _ in range(3):
        log("waits: the disk is full")
    log.forget("waits")
    log("waits: the disk is full")
    assert len(lines) == 2
    for number in range(2 * LINES_PER_MINUTE):
        log(str(number))
    assert len(lines) == LINES_PER_MINUTE
    now_ms[0] = 60_000
    log("again")
    assert lines[-1].startswith("again; 12 more lines")
