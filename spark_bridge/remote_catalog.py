"""The catalog of brokers over the remoting protocol, RingMQ's and stock ones.

A look requests the brokers, the queues and the bounds of all chosen topics at once. Maximum offsets are those for
consumers, so a RingMQ broker's is bounded by its confirm offset already.
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ringmq.client import MessageQueue, RingmqError
from ringmq.client.blocking import Cluster
from ringmq.client.topics import is_user_topic
from ringmq.spark_bridge.options import ReadOptions
from ringmq.spark_bridge.persistent_cluster import PersistentCluster
from ringmq.spark_bridge.slices import BrokerLocation, QueueKey, StoreLocation

log = logging.getLogger("ringmq.spark_bridge")

COMMON_TIMES_MAX = 4  # more different times than this are queue by queue, so each is requested for its queue alone


@dataclass(frozen=True, slots=True)
class _Metadata:
    """The brokers at one moment, and the bounds of their queues."""

    brokers: tuple[BrokerLocation, ...]
    bounds: dict[QueueKey, tuple[int, int]]


class RemoteCatalog:
    """The brokers that the name servers of option bootstrap know. All requests may raise `ReadError`."""

    def __init__(self, options: ReadOptions) -> None:
        assert options.bootstrap is not None
        self._options = options
        self._cluster = PersistentCluster(options.bootstrap)
        self._last: _Metadata | None = None
        self._offsets: dict[int, dict[MessageQueue, int]] = {}
        self._own_topics: dict[str, set[str]] = {}  # by the broker's address
        self._silent: set[str] = set()

    def brokers(self) -> tuple[BrokerLocation, ...]:
        """See Catalog."""
        if self._last is not None:
            return self._last.brokers
        return self._cluster.ask("the brokers", lambda cluster: tuple(broker_locations(cluster, self._silent)))

    def broker_names(self) -> set[str]:
        """Return the names of the registered brokers."""
        return self._cluster.ask("the brokers", lambda cluster: set(cluster.brokers()))

    def queues(self) -> list[QueueKey]:
        """See Catalog. An unknown topic has no queues."""
        self._last = self._cluster.ask("brokers, queues and their bounds", self._fetch_metadata)
        self._offsets = {}
        return sorted(self._last.bounds)

    def ends(self) -> dict[QueueKey, int]:
        """See Catalog."""
        return {key: self.bounds(key)[1] for key in self.queues()}

    def bounds(self, key: QueueKey) -> tuple[int, int]:
        """See Catalog."""
        return self._known_bounds().get(key, (0, 0))

    def offset_at(self, key: QueueKey, timestamp_ms: int) -> int | None:
        """See Catalog."""
        _, end = self.bounds(key)
        if end == 0:
            return None
        if MessageQueue(*key) not in self._offsets.get(timestamp_ms, {}):
            is_common = len(self._offsets) < COMMON_TIMES_MAX
            queues = [MessageQueue(*other) for other in (self._known_bounds() if is_common else (key,))]
            what = f"the offset of {key.label} of {key.topic} at {timestamp_ms} ms"
            found = self._cluster.ask(what, lambda cluster: cluster.offsets_at(queues, timestamp_ms))
            self._offsets.setdefault(timestamp_ms, {}).update(found)
        offset = self._offsets[timestamp_ms][MessageQueue(*key)]
        return offset if offset < end else None

    def log_index(self) -> None:
        """See Catalog. Brokers show queues and no log."""

    def _known_bounds(self) -> dict[QueueKey, tuple[int, int]]:
        if self._last is None:
            self.queues()
        assert self._last is not None
        return self._last.bounds

    def _fetch_metadata(self, cluster: Cluster) -> _Metadata:
        """Return the queues whose broker is registered before and after the request.

        For a broker that leaves or comes in between, the list of its queues may be incomplete.
        """
        before = cluster.brokers()
        found = cluster.bounds(self._topics(cluster, before.values()))
        places = tuple(place for place in broker_locations(cluster, self._silent) if place.name in before)
        seen = {place.name for place in places}
        bounds = {QueueKey(*queue): limits for queue, limits in found.items() if queue.broker_name in seen}
        return _Metadata(places, bounds)

    def _topics(self, cluster: Cluster, addresses: Iterable[str]) -> list[str]:
        """Return the chosen topics, without brokers' own topics unless these are requested."""
        chosen = self._options.topics
        names = chosen.names or tuple(dict.fromkeys(queue.topic for queue in chosen.queues))
        topics = names or tuple(topic for topic in cluster.topics() if chosen.wants(topic))
        if self._options.include_system_topics:
            return list(topics)
        own = set[str]().union(*(self._own(cluster, address) for address in addresses))
        return [topic for topic in topics if is_user_topic(topic) and topic not in own]

    def _own(self, cluster: Cluster, address: str) -> set[str]:
        if address not in self._own_topics:
            try:
                self._own_topics[address] = cluster.system_topics(address)
            except RingmqError as error:  # if it has chosen queues, the request for these fails
                log.debug("broker %s did not list its system topics: %s", address, error)
                return set()
        return self._own_topics[address]


def broker_locations(cluster: Cluster, silent: set[str]) -> Iterator[BrokerLocation]:
    """Yield each registered broker with its address, and with its store if it names one.

    `silent` has the brokers without an answer, so that each is logged once.
    """
    for name, address in cluster.brokers().items():
        try:
            folder = cluster.store_folder(address)
            silent.discard(name)
        except RingmqError as error:  # a broker without chosen rows may be down
            if name not in silent:
                log.warning("broker %s did not name its store, so tasks pull from it: %s", name, error)
            silent.add(name)
            folder = None
        place = None if folder is None else StoreLocation(folder.root, folder.boot_id, folder.device, folder.inode)
        yield BrokerLocation(name, address, place)
