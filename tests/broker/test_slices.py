"""Long requests in slices: order within a connection, fairness among connections, places, the time of a turn."""

from collections.abc import Callable
from dataclasses import dataclass, field

from ringmq.broker.requests.request import Answer, Connection, Drop, Slices
from ringmq.broker.requests.slices import LARGE_MAX, SliceScheduler
from ringmq.broker.requests.turns import FIRST_GO_MS, INTAKE_MS, SLICE_MS, SLICES_END_MS, Steps, TurnClock, finish
from tests.broker.fakes import peer


class Cpu:
    """A thread's CPU clock that a test moves."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns

    def work(self, ms: float) -> None:
        self.ns += int(ms * 1_000_000)


@dataclass
class Job:
    """Work of `steps` steps, each of them `step_ms`; 0 steps = answered at once."""

    name: str
    connection: Connection
    cpu: Cpu
    said: list[str]
    steps: int = 0
    step_ms: float = 1.0
    is_large: bool = False
    is_shared: bool = False
    is_reading: bool = False
    size_bytes: int = 10
    breaks: bool = False
    awaits: Callable[[], bool] | None = None
    errors: list[Exception] = field(default_factory=list)

    def begin(self) -> Answer | Slices:
        self.said.append(f"begin {self.name}")
        slices = Slices(self._run(), self.is_large, self.is_shared, self.is_reading, self.awaits)
        return slices if self.steps else Drop()

    def _run(self) -> Steps[Answer]:
        for number in range(self.steps):
            self.cpu.work(self.step_ms)
            if self.breaks and number == 1:
                raise ZeroDivisionError("planted")
            yield
        return Drop()

    def complete(self, answer: Answer) -> None:
        self.said.append(f"end {self.name}")

    def fail(self, error: Exception) -> None:
        self.said.append(f"fail {self.name}")
        self.errors.append(error)


class Harness:
    def __init__(self) -> None:
        self.cpu = Cpu()
        self.clock = TurnClock(self.cpu)
        self.rests = False
        self.works = SliceScheduler(self.clock, must_rest=lambda: self.rests)
        self.said: list[str] = []

    def add(self, name: str, connection: int, steps: int = 0, **options: object) -> None:
        self.works.add(Job(name, peer(connection), self.cpu, self.said, steps, **options))  # type: ignore[arg-type]

    def turn(self) -> float:
        """One turn; its ms."""
        began = self.cpu.ns
        self.clock.begin()
        self.works.turn()
        return (self.cpu.ns - began) / 1e6


def test_a_short_request_is_answered_at_once() -> None:
    harness = Harness()
    harness.add("a", 1, steps=3)
    assert (harness.said, len(harness.works), harness.works.undone_bytes) == (["begin a", "end a"], 0, 0)


def test_requests_of_a_connection_keep_their_order_and_others_pass() -> None:
    harness = Harness()
    harness.add("long", 1, steps=100)
    harness.add("behind", 1)
    harness.add("last", 1, steps=2)
    harness.add("other", 2)
    assert harness.said == ["begin long", "begin other", "end other"]
    assert (len(harness.works), harness.works.undone_bytes) == (1, 30)
    while len(harness.works):
        harness.turn()
    assert harness.said[3:] == ["end long", "begin behind", "end behind", "begin last", "end last"]
    assert harness.works.undone_bytes == 0


def test_slices_are_fair_and_end_with_the_turn() -> None:
    harness = Harness()
    for number in range(6):
        harness.add(f"{number}", number, steps=40)
    for _ in range(3):
        assert SLICES_END_MS <= harness.turn() <= SLICES_END_MS + SLICE_MS
    while len(harness.works):
        harness.turn()
    assert [line for line in harness.said if "end" in line] == [f"end {number}" for number in range(6)]


def test_a_turn_that_is_over_still_moves_every_kind_on() -> None:
    """Else a flood of short requests would keep long ones open for ever."""
    harness = Harness()
    harness.add("small", 1, steps=FIRST_GO_MS + 2 * SLICE_MS)
    harness.add("large", 2, steps=FIRST_GO_MS + 2 * SLICE_MS, is_large=True)
    for _ in range(2):
        harness.clock.begin()
        harness.cpu.work(45)
        harness.works.turn()
    assert len(harness.works) == 2
    harness.clock.begin()
    harness.cpu.work(45)
    harness.works.turn()
    assert len(harness.works) == 0


def test_large_requests_wait_for_a_place_and_small_ones_do_not() -> None:
    harness = Harness()
    for number in range(LARGE_MAX + 2):
        harness.add(f"{number}", number, steps=20, is_large=True)
    began_ms = harness.cpu.ns / 1e6
    assert began_ms == LARGE_MAX * FIRST_GO_MS, "two have not made their first step"
    harness.add("small", 90, steps=3)
    assert harness.said[-1] == "end small"
    while len(harness.works):
        assert harness.turn() <= SLICES_END_MS + SLICE_MS
    assert [line for line in harness.said if "end" in line][1:] == [f"end {number}" for number in range(LARGE_MAX + 2)]


def test_a_defect_costs_one_request() -> None:
    harness = Harness()
    harness.add("bad", 1, steps=50, breaks=True)
    harness.add("late", 2, steps=50, step_ms=FIRST_GO_MS, breaks=True)
    harness.add("behind", 2)
    harness.turn()
    assert harness.said == ["begin bad", "fail bad", "begin late", "fail late", "begin behind", "end behind"]
    assert (len(harness.works), harness.works.undone_bytes) == (0, 0)


def test_a_request_that_waits_for_a_worker_takes_no_time() -> None:
    """Others go on. It goes on with the answer, in front of later requests of its connection."""
    harness, open_ones = Harness(), {"one", "two"}
    for number, name in enumerate(("one", "two")):
        harness.add(name, number, steps=20, awaits=lambda name=name: name in open_ones)
    harness.add("behind", 0)
    harness.add("long", 5, steps=30)
    assert harness.cpu.ns == (2 + FIRST_GO_MS) * 1_000_000, "one step of each that waits"
    while "end long" not in harness.said:
        harness.turn()
    assert not harness.works.is_ready and len(harness.works) == 2
    assert harness.turn() == 0
    open_ones.remove("two")
    assert harness.works.is_ready
    while harness.works.is_ready:
        harness.turn()
    assert harness.said[3:] == ["end long", "end two"]
    open_ones.clear()
    while len(harness.works):
        harness.turn()
    assert harness.said[5:] == ["end one", "begin behind", "end behind"]


def test_a_reading_request_that_waits_is_dropped_with_its_connection() -> None:
    harness = Harness()
    harness.add("reads", 1, steps=20, is_reading=True, awaits=lambda: True)
    harness.add("changes", 2, steps=20, awaits=lambda: True)
    for number in (1, 2):
        harness.works.end(peer(number))
    harness.turn()
    assert harness.said[2:] == ["end reads"] and not harness.works.is_ready
    assert len(harness.works) == 1, "a change is made, whoever waits for it"


def test_a_stop_ends_all() -> None:
    harness = Harness()
    for number in range(5):
        harness.add(f"{number}", number % 2, steps=300, is_large=number % 2 == 0)
    harness.works.finish()
    assert len(harness.works) == 0
    assert len([line for line in harness.said if "end" in line]) == 5


def test_a_turn_begins_what_has_waited_within_the_time_for_it() -> None:
    harness = Harness()
    harness.add("long", 1, steps=FIRST_GO_MS + 1)
    for number in range(40):
        harness.add(f"{number}", 1, steps=5)
    assert harness.turn() <= INTAKE_MS + FIRST_GO_MS
    harness.works.finish()
    assert [line for line in harness.said if "end" in line] == ["end long", *(f"end {number}" for number in range(40))]


def test_finish_gives_what_the_steps_return() -> None:
    def steps() -> Steps[int]:
        yield
        return 7

    assert finish(steps()) == 7
    advance: Callable[[Steps[int], int], int | None] = TurnClock(lambda: 0).advance
    assert advance(steps(), 1) == 7


def test_work_that_only_reads_is_dropped_when_its_connection_is_closed() -> None:
    harness = Harness()
    for number in range(LARGE_MAX + 2):
        harness.add(f"read {number}", number, steps=20, is_large=True, is_reading=True)
    harness.add("change", 50, steps=20, is_large=True)
    harness.add("behind", 0, steps=20, is_reading=True)
    harness.add("change behind", 0)
    for number in (0, LARGE_MAX, 50, 99):
        harness.works.end(peer(number))
    spent_ns = harness.cpu.ns
    assert "end read 0" in harness.said
    assert f"end read {LARGE_MAX}" in harness.said, "it waited for a place"
    harness.works.begin_next()
    harness.works.begin_next()
    assert harness.said[-4:] == ["begin behind", "end behind", "begin change behind", "end change behind"]
    assert harness.cpu.ns == spent_ns, "none of their steps was run"
    while len(harness.works):
        harness.turn()
    assert "end change" in harness.said
    assert harness.said.count("end read 0") == 1
    assert not harness.works._ended


def test_large_answers_rest_while_others_wait_for_their_way_out() -> None:
    harness = Harness()
    harness.rests = True
    harness.add("shared", 1, steps=10, is_shared=True)
    harness.add("large", 2, steps=10, is_large=True)
    harness.add("small", 3, steps=10)
    while harness.works.is_ready:
        harness.turn()
    assert [line for line in harness.said if "end" in line] == ["end small"]
    assert harness.turn() == 0
    assert len(harness.works) == 2
    harness.rests = False
    assert harness.works.is_ready
    harness.turn()
    harness.rests = True
    harness.works.finish()
    assert len(harness.works) == 0


def test_only_the_first_of_many_shared_requests_takes_time_where_it_comes_in() -> None:
    harness = Harness()
    for number in range(100):
        harness.add(f"{number}", number, steps=10, is_shared=True)
    assert harness.cpu.ns / 1e6 == FIRST_GO_MS
    while len(harness.works):
        assert harness.turn() <= SLICES_END_MS + SLICE_MS
    assert sum("end" in line for line in harness.said) == 100
