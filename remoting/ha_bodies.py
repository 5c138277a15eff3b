"""Bodies and headers of replication's requests: 906, 907, and RingMQ's own 270003 to 270005.

907 is stock's bean (`HARuntimeInfo`), for `mqadmin haStatus`. `HaStatus` (270005) has more fields and is RingMQ's
alone. A stock broker does not know the request. Offsets are commit-log offsets, rates bytes per second.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Final, TypeVar

from ringmq.remoting import json_body
from ringmq.remoting.headers import Header, Int32, Int64, camel_case, header

T = TypeVar("T")

READ_LOG_BYTES_MAX: Final = 1 << 20
ADOPT: Final = "adopt"
SALVAGE: Final = "salvage"


@header
class ExchangeHaInfoHeader(Header):
    """906, request and answer. A request with all fields absent is a query, which a master answers."""

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


@header
class HaDecideRequestHeader(Header):
    """270003: the decision about the part of a slave's log that the master does not have.

    `broker_id` names the slave, and `address` too if several slaves have one id.
    """

    broker_id: Int64
    choice: str
    address: str | None = None


@header
class HaReadLogRequestHeader(Header):
    """270004: raw bytes of the log from `offset` on."""

    offset: Int64
    max_bytes: Int32


@header
class HaReadLogResponseHeader(Header):
    """270004: the offset of the body's first byte, and the current end of the log."""

    offset: Int64
    max_offset: Int64


@dataclass(frozen=True, slots=True)
class HaConnectionInfo:
    """One slave in the answer to 907 (`HAConnectionRuntimeInfo`). `addr` is the address of its HA socket."""

    addr: str
    slave_ack_offset: int
    diff: int
    in_sync: bool
    transferred_bytes_per_second: int
    transfer_from_where: int

    def to_json(self) -> dict[str, Any]:
        """Stock's bean."""
        return {
            "addr": self.addr,
            "diff": self.diff,
            "inSync": self.in_sync,
            "slaveAckOffset": self.slave_ack_offset,
            "transferFromWhere": self.transfer_from_where,
            "transferredByteInSecond": self.transferred_bytes_per_second,
        }


@dataclass(frozen=True, slots=True)
class HaClientInfo:
    """The slave's own side in the answer to 907 (`HAClientRuntimeInfo`). Times in ms since the epoch, 0 = never."""

    master_addr: str | None = None
    max_offset: int = 0
    transferred_bytes_per_second: int = 0
    last_read_ms: int = 0
    last_write_ms: int = 0
    master_flush_offset: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return stock's bean. Without a master masterAddr is left out."""
        bean: dict[str, Any] = {
            "activated": False,
            "lastReadTimestamp": self.last_read_ms,
            "lastWriteTimestamp": self.last_write_ms,
        }
        if self.master_addr is not None:
            bean["masterAddr"] = self.master_addr
        bean["masterFlushOffset"] = self.master_flush_offset
        bean["maxOffset"] = self.max_offset
        bean["transferredByteInSecond"] = self.transferred_bytes_per_second
        return bean


@dataclass(frozen=True, slots=True)
class HaRuntimeInfo:
    """The answer to 907."""

    is_master: bool
    master_max_offset: int = 0
    in_sync_slaves: int = 0
    connections: tuple[HaConnectionInfo, ...] = ()
    client: HaClientInfo = field(default_factory=HaClientInfo)

    def encode(self) -> bytes:
        """Stock's bean."""
        return json_body.write_body(
            {
                "haClientRuntimeInfo": self.client.to_json(),
                "haConnectionInfo": [connection.to_json() for connection in self.connections],
                "inSyncSlaveNums": self.in_sync_slaves,
                "master": self.is_master,
                "masterCommitLogMaxOffset": self.master_max_offset,
            }
        )


@dataclass(frozen=True, slots=True)
class SlaveStatus:
    """One slave as its master sees it. `broker_id` is -1 for a stock slave, which does not send its id.

    `window_bytes` are sent and not reported yet. `lag_ms` is the time since the slave last reported everything
    appended.
    """

    address: str
    broker_id: int
    room: str
    state: str
    level: str
    counts: bool
    in_sync: bool
    start_offset: int
    sent_offset: int
    received_offset: int
    reported_offset: int
    window_bytes: int
    lag_bytes: int
    lag_ms: int
    bytes_per_second: int
    connected_ms: int
    silent_ms: int


@dataclass(frozen=True, slots=True)
class MasterStatus:
    """A slave's master as the slave sees it. Unknown addresses are empty."""

    ha_address: str
    broker_address: str
    is_registered: bool
    state: str
    master_offset: int
    reported_offset: int
    lag_bytes: int
    bytes_per_second: int
    silent_ms: int
    attempts: int
    note: str = ""
    """Reason why the link was closed or is held, if it was."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """A slave whose log is longer than its master's or differs from it, before an operator's decision.

    Both logs are the same below `common_offset`, as far as is known.
    """

    broker_id: int
    address: str
    common_offset: int
    master_offset: int
    slave_offset: int

    def to_json(self) -> dict[str, Any]:
        """Return the body of the answer to 270003. Keys are the field names in camelCase."""
        return _to_json(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Divergence:
        """Return the value in the body. Raises `BadBody`."""
        return _from_json(cls, value)


@dataclass(frozen=True, slots=True)
class HaStatus:
    """The answer to 270005."""

    broker_name: str
    broker_id: int
    role: str
    min_offset: int
    append_offset: int
    flushed_offset: int
    confirm_offset: int
    replicated_offset: int
    replication_state: str
    in_sync_replicas: int
    wanted_replicas: int
    is_degraded: bool
    write_hold: str
    slaves: tuple[SlaveStatus, ...] = ()
    master: MasterStatus | None = None
    divergences: tuple[Divergence, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the fields. Keys are the field names in camelCase."""
        return _to_json(self)

    def encode(self) -> bytes:
        """The body."""
        return json_body.write_body(self.to_json())

    @classmethod
    def decode(cls, body: bytes) -> HaStatus:
        """Return the status in the body, without the fields of newer brokers. Raises `BadBody`."""
        value = json_body.read_object(body, "HaStatus")
        parts = {
            "slaves": tuple(_from_json(SlaveStatus, entry) for entry in json_body.objects(value, "slaves")),
            "divergences": tuple(_from_json(Divergence, entry) for entry in json_body.objects(value, "divergences")),
            "master": _from_json(MasterStatus, json_body.mapping(value, "master")) if value.get("master") else None,
        }
        return _from_json(cls, value | parts)


def _to_json(value: Any) -> dict[str, Any]:
    """Return a dataclass as a JSON object with camelCase keys."""
    return {camel_case(entry.name): _plain(getattr(value, entry.name)) for entry in fields(value)}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    return _to_json(value) if is_dataclass(value) else value


def _from_json(kind: type[T], value: dict[str, Any]) -> T:
    wanted = {camel_case(entry.name): entry.name for entry in fields(kind)}  # type: ignore[arg-type]
    try:
        return kind(**{wanted[key]: entry for key, entry in value.items() if key in wanted})
    except TypeError as error:
        raise json_body.bad_body(f"{kind.__name__}: {error}", kind.__name__) from error
