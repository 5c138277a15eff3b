"""The planner's queries about brokers: queues, bounds, offsets by time. One protocol with two implementations.

`store_catalog` reads the files of a store on this host without any request to the broker. `remote_catalog` sends
requests to brokers.
"""

from typing import TYPE_CHECKING, Protocol

from ringmq.spark_bridge.slices import BrokerLocation, QueueKey

if TYPE_CHECKING:
    from ringmq.spark_bridge.log_index import LogIndex


class Catalog(Protocol):
    """The brokers of a read at the last look. Every method may raise `ReadError`."""

    def brokers(self) -> tuple[BrokerLocation, ...]:
        """The brokers that are read, by name."""

    def queues(self) -> list[QueueKey]:
        """Take a new look and return the queues of the chosen topics, sorted, by default of user topics only."""

    def ends(self) -> dict[QueueKey, int]:
        """Take a new, cheap look for a stream's trigger and return the end of each queue of the chosen topics."""

    def bounds(self, key: QueueKey) -> tuple[int, int]:
        """Return the first readable offset of a queue and the one behind its last, (0, 0) for a queue that does not
        exist.
        """

    def offset_at(self, key: QueueKey, timestamp_ms: int) -> int | None:
        """Return the first readable offset stored at or after a time, None if all are older."""

    def log_index(self) -> "LogIndex | None":
        """Return the positions of the queues' records in the log, None if its files are not on this host."""
