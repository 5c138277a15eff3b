"""What happens to a master's HA writer (events) and what is to be done about it (effects).

A peer is a place in the plane's table ha_peers (0..15); a place is not given to another connection before its Closed
has been stepped. Offsets are of the CommitLog.
"""

from dataclasses import dataclass

from ringmq.ha.log_range import LogRange as LogRange
from ringmq.ha.orders import Identity, News
from ringmq.ha.watermark import Requirement


@dataclass(frozen=True, slots=True)
class PeerProgress:
    """How far one peer in TRANSFER is. silent_since_ms: sent bytes wait, no report has grown since; 0 = none do."""

    peer: int
    reported_offset: int
    silent_since_ms: int = 0


# -- events ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Connected:
    """A new connection on the HA port; host as text."""

    peer: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class TurnedAway:
    """A connection of this host was closed: every place was taken."""

    host: str


@dataclass(frozen=True, slots=True)
class Identified:
    """Control has accepted a slave's handshake. Orders are to be stepped before connections and reports."""

    identity: Identity


@dataclass(frozen=True, slots=True)
class FirstReport:
    """The first 8 bytes of a connection: where the slave wants the stream to begin."""

    peer: int
    offset: int
    log: LogRange


@dataclass(frozen=True, slots=True)
class Progress:
    """All peers in TRANSFER at one moment."""

    peers: tuple[PeerProgress, ...]
    log: LogRange


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection is gone, whoever ended it."""

    peer: int
    why: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = Connected | TurnedAway | Identified | FirstReport | Progress | Closed | Tick


# -- effects, to be performed in their order ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mark:
    """Write the peer's row: broker_id (-1 = stock), level (CACHED or FLUSHED), room, flags COUNTS and IN_SYNC."""

    peer: int
    broker_id: int
    level: int
    room: str
    counts: bool
    in_sync: bool


@dataclass(frozen=True, slots=True)
class Require:
    """Compute replicated_offset by `answer` and confirm_limit by `confirm` from now on, first at once."""

    answer: Requirement
    confirm: Requirement


@dataclass(frozen=True, slots=True)
class State:
    """Store replication_state (0, 11, 12) and in_sync_replicas (the master counted); ring the completer's bell."""

    replication_state: int
    in_sync_replicas: int


@dataclass(frozen=True, slots=True)
class StartTransfer:
    """Send the log to the peer from `offset` on."""

    peer: int
    offset: int


@dataclass(frozen=True, slots=True)
class Close:
    """End the connection; Closed follows."""

    peer: int
    why: str


@dataclass(frozen=True, slots=True)
class Tell:
    """For control (Plane.ha_news_put)."""

    news: News


@dataclass(frozen=True, slots=True)
class Log:
    """Tell the operator. is_of_peer: any peer can cause this line, so it is throttled apart from other lines."""

    text: str
    is_of_peer: bool = False


@dataclass(frozen=True, slots=True)
class Count:
    """One more of something, by the name of its counter."""

    name: str


DEGRADED_ENTERED = "degraded_entered"
DEGRADED_LEFT = "degraded_left"
REFUSED_NETWORK = "refused_network"
"""A connection of a host that haAllowedNetworks does not allow."""
REFUSED_SILENT = "refused_silent"
"""A connection without a first report in its time."""
REFUSED_REPLACED = "refused_replaced"
"""A connection that gave its place up for another one."""
REFUSED_UNNAMED = "refused_unnamed"
"""A longer log of a host that haAllowedNetworks does not name."""

Effect = Mark | Require | State | StartTransfer | Close | Tell | Log | Count
