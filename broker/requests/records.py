"""Decodes a record of an inbox: its request, and its connection."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Any

from ringmq.broker.requests.request import Connection, Request
from ringmq.ipc.asks import Ask
from ringmq.ipc.held_polls import first_ask
from ringmq.native import ffi, lib
from ringmq.remoting.command import FLAG_ONEWAY, RemotingCommand, SerializeType, decode_payload
from ringmq.remoting.errors import RemotingError

HOSTS_MAX = 4096
_ENCODINGS = {
    lib.RMQ_SERIALISE_JSON: SerializeType.JSON,
    lib.RMQ_SERIALISE_BINARY: SerializeType.ROCKETMQ,
}


@lru_cache(HOSTS_MAX)
def host_text(host: bytes) -> str:
    """The text of an address of 4 or 16 bytes."""
    return str(ipaddress.ip_address(host))


def connection_of(record: Ask, reader: int) -> Connection:
    """The connection of a record of a read worker."""
    return Connection(
        reader,
        record.role_generation,
        record.connection,
        record.connection_generation,
        host_text(record.peer_host),
        record.peer_port,
        record.listener == 1,
    )


def request_of(record: Ask, connection: Connection, now_ms: int, *, keeps_ask: bool = False) -> Request:
    """The request in a cold frame. A send's frame ends after its header, but the length of its body is known.

    `keeps_ask`: the request keeps the bytes of the frame.
    """
    record, held_until_ns = first_ask(record)
    view = memoryview(record.payload)
    if len(view) < 8:
        raise RemotingError(f"cold frame of {len(view)} bytes", field="frame length")
    header_length = int.from_bytes(view[5:8], "big")
    command = decode_payload(view[4:])
    body_length = max(0, record.frame_length - 8 - header_length)
    return Request(
        command,
        connection,
        now_ms,
        record.pending,
        body_length,
        received_mono_ns=record.received_mono_ns,
        frame_bytes=record.frame_length,
        ask=record.payload if keeps_ask else b"",
        held_until_ns=held_until_ns or 0,
    )


def plain_request(ask: Any, asked: Any, reader: int, now_ms: int) -> Request:
    """The request of a struct rmq_inbox_record that C has taken, with what an answer needs (a struct rmq_plain_asked).

    It has no fields: its record has them.
    """
    connection = Connection(
        reader,
        ask.role_generation,
        ask.connection,
        ask.connection_generation,
        host_text(bytes(ffi.buffer(ask.peer_host, 16 if ask.peer_v6 else 4))),
        ask.peer_port,
        ask.listener == 1,
    )
    command = RemotingCommand(
        asked.code,
        asked.opaque,
        FLAG_ONEWAY if asked.is_oneway else 0,
        serialize_type=_ENCODINGS[asked.serialise],
    )
    return Request(
        command,
        connection,
        now_ms,
        ask.pending,
        received_mono_ns=ask.received_mono_ns,
        frame_bytes=ask.frame_length,
    )


def fill_plain_request(request: Request, role: int, ask: Any, asked: Any) -> None:
    """Fill a struct rmq_inbox_record and a struct rmq_plain_asked, from which `plain_request` makes this request.
    `role`: of its read worker."""
    connection, command = request.connection, request.command
    host = ipaddress.ip_address(connection.host).packed
    ask.type, ask.role, ask.role_generation = lib.RMQ_INBOX_COLD_FRAME, role, connection.reader_generation
    ask.connection, ask.connection_generation = connection.number, connection.generation
    ask.peer_host, ask.peer_v6, ask.peer_port = host.ljust(16, b"\0"), len(host) == 16, connection.port
    ask.listener, ask.pending = int(connection.vip), request.pending
    ask.received_mono_ns, ask.frame_length = request.received_mono_ns, request.frame_bytes
    asked.code, asked.opaque, asked.is_oneway = command.code, command.opaque, command.is_oneway
    asked.serialise = command.serialize_type
