"""One connection to a master's HA port, as the master's core sees it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from ringmq.ha.control_messages import STOCK_BROKER_ID, Identity
from ringmq.ha.in_sync import SyncWatch
from ringmq.ha.master_events import Mark
from ringmq.ha.replica_watermark import LEVEL_CACHED, LEVEL_FLUSHED
from ringmq.ha.settings import HaSettings


class MasterPeer(Struct):
    """number: of the connection, growing. identity: None = stock, or not sent yet. watch: None before the stream.

    connected_ms, counts_since_ms: times of the core's clock. None = the peer does not count as in sync.
    """

    slot: int
    host: str
    port: int
    number: int
    identity: Identity | None = None
    watch: SyncWatch | None = None
    mark: Mark | None = None
    """The last Mark written to its row."""
    connected_ms: int = 0
    counts_since_ms: int | None = None

    @property
    def name(self) -> str:
        """The name in log lines."""
        address = f"{self.host}:{self.port}"
        return f"slave {self.identity.broker_id} ({address})" if self.identity else f"stock slave {address}"

    @property
    def broker_id(self) -> int:
        """The broker id. -1 = not sent."""
        return self.identity.broker_id if self.identity else STOCK_BROKER_ID

    @property
    def level(self) -> int:
        """The level of its reports. Those of a stock slave only stand for its page cache."""
        return LEVEL_FLUSHED if self.identity and self.identity.level == "flushed" else LEVEL_CACHED

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which properties refer to it. A stock slave has only its address."""
        return (str(self.identity.broker_id), self.host) if self.identity else (self.host,)

    def room(self, settings: HaSettings) -> str:
        """The room that it has sent, else that of haReplicaRooms. "" = unknown."""
        if self.identity and self.identity.room:
            return self.identity.room
        rooms = dict(settings.replica_rooms)
        return next((rooms[name] for name in self.names if name in rooms), "")

    def allowed(self, settings: HaSettings) -> bool:
        """True if haAllowedReplicas lets it count."""
        return not settings.allowed_replicas or any(name in settings.allowed_replicas for name in self.names)

    def in_sync(self, now_ms: int) -> bool:
        """True if its stream runs and it keeps up."""
        return self.watch is not None and self.watch.in_sync(now_ms)


def standing(peers: Iterable[MasterPeer], settings: HaSettings, now_ms: int) -> set[int]:
    """Slots of the connections that count. Replicas are counted, never connections.

    Of one replica's connections, the newest with a stream counts. A RingMQ slave is identified by its broker id, a
    stock one by its host. A stock slave beside a RingMQ slave on the same host does not count: it may be that slave,
    without a handshake. A connection of another host does not displace one that counts as in sync, because peers choose
    the broker id they send.
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
    return {peer.slot for peer in newest.values()}
