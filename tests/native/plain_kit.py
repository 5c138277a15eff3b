"""Records of an inbox with requests of clients, as C loops of services read them."""

from typing import Any

from ringmq.broker.requests.request import Connection
from ringmq.ipc.asks import Ask
from ringmq.native import ffi, lib

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
