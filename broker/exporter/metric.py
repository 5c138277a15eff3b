"""A row of a table of metrics, and the labels and bounds that several tables use."""

from __future__ import annotations

from msgspec import Struct

from ringmq.native import lib

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"


class Metric(Struct, frozen=True):
    """One family. `labels` are added to the labels of every series."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


STORAGE = ("storage_medium", "storage_type")
LOCAL_DISK = {"storage_medium": "disk", "storage_type": "local"}
"""The values of STORAGE."""
STAGE_BOUNDS = tuple(f"{(1 << number) / 1e6:g}" for number in range(lib.RMQ_LATENCY_BUCKETS - 1))
"""Bounds of the histograms in shared memory, in seconds."""
