"""One blocking connection to any RocketMQ broker or name server, for the steps around a measurement.

It encodes and decodes its frames itself, so that a fault in the codec under test does not hide itself.
"""

import itertools
import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

GET_BROKER_HA_STATUS = 907
GET_BROKER_CLUSTER_INFO = 106
SUCCESS = 0


@dataclass(frozen=True)
class Reply:
    """An answer. `fields` are its ext fields."""

    opaque: int
    code: int
    remark: str
    fields: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)


def _json_header(head: bytes, body: bytes) -> tuple[bool, Reply]:
    values = json.loads(head)
    fields = values.get("extFields") or {}
    reply = Reply(values["opaque"], values["code"], values.get("remark") or "", fields, body)
    return bool(values["flag"] & 1), reply


def _binary_header(head: bytes, body: bytes) -> tuple[bool, Reply]:
    """Decode code i16, language u8, version i16, opaque i32, flag i32, remark (i32 length) and fields (i32 length)."""
    code, _, _, opaque, flag, remark_length = struct.unpack_from(">hBhiii", head)
    at = 17 + remark_length
    remark = head[17:at].decode()
    fields = {}
    at += 4
    while at < len(head):
        (length,) = struct.unpack_from(">h", head, at)
        name = head[at + 2 : at + 2 + length].decode()
        at += 2 + length
        (length,) = struct.unpack_from(">i", head, at)
        fields[name] = head[at + 4 : at + 4 + length].decode()
        at += 4 + length
    return bool(flag & 1), Reply(opaque, code, remark, fields, body)


class Remote:
    """Requests with JSON headers, any number of them in flight."""

    def __init__(self, port: int, host: str = "127.0.0.1", timeout_s: float = 5.0) -> None:
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb")
        self._opaques = itertools.count(1)

    def send(self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"") -> int:
        """Send a request and return its opaque."""
        opaque = next(self._opaques)
        head: dict[str, object] = {"code": code, "flag": 0, "language": "JAVA", "opaque": opaque, "version": 479}
        head["serializeTypeCurrentRPC"] = "JSON"
        head["extFields"] = {name: str(value) for name, value in (fields or {}).items()}
        header = json.dumps(head).encode()
        self._socket.sendall(struct.pack(">iI", 4 + len(header) + len(body), len(header)) + header + body)
        return opaque

    def receive(self) -> Reply:
        """Return the next answer. Raises TimeoutError, and ConnectionError if the peer has closed."""
        while True:
            length, header_length = struct.unpack(">iI", self._exactly(8))
            frame = self._exactly(length - 4)
            decode = _binary_header if header_length >> 24 else _json_header
            head, body = frame[: header_length & 0xFFFFFF], frame[header_length & 0xFFFFFF :]
            is_answer, reply = decode(head, body)
            if is_answer:  # else a request of the server, such as a rebalance notice
                return reply

    def _exactly(self, size: int) -> bytes:
        data = self._stream.read(size)
        if data is None or len(data) < size:
            raise ConnectionError("the server closed the connection")
        return data

    def ask(self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"") -> Reply:
        """Send a request and wait for its answer."""
        opaque = self.send(code, fields, body)
        while True:
            reply = self.receive()
            if reply.opaque == opaque:
                return reply

    def close(self) -> None:
        """End the connection."""
        self._stream.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
