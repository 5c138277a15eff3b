"""Events and effects of a slave's HA client.

Offsets are of the CommitLog. The shell steps a Tick with a fresh snapshot before every other event. If that Tick ends
the attempt of the event (Disconnect), the event is dropped.
"""

from dataclasses import dataclass
from logging import INFO

from ringmq.ha.control_messages import News
from ringmq.ha.handshake import HandshakeAnswer
from ringmq.store.store_task import StoreTask

NO_LIMIT = 2**64 - 1
"""confirm_limit without a limit: consumers may see the log up to the slave's own end."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The slave at one moment. received_bytes: of this connection, heartbeats too. last_read_ms: by the clock of
    `now_ms`."""

    min_offset: int
    append_offset: int
    flushed_offset: int
    received_bytes: int = 0
    last_read_ms: int = 0

    @property
    def empty(self) -> bool:
        """True if no byte of any log is here."""
        return self.append_offset <= self.min_offset


# -- events ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MasterIs:
    """The master's addresses, "host:port" each: its HA port ("" = no master) and its broker port ("" = unknown)."""

    ha: str
    broker: str


@dataclass(frozen=True, slots=True)
class Connected:
    """The HA connection is open: its local port, and the master's address."""

    local_port: int
    host: str = ""


@dataclass(frozen=True, slots=True)
class ConnectFailed:
    """The HA connection could not be opened."""

    why: str


@dataclass(frozen=True, slots=True)
class Answered:
    """The broker at `host`, the address of the connection, has answered the handshake."""

    answer: HandshakeAnswer
    host: str = ""


@dataclass(frozen=True, slots=True)
class NotSupported:
    """The master does not know the handshake's code: it is stock."""


@dataclass(frozen=True, slots=True)
class HandshakeFailed:
    """The handshake got no answer, or an invalid one."""

    why: str


@dataclass(frozen=True, slots=True)
class StreamStartsAt:
    """The first frame does not start at the end of this log. It was not appended."""

    offset: int


@dataclass(frozen=True, slots=True)
class Closed:
    """The HA connection has ended: by the master, by an error, or by the receiver because of invalid data."""

    why: str


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The master's confirm offset, answer to AskConfirm. start_id: the master's, as in the handshake."""

    offset: int
    start_id: str


@dataclass(frozen=True, slots=True)
class ConfirmFailed:
    """AskConfirm got no answer."""

    why: str


@dataclass(frozen=True, slots=True)
class StoreFault:
    """The slave's own store takes no bytes any more."""

    text: str


@dataclass(frozen=True, slots=True)
class StoreRecovered:
    """The slave's own store takes bytes again."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""

    snapshot: Snapshot


Event = (
    MasterIs
    | Connected
    | ConnectFailed
    | Answered
    | NotSupported
    | HandshakeFailed
    | StreamStartsAt
    | Closed
    | Confirmed
    | ConfirmFailed
    | StoreFault
    | StoreRecovered
    | Tick
)


# -- effects, to be performed in their order ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect to the master's HA port. Connected or ConnectFailed follows."""

    address: str


@dataclass(frozen=True, slots=True)
class Handshake:
    """Send the handshake (270002, join) to the broker at `address`. Answered, NotSupported or HandshakeFailed
    follows."""

    address: str
    local_port: int
    windows_end: int | None = None
    """End of the windows of checksums. None = the log's end."""


@dataclass(frozen=True, slots=True)
class StartTransfer:
    """Report the log's end and accept the stream."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the connection, or abandon the attempt. No further event of it is stepped, not even Closed."""

    why: str


@dataclass(frozen=True, slots=True)
class AskConfirm:
    """Ask the broker at `address` for its confirm offset. Confirmed or ConfirmFailed follows."""

    address: str


@dataclass(frozen=True, slots=True)
class Limit:
    """Store confirm_limit: an offset or NO_LIMIT."""

    offset: int


@dataclass(frozen=True, slots=True)
class RestartStore:
    """Leave the order for the closed store and end with EXIT_RESTART_STORE. It is the last effect."""

    order: StoreTask


@dataclass(frozen=True, slots=True)
class NotifyControl:
    """Notify control (Plane.ha_event_put)."""

    news: News


@dataclass(frozen=True, slots=True)
class Log:
    """Write a log line. level: of the module logging."""

    text: str
    level: int = INFO


Effect = Connect | Handshake | StartTransfer | Disconnect | AskConfirm | Limit | RestartStore | NotifyControl | Log
