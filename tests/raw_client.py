"""A client that can misbehave: a plain socket that sends any bytes and receives whole frames."""

import contextlib
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from ringmq.remoting.command import RemotingCommand, SerializeType, decode_payload, encode_frame
from tests.conformance.wire import send_fields, shortened

SEND, SEND_V2, SEND_BATCH, PULL = 10, 310, 320, 11
CLOSED = None


class RawClient:
    """One connection. `ask` returns the answer.

    `source`: the address that the server sees, one of this machine's (127.0.0.2).
    """

    def __init__(self, address: str, timeout_s: float = 30.0, source: str | None = None) -> None:
        host, port = address.rsplit(":", 1)
        own = None if source is None else (source, 0)
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_s, source_address=own)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self.socket.makefile("rb")
        self._timeout_s = timeout_s
        self._opaque = 0

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are. A server that has closed is noticed by `receive`."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)

    def receive(self) -> RemotingCommand | None:
        """Return the next frame, or CLOSED. Raises TimeoutError."""
        try:
            head = self._stream.read(4)
            if len(head) < 4:
                return CLOSED
            (length,) = struct.unpack(">i", head)
            return decode_payload(memoryview(self._stream.read(length)))
        except ConnectionResetError:
            return CLOSED

    def send_request(
        self, code: int, fields: Mapping[str, object], body: bytes = b"", kind: SerializeType = SerializeType.JSON
    ) -> int:
        """Send a request without waiting for its answer, and return its opaque."""
        self._opaque += 1
        ext = {name: str(value) for name, value in fields.items()}
        request = RemotingCommand.request(code, ext, body, opaque=self._opaque, serialize_type=kind)
        self.send_bytes(encode_frame(request))
        return self._opaque

    def ask(
        self, code: int, fields: Mapping[str, object], body: bytes = b"", kind: SerializeType = SerializeType.JSON
    ) -> RemotingCommand:
        """Send a request and return its answer. Notices of the server before it are passed over. Raises AssertionError
        if the server closes instead."""
        opaque = self.send_request(code, fields, body, kind)
        while (answer := self.receive()) is not CLOSED and not answer.is_response:
            pass
        assert answer is not CLOSED, f"closed instead of an answer to code {code}"
        assert answer.opaque == opaque
        return answer

    def send(
        self, topic: str, body: bytes, queue_id: int = 0, pairs: Mapping[str, str] | None = None
    ) -> RemotingCommand:
        """An ordinary send (310)."""
        return self.ask(SEND_V2, shortened(send_fields(topic, queue_id, pairs or {})), body)

    def pull(self, topic: str, queue_id: int = 0, offset: int = 0, **more: object) -> RemotingCommand:
        """An ordinary pull (11) that is not held."""
        return self.ask(PULL, pull_fields(topic, queue_id, offset, **more))

    def is_open(self) -> bool:
        """Return True unless the server has closed. Does not wait."""
        self.socket.setblocking(False)
        try:
            return self.socket.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except ConnectionResetError:
            return False
        finally:
            self.socket.settimeout(self._timeout_s)

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()
        self.socket.close()

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def pull_fields(topic: str, queue_id: int = 0, offset: int = 0, **more: object) -> dict[str, object]:
    """Header of a pull that brings its own subscription to everything and is not held."""
    fields: dict[str, object] = {
        "consumerGroup": "raw_group", "topic": topic, "queueId": queue_id, "queueOffset": offset, "maxMsgNums": 32,
        "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
        "expressionType": "TAG",
    }  # fmt: skip
    return fields | more


def private_bytes(pids: list[int]) -> int:
    """Anonymous memory of these processes, and the shared segments that they have touched, counted once."""
    total = shared = 0
    for pid in pids:
        with Path(f"/proc/{pid}/status").open() as file:
            sizes = {
                line.split(":")[0]: int(line.split()[1]) for line in file if line.startswith(("RssAnon", "RssShm"))
            }
        total += sizes["RssAnon"] << 10
        shared = max(shared, sizes["RssShmem"] << 10)
    return total + shared
