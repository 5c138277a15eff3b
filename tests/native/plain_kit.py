"""Requests of clients as C loops of services read them: frames, asks, tables, and both decoders."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from ringmq.broker.requests.request import Connection
from ringmq.ipc.asks import Ask
from ringmq.ipc.plain_requests import Field, Record, Table
from ringmq.native import ffi, lib
from ringmq.remoting.command import decode_payload
from ringmq.remoting.errors import RequestError

HOST = Connection(1, 3, 5, 6, "10.0.0.7", 5555)
TEXTS = (
    "0", "7", "-1", "007", "+7", " 7", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "1_0",
    "", "x", "8", "12", "true", "TRUE", "truE", "\u0130rue", "g\xe9", "a\\b", 'a"b', "\x7f", "G" * 255, "G" * 256,
    "\u0663", "2147483648", "0" * 20, "0" * 19,
)  # fmt: skip


def ask(frame: bytes, kind: int = lib.RMQ_INBOX_COLD_FRAME) -> Ask:
    return Ask(kind, 11, 3, 5, 6, 77, len(frame), bytes([10, 0, 0, 7]), 5555, 0, 123_456, frame)


def record_of(of: Ask) -> Any:
    """The struct rmq_inbox_record with its payload."""
    size = ffi.sizeof("struct rmq_inbox_record")
    kept = ffi.new("uint64_t[]", (size + len(of.payload)) // 8 + 1)
    record = ffi.cast("struct rmq_inbox_record *", kept)
    fill(record, of)
    record.length = size + len(of.payload)
    ffi.memmove(ffi.cast("char *", kept) + size, of.payload, len(of.payload))
    return record, kept


def fill(head: Any, of: Ask) -> None:
    head.type, head.role, head.role_generation, head.pending = of.type, of.role, of.role_generation, of.pending
    head.connection, head.connection_generation, head.frame_length = (
        of.connection, of.connection_generation, of.frame_length,
    )  # fmt: skip
    head.peer_port, head.received_mono_ns = of.peer_port, of.received_mono_ns
    ffi.memmove(head.peer_host, of.peer_host, len(of.peer_host))


class Asked(NamedTuple):
    """A struct rmq_plain_asked."""

    code: int
    opaque: int
    serialise: int
    is_oneway: bool


_SIZES = {
    lib.RMQ_FIELD_INT64: 8, lib.RMQ_FIELD_INT32: 4, lib.RMQ_FIELD_CHOICE: 4, lib.RMQ_FIELD_BOOL: 4,
    lib.RMQ_FIELD_TEXT: 4, lib.RMQ_FIELD_UNKEPT: 0,
}  # fmt: skip


def made_table(header: str, code: int, rows: Sequence[tuple[str, int, bool, int]]) -> tuple[Table, Any]:
    """A table of fields (name, type, required, limit) in Python and in C. The record has them in the order of their
    sizes."""
    at, places = 8, {}
    for name, kind, _, _ in sorted(rows, key=lambda row: -_SIZES[row[1]]):
        places[name] = at if kind != lib.RMQ_FIELD_UNKEPT else 0
        at += _SIZES[kind]
    fields = tuple(Field(name, kind, places[name], required, limit) for name, kind, required, limit in rows)
    table = Table(header, code, -(-at // 8) * 8, fields)
    native = ffi.new("struct rmq_plain_table *")
    names = [ffi.new("char[]", text.encode()) for text in (header, *(field.name for field in fields))]
    _KEPT.append(names)
    native.header, native.code, native.record_bytes, native.field_count = names[0], code, table.record_bytes, len(rows)
    native.text_bytes_max = sum(field.limit for field in fields if field.type == lib.RMQ_FIELD_TEXT)
    for number, (row, field, text) in enumerate(zip(native.fields, fields, names[1:], strict=False)):
        native.lengths[number], row.name, row.at, row.type = len(field.name), text, field.at, field.type
        row.required, row.limit = field.required, field.limit
    return table, native


_KEPT: list[Any] = []
"""Memory of the tables that tests make."""


def twin(table: Table, frame: bytes) -> tuple[Asked, Record]:
    """What Python reads. Raises RemotingError, RequestError among them."""
    command = decode_payload(memoryview(frame)[4:])
    record = table.decode(command.ext_fields, command.version)
    return Asked(command.code, command.opaque, int(command.serialize_type), command.is_oneway), record


def native(table: Any, frame: bytes) -> tuple[int, Asked, Record]:
    """What C reads, in memory of exactly its size: the result, and what it has filled."""
    asked, record = ffi.new("struct rmq_plain_asked *"), ffi.new("uint64_t[]", table.record_bytes // 8)
    text = ffi.new("uint8_t[]", max(1, table.text_bytes_max))
    result = int(lib.rmq_plain_decode(ffi.addressof(table), ffi.from_buffer(frame), len(frame), asked, record, text))
    head = ffi.cast("struct rmq_plain_head *", record)
    read = Record(b"", b"")
    if result == lib.RMQ_PLAIN_READ:
        assert head.text_bytes <= table.text_bytes_max
        read = Record(bytes(ffi.buffer(record)), bytes(ffi.buffer(text, head.text_bytes)))
    return result, Asked(asked.code, asked.opaque, asked.serialise, bool(asked.is_oneway)), read


READ, ODD = "read", "odd"


def both(table: Table, of: Any, frame: bytes) -> str:
    """READ, ODD or the name of the refused field. Python reads what C reads, and refuses the same field."""
    result, asked, record = native(of, frame)
    if result == lib.RMQ_PLAIN_ODD:
        return ODD
    if result == lib.RMQ_PLAIN_READ:
        assert (asked, record) == twin(table, frame)
        return READ
    with pytest.raises(RequestError) as refused:
        twin(table, frame)
    assert refused.value.field == table.fields[-1 - result].name
    return refused.value.field
