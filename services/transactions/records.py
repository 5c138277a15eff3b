"""The records of transactions: half messages, op records, and the marks by which a start finds what was done.

| Record | Prepared transaction offset |
|---|---|
| half message of a producer | 0 |
| copy of a half message | the mark of its lane HALF_LANE with the offset of the first half |
| copy in TRANS_CHECK_MAX_TIME_TOPIC | the same in EXPIRED_LANE |
| op record | the mark of OP_LANE: every half below this half-queue offset has ended, or has a newer copy |
| op record while others are missing (`repairs`) | the mark of REPAIR_LANE with 0 |
| committed message | position of the half in the log, as of stock |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from ringmq.ipc.ports import mark_of, parts_of_mark
from ringmq.native import lib
from ringmq.remoting import properties as names
from ringmq.services.transactions.half_table import NO_IMMUNITY, Half
from ringmq.store import layout
from ringmq.store.record import Record, parse_record
from ringmq.store.record_copy import EditKind, From, PairEdit, RecordCopy

ROLE: int = lib.RMQ_ROLE_TRANSACTIONS
HALF_LANE, OP_LANE, EXPIRED_LANE, REPAIR_LANE = range(4)
GROUP = "CID_RMQ_SYS_TRANS"
"""The group under which stock keeps the progress of the half queue and the op queue."""
OP_PROPERTIES = b"WAIT\x01true\x02TAGS\x01d\x02"
"""In the order of stock, that of a HashMap."""
CHECK_EDITS = (PairEdit(EditKind.ADD, names.TRANSACTION_CHECK_TIMES.encode(), 1),)
RENEW_EDITS = (PairEdit(EditKind.DEFAULT, b"TRAN_PREPARED_QUEUE_OFFSET", From.QUEUE_OFFSET),)


class HalfRecord(Struct, frozen=True):
    """A stored half message."""

    half: Half
    position: int
    is_stock_copy: bool
    """True if a stock broker has copied it for a check, so its first half is not known."""
    origin: int
    """See `origin_of`."""


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 19 else None


def first_of(record: Record) -> int:
    """The offset of the first half of which this record is a copy, or is itself."""
    return first_of_mark(record.prepared_transaction_offset, record.queue_offset)


def first_of_mark(mark: int, queue_offset: int) -> int:
    """`first_of` a record with this prepared transaction offset and this queue offset. A mark that names a later half
    is damaged, and counts as none."""
    role, lane, first = parts_of_mark(mark)
    return first if (role, lane) == (ROLE, HALF_LANE) and first <= queue_offset else queue_offset


def immunity_of(pairs: Mapping[str, str]) -> int:
    """CHECK_IMMUNITY_TIME_IN_SECONDS of a half message. NO_IMMUNITY if it has none, or no number."""
    immunity_s = _number(pairs.get(names.CHECK_IMMUNITY_TIME_IN_SECONDS))
    return NO_IMMUNITY if immunity_s is None else immunity_s


def half_record(record: Record) -> HalfRecord:
    """Read a record of the half queue."""
    pairs = record.properties
    first, checks = first_of(record), _number(pairs.get(names.TRANSACTION_CHECK_TIMES)) or 0
    half = Half(first, record.queue_offset, record.born_time_ms, immunity_of(pairs), checks)
    is_copy = checks > 0 or "TRAN_PREPARED_QUEUE_OFFSET" in pairs
    is_stock_copy = is_copy and not record.prepared_transaction_offset
    return HalfRecord(half, record.physical_offset, is_stock_copy, origin_of(record))


def origin_of(record: Record) -> int:
    """A hash of the parts that copies of a stock broker share with their half. Clients choose UNIQ_KEY and may leave it
    out, so it names no half alone. The hash is that of this process. A million of the parts would take 450 MB."""
    pairs = record.properties
    own = pairs.get(names.PGROUP), pairs.get(names.UNIQ_KEY)
    return hash((record.born_time_ms, record.born_host, record.body_crc, *own))


def half_at(data: bytes | memoryview, position: int, *, with_body: bool = True) -> Record | None:
    """The half message at this position of the log. None if there is none. `with_body`: see `parse_record`."""
    _, record = parse_record(data, with_body=with_body)
    if record is None or record.physical_offset != position or record.topic != layout.HALF_TOPIC:
        return None
    return record


def half_of_commit(read: Callable[[int], bytes | memoryview | None], position: int, commit: int) -> Record | None:
    """The half message at this position of the log, if the record at `commit` is its committed message.

    `read`: the bytes at a position. Copies of committed messages have the bits of a commit and name no half, so 0 means
    the half at the begin of the log only if born time and body are those of that half.
    """
    data = read(position)
    half = None if data is None else half_at(data, position)
    if half is None or position:
        return half
    copied = read(commit)
    record = None if copied is None else parse_record(copied)[1]
    is_its = record and (record.born_time_ms, record.body_crc) == (half.born_time_ms, half.body_crc)
    return half if is_its else None


def op_body(offsets: Sequence[int]) -> bytes:
    """The body of an op record that lists half-queue offsets."""
    return b"".join(b"%d," % offset for offset in offsets)


def offsets_of_op(body: bytes) -> list[int]:
    """The half-queue offsets that an op record lists. Other pieces of its body are passed over."""
    found = (_number(piece) for piece in body.decode("ascii", "replace").split(","))
    return [offset for offset in found if offset is not None]


def op_mark(low: int | None) -> int:
    """The mark of an op record: no open half has a newest copy below this half-queue offset. None: op records are
    missing before this one."""
    return mark_of(ROLE, REPAIR_LANE, 0) if low is None else mark_of(ROLE, OP_LANE, low)


def is_repair(record: Record) -> bool:
    """True for an op record of this project without a low offset."""
    return parts_of_mark(record.prepared_transaction_offset)[:2] == (ROLE, REPAIR_LANE)


def low_of_op(record: Record) -> int | None:
    """The offset of `op_mark`. None if a stock broker has written the op record, or if it has no such offset."""
    role, lane, low = parts_of_mark(record.prepared_transaction_offset)
    return low if (role, lane) == (ROLE, OP_LANE) else None


def commit_copy(data: bytes | memoryview, position: int, target: tuple[int, int, int]) -> RecordCopy:
    """The committed message. `target`: topic id, queue slot, queue id."""
    topic_id, queue_slot, queue_id = target
    return RecordCopy(
        data, topic_id, queue_slot, queue_id, position=position, sys_flag_clear=layout.TRANSACTION_MASK,
        sys_flag_set=layout.TRANSACTION_COMMIT, prepared_transaction_offset=position,
    )  # fmt: skip


def half_copy(data: bytes | memoryview, first: int, target: tuple[int, int, int], *, is_check: bool) -> RecordCopy:
    """The copy of a half at the end of the half queue."""
    topic_id, queue_slot, queue_id = target
    return RecordCopy(
        data, topic_id, queue_slot, queue_id, CHECK_EDITS if is_check else RENEW_EDITS, flag=0, reconsume_times=0,
        prepared_transaction_offset=mark_of(ROLE, HALF_LANE, first),
    )  # fmt: skip


def expired_copy(data: bytes | memoryview, first: int, target: tuple[int, int, int]) -> RecordCopy:
    """The copy in TRANS_CHECK_MAX_TIME_TOPIC."""
    topic_id, queue_slot, queue_id = target
    mark = mark_of(ROLE, EXPIRED_LANE, first)
    return RecordCopy(data, topic_id, queue_slot, queue_id, prepared_transaction_offset=mark)
