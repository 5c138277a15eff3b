"""The rate at which a service may publish beside clients: the share that they leave, but never less than its own
minimum.

A batch of write is shared by weight, but the requests of clients arrive one by one. A service with a backlog would take
every free slot, and with it the CPU time of the workers that serve clients. 64x16 kept 0.4 of their rate beside such a
service on two CPUs.
"""

from __future__ import annotations

from ringmq.ipc.plane import Plane
from ringmq.native import lib

WINDOW_MS = 10
BUSY_PER_S = 20_000
"""Requests of clients a second above which the clients count as busy."""
IDLE_WINDOWS = 10
"""Windows in a row without busy clients after which the rate of the service is unlimited."""
RATE_MIN = 60_000
"""Records a second beside busy clients, however few requests they have. Stock's timer publishes 45,000 of a slot."""
UNLIMITED = 1 << 30


class RateLimiter:
    """Limits the records that a service publishes. `share`: its weight, divided by that of the clients."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._since_ms: int | None = None
        self._taken = 0
        self._calm = IDLE_WINDOWS
        self._credit = 0.0

    def allowance(self, now_ms: int, taken: int) -> int:
        """Records that may be published now. `taken`: total of requests that write has taken from other ports."""
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
        """Count published records."""
        self._credit = max(self._credit - count, 0)


class Pace:
    """The limiter of the worker with this role, which sees by the other ports how busy the clients are."""

    def __init__(self, plane: Plane, role: int) -> None:
        ports = [plane.header.ports.port[number] for number in range(plane.header.ports.count)]
        self._others = [port for port in ports if port.role != role]
        clients = sum(int(port.weight) for port in self._others if port.flags & lib.RMQ_PORT_CONNECTIONS)
        own = next(int(port.weight) for port in ports if port.role == role)
        self._limiter = RateLimiter(own / max(1, clients))

    def allowance(self, now_ms: int) -> int:
        """Records that may be published now."""
        return self._limiter.allowance(now_ms, sum(int(port.request.tail) for port in self._others))

    def published(self, count: int) -> None:
        """Count published records."""
        self._limiter.published(count)
