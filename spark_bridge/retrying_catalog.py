"""A catalog that retries while a broker starts: a stream in the middle of a batch cannot look again later."""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from ringmq.spark_bridge.catalog import Catalog
from ringmq.spark_bridge.errors import BrokerStartingError
from ringmq.spark_bridge.log_index import LogIndex
from ringmq.spark_bridge.slices import BrokerLocation, QueueKey

T = TypeVar("T")

_log = logging.getLogger("ringmq.spark_bridge")


class RetryingCatalog:
    """A catalog that asks another one again after an error. `ends` does not wait: a stream asks at each trigger."""

    def __init__(self, catalog: Catalog, wait_max_s: float, step_s: float) -> None:
        self._catalog = catalog
        self._wait_max_s = wait_max_s
        self._step_s = step_s

    def brokers(self) -> tuple[BrokerLocation, ...]:
        """See Catalog."""
        return self._retry(self._catalog.brokers)

    def queues(self) -> list[QueueKey]:
        """See Catalog."""
        return self._retry(self._catalog.queues)

    def ends(self) -> dict[QueueKey, int]:
        """See Catalog."""
        return self._catalog.ends()

    def bounds(self, key: QueueKey) -> tuple[int, int]:
        """See Catalog."""
        return self._retry(lambda: self._catalog.bounds(key))

    def offset_at(self, key: QueueKey, timestamp_ms: int) -> int | None:
        """See Catalog."""
        return self._retry(lambda: self._catalog.offset_at(key, timestamp_ms))

    def log_index(self) -> LogIndex | None:
        """See Catalog."""
        return self._retry(self._catalog.log_index)

    def _retry(self, ask: Callable[[], T]) -> T:
        give_up_at = None
        while True:
            try:
                return ask()
            except BrokerStartingError as error:
                if give_up_at is None:
                    give_up_at = time.monotonic() + self._wait_max_s
                    _log.warning("%s. The stream waits up to %d s for it", error, self._wait_max_s)
                if time.monotonic() > give_up_at:
                    raise
            time.sleep(self._step_s)
