"""Two versions of one side in the same rounds: the ratio of new to old, and that of old to itself as its tolerance."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ringmq.loadtest.measuring.measurement import RATE, Measurement

OLD, AGAIN, NEW = "old", "old again", "new"
CPU_US = "server_cpu_us"
"""Processor time of all server processes per message."""
SLOWER_THAN = 0.97
CPU_MORE_THAN = 1.03
Round = Mapping[str, Measurement]
"""The runs of one round by side."""


@dataclass(frozen=True)
class Comparison:
    """Ratios of one row over the rounds in which all runs counted. `cpu` is of the time per message, if known."""

    rounds: int
    ratio: float
    spread: float
    tolerance: float
    cpu: float | None
    is_latency: bool = False

    @property
    def is_slower(self) -> bool:
        """True if new is slower by more than old differs from itself, and needs more processor time."""
        worse = 1 - self.ratio if not self.is_latency else self.ratio - 1
        return worse > 1 - SLOWER_THAN + self.tolerance and (self.cpu is None or self.cpu > CPU_MORE_THAN)


def ratios(rounds: Sequence[Round], metric: str, of: str, to: str) -> list[float]:
    """Return the ratio of two sides in each round that has both."""
    pairs = [(runs[of].values.get(metric, 0.0), runs[to].values.get(metric, 0.0)) for runs in rounds]
    return [a / b for a, b in pairs if a and b]


def compare(rounds: Sequence[Round], metric: str = RATE) -> Comparison | None:
    """Return the ratios of a row, None if no round counted."""
    counted = [runs for runs in rounds if all(runs[side].ok for side in (OLD, AGAIN, NEW))]
    if not counted:
        return None
    news, cpu = ratios(counted, metric, NEW, OLD), ratios(counted, CPU_US, NEW, OLD)
    return Comparison(
        rounds=len(counted),
        ratio=statistics.median(news),
        spread=max(news) - min(news),
        tolerance=max(abs(1 - ratio) for ratio in ratios(counted, metric, AGAIN, OLD)),
        cpu=statistics.median(cpu) if cpu else None,
        is_latency=metric != RATE,
    )
