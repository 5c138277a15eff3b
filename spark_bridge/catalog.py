"""What a planner asks about the brokers it reads: queues, their bounds, offsets by time. Two ways to know, one protocol.

`store_catalog` looks at the files of a store on this host and asks the broker nothing, `remote_catalog` asks brokers.
"""

from typing import Protocol

from ringmq.spark_bridge.options import ReadOptions
from ringmq.spark_bridge.slices import BrokerPlace, LogSpan, QueueKey


class Catalog(Protocol):
    """One look at the brokers. Ends never fall while the catalog lives; what is asked later is at least as new."""

    def brokers(self) -> tuple[BrokerPlace, ...]:
        """The brokers that are read, by name."""

    def queues(self) -> list[QueueKey]:
        """Queues of the chosen topics, sorted; of user topics only unless asked. Raises `OptionError`, `ReadError`."""

    def bounds(self, key: QueueKey) -> tuple[int, int]:
        """First readable offset of a queue and the one behind its last; equal when it is empty."""

    def offset_at(self, key: QueueKey, timestamp_ms: int) -> int | None:
        """First readable offset stored at or after a time, None when all are older."""

    def log_bounds(self) -> LogSpan | None:
        """The readable part of the log where its files are on this host, else None."""


def open_catalog(options: ReadOptions) -> Catalog:
    """The catalog of a read: the store's files where the option store is given, else the brokers behind bootstrap.

    Raises `ReadError` or `OptionError` naming what cannot be found or read.
    """
    if options.store is not None:
        from ringmq.spark_bridge.store_catalog import StoreCatalog

        return StoreCatalog(options)
    from ringmq.spark_bridge.remote_catalog import RemoteCatalog

    return RemoteCatalog(options)
