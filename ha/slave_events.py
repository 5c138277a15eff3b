"""What happens to a slave's HA client (events) and what is to be done about it (effects).

Offsets are of the CommitLog. A Tick with a fresh snapshot is stepped before every other event; where it ends the
attempt that the event is about (Disconnect), the event is dropped.
"""

from dataclasses import dataclass

from ringmq.ha.handshake import HandshakeAnswer
from ringmq.ha.orders import News
from ringmq.store.store_order import StoreOrder

NO_LIMIT = 2**64 - 1
"""confirm_limit: nothing but the slave's own end bounds what consumers may see."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The slave at one moment. received_bytes: of this connection, heartbeats too; last_read_ms: as `now_ms`."""

    min_offset: int
    append_offset: int
    flushed_offset: int
    received_bytes: int = 0
    last_read_ms: int = 0

    @property
    def empty(self) -> bool:
        """No byte of any log is here."""
        return self.append_offset <= self.min_offset


# -- events ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MasterIs:
    """Where the master is, "host:port" each: its HA port ("" = nowhere) and its broker port ("" = not known)."""

    ha: str
    broker: str


@dataclass(frozen=True, slots=True)
class Connected:
    """The HA connection stands: its own port, and the master's address that it goes to."""

    local_port: int
    host: str = ""


@dataclass(frozen=True, slots=True)
class ConnectFailed:
    """It does not."""

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
    """No answer, or none that can be read."""

    why: str


@dataclass(frozen=True, slots=True)
class StreamStartsAt:
    """The first frame is not for the end of this log: it was not taken."""

    offset: int


@dataclass(frozen=True, slots=True)
class Closed:
    """The HA connection is gone, by the master, by an error, or by the receiver that refused what came."""

    why: str


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The master's confirm offset, answer to AskConfirm. start_id: the master's, as in the handshake."""

    offset: int
    start_id: str


@dataclass(frozen=True, slots=True)
class ConfirmFailed:
    """No answer to AskConfirm."""

    why: str


@dataclass(frozen=True, slots=True)
class StoreFault:
    """The slave's own store takes no more bytes."""

    text: str


@dataclass(frozen=True, slots=True)
class StoreSound:
    """It does again."""


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
    | StoreSound
    | Tick
)


# -- effects, to be performed in their order ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect to the master's HA port; Connected or ConnectFailed follows."""

    address: str


@dataclass(frozen=True, slots=True)
class Handshake:
    """Ask the broker at `address` (270002, join); Answered, NotSupported or HandshakeFailed follows."""

    address: str
    local_port: int
    windows_end: int | None = None
    """Where the windows of checksums end, None = where the log does."""


@dataclass(frozen=True, slots=True)
class StartTransfer:
    """Report the log's end and take the stream."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """End the connection, or the attempt to make one. Nothing of it is stepped any more, no Closed either."""

    why: str


@dataclass(frozen=True, slots=True)
class AskConfirm:
    """Ask the broker at `address` for its confirm offset; Confirmed or ConfirmFailed follows."""

    address: str


@dataclass(frozen=True, slots=True)
class Limit:
    """Store confirm_limit: an offset or NO_LIMIT."""

    offset: int


@dataclass(frozen=True, slots=True)
class RestartStore:
    """Leave the order for the closed store and end with EXIT_RESTART_STORE. Nothing follows."""

    order: StoreOrder


@dataclass(frozen=True, slots=True)
class Tell:
    """For control (Plane.ha_news_put)."""

    news: News


@dataclass(frozen=True, slots=True)
class Log:
    """Tell the operator."""

    text: str


Effect = Connect | Handshake | StartTransfer | Disconnect | AskConfirm | Limit | RestartStore | Tell | Log
