"""Ages of half messages at the commits of their transactions, for metrics. C has the same rule for plain ends
(native/src/services/transaction_ends.c)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from ringmq.native import lib

BOUNDS_S = (5, 60, 600, 3600, 43_200, 86_400)
"""Those of stock (BrokerMetricsManager)."""


def count_commit(words: Any, age_ms: int) -> None:
    """Count a commit in the words of the role block."""
    seconds = max(0, age_ms) // 1000
    words[lib.RMQ_TRANSACTIONS_FINISH + bisect_left(BOUNDS_S, seconds)] += 1
    words[lib.RMQ_TRANSACTIONS_FINISH_SECONDS] += seconds


def add_counts(words: Any, counts: Sequence[int], seconds: int) -> None:
    """Add the counts of C."""
    for number, count in enumerate(counts):
        words[lib.RMQ_TRANSACTIONS_FINISH + number] += count
    words[lib.RMQ_TRANSACTIONS_FINISH_SECONDS] += seconds
