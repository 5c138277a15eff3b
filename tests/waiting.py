"""Waiting for a condition with a deadline, instead of sleeping and hoping."""

import time
from collections.abc import Callable

POLL_S = 0.01


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = 60.0) -> None:
    """Return when `condition()` is true; AssertionError naming `what` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(POLL_S)  # poll
