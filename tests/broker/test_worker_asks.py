"""Control asks a worker: answers, deaths of either side, and a control that sleeps meanwhile."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ringmq.broker.worker_asks import LOOK_MS, WorkerAsks
from ringmq.ipc.answerers import AnswererPlan, AnswerRow
from ringmq.ipc.asks import Ask, Inbox
from ringmq.ipc.timed_asks import GivenUp
from ringmq.ipc.workers import WORKERS, CpuClass, StopPhase, WorkerRow, WorkerRowError, WorkerTable, answerer_plans
from ringmq.native import lib
from tests.broker.control_kit import SMALL, Harness, made_harness, now
from tests.waiting import wait_until

ROLE, KIND = 24, 99
CONTROL = lib.RMQ_ROLE_CONTROL
ROW = WorkerRow("owner", ROLE, "tests.owner", StopPhase.CONTROL, CpuClass.SERVICE, answers=AnswerRow(control_asks=True))
CAPACITY = replace(
    SMALL, answerers=(*SMALL.answerers, AnswererPlan(ROLE, frozenset({CONTROL}), 1 << 16, 4096)),
)  # fmt: skip


class Scene:
    """Control's loop, and the worker that it asks."""

    def __init__(self, harness: Harness) -> None:
        self.harness, self.plane = harness, harness.plane
        self.plane.role(CONTROL).generation = 1
        harness.loop.worker_asks = WorkerAsks(self.plane)
        self.at_ms = 0

    def begin(self) -> Inbox:
        """A process of the worker starts."""
        self.plane.role(ROLE).generation += 1
        inbox = Inbox(self.plane, ROLE)
        inbox.begin()
        return inbox

    def die(self) -> None:
        """As the supervisor leaves the block of a dead worker."""
        self.plane.role(ROLE).state = 0

    def ask(self, payload: bytes = b"?", age_ms: int = 0) -> list[Any]:
        """Control asks; the outcomes of the ask."""
        outcomes: list[Any] = []
        asked_ns = time.monotonic_ns() - age_ms * 1_000_000
        self.harness.loop.worker_asks.ask(ROLE, KIND, payload, asked_ns, outcomes.append)
        return outcomes

    def turn(self) -> None:
        self.at_ms = now()
        self.harness.loop.turn(self.at_ms)

    def park(self) -> None:
        """At the time of the last turn: later something else may be due."""
        self.harness.loop.park(self.at_ms)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with made_harness(tmp_path, CAPACITY) as made:
        yield Scene(made)


def taken(inbox: Inbox) -> Ask:
    ask = inbox.take()
    assert ask is not None
    return ask


def test_control_asks_and_goes_on(scene: Scene) -> None:
    inbox = scene.begin()
    one, two = scene.ask(b"one"), scene.ask(b"two")
    first, second = taken(inbox), taken(inbox)
    assert (first.role, first.type, first.payload, second.payload) == (CONTROL, KIND, b"one", b"two")
    scene.turn()
    assert one == two == []
    assert inbox.answer_role(second, b"no") and inbox.answer_role(first, b"")
    scene.turn()
    assert (one, two) == ([b""], [b"no"])
    assert not scene.harness.loop.worker_asks.is_waiting


def test_an_answer_wakes_control(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that came before control sleeps does not let it sleep. Until then control looks at the worker."""
    waits: list[int] = []
    monkeypatch.setattr(type(scene.plane), "wait", lambda plane, role, timeout_ms: waits.append(timeout_ms))
    inbox = scene.begin()
    scene.ask()
    scene.turn()
    scene.park()
    assert len(waits) == 1 and waits[0] <= LOOK_MS
    inbox.answer_role(taken(inbox), b"")
    scene.park()
    assert len(waits) == 1
    scene.turn()
    scene.park()
    assert len(waits) == 2


def test_a_worker_that_dies_with_the_ask_in_its_hand(scene: Scene) -> None:
    """Its replacement has the other ask."""
    inbox = scene.begin()
    gone, stays = scene.ask(b"gone"), scene.ask(b"stays")
    taken(inbox)
    scene.die()
    scene.turn()
    assert gone == stays == [], "it may start again"
    inbox = scene.begin()
    scene.turn()
    assert (gone, stays) == ([GivenUp.LOST], [])
    ask = taken(inbox)
    assert ask.payload == b"stays" and inbox.answer_role(ask, b"yes")
    scene.turn()
    assert stays == [b"yes"]


def test_a_worker_that_dies_behind_its_answer(scene: Scene) -> None:
    inbox = scene.begin()
    outcomes = scene.ask()
    inbox.answer_role(taken(inbox), b"yes")
    scene.die()
    scene.begin()
    scene.turn()
    assert outcomes == [b"yes"]


def test_a_dormant_worker_is_started(scene: Scene) -> None:
    """If it does not come in time the ask is void: a later process does not see it."""
    outcomes = scene.ask(age_ms=lib.RMQ_ASK_TIMEOUT_MS - 100)
    assert scene.plane.role(ROLE).activation_requested
    scene.turn()
    assert outcomes == []
    wait_until(lambda: scene.turn() or outcomes, "it is given up")
    assert outcomes == [GivenUp.LOST]
    assert scene.begin().take() is None


def test_a_worker_that_hangs(scene: Scene) -> None:
    """Its late answer is for nobody."""
    inbox = scene.begin()
    scene.harness.loop.worker_asks = WorkerAsks(scene.plane, timeout_ms=100)
    outcomes = scene.ask()
    ask = taken(inbox)
    wait_until(lambda: scene.turn() or outcomes, "its time is over")
    assert outcomes == [GivenUp.LATE]
    inbox.answer_role(ask, b"late")
    scene.turn()
    assert outcomes == [GivenUp.LATE]


def test_answers_to_a_control_that_died(scene: Scene) -> None:
    """The replacement does not take them for its own."""
    inbox = scene.begin()
    old = scene.ask(b"old")
    asked = taken(inbox)
    scene.plane.role(CONTROL).generation = 2
    asks = WorkerAsks(scene.plane)
    outcomes: list[Any] = []
    asks.ask(ROLE, KIND, b"new", time.monotonic_ns(), outcomes.append)
    new = taken(inbox)
    assert (asked.pending, asked.role_generation, new.pending, new.role_generation) == (1, 1, 1, 2)
    assert inbox.answer_role(asked, b"old") and not asks.turn(time.monotonic_ns())
    assert inbox.answer_role(new, b"new") and asks.turn(time.monotonic_ns())
    assert (old, outcomes) == ([], [b"new"])


def test_a_full_ring_keeps_the_answer_with_the_worker(scene: Scene) -> None:
    inbox = scene.begin()
    outcomes = [scene.ask() for _ in range(6)]
    asks = [taken(inbox) for _ in range(6)]
    said = [inbox.answer_role(ask, bytes(900)) for ask in asks]
    assert said == [True, True, True, True, False, False]
    scene.turn()
    assert all(inbox.answer_role(ask, b"") for ask in asks[4:])
    scene.turn()
    assert [len(*outcome) for outcome in outcomes] == [900] * 4 + [0] * 2


def test_a_clean_stop_gives_up(scene: Scene) -> None:
    scene.begin()
    outcomes = scene.ask()
    scene.harness.loop.close(now())
    assert outcomes == [GivenUp.LATE] and scene.ask() == [GivenUp.FULL]


@pytest.mark.parametrize(("said", "problem"), [(b"", ""), (b"it is held", "worker owner: it is held")])
def test_a_question_to_all(scene: Scene, said: bytes, problem: str) -> None:
    scene.plane.role(ROLE).name = b"owner"
    inbox = scene.begin()
    question = scene.harness.loop.worker_asks.ask_all(KIND, b"may I?", time.monotonic_ns())
    scene.turn()
    assert question.is_open()
    inbox.answer_role(taken(inbox), said)
    scene.turn()
    assert (question.is_open(), question.problem) == (False, problem)


def test_a_question_that_is_given_up(scene: Scene) -> None:
    scene.plane.role(ROLE).name = b"owner"
    asks = scene.harness.loop.worker_asks
    question = asks.ask_all(KIND, b"may I?", time.monotonic_ns())
    asks.close()
    assert (question.is_open(), question.problem) == (False, f"worker owner: {GivenUp.LATE.value}")


def test_a_question_to_nobody_is_answered(tmp_path: Path) -> None:
    with made_harness(tmp_path, SMALL) as made:
        question = made.loop.worker_asks.ask_all(KIND, b"may I?", 0)
        assert (question.is_open(), question.problem) == (False, "")


def test_workers_say_whether_control_asks_them(scene: Scene) -> None:
    full = WorkerTable(WORKERS.row("read-0"), [row for row in WORKERS if row.name != "read"])
    asked = {plan.role for plan in answerer_plans(full.rows(1)) if CONTROL in plan.askers}
    assert asked == {lib.RMQ_ROLE_POP}
    full.add(ROW)
    plans = {plan.role: plan.askers for plan in answerer_plans(full.rows(1))}
    assert plans[ROLE] == {CONTROL} and CONTROL not in plans[CONTROL]
    control = full.row("control")
    with pytest.raises(WorkerRowError, match="control does not ask itself"):
        WorkerTable(WORKERS.row("read-0"), [replace(control, answers=AnswerRow(control_asks=True))])
    with pytest.raises(KeyError):
        scene.harness.loop.worker_asks.ask(lib.RMQ_ROLE_SERVICES, KIND, b"", 0, lambda _: None)
