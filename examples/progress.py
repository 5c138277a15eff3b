"""Lines on the terminal while a program works: its present step, the seconds so far, and how far it is."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

INTERVAL_S = 3.0


@contextmanager
def progress(step: str, how_far: Callable[[], str] = str, *, interval_s: float = INTERVAL_S) -> Iterator[None]:
    """Print `step`, and every few seconds the time that the block has taken and the text of `how_far`."""
    print(step)
    started = time.monotonic()
    ended = threading.Event()

    def tick() -> None:
        while not ended.wait(interval_s):
            print(f"  {time.monotonic() - started:3.0f} s  {how_far() or step}")

    clock = threading.Thread(target=tick, name="progress", daemon=True)
    clock.start()
    try:
        yield
    finally:
        ended.set()
        clock.join()
