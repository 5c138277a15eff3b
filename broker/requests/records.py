"""Decodes a record of an inbox: its request, and its connection."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

from ringmq.broker.requests.request import Connection, Request
from ringmq.ipc.asks import Ask
from ringmq.remoting.command import decode_payload
from ringmq.remoting.errors import RemotingError

HOSTS_MAX = 4096


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


def request_of(record: Ask, connection: Connection, now_ms: int) -> Request:
    """The request in a cold frame. A send's frame ends after its header, but the length of its body is known."""
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
    )
