"""Events and effects of a slave's HA client.

Offsets are of the CommitLog. The shell steps a Tick with a fresh snapshot before every other event. If that Tick ends
the attempt of the event (Disconnect), the event is dropped.
"""

from logging import INFO

from msgspec import Struct

from ringmq.ha.control_messages import News
from ringmq.ha.handshake import HandshakeAnswer
from ringmq.store.store_task import StoreTask

NO_LIMIT = 2**64 - 1
"""confirm_limit without a limit: consumers may see the log up to the slave's own end."""


class Snapshot(Struct, frozen=True):
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


class MasterIs(Struct, frozen=True):
    """The master's addresses, "host:port" each: its HA port ("" = no master) and its broker port ("" = unknown)."""

    ha: str
    broker: str


class Connected(Struct, frozen=True):
    """The HA connection is open: its local port, and the master's address."""

    local_port: int
    host: str = ""


class ConnectFailed(Struct, frozen=True):
    """The HA connection could not be opened."""

    why: str


class Answered(Struct, frozen=True):
    """The broker at `host`, the address of the connection, has answered the handshake."""

    answer: HandshakeAnswer
    host: str = ""


class NotSupported(Struct, frozen=True):
    """The master does not know the handshake's code: it is stock."""


class HandshakeFailed(Struct, frozen=True):
    """The handshake got no answer, or an invalid one."""

    why: str


class Stream(Struct, frozen=True):
    """Control has noted the epoch of the master: this slave may report to it. attempt: that of Accepted."""

    attempt: int


class Reject(Struct, frozen=True):
    """Control does not let this slave follow the master. attempt: that of Accepted."""

    attempt: int
    why: str


class StreamStartsAt(Struct, frozen=True):
    """The first frame does not start at the end of this log. It was not appended."""

    offset: int


class Closed(Struct, frozen=True):
    """The HA connection has ended: by the master, by an error, or by the receiver because of invalid data."""

    why: str


class Confirmed(Struct, frozen=True):
    """The master's confirm offset, answer to AskConfirm. start_id: the master's, as in the handshake."""

    offset: int
    start_id: str


class ConfirmFailed(Struct, frozen=True):
    """AskConfirm got no answer."""

    why: str


class StoreFault(Struct, frozen=True):
    """The slave's own store takes no bytes any more."""

    text: str


class StoreRecovered(Struct, frozen=True):
    """The slave's own store takes bytes again."""


class Tick(Struct, frozen=True):
    """Time has passed."""

    snapshot: Snapshot


EVENTS = (
    MasterIs, Connected, ConnectFailed, Answered, NotSupported, HandshakeFailed, Stream, Reject, StreamStartsAt,
    Closed, Confirmed, ConfirmFailed, StoreFault, StoreRecovered, Tick,
)  # fmt: skip
Event = (
    MasterIs
    | Connected
    | ConnectFailed
    | Answered
    | NotSupported
    | HandshakeFailed
    | Stream
    | Reject
    | StreamStartsAt
    | Closed
    | Confirmed
    | ConfirmFailed
    | StoreFault
    | StoreRecovered
    | Tick
)


# -- effects, to be performed in their order ---------------------------------------------------------------------------


class Connect(Struct, frozen=True):
    """Connect to the master's HA port. Connected or ConnectFailed follows."""

    address: str


class Handshake(Struct, frozen=True):
    """Send the handshake (270002, join) to the broker at `address`. Answered, NotSupported or HandshakeFailed
    follows."""

    address: str
    local_port: int
    windows_end: int | None = None
    """End of the windows of checksums. None = the log's end."""


class StartTransfer(Struct, frozen=True):
    """Report the log's end and accept the stream."""


class Disconnect(Struct, frozen=True):
    """Close the connection, or abandon the attempt. No further event of it is stepped, not even Closed."""

    why: str


class AskConfirm(Struct, frozen=True):
    """Ask the broker at `address` for its confirm offset. Confirmed or ConfirmFailed follows."""

    address: str


class Limit(Struct, frozen=True):
    """Store confirm_limit: an offset or NO_LIMIT."""

    offset: int


class RestartStore(Struct, frozen=True):
    """Leave the order for the closed store and end with EXIT_RESTART_STORE. It is the last effect."""

    order: StoreTask


class NotifyControl(Struct, frozen=True):
    """Notify control (Plane.ha_event_put)."""

    news: News


class Log(Struct, frozen=True):
    """Write a log line. level: of the module logging."""

    text: str
    level: int = INFO


Effect = Connect | Handshake | StartTransfer | Disconnect | AskConfirm | Limit | RestartStore | NotifyControl | Log
