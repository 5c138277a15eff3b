"""The places of the counts of replies among the counters of the worker `services`."""

from __future__ import annotations

DELIVERED_COUNTER, FAILED_COUNTER, UNSTORED_COUNTER = 2, 3, 4
