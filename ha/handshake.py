"""Two RingMQ peers compare themselves before the stream begins: request 270002, slave to its master's broker port.

RocketMQ's stream carries only an offset. A slave whose log differs from its master's below that offset would be fed as
if the logs were equal. The slave therefore identifies itself and sends checksums of windows of its log's tail. The
master decides (pure: `checksum_of` reads its log) and answers with a Verdict:

    compare    the windows do not fit: the slave sends those that end at `offset`, in another request
    accept     the slave's log is a prefix of the master's: the stream goes on at its end
    start_at   the slave has no records from which the stream could go on: it starts at `offset`, its files are removed
    cut        everything at and above `offset` goes to the slave's salvage folder, then the slave asks again
    hold       the slave's log is longer than the master's, or differs: the master holds writes until an operator
      decides
    refuse     the slave does not belong to this master

A slave that is longer than its master first sends windows that reach beyond the master's end. They do not cover the
bytes right below that end: hence compare. A cut is always followed by another handshake. It corrects a cut that was too
high. An accepted log is equal in every window that both have, its end included.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from ringmq.ha.control_messages import REASON_CHARS_MAX, MessageError, read_fields, read_object
from ringmq.ha.log_range import LogRange
from ringmq.ipc.tenure import EPOCH_MAX
from ringmq.store.tail_checksums import WINDOW_BYTES, WINDOWS_MAX, Window

COMPARE = "compare"
ACCEPT = "accept"
START_AT = "start_at"
CUT = "cut"
HOLD = "hold"
REFUSE = "refuse"

UNKNOWN_EPOCH = -1

LEVELS = ("cached", "flushed")
"""The levels that a slave's reports may have."""
UNNAMED = "haAllowedNetworks of the master does not name"
"""The beginning of the reason if a slave's log would hold writes, but haAllowedNetworks does not name its network."""

REFUSE_WRITES = "refuse"
ADOPT = "adopt"
SALVAGE = "salvage"
"""haDivergenceRule, and the decision of an operator (HA_DECIDE) for one broker id."""


Checksum = Callable[[int, int], int | None]
"""(commit-log offset, length) -> CRC-32 of the master's bytes. None if one of them is gone by now."""


class PeerClaim(Struct, frozen=True):
    """The identity and log of a slave, as the slave reports them. Offsets are of its CommitLog.

    start_id: of its process, hexadecimal text. broker_addr: host:port where its log can be read. ha_port: local port of
    its connection to the HA port. report_level: cached or flushed. tail: the result of ringmq.store.tail_checksums, for
    the log's end or for the offset that the master wants compared. operation: "join" before the stream, "confirm" to
    ask for the confirm offset again (only the identity counts then). last_epoch: of its last byte (ha/epochs.py),
    UNKNOWN_EPOCH: of a slave without a tenure file, which may have followed a promoted master before it kept one.
    """

    cluster: str
    broker_name: str
    broker_id: int
    start_id: str
    min_offset: int
    max_offset: int
    file_bytes: int
    broker_addr: str = ""
    ha_port: int = 0
    room: str = ""
    report_level: str = "cached"
    operation: str = "join"
    last_epoch: int = UNKNOWN_EPOCH
    tail: tuple[Window, ...] = ()

    @property
    def empty(self) -> bool:
        """True if it has no byte of any log."""
        return self.min_offset >= self.max_offset

    @property
    def windows_end(self) -> int:
        """End of its newest window."""
        return max((offset + length for offset, length, _ in self.tail), default=0)


class MasterView(Struct, frozen=True):
    """The facts about the master that the decision needs.

    decided: broker id -> ADOPT or SALVAGE, by an operator. rule: haDivergenceRule. from_newest_file:
    haStartFromNewestFile. allowed: haAllowedReplicas. A slave that may not count may follow, but it neither holds the
    master's writes nor is adopted. peer_host: the address of the slave's connection. is_named: haAllowedNetworks names
    it. Any other slave may follow, and changes nothing on the master. epoch, epoch_offset: of the master, and the end
    of its log when it was promoted.
    """

    cluster: str
    broker_name: str
    start_id: str
    min_offset: int
    max_offset: int
    file_bytes: int
    rule: str = REFUSE_WRITES
    from_newest_file: bool = False
    allowed: tuple[str, ...] = ()
    peer_host: str = ""
    is_named: bool = False
    decided: Mapping[int, str] = field(default_factory=dict)
    epoch: int = 0
    epoch_offset: int = 0

    @property
    def first_offset(self) -> int:
        """First offset of an empty slave's log."""
        return LogRange(self.min_offset, self.max_offset).first_offset(self.file_bytes, self.from_newest_file)

    def counts(self, peer: PeerClaim) -> bool:
        """True if haAllowedReplicas lets this slave count. Its host is that of its connection, not one that it
        reports."""
        return not self.allowed or not {str(peer.broker_id), self.peer_host}.isdisjoint(self.allowed)

    def choice(self, peer: PeerClaim) -> str:
        """The decision about a slave whose log is longer or differs."""
        return SALVAGE if self.has_left_behind(peer) else self.decided.get(peer.broker_id, self.rule)

    def has_left_behind(self, peer: PeerClaim) -> bool:
        """True if the slave has records of an older epoch where this master was promoted without them.

        The promotion has chosen between the logs, so sends need not wait for a person again. It has not if this master
        itself has lost records from before its promotion.
        """
        is_older = UNKNOWN_EPOCH < peer.last_epoch < self.epoch
        return is_older and self.epoch_offset <= min(self.max_offset, peer.max_offset - 1)


class Verdict(Struct, frozen=True):
    """kind: COMPARE ... REFUSE. offset: of compare, start_at and cut; with hold, the known end of the common log.

    adopt: with hold, the master is to fetch [offset, the slave's end) and to go on from there.
    """

    kind: str
    offset: int = 0
    reason: str = ""
    adopt: bool = False


class HandshakeAnswer(Struct, frozen=True):
    """The master's answer as sent. Offsets are of the master's CommitLog."""

    verdict: str
    offset: int
    reason: str
    start_id: str
    min_offset: int
    max_offset: int
    confirm_offset: int
    room: str = ""


def decide(peer: PeerClaim, own: MasterView, checksum_of: Checksum) -> Verdict:
    """Compare a slave with this master. checksum_of(offset, length): CRC-32 of that range of this master's log."""
    stranger = _why_not_ours(peer, own)
    if stranger:
        return Verdict(REFUSE, reason=stranger)
    if peer.empty:
        begun = own.min_offset <= peer.max_offset <= own.max_offset and peer.max_offset > 0
        first = peer.max_offset if begun else own.first_offset
        return Verdict(ACCEPT if first == peer.max_offset else START_AT, first, "the slave's log is empty")
    if peer.max_offset < own.min_offset:
        lacks = f"the slave lacks {peer.max_offset}..{own.min_offset}, which the master has deleted"
        return Verdict(START_AT, own.min_offset, lacks)
    agreed = _compare(peer, own, checksum_of)
    if agreed.differs:
        return _parted(peer, own, agreed.end_offset)
    if peer.max_offset > own.max_offset:
        reach = peer.windows_end > own.max_offset > max(own.min_offset, peer.min_offset)
        return Verdict(COMPARE, own.max_offset) if reach else _longer(peer, own)
    if agreed.end_offset == peer.max_offset:
        return Verdict(ACCEPT, peer.max_offset)
    if peer.windows_end < peer.max_offset:
        return Verdict(COMPARE, peer.max_offset)
    return Verdict(START_AT, own.min_offset, "the end of the slave's log cannot be compared with the master's")


def _why_not_ours(peer: PeerClaim, own: MasterView) -> str:
    """The reason why the peer is no slave of this master. Empty if it is one."""
    if (peer.cluster, peer.broker_name) != (own.cluster, own.broker_name):
        return f"the slave is of {peer.cluster}/{peer.broker_name}, the master of {own.cluster}/{own.broker_name}"
    if peer.start_id == own.start_id:
        return "the broker asks itself: haMasterAddress is its own address"
    if peer.broker_id <= 0:
        return f"brokerId {peer.broker_id} is a master's, a slave's is above 0"
    if peer.file_bytes != own.file_bytes:
        return f"mappedFileSizeCommitLog is {peer.file_bytes} at the slave, {own.file_bytes} at the master"
    return ""


class _Agreement(Struct, frozen=True):
    """end_offset: of the newest equal window below the first that differs."""

    end_offset: int
    differs: bool


def _compare(peer: PeerClaim, own: MasterView, checksum_of: Checksum) -> _Agreement:
    """Compare from the oldest window on. Windows that reach below a minimum or above the master's end do not count."""
    low, high = max(own.min_offset, peer.min_offset), min(own.max_offset, peer.max_offset)
    end_offset = low
    for offset, length, crc in sorted(peer.tail):
        if offset < low or offset + length > high:
            continue
        ours = checksum_of(offset, length)
        if ours is None:
            continue
        if ours != crc:
            return _Agreement(end_offset, True)
        end_offset = offset + length
    return _Agreement(end_offset, False)


def _parted(peer: PeerClaim, own: MasterView, common: int) -> Verdict:
    """The verdict on two logs that differ at the same offsets. A rule never drops the master's bytes: only an operator
    may adopt here."""
    reason = f"the logs of the master and of slave {peer.broker_id} differ above {common}"
    if own.choice(peer) != SALVAGE:
        return _held(peer, own, common, reason, own.decided.get(peer.broker_id) == ADOPT)
    if common <= max(own.min_offset, peer.min_offset):
        return Verdict(START_AT, own.min_offset, reason)
    return Verdict(CUT, common, reason)


def _longer(peer: PeerClaim, own: MasterView) -> Verdict:
    reason = f"slave {peer.broker_id} ends at {peer.max_offset}, the master at {own.max_offset}"
    choice = own.choice(peer)
    if choice != SALVAGE:
        return _held(peer, own, own.max_offset, reason, choice == ADOPT)
    if own.max_offset <= max(own.min_offset, peer.min_offset):
        return Verdict(START_AT, own.min_offset, reason)
    return Verdict(CUT, own.max_offset, reason)


def _held(peer: PeerClaim, own: MasterView, common: int, reason: str, adopt: bool) -> Verdict:
    """The hold. If the slave's log begins above `common`, it has a gap there and cannot be adopted."""
    if not own.counts(peer):
        return Verdict(REFUSE, reason=f"{reason}, and haAllowedReplicas does not name the slave")
    if not own.is_named:
        return Verdict(REFUSE, reason=f"{UNNAMED} {own.peer_host}, and {reason}")
    if adopt and peer.min_offset > common:
        reason += f"; the slave's log begins at {peer.min_offset} and cannot be adopted"
    return Verdict(HOLD, common, reason, adopt and peer.min_offset <= common)


def body(message: PeerClaim | HandshakeAnswer) -> bytes:
    """The message as the JSON body of request or answer."""
    return json.dumps(asdict(message), separators=(",", ":")).encode()


def claim_of(data: bytes) -> PeerClaim:
    """Decode a request's body. Raises MessageError, which names the defect."""
    found = read_object(data)
    tail = found.pop("tail", [])
    if not isinstance(tail, list) or len(tail) > WINDOWS_MAX or not all(map(_is_window, tail)):
        raise MessageError(f"tail is no list of at most {WINDOWS_MAX} [offset, length, crc32]")
    claim = read_fields(PeerClaim, found, tail=tuple((offset, length, crc) for offset, length, crc in tail))
    _check_numbers(claim.broker_id, claim.min_offset, claim.max_offset, claim.file_bytes)
    if not UNKNOWN_EPOCH <= claim.last_epoch <= EPOCH_MAX:
        raise MessageError(f"last_epoch {claim.last_epoch} is no epoch")
    if not 0 <= claim.ha_port <= 65_535 or claim.file_bytes == 0:
        raise MessageError(f"ha_port {claim.ha_port} or file_bytes {claim.file_bytes} cannot be")
    texts = ("room", claim.room, 31), ("start_id", claim.start_id, 32), ("broker_addr", claim.broker_addr, 270)
    for name, text, longest in texts:
        if not text.isprintable() or len(text.encode()) > longest:
            raise MessageError(f"{name} is no text of at most {longest} bytes")
    if claim.broker_addr and not _is_address(claim.broker_addr):
        raise MessageError(f"broker_addr {claim.broker_addr!r} is not host:port")
    if claim.report_level not in LEVELS or claim.operation not in ("join", "confirm"):
        raise MessageError(f"report_level {claim.report_level!r} or operation {claim.operation!r} is not known")
    return claim


def answer_of(data: bytes) -> HandshakeAnswer:
    """Decode an answer's body. Raises MessageError, which names the defect."""
    answer = read_fields(HandshakeAnswer, read_object(data))
    _check_numbers(answer.offset, answer.min_offset, answer.max_offset, answer.confirm_offset)
    return replace(answer, reason=answer.reason[:REASON_CHARS_MAX])


def _check_numbers(*numbers: int) -> None:
    """Raise MessageError unless all numbers fit into 64-bit words."""
    if not all(0 <= number < 1 << 63 for number in numbers):
        raise MessageError(f"{max(numbers, key=abs)} is no offset, size or id")


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isascii() and port.isdecimal() and int(port) <= 65_535


def _is_window(window: Any) -> bool:
    numbers = isinstance(window, list) and len(window) == 3 and all(type(value) is int for value in window)
    return numbers and window[0] >= 0 and 0 < window[1] <= WINDOW_BYTES and 0 <= window[2] < 1 << 32
