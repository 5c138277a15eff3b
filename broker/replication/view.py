"""ha's words in shared memory as control reads them, and control's own words there: commands, hold, known master.

Offsets are commit-log offsets. Times are those of the monotonic clock, in ms.
"""

from __future__ import annotations

import ipaddress
import time
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ringmq.ha.control_messages import STOCK_BROKER_ID, Command, command_bytes

if TYPE_CHECKING:
    from ringmq.broker.tables.protocols import PlaneProtocol

FREE, READY, TRANSFER = 0, 1, 2
STATE_WORDS = {FREE: "down", READY: "ready", TRANSFER: "transfer"}
LEVEL_WORDS = {0: "none", 1: "handed", 2: "sent", 3: "received", 4: "cached", 5: "flushed"}
REPLICATION_WORDS = {0: "ok", 11: "lost", 12: "stalled"}
HOLD_NONE, HOLD_LONGER_SLAVE = 0, 1
HOLD_WORDS = {HOLD_NONE: "none", HOLD_LONGER_SLAVE: "longer-slave"}
_IN_SYNC, _COUNTS = 1, 2


class ReplicationMarks(Struct, frozen=True):
    """The watermarks, and the state of replication."""

    min_offset: int
    append_offset: int
    flushed_offset: int
    confirm_offset: int
    replicated_offset: int
    replication_state: int
    in_sync_replicas: int
    write_hold: int
    start_id: int


class Peer(Struct, frozen=True):
    """One connected slave of this master (struct rmq_ha_peer)."""

    state: int
    level: int
    in_sync: bool
    counts: bool
    broker_id: int
    address: str
    room: str
    start_offset: int
    sent_offset: int
    received_offset: int
    reported_offset: int
    bytes_per_second: int
    connected_mono_ms: int
    last_read_mono_ms: int
    caught_up_mono_ms: int


class Link(Struct, frozen=True):
    """A slave's connection to its master (struct rmq_ha_link)."""

    state: int
    attempts: int
    master_offset: int
    reported_offset: int
    bytes_per_second: int
    last_read_mono_ms: int
    last_write_mono_ms: int


def mono_ms() -> int:
    """The monotonic clock of ha's times."""
    return time.monotonic_ns() // 1_000_000


class ReplicationView:
    """Replication's words in the plane. Every call reads them again."""

    def __init__(self, plane: PlaneProtocol) -> None:
        self._plane = plane

    def marks(self) -> ReplicationMarks:
        """All watermarks, one after another."""
        marks = self._plane.watermarks
        return ReplicationMarks(
            min_offset=int(marks.min_offset),
            append_offset=int(marks.append_offset),
            flushed_offset=int(marks.flushed_offset),
            confirm_offset=self._plane.confirm_offset(),
            replicated_offset=int(marks.replicated_offset),
            replication_state=int(marks.replication_state),
            in_sync_replicas=int(marks.in_sync_replicas),
            write_hold=int(marks.write_hold),
            start_id=int(marks.start_id),
        )

    def peers(self) -> list[Peer]:
        """The connected slaves."""
        return [_peer(entry) for entry in self._plane.header.replication.peers if int(entry.state) != FREE]

    def stock_slave_ends(self, host: str) -> list[int] | None:
        """Ends of the logs of stock slaves at a host, or of all if none is connected from there. None: the slave is of
        RingMQ."""
        peers = self.peers()
        at_host = [peer for peer in peers if peer.address.rpartition(":")[0] == host] or peers
        stock = [peer.reported_offset for peer in at_host if peer.broker_id == STOCK_BROKER_ID]
        return None if at_host and not stock else stock

    def link(self) -> Link:
        """The connection to the master."""
        entry = self._plane.header.replication.link
        return Link(
            state=int(entry.state),
            attempts=int(entry.attempts),
            master_offset=int(entry.master_offset),
            reported_offset=int(entry.reported_offset),
            bytes_per_second=int(entry.bytes_per_second),
            last_read_mono_ms=int(entry.last_read_mono_ms),
            last_write_mono_ms=int(entry.last_write_mono_ms),
        )

    def give(self, command: Command) -> bool:
        """Put a command for ha. False while its ring is full."""
        return self._plane.ha_command_put(command_bytes(command))

    def hold(self, reason: int) -> None:
        """Set the reason (HOLD_*) for which sends are refused until an operator decides. 0 lifts the hold."""
        self._plane.watermarks.write_hold = reason

    def show_master(self, is_known: bool) -> None:
        """Set the word by which the readers of a slave send consumers to a master."""
        self._plane.header.replication.master_known = int(is_known)


def _peer(entry: Any) -> Peer:
    flags = int(entry.flags)
    return Peer(
        state=int(entry.state),
        level=int(entry.level),
        in_sync=bool(flags & _IN_SYNC),
        counts=bool(flags & _COUNTS),
        broker_id=int(entry.broker_id),
        address=f"{ipaddress.ip_address(bytes(entry.host)[: int(entry.host_bytes) or 4])}:{int(entry.port)}",
        room=_text(entry.room),
        start_offset=int(entry.start_offset),
        sent_offset=int(entry.sent_offset),
        received_offset=int(entry.received_offset),
        reported_offset=int(entry.reported_offset),
        bytes_per_second=int(entry.bytes_per_second),
        connected_mono_ms=int(entry.connected_mono_ms),
        last_read_mono_ms=int(entry.last_read_mono_ms),
        caught_up_mono_ms=int(entry.caught_up_mono_ms),
    )


def _text(field: Any) -> str:
    """A NUL-terminated char array."""
    raw = b"".join(field) if not isinstance(field, bytes) else field
    return raw.partition(b"\0")[0].decode("utf-8", "replace")
