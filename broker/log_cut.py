"""The part of guests when a start cuts the log (store/store_task.py)."""

from __future__ import annotations

from pathlib import Path

from ringmq.ipc.guests import parts

_FORGETS = tuple(parts("on_log_cut"))
"""Loaded now: a main process that opens its store again loads no module of a later build."""


def forget_behind(root: Path, log_offset: int) -> None:
    """Let guests forget what is true of the log behind an offset alone. The log is cut there next. Raises OSError."""
    for forget in _FORGETS:
        forget(root, log_offset)
