"""The proof that a slave whose log is longer, or differs, has that log: it hands over records behind the common offset.

Only then does a master hold its sends for it. The proof is a window of valid records at the slave's broker, at the
address of its connection: sizes, checksums of the bodies, and that each record names its own place. One slave is asked
at a time. The caller reads: `why_not_proven` takes a reader, and `Proofs` names the part of the log to read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ringmq.ha.handshake import PeerClaim, Verdict
from ringmq.store import layout
from ringmq.store import record as records
from ringmq.store.adoption import ReadChunk, whole_bytes

WINDOW_BYTES = 65_536
READ_BYTES_MAX = 8 << 20
"""The first record behind the common offset begins and ends within it: more than the largest message."""
CANDIDATES_MAX = 100
"""Bytes that look like the beginning of a record, and are looked at: a message may hold some."""
_TOO_LONG = "it takes too long"
_MAGICS = tuple(struct.pack(">I", magic) for magic in (layout.MAGIC_V1, layout.MAGIC_V2))


@dataclass(frozen=True, slots=True)
class LogTail:
    """[offset, end) of the log that the broker at `address` says it has; at_border: a record begins at `offset`."""

    address: str
    offset: int
    end: int
    file_bytes: int
    at_border: bool


def why_not_proven(
    tail: LogTail, read_chunk: ReadChunk, has_time: Callable[[], bool], rest: Callable[[], None] = lambda: None
) -> str:
    """Read a window of the tail; "" when it holds valid records, otherwise why not. Takes the reader's OSError.

    `rest` is called between steps of a few milliseconds: control shares the interpreter with this work.
    """
    data = b""
    while has_time():
        wanted = min(max(WINDOW_BYTES, len(data)), tail.end - tail.offset - len(data), READ_BYTES_MAX - len(data))
        try:
            for chunk in _read(read_chunk, tail.offset + len(data), wanted):
                data += chunk
                rest()
        except OSError as error:
            return str(error) or type(error).__name__
        is_whole = len(data) >= tail.end - tail.offset
        for begin in (0,) if tail.at_border else _candidates(data):
            if not has_time():
                return _TOO_LONG
            why = _why_no_records(data, begin, tail, is_whole=is_whole)
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
            raise OSError(f"its log ends at {offset}")
        offset += len(chunk)
        yield chunk


def _why_no_records(data: bytes, begin: int, tail: LogTail, *, is_whole: bool) -> str | None:
    """ "" for records from `begin` on, why there are none, None when none is there or more bytes are needed."""
    size = int.from_bytes(data[begin : begin + 4], "big")
    part = data[begin : begin + max(WINDOW_BYTES, min(size, READ_BYTES_MAX))]
    used, why = whole_bytes(part, tail.offset + begin, tail.file_bytes, check_crc=True)
    if why != records.SHORT:
        return f"at {tail.offset + begin + used}: {records.REASONS[why]}" if tail.at_border or used else None
    if used == len(part) or (used and not (is_whole and begin + len(part) == len(data))):
        return ""
    return f"at {tail.offset + begin + used}: {records.REASONS[why]}" if tail.at_border and is_whole else None


def _candidates(data: bytes) -> Iterator[int]:
    """Where records may begin: in front of their magic codes, the first CANDIDATES_MAX of them."""
    places = {magic: data.find(magic, 4) for magic in _MAGICS}
    for _ in range(CANDIDATES_MAX):
        magic = min((magic for magic in _MAGICS if places[magic] >= 0), key=places.__getitem__, default=None)
        if magic is None:
            return
        yield places[magic] - 4
        places[magic] = data.find(magic, places[magic] + 1)


@dataclass(slots=True)
class Proofs:
    """One proof at a time. `wanted`: the tail to be read; it stays until `ended`."""

    wanted: LogTail | None = None
    _claim: PeerClaim | None = field(default=None, repr=False)
    _verdict: Verdict | None = field(default=None, repr=False)

    def begin(self, claim: PeerClaim, verdict: Verdict, master_end: int) -> str:
        """Ask for the proof of the claim of a slave whose log may hold the master's sends. Returns the text for it."""
        if not claim.broker_addr:
            return "it does not say where its log can be read"
        if self.wanted is not None and self.wanted.address != claim.broker_addr:
            return f"the log of {self.wanted.address} is being checked, ask again"
        if self.wanted is None:
            at_border = verdict.offset == master_end
            self.wanted = LogTail(claim.broker_addr, verdict.offset, claim.max_offset, claim.file_bytes, at_border)
            self._claim, self._verdict = claim, verdict
        return f"its records behind {self.wanted.offset} are being checked, ask again"

    def ended(self) -> tuple[PeerClaim, Verdict]:
        """End the proof, either way. Returns its claim and verdict. RuntimeError when no proof is wanted."""
        claim, verdict = self._claim, self._verdict
        if claim is None or verdict is None:
            raise RuntimeError("no proof is wanted")
        self.wanted = self._claim = self._verdict = None
        return claim, verdict
