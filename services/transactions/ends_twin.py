"""Twins of the rules by which C ends transactions: native/src/services/transaction_ends.h and named_halves.h."""

from __future__ import annotations

from ringmq.native import lib
from ringmq.remoting import properties
from ringmq.services.transactions import records
from ringmq.services.transactions.ends import Arrival, End

READY, WAITS = 0, -1


def readiness(end: End, halves: Arrival) -> int:
    """READY, WAITS, or the reason why Python gets the end. No field makes it wait for a half that never arrives."""
    if end.position >= halves.append_end:
        return int(lib.RMQ_END_MISSING)
    if end.position >= halves.dispatched:
        return WAITS
    if not halves.arrived <= end.queue_offset < halves.end:
        return READY
    return int(lib.RMQ_END_FULL) if halves.is_full else WAITS


def judge(end: End, data: bytes | memoryview) -> int | None:
    """Half-queue offset of the first half of the transaction whose end names the record in `data`. None if the end is
    not sound."""
    record = records.half_at(data, end.position)
    if record is None or record.queue_offset != end.queue_offset:
        return None
    pieces = (piece.partition(b"\x01") for piece in record.properties_raw.split(b"\x02"))
    pairs = {name: value for name, _, value in pieces if name and value}
    group = pairs.get(properties.PGROUP.encode())
    if (
        group is None
        or group != end.producer_group.encode()
        or properties.CHECK_IMMUNITY_TIME_IN_SECONDS.encode() in pairs
    ):
        return None
    return records.first_of(record)
