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
    """Whole records that lie one behind the other in one file of the log, below the confirm offset."""

    position: int
    size: int
    messages: int = 1


Part = bytes | LogRange


def records_payload(parts: Sequence[Part], instead: bytes) -> bytes:
    """The payload for the frame that `parts` make. `instead`: the whole frame that the client gets if a record cannot
    be sent any more. Raises ValueError if the parts are no frame, or too many.
    """
    if not 0 < len(parts) <= lib.RMQ_RECORD_PIECES_MAX:
        raise ValueError(f"an answer has {len(parts)} parts, outside of 1..{lib.RMQ_RECORD_PIECES_MAX}")
    total = sum(len(part) if isinstance(part, bytes) else part.size for part in parts)
    first = parts[0]
    if not isinstance(first, bytes) or len(first) < 8 or int.from_bytes(first[:4]) + 4 != total:
        raise ValueError(f"an answer of {total} bytes does not begin with its own length: {first!r:.60}")
    pieces = b"".join(
        _PIECE.pack(lib.RMQ_RECORD_INLINE, len(part), 0)
        if isinstance(part, bytes)
        else _PIECE.pack(part.position, part.size, part.messages)
        for part in parts
    )
    inline = b"".join(part for part in parts if isinstance(part, bytes))
    return _HEAD.pack(len(parts), len(instead)) + pieces + inline + instead
