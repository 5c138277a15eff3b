"""Twin of the decisions of a wait that serves (native/src/plane/serving.c, rmq_serving_step), without IO."""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

from ringmq.native import lib

BUSY_NS: int = lib.RMQ_SERVING_BUSY_MS * 1_000_000


class Decision(IntEnum):
    """The next step of the wait. From DUE on it returns to Python."""

    SERVE = lib.RMQ_SERVING_SERVE
    SLEEP = lib.RMQ_SERVING_SLEEP
    DUE = lib.RMQ_SERVING_DUE
    NEWS = lib.RMQ_SERVING_NEWS


class Seen(Struct, frozen=True):
    """Findings of one look."""

    now_ns: int
    has_ask: bool = False
    has_news: bool = False


class ServingTwin(Struct):
    """One wait."""

    until_ns: int
    has_served: bool = False
    is_rung: bool = False
    """The last sleep was ended by the bell, and nothing was served since."""
    is_late: bool = False
    """A waker may have rung behind an ask that was found without its bell."""

    def step(self, seen: Seen) -> Decision:
        """The next decision."""
        is_rung, self.is_rung = self.is_rung, False
        if seen.has_news:
            return Decision.NEWS
        if seen.now_ns >= self.until_ns:
            return Decision.DUE
        if seen.has_ask:
            if not self.has_served:
                self.has_served, self.until_ns = True, min(self.until_ns, seen.now_ns + BUSY_NS)
            return Decision.SERVE
        if is_rung and not self.is_late:
            return Decision.NEWS
        if is_rung:
            self.is_late = False
        return Decision.SLEEP
