"""Sizes of what the worker `pop` has in shared memory, which rows name."""

from __future__ import annotations

from typing import Any

from ringmq.native import lib
from ringmq.services.arenas import copies_bytes

LOG_ACKS_BYTES: int = lib.RMQ_POP_LOG_ARENA_BYTES
"""The first bytes of the arena: records of acknowledgements."""
COPY_ACKS_BYTES: int = lib.RMQ_POP_COPY_BATCH * lib.RMQ_POP_LOG_RECORD_BYTES
"""Of the ring for copies: records of acknowledgements beside one batch."""


def arena_bytes(config: Any) -> int:
    """Size of the records of acknowledgements, and of the ring for copies of messages that come again."""
    return LOG_ACKS_BYTES + COPY_ACKS_BYTES + copies_bytes(config)


def memory_bytes(config: Any) -> int:
    """Size of the segment of windows and entries when it is full."""
    return int(lib.rmq_pop_layout_of(config.offsets_max, config.pop_open_max).mapped_bytes)
