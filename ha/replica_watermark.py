"""The watermark of the replicas: the plain-Python twin of rmq_ha_watermark (native/src/ha/ha_watermark.c).

A requirement has at most four conditions. Each asks that `count` of the peers in its mask have a byte at a level. The
watermark is the largest offset for which all conditions hold. Level numbers are RMQ_HA_LEVEL_* of replication_layout.h.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

CONDITIONS_MAX = 4
PEERS_MAX = 16

LEVEL_NONE = 0
LEVEL_HANDED = 1
LEVEL_SENT = 2
LEVEL_RECEIVED = 3
LEVEL_CACHED = 4
LEVEL_FLUSHED = 5
LEVELS = {
    "none": LEVEL_NONE,
    "handed": LEVEL_HANDED,
    "sent": LEVEL_SENT,
    "received": LEVEL_RECEIVED,
    "cached": LEVEL_CACHED,
    "flushed": LEVEL_FLUSHED,
}
"""replicationPolicy's word -> level."""


class Condition(Struct, frozen=True):
    """`count` of the peers whose bit (1 << slot) is set in `peers` have the byte at `level`."""

    peers: int
    count: int
    level: int


class Requirement(Struct, frozen=True):
    """All conditions together. Without a condition, every byte meets it."""

    conditions: tuple[Condition, ...] = ()

    def __post_init__(self) -> None:
        if len(self.conditions) > CONDITIONS_MAX:
            raise ValueError(f"{len(self.conditions)} conditions, at most {CONDITIONS_MAX}")


class PeerOffsets(Struct):
    """The row of one slot of the table. transfer: its state is TRANSFER. level: of its reports."""

    transfer: bool = False
    counts: bool = False
    level: int = LEVEL_CACHED
    sent_offset: int = 0
    received_offset: int = 0
    reported_offset: int = 0

    def at_level(self, level: int, append_offset: int) -> int | None:
        """Its offset at a level. None if it does not count there."""
        if not (self.transfer and self.counts):
            return None
        if level <= LEVEL_HANDED:
            return append_offset
        if level == LEVEL_SENT:
            return self.sent_offset
        if level == LEVEL_RECEIVED:
            return self.received_offset
        return self.reported_offset if self.level >= level else None


def watermark(requirement: Requirement, peers: Sequence[PeerOffsets], append_offset: int) -> int:
    """The offset below which every byte meets the requirement. 0 if the live peers cannot meet a condition."""
    lowest = append_offset
    for condition in requirement.conditions:
        if condition.count <= 0:
            continue
        chosen = (peer for slot, peer in enumerate(peers) if condition.peers >> slot & 1)
        offsets = [peer.at_level(condition.level, append_offset) for peer in chosen]
        known = sorted((offset for offset in offsets if offset is not None), reverse=True)
        lowest = min(lowest, known[condition.count - 1] if len(known) >= condition.count else 0)
    return lowest
