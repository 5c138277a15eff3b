"""Requests that end a transaction (37): what they name, and why they are refused, as `EndTransactionProcessor` of stock
does."""

from __future__ import annotations

from typing import Any, NamedTuple

from ringmq.ipc.plain_requests import Record as PlainRecord
from ringmq.ipc.plain_requests import Table, text_at, texts_of
from ringmq.native import ffi, lib
from ringmq.remoting import properties
from ringmq.remoting.codes import ResponseCode
from ringmq.services.transactions.half_table import NO_IMMUNITY
from ringmq.services.transactions.records import immunity_of
from ringmq.store.record import Record

UNKNOWN, COMMIT, ROLLBACK = 0, 8, 12
TABLE = Table.of(lib.rmq_end_table)
_FIELDS = ffi.typeof("struct rmq_end_fields *")
NOT_FOUND = "Find prepared transaction message failed"


class End(NamedTuple):
    """A request 37."""

    producer_group: str
    queue_offset: int
    """tranStateTableOffset."""
    position: int
    """commitLogOffset."""
    decision: int
    """commitOrRollback: UNKNOWN, COMMIT or ROLLBACK."""
    is_from_check: bool = False


class Arrival(NamedTuple):
    """The halves that have arrived (struct rmq_half_marks). `dispatched` is read before `end`."""

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


def end_of_row(row: Any) -> End:
    """The end in a struct rmq_plain_end."""
    return _end_of(row.fields, texts_of(row))


def end_of(record: PlainRecord) -> End:
    """The end in a record of TABLE."""
    return _end_of(ffi.from_buffer(_FIELDS, record.data), record.text)


def _end_of(fields: Any, texts: bytes) -> End:
    return End(
        text_at(fields.group, texts), fields.queue_offset, fields.position, fields.commit_or_rollback,
        bool(fields.from_check),
    )  # fmt: skip


def refusal(end: End, half: Record | None, timeout_ms: int, now_ms: int) -> tuple[int, str] | None:
    """(code, remark) of an end that is refused. `half`: the half message at its position, None if there is none."""
    if half is None:
        return ResponseCode.SYSTEM_ERROR, NOT_FOUND
    pairs = half.properties
    immunity_s = immunity_of(pairs)
    if immunity_s != NO_IMMUNITY and not end.is_from_check:
        immunity_ms = max(timeout_ms, immunity_s * 1000)
        if now_ms - half.born_time_ms > immunity_ms:
            remark = f"the message is {now_ms - half.born_time_ms} ms old, its immunity of {immunity_ms} ms is over:"
            return ResponseCode.ILLEGAL_OPERATION, f"{remark} only the answer to a check may end it"
    if pairs.get(properties.PGROUP) != end.producer_group:
        return ResponseCode.SYSTEM_ERROR, "The producer group wrong"
    if half.queue_offset != end.queue_offset:
        return ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong"
    return None
