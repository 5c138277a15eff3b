"""Watches the broker during an attack: memory and deaths of its processes, lines of its log."""

import re
import threading
from collections import Counter
from pathlib import Path

from ringmq.loadtest.load.process_stats import cpu_seconds, family
from ringmq.loadtest.load.running import RunningBroker

SAMPLE_S = 0.25
SAMPLES_OF_LOG = 3
SPARE_BYTES = 512 << 20
"""ringmqMemoryMax by default: all shared segments plus this."""
SHARED, WHOLE = "shared", "whole"
_CHANGING = re.compile(r"\d[\d.:,TZ-]*")
_LIFTED = re.compile(r"\x1b\[[0-9;]*m")


def shared_bytes(store: Path) -> tuple[int, int]:
    """Return the resident pages of the broker's shared segments, and the limit of their size."""
    from ringmq.ipc.segment import SHM_DIR, plane_name

    have = size = 0
    for path in SHM_DIR.glob(f"{plane_name(store)}-*"):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        have += status.st_blocks * 512
        size += status.st_size
    return have, size


class Watch(threading.Thread):
    """Peaks of memory from `begin` on, and workers that have been replaced since."""

    def __init__(self, broker: RunningBroker) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self._end = threading.Event()
        self._workers = broker.worker_pids()
        self._log_at = broker.log_path.stat().st_size
        self.peaks: dict[str, int] = {}
        self.deaths: list[str] = []

    def run(self) -> None:
        """Sample every SAMPLE_S."""
        while not self._end.wait(SAMPLE_S):
            self._poll()

    def _poll(self) -> None:
        from ringmq.ipc.memory import private_bytes

        workers = self._broker.worker_pids()
        for name, pid in self._workers.items():
            if workers.get(name) != pid:
                self.deaths.append(name)
        self._workers = {**self._workers, **workers}
        sizes = {name: private_bytes([pid]) for name, pid in workers.items()}
        sizes["supervisor"] = private_bytes(set(family(self._broker.process.pid)) - set(workers.values()))
        sizes[SHARED], _ = shared_bytes(self._broker.store)
        sizes[WHOLE] = sum(sizes.values())
        for name, size in sizes.items():
            self.peaks[name] = max(self.peaks.get(name, 0), size)

    def reader_cpu_s(self) -> float:
        """Return the processor time of the read workers so far."""
        return cpu_seconds(pid for name, pid in self._workers.items() if name.startswith("read-"))

    def stop(self) -> None:
        """Take a last sample and end."""
        self._end.set()
        self.join()
        self._poll()
        self.deaths = list(dict.fromkeys(self.deaths))

    def log(self) -> tuple[int, list[str]]:
        """Return the number of log lines since the begin, and the most frequent ones with their number.

        Numbers in the lines are left out.
        """
        with self._broker.log_path.open("rb") as file:
            file.seek(self._log_at)
            lines = file.read().decode(errors="replace").splitlines()
        counted = Counter(_CHANGING.sub("#", _LIFTED.sub("", line))[:160] for line in lines)
        return len(lines), [f"{count} x {text}" for text, count in counted.most_common(SAMPLES_OF_LOG)]
