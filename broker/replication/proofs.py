"""The proof that a slave with a longer or different log really has that log: records behind the common offset.

Only then does a master hold its sends for it. The proof is a window of valid records at the slave's broker, at the
address of its connection. The sizes and the checksums of the bodies must be right, and each record must name its own
offset. One slave is asked at a time, hosts in turns. The caller reads: `why_not_proven` gets a reader, and `Proofs`
names the part of the log to read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import islice

from msgspec import Struct, field

from ringmq.ha.handshake import PeerClaim, Verdict
from ringmq.store import layout
from ringmq.store import record as records
from ringmq.store.adoption import ReadChunk, whole_bytes

WINDOW_BYTES = 65_536
READ_BYTES_MAX = 8 << 20
"""The first record behind the common offset begins and ends within so many bytes. The limit exceeds the largest
message.
"""
CANDIDATES_MAX = 100
"""Positions to check that look like the beginning of a record. A message may contain some."""
HOSTS_MAX = 16
"""Hosts with a waiting claim. The HA port has as many slots."""
SERVED_MAX = 256
"""Hosts whose last turn is remembered."""
WAIT_MS = 15_000
"""Time after which a claim that the slave has not repeated is dropped. A slave asks every 5 s."""
_SEARCH_BYTES = 1 << 20
_TOO_LONG = "the read takes too long"
_MAGICS = tuple(struct.pack(">I", magic) for magic in (layout.MAGIC_V1, layout.MAGIC_V2))


class LogTail(Struct, frozen=True):
    """The range [offset, end) of the log that the broker at `address` claims to have. at_border: a record begins at
    `offset`."""

    address: str
    offset: int
    end: int
    file_bytes: int
    at_border: bool


def why_not_proven(
    tail: LogTail, read_chunk: ReadChunk, has_time: Callable[[], bool], rest: Callable[[], None] = lambda: None
) -> str:
    """Read a window of the tail. The reason why it proves nothing, "" if it holds valid records. Raises the reader's
    OSError.

    `rest` is called between steps of a few milliseconds, because control shares the interpreter with this work.
    """
    data = bytearray()
    while has_time():
        wanted = min(max(WINDOW_BYTES, len(data)), tail.end - tail.offset - len(data), READ_BYTES_MAX - len(data))
        try:
            for chunk in _read(read_chunk, tail.offset + len(data), wanted):
                data += chunk
                rest()
        except OSError as error:
            return str(error) or type(error).__name__
        is_whole = len(data) >= tail.end - tail.offset
        for begin in (0,) if tail.at_border else _candidates(data, rest):
            if not has_time():
                return _TOO_LONG
            why = _why_no_records(data, begin, tail, rest, is_whole=is_whole)
            rest()
            if why is not None:
                return why
        if is_whole or len(data) >= READ_BYTES_MAX:
            return f"no record begins in the {len(data)} bytes from {tail.offset} on"
    return _TOO_LONG


def _read(read_chunk: ReadChunk, offset: int, length: int) -> Iterator[bytes]:
    end = offset + length
    while offset < end:
        chunk = read_chunk(offset, end - offset)
        if not chunk:
            raise OSError(f"the slave's log ends at {offset}")
        offset += len(chunk)
        yield chunk


def _why_no_records(
    data: bytearray, begin: int, tail: LogTail, rest: Callable[[], None], *, is_whole: bool
) -> str | None:
    """ "" if there are records from `begin` on, else the reason why not. None if none is there or more bytes are
    needed."""
    size = int.from_bytes(data[begin : begin + 4], "big")
    part = memoryview(data)[begin : begin + max(WINDOW_BYTES, min(size, READ_BYTES_MAX))]
    used, why = whole_bytes(part, tail.offset + begin, tail.file_bytes, check_crc=True, rest=rest)
    if why != records.SHORT:
        return f"at {tail.offset + begin + used}: {records.REASONS[why]}" if tail.at_border or used else None
    if used == len(part) or (used and not (is_whole and begin + len(part) == len(data))):
        return ""
    return f"at {tail.offset + begin + used}: {records.REASONS[why]}" if tail.at_border and is_whole else None


def _candidates(data: bytearray, rest: Callable[[], None]) -> Iterator[int]:
    """Positions where records may begin: before their magic codes, the first CANDIDATES_MAX of them."""
    return islice(_before_magics(data, rest), CANDIDATES_MAX)


def _before_magics(data: bytearray, rest: Callable[[], None]) -> Iterator[int]:
    for begin in range(4, len(data), _SEARCH_BYTES):
        end = begin + _SEARCH_BYTES + 3
        places = {magic: data.find(magic, begin, end) for magic in _MAGICS}
        while found := {magic: place for magic, place in places.items() if place >= 0}:
            magic = min(found, key=found.__getitem__)
            yield places[magic] - 4
            places[magic] = data.find(magic, places[magic] + 1, end)
        rest()


class _Waiting(Struct, frozen=True):
    claim: PeerClaim
    verdict: Verdict
    tail: LogTail
    asked_ms: int

    @property
    def host(self) -> str:
        return self.tail.address.rpartition(":")[0]


class Proofs(Struct):
    """One proof at a time, hosts in turns. A host has at most one waiting claim.

    `wanted` is the tail to read. It stays until `ended`.
    """

    _now: _Waiting | None = None
    _waiting: dict[str, _Waiting] = field(default_factory=dict)
    """Waiting claims by host."""
    _served: dict[str, int] = field(default_factory=dict)
    """Host -> number of its last turn, the oldest first. A host without one is next."""
    _turns: int = 0

    @property
    def wanted(self) -> LogTail | None:
        """The tail whose proof is running or due."""
        return None if self._now is None else self._now.tail

    def begin(self, claim: PeerClaim, verdict: Verdict, master_end: int, now_ms: int) -> str:
        """Request the proof of `claim`, whose slave's log may hold the master's sends. Returns the text of the answer
        to it."""
        if not claim.broker_addr:
            return "the slave does not say where its log can be read"
        tail = LogTail(
            claim.broker_addr,
            verdict.offset,
            claim.max_offset,
            claim.file_bytes,
            at_border=verdict.offset == master_end,
        )
        new = _Waiting(claim, verdict, tail, now_ms)
        if self._now is not None and self._now.tail.address == tail.address:
            return f"the slave's records behind {self._now.tail.offset} are being checked, try again"
        self._expire(now_ms)
        known = self._waiting.get(new.host)
        if known is not None and known.tail.address != tail.address:
            return f"the log of {known.tail.address} waits to be checked, try again"
        if known is None and len(self._waiting) >= HOSTS_MAX and not self._displace(new.host):
            return f"the logs of {HOSTS_MAX} hosts wait to be checked, try again"
        self._waiting[new.host] = new
        if self._now is None:
            self._next(now_ms)
            return f"the slave's records behind {tail.offset} are being checked, try again"
        return f"the log of {self._now.tail.address} is being checked first, try again"

    def forget(self, address: str) -> None:
        """Drop the claim of the slave at `address`, whose log fits."""
        host = address.rpartition(":")[0]
        if host in self._waiting and self._waiting[host].tail.address == address:
            del self._waiting[host]

    def ended(self, now_ms: int) -> tuple[PeerClaim, Verdict]:
        """End the proof, either way. Returns its claim and verdict. Call it once for each tail of `wanted`."""
        ended = self._now
        if ended is None:
            raise RuntimeError("no proof is wanted")
        self._next(now_ms)
        return ended.claim, ended.verdict

    def _next(self, now_ms: int) -> None:
        """Begin the waiting claim of the host whose last turn was first."""
        self._expire(now_ms)
        self._now = min(self._waiting.values(), key=lambda waiting: self._served.get(waiting.host, 0), default=None)
        if self._now is None:
            return
        host = self._now.host
        del self._waiting[host]
        self._turns += 1
        self._served.pop(host, None)
        self._served[host] = self._turns
        if len(self._served) > SERVED_MAX:
            del self._served[next(iter(self._served))]

    def _expire(self, now_ms: int) -> None:
        for host, waiting in list(self._waiting.items()):
            if now_ms - waiting.asked_ms > WAIT_MS:
                del self._waiting[host]

    def _displace(self, host: str) -> bool:
        """Drop the waiting claim of the host with the latest turn, if the turn of `host` was earlier."""
        latest = max(self._waiting, key=lambda waiting: self._served.get(waiting, 0))
        if self._served.get(latest, 0) <= self._served.get(host, 0):
            return False
        del self._waiting[latest]
        return True
