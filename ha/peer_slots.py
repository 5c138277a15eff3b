"""Slots of slaves on the replication port. The plane has 16 for all of them.

A slave is known if haAllowedNetworks or haAllowedReplicas names its host. It is known, too, if a stream to its host has
counted as in sync for a minute. A full table never costs a known slave its slot:

    a newcomer makes it full           a connection that does not count goes, of the host with most connections
    a known slave is turned away       a stream of an unknown host goes, and unknown newcomers wait for RESERVED_MS
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable

from ringmq.ha.master_peer import MasterPeer
from ringmq.ha.replica_watermark import PEERS_MAX
from ringmq.ha.settings import HaSettings

FIRST_REPORT_MS = 10_000
"""Time limit of the first report. A stock slave reports within its heartbeat interval (5 s), a RingMQ slave after its
handshake.
"""
RESERVED_MS = 10_000
KNOWN_AFTER_MS = 60_000
HOSTS_KEPT = 64


def first_report_ms(settings: HaSettings) -> int:
    """Time from the connection to its first report, in ms. Without one the connection is closed."""
    return min(settings.housekeeping_ms, max(FIRST_REPORT_MS, 2 * settings.heartbeat_ms))


def victim(
    peers: Collection[MasterPeer],
    counting: Collection[int],
    is_known: Callable[[str], bool],
    newcomer: MasterPeer | None = None,
) -> MasterPeer | None:
    """The connection to close. None if none has to be closed, or none may be.

    `counting`: slots whose reports count. `newcomer`: the connection that has just taken the last slot. None: a known
    slave was turned away, which may cost an unknown host its stream.
    """
    if len(peers) < PEERS_MAX:
        return None
    load = Counter(peer.host for peer in peers)
    idle = [peer for peer in peers if peer.slot not in counting and peer is not newcomer]
    unknown = [peer for peer in idle if not is_known(peer.host)]
    if unknown or (newcomer is not None and is_known(newcomer.host)):
        return max(unknown or idle, key=lambda peer: _weight(peer, load), default=None)
    if newcomer is not None:
        return newcomer if idle else None
    streams = [peer for peer in peers if not is_known(peer.host)]
    return max(streams, key=lambda peer: (load[peer.host], peer.number), default=None)


def known_hosts(before: Iterable[str], streams: Iterable[MasterPeer], now_ms: int) -> tuple[str, ...]:
    """Hosts whose stream has counted for KNOWN_AFTER_MS, the latest HOSTS_KEPT of them."""
    since = [(peer.host, peer.counts_since_ms) for peer in streams if peer.counts_since_ms is not None]
    grown = [host for host, since_ms in since if now_ms - since_ms >= KNOWN_AFTER_MS]
    return tuple(dict.fromkeys([*reversed(grown), *before]))[:HOSTS_KEPT]


def _weight(peer: MasterPeer, load: Counter[str]) -> tuple[int, bool, int]:
    """Sort key; the largest is closed first: of the busiest host, first one without a handshake, then the oldest."""
    return load[peer.host], peer.identity is None, -peer.number
