"""Messages that publish stored records again, in Python: the same rule as `native/src/services/record_copy.c`.

Data describe a copy: its target, edits of its pairs, its counters, flags and born host. `record_copy.h` explains the
edits. The services run the C loop. The simulation and the tests run this one.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum

from msgspec import Struct

from ringmq.store import layout
from ringmq.store import record as records
from ringmq.store.record_numbers import small_number

PROPERTIES_BYTES_MAX = 32767
EDITS_MAX = 32
_NUL, _SPLIT, _END = b"\x00", b"\x01", b"\x02"


class EditKind(IntEnum):
    """The effect of an edit on the pairs with its name."""

    REMOVE = 1
    RENAME = 2
    SET = 3
    DEFAULT = 4
    ADD = 5


class From(IntEnum):
    """Values that SET and DEFAULT take from the stored record."""

    TOPIC = 2
    QUEUE_ID = 3
    QUEUE_OFFSET = 4
    MESSAGE_ID = 5


class Cause(IntEnum):
    """Reason why a copy was not made, RMQ_COPY_* of the C core."""

    DAMAGED = 1
    PLACE = 2
    INNER_BATCH = 3
    BODY = 4
    NUL = 5
    TOPIC = 6
    PROPERTIES = 7
    EDIT = 8
    NO_PAIR = 9
    NO_TOPIC = 10
    NO_QUEUE = 11


class PairEdit(Struct, frozen=True):
    """One edit. ADD has a number, RENAME the new name, REMOVE nothing."""

    kind: EditKind
    name: bytes
    value: bytes | int | From = b""


class RecordCopy(Struct, frozen=True):
    """One copy of the record at the start of `data`. A field of None keeps the record's value."""

    data: bytes | memoryview
    topic_id: int = 0
    queue_slot: int = 0
    queue_id: int = 0
    edits: tuple[PairEdit, ...] = ()
    position: int | None = None
    """Offset of the record in the commit log."""
    check_crc: bool = False
    no_wait: bool = False
    sys_flag_clear: int = 0
    sys_flag_set: int = 0
    flag: int | None = None
    reconsume_times: int | None = None
    reconsume_times_added: int = 0
    """Number that is added to the record's count if `reconsume_times` is None."""
    born_time_ms: int | None = None
    born_host: tuple[bytes, int] | None = None
    """Address of 4 or 16 bytes, and the port."""
    prepared_transaction_offset: int = 0
    """Position of the half message in a commit, else a mark or 0. The record's own value is never copied."""
    no_target: "CopyRefused | None" = None
    """The reason why there is no queue for the copy (`copy_targets`)."""


class CopyLimits(Struct, frozen=True):
    """Bounds of the content of a copy, which grows no more when it is written."""

    body_bytes_max: int
    properties_bytes_max: int = PROPERTIES_BYTES_MAX


class CopiedRequest(Struct, frozen=True):
    """The request, with the bytes to which it points."""

    body: bytes
    properties: bytes
    topic_id: int
    queue_slot: int
    queue_id: int
    flag: int
    sys_flag: int
    """Flags without the bits of the hosts, which `write` sets."""
    reconsume_times: int
    prepared_transaction_offset: int
    born_time_ms: int
    born_host: bytes
    born_port: int
    no_wait: bool

    @property
    def bytes_needed(self) -> int:
        """Bytes in the arena: the body, then the properties."""
        return len(self.body) + len(self.properties)


class CopyRefused(Struct, frozen=True):
    """No copy of this record can be made. RMQ_COPY_* in `record_copy.h` explains `detail`."""

    cause: Cause
    detail: int = 0


class _RefusedError(Exception):
    def __init__(self, cause: Cause, detail: int = 0) -> None:
        super().__init__(cause, detail)
        self.refused = CopyRefused(cause, detail)


def copy_record(copy: RecordCopy, limits: CopyLimits) -> CopiedRequest | CopyRefused:
    """Make one copy."""
    try:
        _check_edits(copy.edits)
        record = _stored(copy, limits)
        properties = _edited(copy, record)
    except _RefusedError as error:
        return error.refused
    if len(properties) > min(limits.properties_bytes_max, PROPERTIES_BYTES_MAX):
        return CopyRefused(Cause.PROPERTIES, len(properties))
    born_host, born_port = copy.born_host or _born_host(copy.data, record)
    reconsume_times = copy.reconsume_times
    if reconsume_times is None:
        reconsume_times = _signed(record.reconsume_times + copy.reconsume_times_added, 32)
    return CopiedRequest(
        body=record.body,
        properties=properties,
        topic_id=copy.topic_id,
        queue_slot=copy.queue_slot,
        queue_id=copy.queue_id,
        flag=record.flag if copy.flag is None else copy.flag,
        sys_flag=_sys_flag(copy, record) & ~(layout.BORN_HOST_V6 | layout.STORE_HOST_V6),
        reconsume_times=reconsume_times,
        prepared_transaction_offset=copy.prepared_transaction_offset,
        born_time_ms=record.born_time_ms if copy.born_time_ms is None else copy.born_time_ms,
        born_host=born_host,
        born_port=born_port,
        no_wait=copy.no_wait,
    )


def _signed(number: int, bits: int) -> int:
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number


def _sys_flag(copy: RecordCopy, record: records.Record) -> int:
    return _signed(record.sys_flag & ~copy.sys_flag_clear | copy.sys_flag_set, 32)


def _stored(copy: RecordCopy, limits: CopyLimits) -> records.Record:
    result, record = records.parse_record(copy.data, check_crc=False)
    if record is None:
        raise _RefusedError(Cause.DAMAGED, result)
    if copy.no_target is not None:
        raise _RefusedError(copy.no_target.cause, copy.no_target.detail)
    if copy.position is not None and copy.position != record.physical_offset:
        raise _RefusedError(Cause.PLACE, record.physical_offset)
    if (record.sys_flag | _sys_flag(copy, record)) & layout.INNER_BATCH:
        raise _RefusedError(Cause.INNER_BATCH)
    if len(record.body) > limits.body_bytes_max:
        raise _RefusedError(Cause.BODY, len(record.body))
    if copy.check_crc and record.body and records.crc32(record.body) != record.body_crc:
        raise _RefusedError(Cause.DAMAGED, records.BAD_CRC)
    return record


def _host_bytes(data: bytes | memoryview, at: int, is_v6: int) -> bytes:
    return bytes(data[at : at + (20 if is_v6 else 8)])


def _born_host(data: bytes | memoryview, record: records.Record) -> tuple[bytes, int]:
    raw = _host_bytes(data, 48, record.sys_flag & layout.BORN_HOST_V6)
    return raw[:-4], int.from_bytes(raw[-4:], "big")


# -- pairs -------------------------------------------------------------------------------------------------


def _check_edits(edits: Sequence[PairEdit]) -> None:
    if len(edits) > EDITS_MAX:
        raise _RefusedError(Cause.EDIT, EDITS_MAX)
    names: set[bytes] = set()
    for number, edit in enumerate(edits):
        if edit.name in names or not _is_name(edit.name) or not _has_sound_value(edit):
            raise _RefusedError(Cause.EDIT, number)
        names.add(edit.name)


def _is_value(text: object) -> bool:
    return isinstance(text, bytes) and bool(text) and _NUL not in text and _END not in text


def _is_name(text: object) -> bool:
    return _is_value(text) and isinstance(text, bytes) and _SPLIT not in text


def _has_sound_value(edit: PairEdit) -> bool:
    match edit.kind:
        case EditKind.REMOVE:
            return True
        case EditKind.RENAME:
            return _is_name(edit.value)
        case EditKind.ADD:
            return isinstance(edit.value, int)
    return isinstance(edit.value, int) or _is_value(edit.value)


def _edited(copy: RecordCopy, record: records.Record) -> bytes:
    edits = {edit.name: edit for edit in copy.edits}
    kept = bytearray()
    values: dict[bytes, bytes] = {}
    at = 0
    for piece in record.properties_raw.split(_END):
        if _NUL in piece:
            raise _RefusedError(Cause.NUL, at + piece.index(_NUL))
        at += len(piece) + 1
        name, split, value = piece.partition(_SPLIT)
        if not (name and split and value):
            continue
        edit = edits.get(name)
        values[name] = value
        if edit is None or edit.kind == EditKind.DEFAULT:
            kept += piece + _END
        elif edit.kind == EditKind.RENAME and isinstance(edit.value, bytes):
            kept += edit.value + _SPLIT + value + _END
    for edit in copy.edits:
        appended = _appended(edit, values.get(edit.name), copy, record)
        if appended is not None:
            kept += edit.name + _SPLIT + appended + _END
    return bytes(kept)


def _appended(edit: PairEdit, stored: bytes | None, copy: RecordCopy, record: records.Record) -> bytes | None:
    match edit.kind:
        case EditKind.ADD:
            assert isinstance(edit.value, int)
            counted = small_number(stored.decode("latin-1")) if stored is not None else 0
            return str(_signed(counted + edit.value, 64)).encode()
        case EditKind.SET:
            return _value(edit, copy, record)
        case EditKind.DEFAULT if stored is None:
            return _value(edit, copy, record)
    return None


def _value(edit: PairEdit, copy: RecordCopy, record: records.Record) -> bytes:
    if isinstance(edit.value, From):
        return _FROM[edit.value](copy, record)
    return str(edit.value).encode() if isinstance(edit.value, int) else edit.value


def _topic(_copy: RecordCopy, record: records.Record) -> bytes:
    if not _is_value(record.topic_raw):
        raise _RefusedError(Cause.TOPIC)
    return record.topic_raw


def _message_id(copy: RecordCopy, record: records.Record) -> bytes:
    born_bytes = 20 if record.sys_flag & layout.BORN_HOST_V6 else 8
    host = _host_bytes(copy.data, 48 + born_bytes + 8, record.sys_flag & layout.STORE_HOST_V6)
    return (host + record.physical_offset.to_bytes(8, "big", signed=True)).hex().upper().encode()


_FROM: dict[From, Callable[[RecordCopy, records.Record], bytes]] = {
    From.TOPIC: _topic,
    From.QUEUE_ID: lambda _copy, record: str(record.queue_id).encode(),
    From.QUEUE_OFFSET: lambda _copy, record: str(record.queue_offset).encode(),
    From.MESSAGE_ID: _message_id,
}
