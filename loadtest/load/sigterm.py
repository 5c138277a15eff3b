"""The end of this package's commands by SIGTERM."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


def _exit(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second signal must not stop the cleaning up
    sys.exit(128 + number)


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Make SIGTERM end a command like Ctrl-C: its processes are stopped and its temporary files removed.

    A decorator for a command's main function, in the main thread only.
    """
    before = signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
