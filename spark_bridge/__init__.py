"""Spark and RingMQ: topics as tables and streams, and rows as messages that are sent to brokers.

Tasks read the mapped log of a store on their host without asking the broker for the bytes, or pull over tcp.

Owns planning (ranges of the log, up to their ends), decoding to Arrow, offsets of streams, and the write path (rows to
frames, staged or sent). Owns also the sources of `ringmq-jvm`. The thin PySpark data source `pyspark_ringmq` beside it
alone imports Spark. Nothing here writes to a store's files: brokers do. Must stay true: no row at or beyond the
confirm offset of a live owner. May import: ringmq.native, ringmq.ipc, ringmq.store (read only), ringmq.client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ringmq.client.printable_log import make_printable

if TYPE_CHECKING:
    from pyspark_ringmq.reading import read
    from pyspark_ringmq.session import session

    from ringmq.spark_bridge.lag import lag_listener
    from ringmq.spark_bridge.log_scan import scan
    from ringmq.spark_bridge.sealed_parquet import store_to_parquet

__all__ = ["lag_listener", "read", "scan", "session", "store_to_parquet"]

# Importing this package costs nothing and needs neither Spark nor Arrow: a helper's module is loaded when it is named.
_HELPERS = {
    "lag_listener": "ringmq.spark_bridge.lag",
    "scan": "ringmq.spark_bridge.log_scan",
    "store_to_parquet": "ringmq.spark_bridge.sealed_parquet",
    "read": "pyspark_ringmq.reading",
    "session": "pyspark_ringmq.session",
}
_WITHOUT_SPARK = {"scan", "store_to_parquet"}

make_printable("ringmq.spark_bridge", "ringmq.lag")  # brokers choose remarks, clients topics


def __getattr__(name: str) -> Any:
    if name not in _HELPERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_HELPERS[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith(("ringmq", "pyspark_ringmq")):
            raise  # a broken installation
        from ringmq.client.extras import not_installed

        extra = "arrow" if name in _WITHOUT_SPARK else "spark"
        raise ModuleNotFoundError(not_installed(name, error.name, extra), name=error.name) from None
