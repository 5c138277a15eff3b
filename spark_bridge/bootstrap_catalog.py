"""The catalog of a read that names name servers alone: by files of the only broker, as long as it is the only one."""

import logging
import time
from collections.abc import Callable
from typing import Final

from ringmq.spark_bridge.catalog import Catalog
from ringmq.spark_bridge.errors import ReadError
from ringmq.spark_bridge.log_index import LogIndex
from ringmq.spark_bridge.remote_catalog import RemoteCatalog
from ringmq.spark_bridge.slices import BrokerLocation, QueueKey

log = logging.getLogger("ringmq.spark_bridge")

REGISTERED_EVERY_S: Final = 10.0  # looks at the files need neither broker nor name server


class BootstrapCatalog:
    """The catalog of the only broker's files.

    A look that finds a second broker switches to the catalog of all brokers.
    """

    def __init__(
        self, files: Catalog, only: str, remote: RemoteCatalog, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`only` is the broker's name."""
        self._chosen: Catalog = files
        self._only = only
        self._remote = remote
        self._clock = clock
        self._asked_at = clock()  # its maker has just asked

    def brokers(self) -> tuple[BrokerLocation, ...]:
        """See Catalog."""
        return self._chosen.brokers()

    def queues(self) -> list[QueueKey]:
        """See Catalog."""
        self._choose()
        return self._chosen.queues()

    def ends(self) -> dict[QueueKey, int]:
        """See Catalog."""
        self._choose()
        return self._chosen.ends()

    def bounds(self, key: QueueKey) -> tuple[int, int]:
        """See Catalog."""
        return self._chosen.bounds(key)

    def offset_at(self, key: QueueKey, timestamp_ms: int) -> int | None:
        """See Catalog."""
        return self._chosen.offset_at(key, timestamp_ms)

    def log_index(self) -> LogIndex | None:
        """See Catalog."""
        return self._chosen.log_index()

    def _choose(self) -> None:
        now = self._clock()
        if self._chosen is self._remote or now - self._asked_at < REGISTERED_EVERY_S:
            return
        self._asked_at = now
        try:
            others = self._remote.broker_names() - {self._only}
        except ReadError as error:
            log.warning("%s. The stream continues with the files of %s", error, self._only)
            return
        if others:
            log.warning("%s joined: the stream asks the brokers from now on, not the files", ", ".join(sorted(others)))
            self._chosen = self._remote
