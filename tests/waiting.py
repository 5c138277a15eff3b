"""Waiting for a condition with a deadline, instead of sleeping and hoping (`tests/README.md`)."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
POLL_S, POLL_MAX_S = 0.005, 0.02
"""Between looks: what comes soon is seen soon, and a look that asks a broker takes little of a CPU in a long wait."""
POLL_SHARE = 0.02
"""Of the time that has been waited, up to the longest pause."""
LOOK_SHARE, LOOK_PAUSE_MAX_S = 2, 0.2
"""A look that takes long (all messages of a broker, a page of metrics) is followed by a pause of so many times its
length, up to the longest. Such looks would take the processor time for which the test waits."""
TIMEOUT_S = 60.0
"""Far beyond what a busy machine needs: a test that holds never waits so long."""


def wait_until(
    condition: Callable[[], T], what: str, timeout_s: float = TIMEOUT_S, *, state: Callable[[], object] = str
) -> T:
    """Return the first true value of `condition()`; AssertionError naming `what` and `state()` after `timeout_s`."""
    began = looked = time.monotonic()
    while not (value := condition()):
        now = time.monotonic()
        assert now - began < timeout_s, f"not within {timeout_s:g} s: {what} {state()}"
        time.sleep(pause_s(now - began, now - looked))  # poll
        looked = time.monotonic()
    return value


def pause_s(waited_s: float, look_s: float) -> float:
    """The pause before the next look, if the last one took so long."""
    return max(min(max(POLL_S, waited_s * POLL_SHARE), POLL_MAX_S), min(LOOK_SHARE * look_s, LOOK_PAUSE_MAX_S))


async def until(condition: Callable[[], T | Awaitable[T]], what: str, timeout_s: float = TIMEOUT_S) -> T:
    """Return the first true value of `condition()`, awaited if need be, while other tasks run.

    AssertionError naming `what` after `timeout_s`; a condition that does not return in time is cancelled.
    """
    began = time.monotonic()
    try:
        async with asyncio.timeout(timeout_s) as limit:
            while True:
                looked = time.monotonic()
                found = condition()
                value: T = await found if inspect.isawaitable(found) else found  # type: ignore[assignment]
                if value:
                    return value
                now = time.monotonic()
                await asyncio.sleep(pause_s(now - began, now - looked))  # poll
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
