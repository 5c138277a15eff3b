"""Spark and RingMQ: a store as a table, read from the mapped log without asking the broker for the bytes, or over tcp;
and rows as messages, sent to brokers.

Owns planning (which log ranges, up to where), decoding to Arrow, streams' places, the write path (rows to frames,
staged or sent), the sources of `ringmq-jvm`, and the thin PySpark data source `pyspark_ringmq` beside it, which alone
imports Spark. Nothing here writes to a store's files: brokers do. Must stay true: no row at or beyond the confirm
offset of a live owner.
May import: ringmq.native, ringmq.ipc, ringmq.store (read only), ringmq.client.
"""

from importlib import import_module
from typing import Any

# Importing this package costs nothing and needs neither Spark nor Arrow: a helper's module is loaded when it is named.
_HELPERS = {
    "lag_listener": "ringmq.spark_bridge.lag",
    "scan": "ringmq.spark_bridge.log_scan",
    "store_to_parquet": "ringmq.spark_bridge.sealed_parquet",
    "read": "pyspark_ringmq.reading",
    "session": "pyspark_ringmq.session",
}


def __getattr__(name: str) -> Any:
    if name not in _HELPERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HELPERS[name]), name)
