"""Slices made by hand and their rows, for tests that want no planner between."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from ringmq.spark_bridge.read_settings import ReadSettings
from ringmq.spark_bridge.schema import COLUMNS
from ringmq.spark_bridge.slice_reader import read_slice
from ringmq.spark_bridge.slices import (
    EVERY_TIME,
    BrokerLocation,
    LogSpan,
    QueueKey,
    QueueSpan,
    Slice,
    StoreLocation,
    TimeRange,
)
from ringmq.store.markers import BOOT_ID

ALL_COLUMNS = tuple(COLUMNS)
BROKER = "broker-a"
Spans = dict[tuple[str, int], tuple[int, int]]
"""(topic, queue id) -> offsets [begin, end)."""


def place_of(root: Path) -> StoreLocation:
    status = (root / "commitlog").stat()
    return StoreLocation(str(root), BOOT_ID.read_text().strip(), status.st_dev, status.st_ino)


def slice_of(
    root: Path, spans: Spans, log: tuple[int, int] | None = None, times: TimeRange = EVERY_TIME, log_begin: int = 0
) -> Slice:
    found = tuple(
        QueueSpan(QueueKey(topic, BROKER, queue_id), begin, end, log_begin)
        for (topic, queue_id), (begin, end) in sorted(spans.items())
    )
    return Slice(BrokerLocation(BROKER, None, place_of(root)), found, None if log is None else LogSpan(*log), times)


def table_of(part: Slice, columns: tuple[str, ...] = ALL_COLUMNS, **how: Any) -> pa.Table:
    batches = list(read_slice(part, columns, ReadSettings(**how)))
    return pa.Table.from_batches(batches) if batches else pa.table({name: [] for name in columns})


def rows_of(part: Slice, columns: tuple[str, ...] = ALL_COLUMNS, **how: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table_of(part, columns, **how).to_pylist()
    return rows


def in_queue_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))
