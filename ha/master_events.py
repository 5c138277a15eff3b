"""Events and effects of a master's HA writer.

A peer is a slot of the plane's table ha_peers (0..15). Another connection gets the slot only after the Closed of the
first has been stepped. Offsets are of the CommitLog.
"""

from logging import INFO

from msgspec import Struct

from ringmq.ha.control_messages import Identity, News
from ringmq.ha.log_range import LogRange as LogRange
from ringmq.ha.replica_watermark import Requirement


class PeerProgress(Struct, frozen=True):
    """The progress of one peer in TRANSFER. silent_since_ms: start of the time with sent bytes and without a higher
    report; 0 = no sent byte waits."""

    peer: int
    reported_offset: int
    silent_since_ms: int = 0


# -- events ------------------------------------------------------------------------------------------------------------


class Connected(Struct, frozen=True):
    """A new connection on the HA port. host: as text."""

    peer: int
    host: str
    port: int


class TurnedAway(Struct, frozen=True):
    """A connection of this host was closed, because every slot was taken."""

    host: str


class Identified(Struct, frozen=True):
    """Control has accepted a slave's handshake. The shell steps commands before connections and reports."""

    identity: Identity


class FirstReport(Struct, frozen=True):
    """The first 8 bytes of a connection: the offset at which the slave wants the stream to begin."""

    peer: int
    offset: int
    log: LogRange


class Progress(Struct, frozen=True):
    """The progress of all peers in TRANSFER at one moment."""

    peers: tuple[PeerProgress, ...]
    log: LogRange


class Closed(Struct, frozen=True):
    """The connection has ended, on either side."""

    peer: int
    why: str


class Tick(Struct, frozen=True):
    """Time has passed."""


Event = Connected | TurnedAway | Identified | FirstReport | Progress | Closed | Tick


# -- effects, to be performed in their order ---------------------------------------------------------------------------


class Mark(Struct, frozen=True):
    """Write the peer's row: broker_id (-1 = stock), level (CACHED or FLUSHED), room, flags COUNTS and IN_SYNC."""

    peer: int
    broker_id: int
    level: int
    room: str
    counts: bool
    in_sync: bool


class Require(Struct, frozen=True):
    """Compute replicated_offset by `answer` and confirm_limit by `confirm`, from now on and at once."""

    answer: Requirement
    confirm: Requirement


class State(Struct, frozen=True):
    """Store replication_state (0, 11, 12) and in_sync_replicas (the master counted), and ring the completer's bell."""

    replication_state: int
    in_sync_replicas: int


class StartTransfer(Struct, frozen=True):
    """Send the log to the peer from `offset` on."""

    peer: int
    offset: int


class Close(Struct, frozen=True):
    """Close the connection. Closed follows."""

    peer: int
    why: str


class NotifyControl(Struct, frozen=True):
    """Notify control (Plane.ha_event_put)."""

    news: News


class Log(Struct, frozen=True):
    """Write a log line. level: of `logging`. is_of_peer: any peer can cause this line, so it is throttled apart from
    other lines."""

    text: str
    level: int = INFO
    is_of_peer: bool = False


class Count(Struct, frozen=True):
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
