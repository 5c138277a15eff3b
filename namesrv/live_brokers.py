"""Live brokers: those that have registered lately, and those whose id another connection has claimed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ringmq.remoting.config_beans import DataVersion

DISPLACED_MAX = 8
"""The most displaced brokers of one name and id."""


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The identity of a live broker: cluster and address."""

    cluster: str
    addr: str


@dataclass(slots=True)
class LiveBroker:
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


Place = tuple[str, int]
"""Broker name and id."""


@dataclass(slots=True)
class Displaced:
    """Live brokers whose name and id another connection has registered since.

    When that connection ends, the displaced broker gets its id back at once, without waiting for its next
    registration. The broker with the oldest registration comes first.
    """

    by_place: dict[Place, list[tuple[BrokerAddress, LiveBroker]]] = field(default_factory=dict)

    def keep(self, place: Place, address: BrokerAddress, live: LiveBroker, places_max: int) -> None:
        """Add a displaced broker.

        A full place loses its youngest broker. Beyond `places_max` places nothing is added.
        """
        kept = [one for one in self.by_place.get(place, ()) if one[1].connection != live.connection]
        if kept or place in self.by_place or len(self.by_place) < places_max:
            kept.append((address, live))
            self.by_place[place] = sorted(kept, key=lambda one: one[1].since_ms)[:DISPLACED_MAX]

    def take(self, place: Place, address: BrokerAddress, connection: int | None) -> LiveBroker | None:
        """Remove and return the entry of this connection and address, which gets its place back."""
        found = None
        for one in list(self.by_place.get(place, ())):
            if one[1].connection == connection:
                self._drop(place, one)
                found = one[1] if one[0] == address else found
        return found

    def take_first(self, place: Place) -> tuple[BrokerAddress, LiveBroker] | None:
        """Remove and return the entry with the oldest registration."""
        kept = self.by_place.get(place)
        if not kept:
            return None
        first = kept[0]
        self._drop(place, first)
        return first

    def forget_connection(self, connection: int) -> None:
        """Clear the connection from all entries: it is closed."""
        self._forget(lambda place, address, live: live.connection == connection)

    def unregister(self, address: BrokerAddress, broker_name: str, may: Callable[[LiveBroker], bool]) -> None:
        """Forget the entries of this name and address that the caller may unregister."""
        self._forget(lambda place, kept, live: place[0] == broker_name and kept == address and may(live))

    def expire(self, now_ms: int) -> None:
        """Forget the entries that are silent for too long."""
        self._forget(lambda place, address, live: live.last_update_ms + live.expiry_ms < now_ms)

    def _forget(self, goes: Callable[[Place, BrokerAddress, LiveBroker], bool]) -> None:
        for place, kept in list(self.by_place.items()):
            for one in [one for one in kept if goes(place, *one)]:
                self._drop(place, one)

    def _drop(self, place: Place, one: tuple[BrokerAddress, LiveBroker]) -> None:
        kept = self.by_place[place]
        kept.remove(one)
        if not kept:
            del self.by_place[place]
