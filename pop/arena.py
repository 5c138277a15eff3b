"""Size of the arena of the worker `pop`, which its row names."""

from __future__ import annotations

from typing import Any

from ringmq.services.arenas import copies_bytes


def arena_bytes(config: Any) -> int:
    """Size of the ring for copies of messages that come again."""
    return copies_bytes(config)
