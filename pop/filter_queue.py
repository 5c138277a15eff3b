"""Expressions that pops wait for. They are compiled in steps, one after the other: requests are served in between."""

from __future__ import annotations

import logging
import traceback
from typing import Generic, NamedTuple, TypeVar

from ringmq.broker.requests.turns import SLICE_MS, Steps, TurnClock
from ringmq.pop.filters import Compiled, Filters, compiling
from ringmq.services.kit.log_lines import LogLines

log = logging.getLogger(__name__)

WAITING_MAX = 4096
"""Requests that wait. Further ones are refused."""
SERVED_PER_TURN = 64
"""Requests that a turn hands out, as many as a call of C serves."""
Waiting = TypeVar("Waiting")


class Expression(NamedTuple):
    """The expression of a pop."""

    kind: str
    text: str


class Found(NamedTuple, Generic[Waiting]):
    """Requests whose expression is compiled. `refusal`: the reason why it cannot be used, or empty."""

    requests: list[Waiting]
    refusal: str


class FilterQueue(Generic[Waiting]):
    """Compiles for `filters`. Requests for one expression share its work."""

    def __init__(self, filters: Filters) -> None:
        self._filters, self._clock = filters, TurnClock()
        self._waiting: dict[Expression, list[Waiting]] = {}
        self._count = 0
        self._steps: Steps[Compiled] | None = None
        """Of the first expression that waits."""
        self._ready: list[Waiting] = []
        """Requests for the expression that was compiled last."""
        self._refusal = ""
        self._lines = LogLines(log.error)

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
        """Compile for SLICE_MS of CPU time. Returns requests that can be served now: some of one expression, or
        none."""
        if self._waiting and not self._ready:
            self._compile(next(iter(self._waiting)))
        requests, self._ready = self._ready[:SERVED_PER_TURN], self._ready[SERVED_PER_TURN:]
        self._count -= len(requests)
        return Found(requests, self._refusal)

    def _compile(self, expression: Expression) -> None:
        """Go on with an expression. Its requests are ready when it is compiled, or cannot be."""
        if self._steps is None:
            self._steps = compiling(*expression)
        self._refusal = ""
        try:
            compiled = self._clock.advance(self._steps, SLICE_MS)
            if compiled is None:
                return
            self._filters.put(*expression, compiled)
        except OSError as error:
            self._refusal = str(error)
        except Exception as error:  # a defect. The replacement of the worker would get the same requests
            self._lines(f"the expression of a pop cannot be compiled:\n{traceback.format_exc()}")
            self._refusal = f"its expression cannot be compiled: {error!r}"
        self._steps = None
        self._ready = self._waiting.pop(expression)

    def clear(self) -> list[Waiting]:
        """End all work. Returns the requests that wait."""
        requests = [*self._ready, *(request for waiting in self._waiting.values() for request in waiting)]
        self._ready, self._waiting = [], {}
        self._count, self._steps = 0, None
        return requests
