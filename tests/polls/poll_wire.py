"""Frames of the test worker. An answer names itself, so that a checker finds what became of it."""

import struct
from dataclasses import dataclass

from ringmq.remoting.codes import LanguageCode, ResponseCode
from ringmq.remoting.command import RemotingCommand, SerializeType, decode_frame, encode_frame

POLL, ACK = 24_001, 24_002
FOUND, NOTHING, AGAIN = ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY
"""AGAIN: a message was deleted between the worker's decision and the read worker's."""
OPAQUE_AT = 13
"""Of a frame with a binary header."""
_ANSWER = struct.Struct(">IIhBhiiiiH1sI16s")
"""Length, type and header length, the fixed fields, the field `n` with generation and serial of the answer."""
_HEADER_BYTES = _ANSWER.size - 8
_TYPE = SerializeType.ROCKETMQ << 24 | _HEADER_BYTES
_FIELDS_BYTES = 23


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as its client sees it."""

    code: int
    opaque: int
    name: tuple[int, int] = (0, 0)
    """Generation of the worker and its serial. (0, 0): it names no messages."""
    body: bytes = b""


def poll_request(
    opaque: int, group: str, topic: str, queue: int, wait_ms: int, connection: int = 0, *, again: bool = False
) -> bytes:
    """Ask for messages. `connection`: the client's own number, for the checker. `again`: begin anew at the end."""
    fields = {"group": group, "topic": topic, "queue": str(queue), "wait": str(wait_ms), "of": str(connection)}
    return _request(POLL, opaque, fields | ({"again": "1"} if again else {}))


def ack_request(opaque: int, name: tuple[int, int]) -> bytes:
    """The messages of an answer are received. An unknown name is answered likewise."""
    return _request(ACK, opaque, {"n": _name(name).decode()})


def name_of(text: str) -> tuple[int, int]:
    """The name in a request."""
    return int(text[:8], 16), int(text[8:], 16)


def with_opaque(frame: bytes, opaque: int) -> bytes:
    """The same request for another answer."""
    return b"%b%b%b" % (frame[:OPAQUE_AT], opaque.to_bytes(4), frame[OPAQUE_AT + 4 :])


def answer_head(code: int, opaque: int, name: tuple[int, int] = (0, 0), body_bytes: int = 0) -> bytes:
    """An answer up to its body."""
    return _ANSWER.pack(
        _ANSWER.size - 4 + body_bytes, _TYPE, code, LanguageCode.OTHER, 0, opaque, 1, 0, _FIELDS_BYTES, 1, b"n", 16,
        _name(name),
    )  # fmt: skip


def read_answer(frame: bytes) -> Answer:
    """An answer of the worker, or one of the read worker."""
    if len(frame) >= _ANSWER.size and int.from_bytes(frame[4:8]) == _TYPE:
        found = _ANSWER.unpack_from(frame)
        if found[8] == _FIELDS_BYTES and found[10] == b"n":
            return Answer(found[2], found[5], name_of(found[12].decode()), frame[_ANSWER.size :])
    command = decode_frame(frame)
    return Answer(command.code, command.opaque)


def _name(name: tuple[int, int]) -> bytes:
    return b"%08x%08x" % name


def _request(code: int, opaque: int, fields: dict[str, str]) -> bytes:
    kind = SerializeType.ROCKETMQ
    return encode_frame(RemotingCommand.request(code, fields, b"", opaque=opaque, serialize_type=kind))
