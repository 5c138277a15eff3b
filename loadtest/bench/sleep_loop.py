"""A bare sleep loop: how late the machine itself is."""

import threading
import time


class SleepLoop(threading.Thread):
    """Sleeps to a deadline every millisecond and records how late it wakes: what the machine allows at best."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._end = threading.Event()
        self.late_ms: list[float] = []

    def run(self) -> None:
        """Sleep until `end`. `time.sleep` is a clock_nanosleep."""
        due = time.monotonic()
        while not self._end.is_set():
            due = max(due + 0.001, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))
            self.late_ms.append((time.monotonic() - due) * 1000)

    def end(self) -> None:
        """Stop."""
        self._end.set()
        self.join()


def percentile(values: list[float], percent: float) -> float:
    """The value below which so many percent of the values lie."""
    return sorted(values)[min(len(values) - 1, int(len(values) * percent / 100))]
