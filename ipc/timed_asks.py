"""Asks that end: each is answered, or given up. Control, whose requests must not wait for ever, asks other workers so.

The core takes the time. An ask is given up when the inbox is full, when the answerer has died with it or does not start
(native/src/plane/asks.h, `rmq_ask_is_lost`), or when its time is over. An answer that comes later is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol

from msgspec import Struct

from ringmq.ipc.asks import AskAnswer

TIMEOUT_MS = 5000
"""Longer than an answerer has for its start (RMQ_ASK_TIMEOUT_MS)."""
WAITING_MAX = 1024
"""Asks of one answerer without an answer. More are given up at once."""
TOKENS = 1 << 31


class GivenUp(Enum):
    """The reasons for which an ask has no answer."""

    FULL = "it was not asked, because too many asks wait, or the asker stops"
    LOST = "it died with the ask in its hand, or did not start in time"
    LATE = "it has not answered in time, and may do so yet"


Then = Callable[[bytes | GivenUp], None]


class AskerProtocol(Protocol):
    """The methods of `ringmq.ipc.asks.Asker` that this module calls."""

    @property
    def has_answers(self) -> bool: ...
    def put(self, kind: int, pending: int, payload: bytes, received_ns: int) -> int | None: ...
    def is_lost(self, position: int, received_ns: int, now_ns: int) -> bool: ...
    def answers(self) -> list[AskAnswer]: ...


class _Waiting(Struct):
    position: int
    received_ns: int
    then: Then


class TimedAsks:
    """The asks of one worker to another."""

    def __init__(self, asker: AskerProtocol, timeout_ms: int = TIMEOUT_MS) -> None:
        self._asker = asker
        self._timeout_ns = timeout_ms * 1_000_000
        self._token = 0
        self._waiting: dict[int, _Waiting] = {}
        """By token, in the order of the asks."""

    @property
    def has_news(self) -> bool:
        """True if an answer waits. Check it between arming the bell and waiting."""
        return self._asker.has_answers

    @property
    def is_waiting(self) -> bool:
        """True if an ask has no answer yet."""
        return bool(self._waiting)

    def ask(self, kind: int, payload: bytes, now_ns: int, then: Then) -> None:
        """Ask. `then` gets the answer or the reason why there is none, in a later turn or at once. `now_ns`: of the
        monotonic clock. Raises ValueError if the ask is too large for the inbox."""
        self._token = (self._token + 1) % TOKENS
        is_full = len(self._waiting) >= WAITING_MAX
        position = None if is_full else self._asker.put(kind, self._token, payload, now_ns)
        if position is None:
            then(GivenUp.FULL)
        else:
            self._waiting[self._token] = _Waiting(position, now_ns, then)

    def turn(self, now_ns: int) -> bool:
        """Pass on answers, and give up what gets none. True if there was any."""
        lost = [token for token, ask in self._waiting.items() if self._is_lost(ask, now_ns)]
        told = self._asker.answers()  # behind the looks: what a dead answerer has still said counts
        count = 0
        for answer in told:
            count += self._end(answer.pending, answer.payload)
        for token in lost:
            count += self._end(token, GivenUp.LOST)
        late = [token for token, ask in self._waiting.items() if now_ns >= ask.received_ns + self._timeout_ns]
        for token in late:
            count += self._end(token, GivenUp.LATE)
        return count > 0

    def give_up(self) -> None:
        """The asker ends: no ask has an answer any more."""
        for token in list(self._waiting):
            self._end(token, GivenUp.LATE)

    def _is_lost(self, ask: _Waiting, now_ns: int) -> bool:
        return self._asker.is_lost(ask.position, ask.received_ns, now_ns)

    def _end(self, token: int, outcome: bytes | GivenUp) -> int:
        ask = self._waiting.pop(token, None)
        if ask is not None:
            ask.then(outcome)
        return ask is not None
