"""Expressions that pops wait for. They are compiled in steps, one after the other: requests are served in between."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from ringmq.broker.requests.turns import SLICE_MS, Steps, TurnClock
from ringmq.pop.filters import Compiled, Filters, compiling

WAITING_MAX = 4096
"""Requests that wait. Further ones are refused."""
Waiting = TypeVar("Waiting")


class Expression(NamedTuple):
    """The expression of a pop."""

    kind: str
    text: str


class Found(NamedTuple, Generic[Waiting]):
    """Requests whose expression is compiled. `error`: C could not keep it."""

    requests: list[Waiting]
    error: OSError | None = None


class FilterQueue(Generic[Waiting]):
    """Compiles for `filters`. Requests for one expression share its work."""

    def __init__(self, filters: Filters) -> None:
        self._filters, self._clock = filters, TurnClock()
        self._waiting: dict[Expression, list[Waiting]] = {}
        self._count = 0
        self._steps: Steps[Compiled] | None = None
        """Of the first expression that waits."""

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        """True if no further request may wait."""
        return self._count >= WAITING_MAX

    def add(self, expression: Expression, request: Waiting) -> None:
        """Have a request wait for its expression."""
        self._waiting.setdefault(expression, []).append(request)
        self._count += 1

    def turn(self) -> Found[Waiting]:
        """Compile for SLICE_MS of CPU time. Returns requests that can be served now: of one expression, or none."""
        if not self._waiting:
            return Found([])
        expression = next(iter(self._waiting))
        if self._steps is None:
            self._steps = compiling(*expression)
        compiled = self._clock.advance(self._steps, SLICE_MS)
        if compiled is None:
            return Found([])
        self._steps = None
        requests = self._waiting.pop(expression)
        self._count -= len(requests)
        try:
            self._filters.put(*expression, compiled)
        except OSError as error:
            return Found(requests, error)
        return Found(requests)

    def clear(self) -> list[Waiting]:
        """End all work. Returns the requests that wait."""
        requests = [request for waiting in self._waiting.values() for request in waiting]
        self._waiting.clear()
        self._count, self._steps = 0, None
        return requests
