"""Workers that hold messages of groups: control asks them before it sets consumer offsets, topics or groups aside.

A reset is an ask for each QUEUES_MAX queues, which such a worker does or refuses as a whole. So is the ask for a group
that leaves POP: its consumer offsets may move without it, because the records of open messages are in the log then. A
deletion has two asks.
By the first one control learns that the workers serve: else nothing is deleted. The second one tells what control has
deleted. A worker that dies before it has answered forgets deleted names at its start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ringmq.broker.requests.holder_asks import NAMES_MAX, QUEUES_MAX, DeletionAsk, LeaveAsk, ResetAsk
from ringmq.broker.requests.turns import Steps
from ringmq.broker.worker_asks import Question
from ringmq.native import lib

TIMEOUT_NS = 4_000_000_000
"""Time of all asks of one kind of a request."""
MARGIN_NS = 500_000_000
"""A reset that a worker has not begun so long before the end is void: control gives the request up then."""


class Asks(Protocol):
    """The method of `ringmq.broker.worker_asks.WorkerAsks` that is called."""

    def ask_all(self, kind: int, payload: bytes, now_ns: int, is_concerned: Callable[[str], bool]) -> Question: ...


class Holders:
    """The workers. `is_concerned`: whether a worker, by its name, may hold messages. A worker that was never used need
    not start."""

    def __init__(self, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.asks: Callable[[], Asks] | None = None
        """The asks of the shell. None: there is no worker."""
        self.is_concerned: Callable[[str], bool] = lambda worker: True
        self.clock_ns = clock_ns

    def begin(self) -> Asking:
        """The asks of one request."""
        return Asking(self)


class Asking:
    """The asks of one request. Its steps wait while `is_waiting`."""

    def __init__(self, holders: Holders) -> None:
        self._holders, self._clock_ns = holders, holders.clock_ns
        self._question = Question()
        self._until_ns = 0
        self.done = 0
        """Queues of the last reset that are reset, the first of its offsets."""
        self.has_asked = False
        """True if there was a worker to ask."""

    def is_waiting(self) -> bool:
        """True while the next step has to wait (`Slices.awaits`)."""
        return self._question.is_open() and self._clock_ns() < self._until_ns

    def reset(self, group: str, topic: str, offsets: Mapping[int, int]) -> Steps[str]:
        """Have a group go on at these offsets, by queue id. Returns the empty text once all workers have done it: the
        offsets of queues that shared memory knows are in the rings of commits then. Else why some are not reset:
        those of `done` are."""
        queues, self.done = list(offsets.items()), 0
        while self.done < len(queues):
            self._begin()
            part = dict(queues[self.done : self.done + QUEUES_MAX])
            ask = ResetAsk(self._until_ns - MARGIN_NS, group, topic, part)
            problem = yield from self._ask(lib.RMQ_INBOX_RESET, ask.encode())
            if problem:
                return f"{problem}; {self._so_far()}"
            self.done += len(part)
        return ""

    def _so_far(self) -> str:
        """The state behind a reset that has failed."""
        may_have_acted = self._question.may_have_acted or self._question.is_open()
        if not self.done:
            return "queues may be reset" if may_have_acted else "nothing has changed"
        return f"{self.done} queues are reset, {'others may be' if may_have_acted else 'no other'}"

    def leave(self, group: str, topic: str) -> Steps[str]:
        """Have a group leave POP for a topic, because its members pull from now on. Returns the empty text once the
        offsets behind all open messages are in the rings of commits. Else why nothing has changed."""
        self._begin()
        ask = LeaveAsk(self._until_ns - MARGIN_NS, group, topic)
        problem = yield from self._ask(lib.RMQ_INBOX_LEAVE, ask.encode())
        return f"{problem}; the mode has not changed" if problem else ""

    def may_change(self) -> Steps[str]:
        """Look whether the workers serve. Returns the empty text, or why nothing may be deleted."""
        self._begin()
        problem = yield from self._ask(lib.RMQ_INBOX_RESET, ResetAsk(self._until_ns).encode())
        return f"{problem}; nothing has changed" if problem else ""

    def deleted(self, groups: Sequence[str] = (), topics: Sequence[str] = ()) -> Steps[str]:
        """Tell of groups and topics that are deleted. Returns the empty text once the workers hold nothing of them, or
        why one may still do."""
        self._begin()
        asks = [DeletionAsk(groups=groups)] if groups else []
        asks += [DeletionAsk(topics=topics[at : at + NAMES_MAX]) for at in range(0, len(topics), NAMES_MAX)]
        for ask in asks:
            problem = yield from self._ask(lib.RMQ_INBOX_DELETED, ask.encode())
            if problem:
                return problem
        return ""

    def _begin(self) -> None:
        self._until_ns = self._clock_ns() + TIMEOUT_NS

    def _ask(self, kind: int, payload: bytes) -> Steps[str]:
        """Ask, once more of a worker that has died. Returns the reason against it."""
        asks = self._holders.asks
        while asks is not None:
            self._question = question = asks().ask_all(kind, payload, self._clock_ns(), self._holders.is_concerned)
            self.has_asked |= question.has_asked
            while self.is_waiting():
                yield
            if question.is_open():
                return f"no answer within {TIMEOUT_NS // 1_000_000} ms"
            if not (question.is_lost and self._clock_ns() < self._until_ns):
                return question.problem
        return ""
