"""Payloads of RMQ_VERDICT_RECORDS: a frame for a client, part of which lies in the log (native/src/reader/records.c).

A read worker sends the bytes of the log without a copy. An answer has at most the bytes and messages of a pull
(`rmq_records_exceed`); bytes of the answerer count.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct

from ringmq.native import lib

_HEAD = struct.Struct("=II")
_PIECE = struct.Struct("=QII")


class LogRange(Struct, frozen=True):
    """Whole records that lie one behind the other in one file of the log, or the body of one. All of it is below the
    confirm offset."""

    position: int
    size: int
    messages: int = 1


class LogRanges(Struct, frozen=True):
    """Several of them, as `QueueReader.ranges` packs them."""

    pieces: bytes
    """A `struct rmq_record_piece` each."""
    size: int
    """Bytes of all records."""


Part = bytes | LogRange | LogRanges


def records_payload(parts: Sequence[Part], instead: bytes) -> bytes:
    """The payload for the frame that `parts` make. `instead`: the whole frame that the client gets if a record cannot
    be sent any more. Raises ValueError if the parts are no frame, or too many.
    """
    pieces, inline, total = b"", b"", 0
    for part in parts:
        if isinstance(part, bytes):
            pieces, inline = pieces + _PIECE.pack(lib.RMQ_RECORD_INLINE, len(part), 0), inline + part
        elif isinstance(part, LogRange):
            pieces += _PIECE.pack(part.position, part.size, part.messages)
        else:
            pieces += part.pieces
        total += len(part) if isinstance(part, bytes) else part.size
    count, first = len(pieces) // _PIECE.size, parts[0] if parts else b""
    if not 0 < count <= lib.RMQ_RECORD_PIECES_MAX:
        raise ValueError(f"an answer has {count} parts, outside of 1..{lib.RMQ_RECORD_PIECES_MAX}")
    if not isinstance(first, bytes) or len(first) < 8 or int.from_bytes(first[:4]) + 4 != total:
        raise ValueError(f"an answer of {total} bytes does not begin with its own length: {first!r:.60}")
    return _HEAD.pack(count, len(instead)) + pieces + inline + instead
