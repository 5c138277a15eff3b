"""The log on which POP's memory rests: the place in a snapshot's header, and the comparison at a start.

Consumers may be given records that are not on disk yet. A power cut takes these records, and the memory of them stays.
So a header has two places: the flushed offset, which every log of this store must have, and the log's end. A log that
ends before that end was cut; then the windows are clamped to their queues. A log that has other bytes there has grown
again without the broker, and the memory is not used.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Protocol

from msgspec import Struct

TAIL_BYTES = 4096
"""Bytes of the log before an offset that a checksum covers."""


class LogTail(Protocol):
    """The part of `ringmq.services.log_view.LogView` that is used here."""

    def crc(self, offset: int, length: int) -> int | None: ...


class LogPlace(Struct, frozen=True):
    """`flushed`, `end`: (offset, bytes before it under the checksum, CRC-32)."""

    flushed: tuple[int, int, int]
    end: tuple[int, int, int]

    @property
    def both(self) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Flushed offset and end, each with its checksum."""
        return self.flushed, self.end

    @classmethod
    def measure(cls, log: LogTail, min_offset: int, flushed_offset: int, end_offset: int) -> LogPlace:
        """Compute the checksums. Raises OSError."""
        return cls(_tail(log, min_offset, flushed_offset), _tail(log, min_offset, end_offset))

    @classmethod
    def of(cls, header: Any) -> LogPlace:
        """Read the place of the last snapshot that was begun from a header."""
        place = header.places[header.snapshot % 2]
        return cls(
            (int(place.flushed_offset), int(place.flushed_bytes), int(place.flushed_crc)),
            (int(place.end_offset), int(place.end_bytes), int(place.end_crc)),
        )

    def store(self, place: Any) -> None:
        """Store it in a struct rmq_pop_log_place."""
        place.flushed_offset, place.flushed_bytes, place.flushed_crc = self.flushed
        place.end_offset, place.end_bytes, place.end_crc = self.end


class Log(Enum):
    """The log that is there, compared with that of a snapshot."""

    SAME = "it has all bytes that it had"
    CUT = "it ends earlier"
    OTHER = "it has other bytes"


def compare(place: LogPlace, log: LogTail, min_offset: int, log_end: int) -> Log:
    """Compare the log with a place. Bytes that retention has deleted agree with everything. Raises OSError."""
    for offset, size, crc in place.both:
        if offset > log_end:
            return Log.OTHER if offset == place.flushed[0] else Log.CUT
        if size and offset - size >= min_offset and log.crc(offset - size, size) != crc:
            return Log.OTHER
    return Log.SAME


def _tail(log: LogTail, min_offset: int, offset: int) -> tuple[int, int, int]:
    size = max(0, min(TAIL_BYTES, offset - min_offset))
    crc = log.crc(offset - size, size) if size else None
    return offset, 0 if crc is None else size, crc or 0
