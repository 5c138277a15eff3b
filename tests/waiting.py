"""Waiting for a condition with a deadline, instead of sleeping and hoping (`tests/README.md`)."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
POLL_S = 0.005
TIMEOUT_S = 60.0
"""Far beyond what a busy machine needs: a test that holds never waits so long."""


def wait_until(
    condition: Callable[[], T], what: str, timeout_s: float = TIMEOUT_S, *, state: Callable[[], object] = str
) -> T:
    """Return the first true value of `condition()`; AssertionError naming `what` and `state()` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what} {state()}"
        time.sleep(POLL_S)  # poll
    return value


async def until(condition: Callable[[], T | Awaitable[T]], what: str, timeout_s: float = TIMEOUT_S) -> T:
    """Return the first true value of `condition()`, awaited if need be, while other tasks run.

    AssertionError naming `what` after `timeout_s`; a condition that does not return in time is cancelled.
    """
    try:
        async with asyncio.timeout(timeout_s) as limit:
            while True:
                found = condition()
                value: T = await found if inspect.isawaitable(found) else found  # type: ignore[assignment]
                if value:
                    return value
                await asyncio.sleep(POLL_S)  # poll
    except TimeoutError:
        if not limit.expired():
            raise
        raise AssertionError(f"not within {timeout_s:g} s: {what}") from None


def wait_dispatched(store: Path) -> None:
    """Until a running broker shows all that it has taken: what is acknowledged may be a moment from being readable."""
    from ringmq.ipc.watermark import read_watermarks  # here: some tests run without compiled code

    def is_dispatched() -> bool:
        marks = read_watermarks(store)
        return marks.dispatched_offset == marks.append_offset

    wait_until(is_dispatched, "all is dispatched")
