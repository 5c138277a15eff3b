"""Events and effects of a master's HA writer.

A peer is a slot of the plane's table ha_peers (0..15). Another connection gets the slot only after the Closed of the
first has been stepped. Offsets are of the CommitLog.
"""

from dataclasses import dataclass
from logging import INFO

from ringmq.ha.control_messages import Identity, News
from ringmq.ha.log_range import LogRange as LogRange
from ringmq.ha.replica_watermark import Requirement


@dataclass(frozen=True, slots=True)
class PeerProgress:
    """The progress of one peer in TRANSFER. silent_since_ms: start of the time with sent bytes and without a higher
    report; 0 = no sent byte waits."""

    peer: int
    reported_offset: int
    silent_since_ms: int = 0


# -- events ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Connected:
    """A new connection on the HA port. host: as text."""

    peer: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class TurnedAway:
    """A connection of this host was closed, because every slot was taken."""

    host: str


@dataclass(frozen=True, slots=True)
class Identified:
    """Control has accepted a slave's handshake. The shell steps commands before connections and reports."""

    identity: Identity


@dataclass(frozen=True, slots=True)
class FirstReport:
    """The first 8 bytes of a connection: the offset at which the slave wants the stream to begin."""

    peer: int
    offset: int
    log: LogRange


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of all peers in TRANSFER at one moment."""

    peers: tuple[PeerProgress, ...]
    log: LogRange


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection has ended, on either side."""

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
    """Compute replicated_offset by `answer` and confirm_limit by `confirm`, from now on and at once."""

    answer: Requirement
    confirm: Requirement


@dataclass(frozen=True, slots=True)
class State:
    """Store replication_state (0, 11, 12) and in_sync_replicas (the master counted), and ring the completer's bell."""

    replication_state: int
    in_sync_replicas: int


@dataclass(frozen=True, slots=True)
class StartTransfer:
    """Send the log to the peer from `offset` on."""

    peer: int
    offset: int


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection. Closed follows."""

    peer: int
    why: str


@dataclass(frozen=True, slots=True)
class NotifyControl:
    """Notify control (Plane.ha_event_put)."""

    news: News


@dataclass(frozen=True, slots=True)
class Log:
    """Write a log line. level: of `logging`. is_of_peer: any peer can cause this line, so it is throttled apart from
    other lines."""

    text: str
    level: int = INFO
    is_of_peer: bool = False


@dataclass(frozen=True, slots=True)
class Count:
    """Add 1 to the counter of this name."""

    name: str


DEGRADED_ENTERED = "degraded_entered"
DEGRADED_LEFT = "degraded_left"
REFUSED_NETWORK = "refused_network"
"""A connection of a host that haAllowedNetworks does not allow."""
REFUSED_SILENT = "refused_silent"
"""A connection without a first report within its time limit."""
REFUSED_REPLACED = "refused_replaced"
"""A connection whose slot another one has got."""
REFUSED_UNNAMED = "refused_unnamed"
"""A longer log of a host that haAllowedNetworks does not name."""

Effect = Mark | Require | State | StartTransfer | Close | NotifyControl | Log | Count
