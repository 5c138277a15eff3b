"""Live brokers: those that have registered lately, and those whose id another connection has claimed."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, field

from ringmq.remoting.config_beans import DataVersion

DISPLACED_MAX = 8
"""The most displaced brokers of one name and id."""


class BrokerAddress(Struct, frozen=True):
    """The identity of a live broker: cluster and address."""

    cluster: str
    addr: str


class LiveBroker(Struct):
    """The last sign of a live broker and its registration. `connection` is None for a connection to another server."""

    last_update_ms: int
    expiry_ms: int
    data_version: DataVersion
    connection: int | None
    ha_server_addr: str
    host: str = ""
    """The host that registered the broker, "" if unknown."""
    since_ms: int = 0
    """The time since when this connection has registered this address."""


BrokerKey = tuple[str, int]
"""Broker name and id."""


class Displaced(Struct):
    """Live brokers whose name and id another connection has registered since.

    When that connection ends, the displaced broker gets its id back at once, without waiting for its next
    registration. The broker with the oldest registration comes first.
    """

    by_key: dict[BrokerKey, list[tuple[BrokerAddress, LiveBroker]]] = field(default_factory=dict)

    def keep(self, key: BrokerKey, address: BrokerAddress, live: LiveBroker, keys_max: int) -> None:
        """Add a displaced broker.

        A full place loses its youngest broker. Beyond `places_max` places nothing is added.
        """
        kept = [one for one in self.by_key.get(key, ()) if one[1].connection != live.connection]
        if kept or key in self.by_key or len(self.by_key) < keys_max:
            kept.append((address, live))
            self.by_key[key] = sorted(kept, key=lambda one: one[1].since_ms)[:DISPLACED_MAX]

    def take(self, key: BrokerKey, address: BrokerAddress, connection: int | None) -> LiveBroker | None:
        """Remove and return the entry of this connection and address, which gets its place back."""
        found = None
        for one in list(self.by_key.get(key, ())):
            if one[1].connection == connection:
                self._drop(key, one)
                found = one[1] if one[0] == address else found
        return found

    def take_first(self, key: BrokerKey) -> tuple[BrokerAddress, LiveBroker] | None:
        """Remove and return the entry with the oldest registration."""
        kept = self.by_key.get(key)
        if not kept:
            return None
        first = kept[0]
        self._drop(key, first)
        return first

    def forget_connection(self, connection: int) -> None:
        """Clear the connection from all entries: it is closed."""
        self._forget(lambda key, address, live: live.connection == connection)

    def unregister(self, address: BrokerAddress, broker_name: str, may: Callable[[LiveBroker], bool]) -> None:
        """Forget the entries of this name and address that the caller may unregister."""
        self._forget(lambda key, kept, live: key[0] == broker_name and kept == address and may(live))

    def expire(self, now_ms: int) -> None:
        """Forget the entries that are silent for too long."""
        self._forget(lambda key, address, live: live.last_update_ms + live.expiry_ms < now_ms)

    def _forget(self, goes: Callable[[BrokerKey, BrokerAddress, LiveBroker], bool]) -> None:
        for key, kept in list(self.by_key.items()):
            for one in [one for one in kept if goes(key, *one)]:
                self._drop(key, one)

    def _drop(self, key: BrokerKey, one: tuple[BrokerAddress, LiveBroker]) -> None:
        kept = self.by_key[key]
        kept.remove(one)
        if not kept:
            del self.by_key[key]
