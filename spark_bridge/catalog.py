"""What a planner asks about the brokers it reads: queues, bounds, offsets by time. Two ways to know, one protocol.

`store_catalog` looks at the files of a store on this host and asks the broker nothing, `remote_catalog` asks brokers.
"""

from typing import TYPE_CHECKING, Protocol

from ringmq.spark_bridge.options import ReadOptions
from ringmq.spark_bridge.slices import BrokerLocation, QueueKey

if TYPE_CHECKING:
    from ringmq.spark_bridge.log_index import LogIndex


class Catalog(Protocol):
    """The brokers that are read, as of the last look. Everything here may raise `ReadError`."""

    def brokers(self) -> tuple[BrokerLocation, ...]:
        """The brokers that are read, by name."""

    def queues(self) -> list[QueueKey]:
        """Take a new look: the queues of the chosen topics, sorted; of user topics only unless asked."""

    def ends(self) -> dict[QueueKey, int]:
        """Take a new look, the cheap one of a stream's triggers: where each queue of the chosen topics ends."""

    def bounds(self, key: QueueKey) -> tuple[int, int]:
        """First readable offset of a queue and the one behind its last; both 0 for a queue that does not exist."""

    def offset_at(self, key: QueueKey, timestamp_ms: int) -> int | None:
        """First readable offset stored at or after a time, None when all are older."""

    def log_index(self) -> "LogIndex | None":
        """Where the queues' records lie in the log, when its files are on this host."""


def open_catalog(options: ReadOptions) -> Catalog:
    """The catalog of a read: the store's files where they are on this host, else the brokers behind `bootstrap`.

    Raises `ReadError` naming what cannot be found or read.
    """
    if options.store is None:
        from ringmq.spark_bridge.combined_catalog import open_by_bootstrap

        return open_by_bootstrap(options, _store_catalog)
    if options.bootstrap is None:
        return _store_catalog(options)
    from ringmq.spark_bridge.combined_catalog import CombinedCatalog

    return CombinedCatalog(_store_catalog(options), options.bootstrap)


def _store_catalog(options: ReadOptions) -> Catalog:
    from ringmq.spark_bridge.store_catalog import StoreCatalog

    return StoreCatalog(options)
