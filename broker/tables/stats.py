"""Rates and totals for operators, made from counters that the data plane has anyway, without work per message."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque

from msgspec import Struct

SAMPLE_MS = 1000
WINDOWS_S = (10, 60, 600)
RATES_MAX = 4096
RATE_WINDOW_MS = 60_000


class Totals(Struct, frozen=True):
    """Counters of the data plane. They may fall back to 0 after a restart of a worker."""

    put_messages: int = 0
    put_bytes: int = 0
    put_refused: int = 0
    got_messages: int = 0
    found: int = 0
    """Pulls and pops that found messages."""
    missed: int = 0
    """Those that found none. A held pull counts when it is held, and again when it is answered."""
    too_few_replicas: int = 0
    """Sends that were refused for want of replicas. Nothing was appended."""
    slave_not_available: int = 0
    flush_slave_timeout: int = 0
    degraded_entered: int = 0


class BrokerStats:
    """A minute-fine history of the totals."""

    def __init__(self, started_ms: int) -> None:
        self.started_ms = started_ms
        self.totals = Totals()
        self.yesterday_morning = Totals()
        self.today_morning = Totals()
        self._last = Totals()
        self._history: deque[tuple[int, Totals]] = deque([(started_ms, Totals())], maxlen=WINDOWS_S[-1] + 1)
        self._day = _day_of(started_ms)
        self._next_ms = started_ms
        self._rates: dict[tuple[str, str], deque[tuple[int, int]]] = {}

    def observe(self, now: Totals) -> None:
        """Add the growth of the counters since the last call."""
        grown = []
        for field in Totals.__struct_fields__:
            value, last = getattr(now, field), getattr(self._last, field)
            grown.append(getattr(self.totals, field) + (value - last if value >= last else value))
        self._last = now
        self.totals = Totals(*grown)

    def sample(self, now_ms: int) -> None:
        """Keep one point a second, and the totals of each midnight."""
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + SAMPLE_MS
        self._history.append((now_ms, self.totals))
        day = _day_of(now_ms)
        if day != self._day:
            self._day = day
            self.yesterday_morning, self.today_morning = self.today_morning, self.totals

    def tps(self, *fields: str) -> str:
        """Three rates of the sum of these fields, over 10 s, 1 min and 10 min, as RocketMQ prints them."""
        return " ".join(str(sum(self._rate(field, window) for field in fields)) for window in WINDOWS_S)

    def rate_of(self, kind: str, key: str, total: int, now_ms: int) -> float:
        """Growth per second of a total that is only read on request. 0.0 at the first call."""
        if (kind, key) not in self._rates and len(self._rates) >= RATES_MAX:
            self._rates.pop(next(iter(self._rates)))
        points = self._rates.setdefault((kind, key), deque(maxlen=64))
        while len(points) > 1 and points[1][0] <= now_ms - RATE_WINDOW_MS:
            points.popleft()
        points.append((now_ms, total))
        then_ms, then = points[0]
        return 0.0 if now_ms <= then_ms else max(0.0, (total - then) * 1000 / (now_ms - then_ms))

    def _rate(self, field: str, window_s: int) -> float:
        now_ms, now = self._history[-1]
        begin = bisect_left(self._history, now_ms - window_s * 1000, key=lambda point: point[0])
        then_ms, then = self._history[begin]
        if now_ms <= then_ms:
            return 0.0
        grown: int = getattr(now, field) - getattr(then, field)
        return grown * 1000 / (now_ms - then_ms)


def _day_of(now_ms: int) -> tuple[int, int]:
    local = time.localtime(now_ms / 1000)
    return local.tm_year, local.tm_yday
