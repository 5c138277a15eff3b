"""A master's decisions about its slaves: `step(event, now_ms) -> effects`, without sockets and shared memory.

`ha/master_shell.py` passes events of the C loop and the time (a monotonic clock) in, and carries the effects out. The
core answers no send. It sets the replica requirement (`Require`) and the replication state, by which
`native/src/flush/completer.c` answers parked sends.

One connection:

    Connected --> ready --FirstReport at a possible offset--> transfer --Closed--> gone
        |           |                                             |
        |           +--offset that cannot be, or beyond the end---+--> Close
        +--haAllowedNetworks does not allow the host--> Close

If a slave without a handshake has a longer log and haAllowedNetworks names its host, the core notifies control, which
holds writes. Any other host that asks for an offset beyond the end changes nothing.

A slave counts as in sync after its first report, while its gap is small and its reports go on (`ha/in_sync.py`). A
slave that lags or leaves no longer counts. The group's state may change then:

    OK --fewer in sync than needed, and fewer connected--> LOST (11)
    OK --fewer in sync than needed, enough connected--> STALLED (12)
    LOST, STALLED --enough in sync--> OK

needed = the replica policy. With enableAutoInSyncReplicas it is lowered to the live replicas, but not below
minInSyncReplicas. The group is in degraded mode while the policy as configured cannot be met, even if the lowered one
can.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from logging import INFO, WARNING

from ringmq.ha import peer_slots
from ringmq.ha.control_messages import Identity, LongerSlave, PeerNews
from ringmq.ha.in_sync import SyncWatch
from ringmq.ha.log_range import LogRange
from ringmq.ha.master_events import (
    DEGRADED_ENTERED,
    DEGRADED_LEFT,
    REFUSED_NETWORK,
    REFUSED_REPLACED,
    REFUSED_SILENT,
    REFUSED_UNNAMED,
    Close,
    Closed,
    Connected,
    Count,
    Effect,
    Event,
    FirstReport,
    Identified,
    Log,
    Mark,
    NotifyControl,
    Progress,
    Require,
    StartTransfer,
    State,
    Tick,
    TurnedAway,
)
from ringmq.ha.master_peer import MasterPeer, standing
from ringmq.ha.replica_policy import Replica, ReplicaPolicy, can_meet
from ringmq.ha.replica_watermark import PEERS_MAX
from ringmq.ha.settings import HaSettings
from ringmq.ha.waiter import REPLICATION_LOST, REPLICATION_OK, REPLICATION_STALLED

IDENTITIES_MAX = 64
IDENTITIES_PER_HOST = 16
IDENTITY_KEPT_MS = 30_000
"""Time after which an identity without a connection is forgotten. Another slave may have the port by then."""


@dataclass(slots=True)
class MasterCore:
    """All slaves of one master."""

    settings: HaSettings
    policy: ReplicaPolicy = field(init=False)
    _peers: dict[int, MasterPeer] = field(default_factory=dict)
    _identities: dict[tuple[str, int], tuple[Identity, int]] = field(default_factory=dict)
    _known_hosts: tuple[str, ...] = ()
    _reserved_until_ms: int = 0
    _connections: int = 0
    _require: Require | None = None
    _state: State | None = None
    _degraded: bool = False

    def __post_init__(self) -> None:
        self.policy = ReplicaPolicy.from_settings(self.settings)

    def due_ms(self) -> int | None:
        """Time of the next Tick that matters. None if none does before another event."""
        due = [at for peer in self._peers.values() if peer.watch and (at := peer.watch.due_ms()) is not None]
        within_ms = peer_slots.first_report_ms(self.settings)
        due += [peer.connected_ms + within_ms for peer in self._peers.values() if peer.watch is None]
        return min(due, default=None)

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """The effects of one event, in order. Those of the first Tick are the state without a slave."""
        effects: list[Effect] = []
        match event:
            case Connected(peer=slot, host=host) if not self.settings.allowed_networks.allows(host):
                effects = _turn_away(slot, host, "haAllowedNetworks does not allow the host", REFUSED_NETWORK)
            case Connected(peer=slot, host=host, port=port):
                self._connections += 1
                peer = MasterPeer(slot, host, port, self._connections, connected_ms=now_ms)
                self._peers[slot] = peer
                identity, _ = self._identities.pop((host, port), (None, 0))
                effects = [*self._identify(peer, identity, now_ms), *self._make_room(peer, now_ms)]
            case TurnedAway(host=host) if self._is_known(host):
                self._reserved_until_ms = now_ms + peer_slots.RESERVED_MS
                effects = self._make_room(None, now_ms)
            case Identified(identity=identity):
                effects = self._identified(identity, now_ms)
            case FirstReport(peer=slot, offset=offset, log=log) if slot in self._peers:
                effects = self._first_report(self._peers[slot], offset, log, now_ms)
            case Progress(peers=peers, log=log):
                for seen in peers:
                    watch = self._peers[seen.peer].watch if seen.peer in self._peers else None
                    if watch:
                        watch.observe(seen.reported_offset, log.append_offset, seen.silent_since_ms)
            case Closed(peer=slot, why=why) if slot in self._peers:
                peer = self._peers.pop(slot)
                effects = [
                    Log(f"{peer.name} is gone: {why}", WARNING, is_of_peer=True),
                    NotifyControl(PeerNews(peer.host, peer.port, "closed", peer.broker_id, why=why)),
                ]
            case Tick():
                effects = self._close_silent(now_ms)
            case FirstReport() | Closed() | TurnedAway():
                pass
        transfers = [effect for effect in effects if isinstance(effect, StartTransfer)]
        others = [effect for effect in effects if not isinstance(effect, StartTransfer)]
        return [*others, *self._settle(now_ms), *transfers]

    # -- one connection ------------------------------------------------------------------------------------------------

    def _identified(self, identity: Identity, now_ms: int) -> list[Effect]:
        for peer in self._peers.values():
            if (peer.host, peer.port) == (identity.host, identity.port):
                return self._identify(peer, identity, now_ms)
        kept = {key: entry for key, entry in self._identities.items() if now_ms - entry[1] < IDENTITY_KEPT_MS}
        of_host = [key for key in kept if key[0] == identity.host]
        if len(of_host) >= IDENTITIES_PER_HOST:
            del kept[of_host[0]]
        elif len(kept) >= IDENTITIES_MAX:
            del kept[next(iter(kept))]
        self._identities = {**kept, (identity.host, identity.port): (identity, now_ms)}
        return []

    def _identify(self, peer: MasterPeer, identity: Identity | None, now_ms: int) -> list[Effect]:
        """Set the identity of a connection. An older connection of the same slave process is half-open, and is closed.

        The host must be the same, because any peer can ask for the process id of another broker.
        """
        peer.identity = identity
        if identity is None:
            return []
        old = [
            other
            for other in self._peers.values()
            if other is not peer
            and other.host == peer.host
            and other.identity
            and other.identity.start_id == identity.start_id != ""
        ]
        return [effect for other in old for effect in _close_peer(other, f"{peer.name} has connected again")]

    # -- places --------------------------------------------------------------------------------------------------------

    def _is_known(self, host: str) -> bool:
        settings = self.settings
        return host in self._known_hosts or host in settings.allowed_replicas or settings.allowed_networks.names(host)

    def _make_room(self, newcomer: MasterPeer | None, now_ms: int) -> list[Effect]:
        """Keep one slot free, as long as there is a connection that does not count."""
        counting = standing(self._peers.values(), self.settings, now_ms)
        is_late = newcomer is not None and now_ms < self._reserved_until_ms and not self._is_known(newcomer.host)
        if is_late and len(self._peers) >= PEERS_MAX:
            loser = newcomer
        else:
            loser = peer_slots.victim(self._peers.values(), counting, self._is_known, newcomer)
        if loser is None:
            return []
        del self._peers[loser.slot]
        return _turn_away(loser.slot, loser.host, "all slots are in use, and other slaves need one", REFUSED_REPLACED)

    def _close_silent(self, now_ms: int) -> list[Effect]:
        within_ms, effects = peer_slots.first_report_ms(self.settings), []
        for peer in [peer for peer in self._peers.values() if peer.watch is None]:
            if now_ms - peer.connected_ms >= within_ms:
                del self._peers[peer.slot]
                effects += _turn_away(peer.slot, peer.host, f"no report in {within_ms} ms", REFUSED_SILENT)
        return effects

    def _first_report(self, peer: MasterPeer, offset: int, log: LogRange, now_ms: int) -> list[Effect]:
        if offset > log.append_offset:
            return self._beyond_end(peer, offset, log)
        start = offset
        if peer.identity is None and offset == 0:
            start = log.first_offset(self.settings.file_bytes, self.settings.start_from_newest_file)
        elif offset < log.min_offset:
            if peer.identity is not None:
                return _close_peer(peer, f"the slave asks for {offset}, the log now begins at {log.min_offset}")
            start = log.min_offset
        peer.watch = SyncWatch(
            self.settings.max_gap_not_in_sync_bytes,
            self.settings.slave_timeout_ms,
            min(offset, start),
            log.append_offset,
        )
        lacks = f"; {offset}..{start} is deleted here" if 0 < offset < start else ""
        return [
            StartTransfer(peer.slot, start),
            Log(
                f"{peer.name} asks for {offset} and gets the log from {start} on, "
                f"which ends at {log.append_offset}{lacks}",
                is_of_peer=True,
            ),
            NotifyControl(
                PeerNews(
                    peer.host,
                    peer.port,
                    "transfer",
                    peer.broker_id,
                    offset=start,
                    is_named=self.settings.allowed_networks.names(peer.host),
                )
            ),
        ]

    def _beyond_end(self, peer: MasterPeer, offset: int, log: LogRange) -> list[Effect]:
        """The effects of a first report beyond the end. Within a file of the end, the slave may have kept records that
        this master has lost. Farther off, the report is junk."""
        if offset - log.append_offset > self.settings.file_bytes:
            return _close_peer(
                peer, f"the slave asks for {offset}, the log ends at {log.append_offset}: not a slave of this master"
            )
        why = f"the slave's log ends at {offset}, the master's at {log.append_offset}"
        if peer.identity is not None or not peer.allowed(self.settings):
            return _close_peer(peer, why)
        if self.settings.allowed_networks.names(peer.host):
            return [
                *_close_peer(peer, why),
                NotifyControl(LongerSlave(peer.host, peer.port, offset, log.append_offset)),
            ]
        del self._peers[peer.slot]
        return _turn_away(peer.slot, peer.host, f"{why}, and haAllowedNetworks does not name the host", REFUSED_UNNAMED)

    # -- the group -----------------------------------------------------------------------------------------------------

    def _settle(self, now_ms: int) -> list[Effect]:
        """Bring rows, requirements and state up to date. Only changes become effects."""
        counting = standing(self._peers.values(), self.settings, now_ms)
        effects: list[Effect] = []
        for peer in sorted(self._peers.values(), key=lambda peer: peer.slot in counting):
            mark = Mark(
                peer.slot,
                peer.broker_id,
                peer.level,
                peer.room(self.settings),
                counts=peer.slot in counting,
                in_sync=peer.in_sync(now_ms),
            )
            if mark != peer.mark:
                effects += [*self._sync_log(peer, mark), mark]
                peer.mark = mark
                if not (mark.counts and mark.in_sync):
                    peer.counts_since_ms = None
                elif peer.counts_since_ms is None:
                    peer.counts_since_ms = now_ms
                    effects += self._trust_log(peer)
        self._known_hosts = peer_slots.known_hosts(self._known_hosts, self._peers.values(), now_ms)
        replicas = [
            Replica(row.peer, row.level, row.room, row.in_sync)
            for peer in self._peers.values()
            if (row := peer.mark) is not None and row.counts
        ]
        return effects + self._group(replicas)

    def _sync_log(self, peer: MasterPeer, mark: Mark) -> list[Effect]:
        if peer.mark is None or peer.watch is None or peer.mark.in_sync == mark.in_sync:
            return []
        behind = peer.watch.append_offset - peer.watch.reported_offset
        text = f"{peer.name} is {'in sync' if mark.in_sync else 'out of sync'}, {behind} bytes behind"
        return [Log(text, INFO if mark.in_sync else WARNING)]

    def _trust_log(self, peer: MasterPeer) -> list[Effect]:
        """The line about a stock slave that counts. Stock slaves are anonymous: if the list is empty, any host that
        reports offsets counts."""
        if not self.policy.waits or self.settings.allowed_networks:
            return []
        text = f"sends are answered by reports of {peer.host}, which any host may send: haAllowedNetworks is empty"
        return [Log(text, WARNING, is_of_peer=True)]

    def _group(self, replicas: list[Replica]) -> list[Effect]:
        effects: list[Effect] = []
        answers = self.policy.answers(replicas)
        require = Require(answers, self.policy.lowered(replicas))
        in_sync = sum(1 << replica.slot for replica in replicas if replica.in_sync)
        connected = sum(1 << replica.slot for replica in replicas)
        if can_meet(answers, in_sync):
            code = REPLICATION_OK
        else:
            code = REPLICATION_STALLED if can_meet(answers, connected) else REPLICATION_LOST
        state = State(code, 1 + in_sync.bit_count())
        if require != self._require:
            effects.append(require)
        if state != self._state:
            effects.append(state)
        degraded = not can_meet(self.policy.full(replicas), in_sync)
        if degraded != self._degraded or (self._state and state.replication_state != self._state.replication_state):
            effects.append(Log(self._group_text(state, degraded), WARNING if degraded else INFO))
        if degraded != self._degraded:
            effects.append(Count(DEGRADED_ENTERED if degraded else DEGRADED_LEFT))
        self._require, self._state, self._degraded = require, state, degraded
        return effects

    def _group_text(self, state: State, degraded: bool) -> str:
        have = f"{state.in_sync_replicas} replicas are in sync, wanted: {self.policy.wanted}"
        if not degraded:
            return f"degraded mode left: {have}"
        if state.replication_state == REPLICATION_OK:
            return f"degraded mode: {have}; sends are answered with fewer (enableAutoInSyncReplicas)"
        return f"degraded mode: {have}; sends that wait for replicas are refused"


def _close_peer(peer: MasterPeer, why: str) -> list[Effect]:
    return [Log(f"the connection of {peer.name} is closed: {why}", WARNING, is_of_peer=True), Close(peer.slot, why)]


def _turn_away(slot: int, host: str, why: str, counter: str) -> list[Effect]:
    """The effects for a peer that no longer has an entry. The line is the same for every connection of the host."""
    text = f"a connection from {host} to the replication port is closed: {why}"
    return [Log(text, WARNING, is_of_peer=True), Count(counter), Close(slot, why)]
