"""A store on this host together with name servers: planned by the files, readable from other hosts over tcp."""

import logging
from dataclasses import replace
from pathlib import Path

from ringmq.client import RingmqError
from ringmq.client.blocking import Cluster
from ringmq.spark_bridge.bootstrap_catalog import BootstrapCatalog
from ringmq.spark_bridge.catalog import Catalog
from ringmq.spark_bridge.errors import ReadError
from ringmq.spark_bridge.log_index import LogIndex
from ringmq.spark_bridge.options import ReadOptions
from ringmq.spark_bridge.remote_catalog import RemoteCatalog, broker_locations
from ringmq.spark_bridge.slice_reader import store_here
from ringmq.spark_bridge.slices import BrokerLocation, QueueKey

log = logging.getLogger("ringmq.spark_bridge")


class CombinedCatalog:
    """The catalog of the files, with the address by which the name servers know the store's broker."""

    def __init__(self, files: Catalog, bootstrap: str) -> None:
        self._files = files
        self._bootstrap = bootstrap
        self._addressed: dict[BrokerLocation, BrokerLocation] = {}

    def brokers(self) -> tuple[BrokerLocation, ...]:
        """See Catalog. A broker without a known address has rows for tasks on this host only: the files suffice."""
        places = self._files.brokers()  # a store that was made again is another place
        if not all(place in self._addressed for place in places):
            try:
                registered = self._registered()
            except ReadError as error:
                log.warning("%s; tasks on other hosts cannot read these rows", error)
                return places
            self._addressed = {place: self._with_address(place, registered) for place in places}
        return tuple(self._addressed[place] for place in places)

    def queues(self) -> list[QueueKey]:
        """See Catalog."""
        return self._files.queues()

    def ends(self) -> dict[QueueKey, int]:
        """See Catalog."""
        return self._files.ends()

    def bounds(self, key: QueueKey) -> tuple[int, int]:
        """See Catalog."""
        return self._files.bounds(key)

    def offset_at(self, key: QueueKey, timestamp_ms: int) -> int | None:
        """See Catalog."""
        return self._files.offset_at(key, timestamp_ms)

    def log_index(self) -> LogIndex | None:
        """See Catalog."""
        return self._files.log_index()

    def _registered(self) -> list[BrokerLocation]:
        try:
            with Cluster(self._bootstrap) as cluster:
                return list(broker_locations(cluster, set()))
        except RingmqError as error:
            raise ReadError(f"bootstrap {self._bootstrap}: no list of brokers: {error}") from error

    def _with_address(self, place: BrokerLocation, registered: list[BrokerLocation]) -> BrokerLocation:
        for other in registered:
            # a RingMQ broker says which folder its store is; of a stock broker only the name is known
            same = other.name == place.name if other.store is None else other.store == place.store
            if same:
                return replace(place, address=other.address)
        log.warning(
            "bootstrap %s: broker %s is not registered (only %s); tasks on other hosts cannot read its rows",
            self._bootstrap,
            place.name,
            ", ".join(other.name for other in registered) or "none",
        )
        return place


def open_by_bootstrap(options: ReadOptions) -> Catalog:
    """Return the catalog for given name servers alone. Raises `ReadError`.

    If the only broker's store is on this host, the catalog uses its files, which needs no request and can read the
    log in place. Otherwise it sends requests to the brokers.
    """
    remote = RemoteCatalog(options)
    if options.transport == "tcp":
        return remote
    places = remote.brokers()
    if len(places) != 1 or places[0].store is None or not store_here(places[0].store):
        return remote
    assert options.bootstrap is not None
    from ringmq.spark_bridge.store_catalog import StoreCatalog  # imports the C core

    try:
        files = StoreCatalog(replace(options, store=Path(places[0].store.root)))
    except ReadError as error:  # no permission, for one
        log.warning(
            "the store of broker %s is on this host and cannot be read, so tasks pull from the broker: %s",
            places[0].name,
            error,
        )
        return remote
    return BootstrapCatalog(CombinedCatalog(files, options.bootstrap), places[0].name, remote)
