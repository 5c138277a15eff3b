"""The catalog of brokers that are asked over the remoting protocol: RingMQ's and stock ones.

A look asks for the queues and bounds of all chosen topics at once. Connections live as long as one question. A maximum
offset is what consumers may see, so a RingMQ broker's is bounded by its confirm offset already.
"""

import logging
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TypeVar

from ringmq.client import MessageQueue, RingmqError
from ringmq.client.blocking import Cluster
from ringmq.client.topics import is_user_topic
from ringmq.spark_bridge.errors import ReadError
from ringmq.spark_bridge.options import ReadOptions
from ringmq.spark_bridge.slices import BrokerPlace, QueueKey, StorePlace

T = TypeVar("T")

log = logging.getLogger("ringmq.spark_bridge")

COMMON_TIMES_MAX = 4  # so many times are asked about in all queues at once; more than that differ from queue to queue


class RemoteCatalog:
    """The brokers that the name servers of option bootstrap know. Everything it asks may raise `ReadError`."""

    def __init__(self, options: ReadOptions) -> None:
        assert options.bootstrap is not None
        self._options = options
        self._bootstrap = options.bootstrap
        self._bounds: dict[QueueKey, tuple[int, int]] | None = None
        self._offsets: dict[int, dict[MessageQueue, int]] = {}

    def brokers(self) -> tuple[BrokerPlace, ...]:
        """See Catalog."""
        return self._brokers

    def queues(self) -> list[QueueKey]:
        """See Catalog. An unknown topic has no queues."""
        chosen = self._options.topics
        names = chosen.names or tuple(dict.fromkeys(queue.topic for queue in chosen.queues))

        def ask(cluster: Cluster) -> dict[MessageQueue, tuple[int, int]]:
            return cluster.bounds(names or self._matching_topics(cluster))

        found = self._ask("queues and their bounds", ask)
        self._bounds = {QueueKey(*queue): bounds for queue, bounds in found.items()}
        self._offsets = {}
        return sorted(self._bounds)

    def ends(self) -> dict[QueueKey, int]:
        """See Catalog."""
        return {key: self.bounds(key)[1] for key in self.queues()}

    def bounds(self, key: QueueKey) -> tuple[int, int]:
        """See Catalog."""
        return self._last_look().get(key, (0, 0))

    def offset_at(self, key: QueueKey, timestamp_ms: int) -> int | None:
        """See Catalog."""
        _, end = self.bounds(key)
        if end == 0:
            return None
        if MessageQueue(*key) not in self._offsets.get(timestamp_ms, {}):
            is_common = len(self._offsets) < COMMON_TIMES_MAX
            queues = [MessageQueue(*other) for other in (self._last_look() if is_common else (key,))]
            what = f"the offset of {key.label} of {key.topic} at {timestamp_ms} ms"
            found = self._ask(what, lambda cluster: cluster.offsets_at(queues, timestamp_ms))
            self._offsets.setdefault(timestamp_ms, {}).update(found)
        offset = self._offsets[timestamp_ms][MessageQueue(*key)]
        return offset if offset < end else None

    def log_index(self) -> None:
        """See Catalog: brokers show queues and no log."""

    def _last_look(self) -> dict[QueueKey, tuple[int, int]]:
        if self._bounds is None:
            self.queues()
        assert self._bounds is not None
        return self._bounds

    @cached_property
    def _brokers(self) -> tuple[BrokerPlace, ...]:
        return self._ask("the brokers", lambda cluster: tuple(broker_places(cluster)))

    def _matching_topics(self, cluster: Cluster) -> list[str]:
        """Topics of the cluster that the options choose, without those that brokers have for themselves."""
        topics = [topic for topic in cluster.topics() if self._options.topics.wants(topic)]
        if self._options.include_system_topics:
            return topics
        own: set[str] = set()
        for address in cluster.brokers().values():
            own |= cluster.system_topics(address)
        return [topic for topic in topics if is_user_topic(topic) and topic not in own]

    def _ask(self, what: str, ask: Callable[[Cluster], T]) -> T:
        try:
            with Cluster(self._bootstrap) as cluster:
                return ask(cluster)
        except RingmqError as error:
            raise ReadError(f"bootstrap {self._bootstrap}: {what} could not be asked for: {error}") from error


def broker_places(cluster: Cluster) -> Iterator[BrokerPlace]:
    """Every registered broker with its address, and with its store where it says where that is."""
    for name, address in cluster.brokers().items():
        try:
            folder = cluster.store_folder(address)
        except RingmqError as error:  # a broker that is not read need not be up
            log.warning("broker %s does not tell where its store is: %s", name, error)
            folder = None
        place = None if folder is None else StorePlace(folder.root, folder.boot_id, folder.device, folder.inode)
        yield BrokerPlace(name, address, place)
