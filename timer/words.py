"""The words of the worker `timer` in its role block: what it has done, and how far it is behind."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ringmq.native import lib
from ringmq.store.layout import TIMER_TOPIC


class TimerState(Struct, frozen=True):
    """The state of timer messages on a broker."""

    enqueued: int = 0
    """Messages that came into TimerWheel since the plane was made."""
    delivered: int = 0
    behind_ms: int = 0
    """Age of the oldest slot that is not delivered whole. 0 if all that is due went out."""
    unread: int = 0
    """Messages of the timer topic that are not in TimerWheel yet."""


def timer_state(plane: Any, now_ms: int) -> TimerState:
    """Read the words. Without the worker since the start, no message waits."""
    role = plane.role(lib.RMQ_ROLE_TIMER)
    words = role.counters
    open_ms = int(words[lib.RMQ_TIMER_WORD_OPEN_MS]) if role.pid else 0
    return TimerState(
        int(words[lib.RMQ_TIMER_WORD_ENQUEUED]), int(words[lib.RMQ_TIMER_WORD_DELIVERED]),
        max(0, now_ms - open_ms) if open_ms else 0, _unread(plane) if role.generation else 0,
    )  # fmt: skip


def _unread(plane: Any) -> int:
    topic_id = plane.topic_find(TIMER_TOPIC)
    slot = None if topic_id is None else plane.queue_find(topic_id, 0)
    if slot is None:
        return 0
    next_offset = int(plane.role(lib.RMQ_ROLE_TIMER).counters[lib.RMQ_TIMER_WORD_NEXT])
    return max(0, int(plane.queue(slot).max_offset) - next_offset)
