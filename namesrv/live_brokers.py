"""Live brokers: those that have registered lately, and those whose place another connection has taken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ringmq.remoting.config_beans import DataVersion

DISPLACED_MAX = 8
"""Brokers of one name and id that are kept beside the one that counts."""


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """What identifies a live broker."""

    cluster: str
    addr: str


@dataclass(slots=True)
class LiveBroker:
    """When a broker was last heard of and what it said then. `connection` is None for none of ours."""

    last_update_ms: int
    expiry_ms: int
    data_version: DataVersion
    connection: int | None
    ha_server_addr: str
    host: str = ""
    """The host that registered it; "" when that is not known."""
    since_ms: int = 0
    """Since when this connection has registered this address."""


Place = tuple[str, int]
"""Broker name and id."""


@dataclass(slots=True)
class Displaced:
    """Live brokers whose name and id another connection has registered since.

    When the taker goes, the displaced broker has its id again at once, not first with its next registration. The one
    that has registered for longest comes first.
    """

    by_place: dict[Place, list[tuple[BrokerAddress, LiveBroker]]] = field(default_factory=dict)

    def keep(self, place: Place, address: BrokerAddress, live: LiveBroker, places_max: int) -> None:
        """Keep one; of a place that is full the youngest goes, of more places none is kept."""
        kept = [one for one in self.by_place.get(place, ()) if one[1].connection != live.connection]
        if kept or place in self.by_place or len(self.by_place) < places_max:
            kept.append((address, live))
            self.by_place[place] = sorted(kept, key=lambda one: one[1].since_ms)[:DISPLACED_MAX]

    def take(self, place: Place, address: BrokerAddress, connection: int | None) -> LiveBroker | None:
        """The entry of this connection and address, which has its place again."""
        found = None
        for one in list(self.by_place.get(place, ())):
            if one[1].connection == connection:
                self._drop(place, one)
                found = one[1] if one[0] == address else found
        return found

    def take_first(self, place: Place) -> tuple[BrokerAddress, LiveBroker] | None:
        """The one that has registered for longest."""
        kept = self.by_place.get(place)
        if not kept:
            return None
        first = kept[0]
        self._drop(place, first)
        return first

    def forget_connection(self, connection: int) -> None:
        """The connection is gone."""
        self._forget(lambda place, address, live: live.connection == connection)

    def unregister(self, address: BrokerAddress, broker_name: str, may: Callable[[LiveBroker], bool]) -> None:
        """Forget the entries of this name and address that the caller may unregister."""
        self._forget(lambda place, kept, live: place[0] == broker_name and kept == address and may(live))

    def expire(self, now_ms: int) -> None:
        """Forget those that are silent for too long."""
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
