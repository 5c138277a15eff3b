"""Counters in the role block of the worker `pop` (native/src/pop/pop_desk.h). Each only grows."""

from __future__ import annotations

from enum import IntEnum

from ringmq.native import lib


class Counter(IntEnum):
    """Numbers of the counters of the desk. Counter 0 is that of slow requests without a log line."""

    POPS = lib.RMQ_POP_COUNT_POPS
    """Pops that were answered with messages."""
    EMPTY = lib.RMQ_POP_COUNT_EMPTY
    """Pops that were answered without."""
    MESSAGES = lib.RMQ_POP_COUNT_MESSAGES
    """Messages that consumers were given."""
    ACKS = lib.RMQ_POP_COUNT_ACKS
    """Messages that a consumer has acknowledged."""
    ACKS_LATE = lib.RMQ_POP_COUNT_ACKS_LATE
    """Acknowledgements and changes without effect: the message was done, or nothing is known of the receipt."""
    ACKS_FOREIGN = lib.RMQ_POP_COUNT_ACKS_FOREIGN
    """Receipts of other brokers. They have no effect."""
    CHANGES = lib.RMQ_POP_COUNT_CHANGES
    """Messages whose invisible time was changed."""
    UNSENT = lib.RMQ_POP_COUNT_UNSENT
    """Pops of single queues that no client has received. Their messages are given again at once."""
    BOUND = lib.RMQ_POP_COUNT_BOUND
    """Pops that found too many messages open. They wait or are answered empty."""
    FULL = lib.RMQ_POP_COUNT_FULL
    """Pops that found nothing, and could not wait because too many do."""
    NOTIFIED = lib.RMQ_POP_COUNT_NOTIFIED
    """Notifications that said that a message is there."""
    NOT_NOTIFIED = lib.RMQ_POP_COUNT_NOT_NOTIFIED
    """Notifications that said that none is."""
    NOTIFY_FULL = lib.RMQ_POP_COUNT_NOTIFY_FULL
    """Notifications that found none, and could not wait because too many do."""
    PASSED_OVER = lib.RMQ_POP_COUNT_PASSED_OVER
    """Copies in retry topics that no consumer gets, because the message was acknowledged before."""
    UNREADABLE = lib.RMQ_POP_COUNT_UNREADABLE
    """Looks at queues that could not be read then: a damaged unit, a file, a record on disk."""


FREE_COUNTERS_FROM = int(lib.RMQ_POP_COUNTERS_END)
"""First counter that the desk does not use."""
