"""One connection to a master's HA port, as the master's core knows it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ringmq.ha.in_sync import SyncWatch
from ringmq.ha.master_events import Mark
from ringmq.ha.orders import STOCK_BROKER_ID, Identity
from ringmq.ha.settings import HaSettings
from ringmq.ha.watermark import LEVEL_CACHED, LEVEL_FLUSHED


@dataclass(slots=True)
class MasterPeer:
    """number: of the connection, growing. identity: None = stock, or has not said. watch: None before the stream.

    connected_ms, counts_since_ms: of the clock of the core's steps; None = it does not count as in sync.
    """

    place: int
    host: str
    port: int
    number: int
    identity: Identity | None = None
    watch: SyncWatch | None = None
    mark: Mark | None = None
    """What its row was told last."""
    connected_ms: int = 0
    counts_since_ms: int | None = None

    @property
    def name(self) -> str:
        """For the operator."""
        address = f"{self.host}:{self.port}"
        return f"slave {self.identity.broker_id} ({address})" if self.identity else f"stock slave {address}"

    @property
    def broker_id(self) -> int:
        """-1 = did not say."""
        return self.identity.broker_id if self.identity else STOCK_BROKER_ID

    @property
    def level(self) -> int:
        """What its reports stand for; a stock slave's never for more than its page cache."""
        return LEVEL_FLUSHED if self.identity and self.identity.level == "flushed" else LEVEL_CACHED

    @property
    def names(self) -> tuple[str, ...]:
        """What properties call it: a stock slave by its address alone."""
        return (str(self.identity.broker_id), self.host) if self.identity else (self.host,)

    def room(self, settings: HaSettings) -> str:
        """What it said, else haReplicaRooms; "" = not known."""
        if self.identity and self.identity.room:
            return self.identity.room
        rooms = dict(settings.replica_rooms)
        return next((rooms[name] for name in self.names if name in rooms), "")

    def allowed(self, settings: HaSettings) -> bool:
        """haAllowedReplicas lets it count."""
        return not settings.allowed_replicas or any(name in settings.allowed_replicas for name in self.names)

    def in_sync(self, now_ms: int) -> bool:
        """Its stream runs and it keeps up."""
        return self.watch is not None and self.watch.in_sync(now_ms)


def standing(peers: Iterable[MasterPeer], settings: HaSettings, now_ms: int) -> set[int]:
    """Places of the connections that count: replicas are counted, never connections.

    Of one replica's connections the newest with a stream counts. A RingMQ slave is known by its broker id, a stock one
    by its host; beside a RingMQ slave on the same host it does not count: it may be that slave, without a handshake.
    A connection that counts as in sync is not displaced from another host: a broker id is the peer's own claim.
    """
    streaming = [peer for peer in peers if peer.watch is not None and peer.allowed(settings)]
    known_hosts = {peer.host for peer in streaming if peer.identity}
    newest: dict[tuple[int, str], MasterPeer] = {}
    for peer in sorted(streaming, key=lambda peer: peer.number):
        if peer.identity:
            older = newest.get((peer.broker_id, ""))
            stays = older is not None and older.counts_since_ms is not None and older.in_sync(now_ms)
            if older is None or older.host == peer.host or not stays:
                newest[peer.broker_id, ""] = peer
        elif peer.host not in known_hosts:
            newest[STOCK_BROKER_ID, peer.host] = peer
    return {peer.place for peer in newest.values()}
