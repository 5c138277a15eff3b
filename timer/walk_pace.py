"""The pace at which a slot is read before its time.

A worker that reads for tens of milliseconds in a row loses its CPU to others afterwards, and what is due meanwhile is
late: 47 ms at p99 beside busy CPUs. So the first half of the time is spent on small pieces, one a millisecond. A slot
with many messages is begun earlier, so that its pieces stay small: one of 5 million takes 20 s.
"""

from __future__ import annotations

PIECE_MAX = 2048
"""Units of a piece of a slot that is due, or nearly: some milliseconds."""
PIECE_MIN = 64
PIECE_USUAL = 512
"""Units of a piece of a large slot: a third of a millisecond."""
LEAD_MAX_MS = 30_000
"""Messages that arrive for a slot behind the begin of its walk are all kept in memory, so no walk begins earlier."""


def lead_ms(precision_ms: int, count: int) -> int:
    """Return how long before its time a slot with `count` units is begun: one step at least."""
    return min(LEAD_MAX_MS, max(precision_ms, 2 * count // PIECE_USUAL))


def piece_of(slot_ms: int, now_ms: int, precision_ms: int, count: int) -> int:
    """Return the units of the next piece of a slot with `count` units, PIECE_MAX where there is no time to lose.

    The count may be too low: units that a recovery has found are not counted, and deletes are taken off.
    """
    half_ms = lead_ms(precision_ms, count) // 2
    if slot_ms - now_ms <= half_ms:
        return PIECE_MAX
    return min(PIECE_MAX, max(PIECE_MIN, -(-count // half_ms)))
