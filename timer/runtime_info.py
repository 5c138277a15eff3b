"""Rows of GET_BROKER_RUNTIME_INFO (28) about timer messages, under stock's keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ringmq.timer.words import timer_state


def rows(plane: Any, rate_of: Callable[[str, str, int, int], float], now_ms: int) -> dict[str, str]:
    """The rates are of the time since an earlier question, at most a minute."""
    state = timer_state(plane, now_ms)
    return {
        "timerReadBehind": str(state.behind_ms // 1000),
        "timerOffsetBehind": str(state.unread),
        "timerEnqueueTps": str(rate_of("timer", "enqueued", state.enqueued, now_ms)),
        "timerDequeueTps": str(rate_of("timer", "delivered", state.delivered, now_ms)),
    }
