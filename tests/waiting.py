"""Waiting for a condition with a deadline, instead of sleeping and hoping."""

import time
from collections.abc import Callable
from pathlib import Path

POLL_S = 0.01


def wait_dispatched(store: Path) -> None:
    """Until a running broker shows all that it has taken: what is acknowledged may be a moment from being readable."""
    from ringmq.ipc.watermark import read_watermarks  # here: some tests run without compiled code

    def is_dispatched() -> bool:
        marks = read_watermarks(store)
        return marks.dispatched_offset == marks.append_offset

    wait_until(is_dispatched, "all is dispatched")


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = 60.0) -> None:
    """Return when `condition()` is true; AssertionError naming `what` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(POLL_S)  # poll
