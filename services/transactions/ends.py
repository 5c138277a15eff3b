"""Requests that end a transaction (37): what they name, and why they are refused, as `EndTransactionProcessor` of stock
does."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ringmq.remoting import properties
from ringmq.remoting.client_headers import EndTransactionRequestHeader
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.errors import RequestError
from ringmq.services.transactions.half_table import NO_IMMUNITY
from ringmq.services.transactions.records import immunity_of
from ringmq.store.record import Record

UNKNOWN, COMMIT, ROLLBACK = 0, 8, 12
NOT_FOUND = "Find prepared transaction message failed"


class Readiness(Enum):
    """The next step for an end."""

    READY = "its half is looked up now"
    WAITING = "its half is in the log, and has not arrived yet"
    FULL = "its half arrives when others have ended, so the end is refused as busy"
    MISSING = "the log does not reach its half"


class Arrival(NamedTuple):
    """The halves that have arrived. `dispatched` is read before `end`."""

    append_end: int
    """End of the log."""
    dispatched: int
    """End of the part of the log that is in the queues."""
    end: int
    """End of the half queue."""
    arrived: int
    """End of the part of the half queue that has arrived."""
    is_full: bool
    """True if no more half may arrive now."""


def readiness(header: EndTransactionRequestHeader, halves: Arrival) -> Readiness:
    """The next step for this end. No field makes it wait for a half that never arrives."""
    if header.commit_log_offset >= halves.append_end:
        return Readiness.MISSING
    if header.commit_log_offset >= halves.dispatched:
        return Readiness.WAITING
    if not halves.arrived <= header.tran_state_table_offset < halves.end:
        return Readiness.READY
    return Readiness.FULL if halves.is_full else Readiness.WAITING


def read_end(ext_fields: dict[str, str]) -> EndTransactionRequestHeader:
    """Decode the header. Raises RequestError."""
    header = EndTransactionRequestHeader.decode(ext_fields)
    if header.commit_or_rollback not in (UNKNOWN, COMMIT, ROLLBACK):
        raise RequestError(
            f"commitOrRollback = {header.commit_or_rollback}, not 0 (unknown), 8 (commit) or 12 (rollback)",
            field="commitOrRollback",
            code=ResponseCode.SYSTEM_ERROR,
        )
    return header


def refusal(
    header: EndTransactionRequestHeader, half: Record | None, timeout_ms: int, now_ms: int
) -> tuple[int, str] | None:
    """(code, remark) of an end that is refused. `half`: the half message at its position, None if there is none."""
    if half is None:
        return ResponseCode.SYSTEM_ERROR, NOT_FOUND
    pairs = half.properties
    immunity_s = immunity_of(pairs)
    if immunity_s != NO_IMMUNITY and not header.from_transaction_check:
        immunity_ms = max(timeout_ms, immunity_s * 1000)
        if now_ms - half.born_time_ms > immunity_ms:
            remark = f"the message is {now_ms - half.born_time_ms} ms old, its immunity of {immunity_ms} ms is over:"
            return ResponseCode.ILLEGAL_OPERATION, f"{remark} only the answer to a check may end it"
    if pairs.get(properties.PGROUP) != header.producer_group:
        return ResponseCode.SYSTEM_ERROR, "The producer group wrong"
    if half.queue_offset != header.tran_state_table_offset:
        return ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong"
    return None
