"""Asks of control to other workers: a change of tables may concern what a worker keeps in memory.

Control asks the workers whose rows say so (AnswerRow.control_asks), and goes on meanwhile: a request that waits returns
`Slices(steps, awaits=question.is_open)`. Each ask has an answer, or a reason why there is none (ipc/timed_asks.py). A
control that dies forgets its asks: their answers are dropped, and the client that waits for the change tries again.
"""

from __future__ import annotations

from collections.abc import Callable

from ringmq.ipc.asks import Asker
from ringmq.ipc.plane import Plane
from ringmq.ipc.timed_asks import TIMEOUT_MS, GivenUp, Then, TimedAsks
from ringmq.native import ffi, lib

LOOK_MS = 50
"""Time between looks at workers that have not answered."""


class Question:
    """An ask of several workers. They agree by an empty answer, else they say why not."""

    def __init__(self) -> None:
        self._open: set[str] = set()
        self._problem = ""
        self.is_lost = False
        """True if a worker has died with the ask in its hand, or did not start in time. Ask again."""
        self.may_have_acted = False
        """True if a worker may have done what it was asked to, without an answer."""
        self.has_asked = False
        """True if there was a worker to ask."""

    def is_open(self) -> bool:
        """True if a worker has not answered, and none has refused."""
        return bool(self._open) and not self._problem

    @property
    def problem(self) -> str:
        """The first reason against. Empty if all have agreed."""
        return self._problem

    def add(self, worker: str) -> Then:
        """One more worker is asked. Returns what its answer goes to."""
        self._open.add(worker)
        self.has_asked = True

        def then(outcome: bytes | GivenUp) -> None:
            self._open.discard(worker)
            self.is_lost |= outcome is GivenUp.LOST
            self.may_have_acted |= outcome in (GivenUp.LOST, GivenUp.LATE)
            remark = outcome.value if isinstance(outcome, GivenUp) else outcome.decode(errors="replace")
            if remark and not self._problem:
                self._problem = f"worker {worker}: {remark}"

        return then


class WorkerAsks:
    """The asks of one process of control."""

    def __init__(self, plane: Plane, timeout_ms: int = TIMEOUT_MS) -> None:
        asks = plane.header.asks
        rows = (asks.answerer[number] for number in range(asks.count))
        roles = [int(row.role) for row in rows if row.answers[lib.RMQ_ROLE_CONTROL].capacity]
        self._plane = plane
        self._is_closed = False
        self._of = {role: TimedAsks(Asker(plane, lib.RMQ_ROLE_CONTROL, role), timeout_ms) for role in roles}

    @property
    def has_news(self) -> bool:
        """True if an answer waits."""
        return any(asks.has_news for asks in self._of.values())

    @property
    def is_waiting(self) -> bool:
        """True if an ask has no answer yet: look again after LOOK_MS."""
        return any(asks.is_waiting for asks in self._of.values())

    def ask(self, role: int, kind: int, payload: bytes, now_ns: int, then: Then) -> None:
        """Ask a worker, and start it if it is dormant. See `TimedAsks.ask`. Raises KeyError if control does not ask
        this worker."""
        if self._is_closed:
            then(GivenUp.FULL)
        else:
            self._of[role].ask(kind, payload, now_ns, then)

    def ask_all(
        self, kind: int, payload: bytes, now_ns: int, is_concerned: Callable[[str], bool] = lambda worker: True
    ) -> Question:
        """Ask every worker that control asks, if `is_concerned` by its name. The question is not open if there is
        none."""
        question = Question()
        for role in self._of:
            name = bytes(ffi.string(self._plane.role(role).name)).decode()
            if is_concerned(name):
                self.ask(role, kind, payload, now_ns, question.add(name))
        return question

    def turn(self, now_ns: int) -> bool:
        """Pass on answers, and give up what gets none. True if there was any."""
        return sum(asks.turn(now_ns) for asks in self._of.values()) > 0

    def close(self) -> None:
        """Control stops: give up all, and ask nothing more."""
        self._is_closed = True
        for asks in self._of.values():
            asks.give_up()
