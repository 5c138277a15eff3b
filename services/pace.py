"""How fast a service may publish beside clients: as they leave it room, and never slower than a rate of its own.

A batch of write is shared by weight, but the requests of clients come one by one: a service with a backlog would have
every place that they leave, and with it the processor time of the workers that serve them. 64x16 kept 0.4 of their
rate beside such a service on two CPUs.
"""

from __future__ import annotations

WINDOW_MS = 10
BUSY_PER_S = 20_000
"""Requests of clients, from which on they are busy."""
IDLE_WINDOWS = 10
"""Windows in a row without busy clients until the service takes what it can."""
RATE_MIN = 60_000
"""Records a second beside busy clients, however few requests they have. Stock's timer publishes 45,000 of a slot."""
UNLIMITED = 1 << 30


class Pace:
    """`share`: of the clients' requests, what the service may publish beside them: its weight, divided by theirs."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._since_ms: int | None = None
        self._taken = 0
        self._calm = IDLE_WINDOWS
        self._credit = 0.0

    def allowance(self, now_ms: int, taken: int) -> int:
        """Records that may be published now. `taken`: requests that write has taken from other ports, ever."""
        if self._since_ms is None:
            self._since_ms, self._taken = now_ms, taken
        elapsed_ms = now_ms - self._since_ms
        if elapsed_ms >= WINDOW_MS:
            per_s = max(0, taken - self._taken) * 1000 / elapsed_ms
            self._since_ms, self._taken = now_ms, taken
            self._calm = 0 if per_s >= BUSY_PER_S else self._calm + 1
            rate = max(RATE_MIN, per_s * self._share)
            self._credit = rate * min(elapsed_ms, 2 * WINDOW_MS) / 1000
        return UNLIMITED if self._calm >= IDLE_WINDOWS else max(0, int(self._credit))

    def published(self, count: int) -> None:
        """So many were."""
        self._credit = max(self._credit - count, 0)
