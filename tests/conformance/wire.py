"""Raw send requests, built here from RocketMQ's names alone, so that two brokers get the very same bytes."""

import json
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

SEND_MESSAGE = 10
SEND_MESSAGE_V2 = 310
SEND_BATCH_MESSAGE = 320
BORN_TIMESTAMP = 1_700_000_000_000
# One-letter names of code 310 and 320 by the long names of code 10.
SHORT_NAMES = {
    "producerGroup": "a",
    "topic": "b",
    "defaultTopic": "c",
    "defaultTopicQueueNums": "d",
    "queueId": "e",
    "sysFlag": "f",
    "bornTimestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsumeTimes": "j",
    "unitMode": "k",
    "maxReconsumeTimes": "l",
    "batch": "m",
}


class Wire:
    """One connection to a broker; a request at a time, JSON headers."""

    def __init__(self, address: str) -> None:
        host, port = address.split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        self._stream = self._socket.makefile("rb")
        self._opaque = 0

    def request(self, code: int, ext: Mapping[str, Any], body: bytes = b"") -> dict[str, Any]:
        """Send one request and return the decoded header of its answer."""
        self._opaque += 1
        header = {"code": code, "flag": 0, "language": "JAVA", "version": 479, "opaque": self._opaque}
        packed = json.dumps({**header, "extFields": {name: str(value) for name, value in ext.items()}}).encode()
        self._socket.sendall(struct.pack(">iI", 4 + len(packed) + len(body), len(packed)) + packed + body)
        (length,) = struct.unpack(">i", self._stream.read(4))
        frame = self._stream.read(length)
        (header_length,) = struct.unpack(">I", frame[:4])
        answer: dict[str, Any] = json.loads(frame[4 : 4 + (header_length & 0xFFFFFF)])
        assert answer["opaque"] == self._opaque
        return answer

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()
        self._socket.close()

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def properties(pairs: Mapping[str, str]) -> str:
    """The property string of a message."""
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())


def send_fields(topic: str, queue_id: int, pairs: Mapping[str, str], **more: Any) -> dict[str, Any]:
    """Header fields of a send by their long names."""
    fields = {
        "producerGroup": "raw",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": queue_id,
        "sysFlag": 0,
        "bornTimestamp": BORN_TIMESTAMP,
        "flag": 0,
        "properties": properties(pairs),
        "reconsumeTimes": 0,
        "unitMode": "false",
        "batch": "false",
    }
    return fields | more


def shortened(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The same with the one-letter names of code 310."""
    return {SHORT_NAMES[name]: value for name, value in fields.items()}


def batch_body(elements: Sequence[tuple[bytes, Mapping[str, str]]]) -> bytes:
    """Body of a client batch: per element size, magic, CRC, flag, body and properties with their lengths."""
    parts = []
    for body, pairs in elements:
        text = properties(pairs).encode()
        size = 4 + 4 + 4 + 4 + 4 + len(body) + 2 + len(text)
        parts.append(struct.pack(">iiiii", size, 0, 0, 0, len(body)) + body + struct.pack(">h", len(text)) + text)
    return b"".join(parts)
