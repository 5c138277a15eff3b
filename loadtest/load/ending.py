"""How a command of this package ends when it is told to."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


def _exit(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # what follows is the clearing up
    sys.exit(128 + number)


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends as Ctrl-C does: what was started is stopped, what was written for the run alone is removed.

    Around a command's main function, as its decorator; main thread only.
    """
    before = signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
