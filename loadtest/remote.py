"""One blocking connection to any RocketMQ broker or name server, for what surrounds a measurement.

It builds its frames itself: a judge must not lean on the codec of the judged.
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
    """An answer: `fields` are its ext fields."""

    opaque: int
    code: int
    remark: str
    fields: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class Remote:
    """Requests with JSON headers, as many on their way as the caller likes."""

    def __init__(self, port: int, host: str = "127.0.0.1", timeout_s: float = 5.0) -> None:
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb")
        self._opaques = itertools.count(1)

    def send(self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"") -> int:
        """Send a request; its opaque."""
        opaque = next(self._opaques)
        head: dict[str, object] = {"code": code, "flag": 0, "language": "JAVA", "opaque": opaque, "version": 479}
        head["serializeTypeCurrentRPC"] = "JSON"
        head["extFields"] = {name: str(value) for name, value in (fields or {}).items()}
        header = json.dumps(head).encode()
        self._socket.sendall(struct.pack(">iI", 4 + len(header) + len(body), len(header)) + header + body)
        return opaque

    def receive(self) -> Reply:
        """The next answer. TimeoutError when none comes in time, ConnectionError when the other side has closed."""
        while True:
            length, header_length = struct.unpack(">iI", self._exactly(8))
            frame = self._exactly(length - 4)
            head = json.loads(frame[: header_length & 0xFFFFFF])
            if head["flag"] & 1:  # else a request of the server, such as a rebalance notice
                fields = head.get("extFields") or {}
                body = frame[header_length & 0xFFFFFF :]
                return Reply(head["opaque"], head["code"], head.get("remark") or "", fields, body)

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
