"""The body of a batch send: messages one after another, never compressed (spec remoting 7.1).

Each element: total i32, magic i32 0, CRC i32 0, flag i32, body length i32, body, properties length i16,
properties.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.errors import RequestError
from ringmq.remoting.message import Message
from ringmq.remoting.properties import MAX_PROPERTIES_BYTES, encode_properties

_HEAD = struct.Struct(">iiiii")
_UINT16 = struct.Struct(">H")
_FIXED_BYTES = _HEAD.size + _UINT16.size


class BadBatch(RequestError):
    """A batch body that does not parse. The answer is MESSAGE_ILLEGAL."""

    def __init__(self, message: str, *, field: str, limit: int | None = None) -> None:
        super().__init__(message, field=field, code=ResponseCode.MESSAGE_ILLEGAL, limit=limit)


@dataclass(slots=True)
class BatchElement:
    """One message of a batch. `properties` is the encoded string.

    The topic and the other fields are in the frame's header.
    """

    flag: int
    body: bytes
    properties: bytes


def encode_batch(messages: Iterable[Message]) -> bytes:
    """Return the batch body. Raises `BadBatch` if a message's properties are over 32767 bytes."""
    parts: list[bytes] = []
    for message in messages:
        properties = encode_properties(message.properties).encode()
        _check_properties(len(properties))
        body = message.body
        total = _FIXED_BYTES + len(body) + len(properties)
        parts += (
            _HEAD.pack(total, 0, 0, message.flag, len(body)),
            body,
            _UINT16.pack(len(properties)),
            properties,
        )
    return b"".join(parts)


def decode_batch(data: bytes | memoryview, count_max: int | None = None) -> list[BatchElement]:
    """Return all elements of a batch body. Raises `BadBatch` if one does not parse, or there are over `count_max`."""
    view, at = memoryview(data), 0
    elements: list[BatchElement] = []
    while at < len(view):
        if len(elements) == count_max:
            raise BadBatch(f"more than {count_max} messages", field="messages", limit=count_max)
        if len(view) - at < _FIXED_BYTES:
            raise BadBatch(f"{len(view) - at} bytes are left after {len(elements)} messages", field="total size")
        total, _, _, flag, body_length = _HEAD.unpack_from(view, at)
        left = len(view) - at
        if not _FIXED_BYTES <= total <= left:
            raise BadBatch(
                f"size {total} of message {len(elements)} is outside {_FIXED_BYTES}..{left}",
                field="total size",
                limit=left,
            )
        if not 0 <= body_length <= total - _FIXED_BYTES:
            raise BadBatch(
                f"body length {body_length} of message {len(elements)} is outside 0..{total - _FIXED_BYTES}",
                field="body length",
                limit=total - _FIXED_BYTES,
            )
        body_at = at + _HEAD.size
        properties_at = body_at + body_length + _UINT16.size
        (properties_length,) = _UINT16.unpack_from(view, properties_at - _UINT16.size)
        _check_properties(properties_length)
        if properties_at + properties_length != at + total:
            raise BadBatch(
                f"body and properties of message {len(elements)} do not fill its {total} bytes",
                field="total size",
            )
        elements.append(
            BatchElement(flag, bytes(view[body_at : body_at + body_length]), bytes(view[properties_at : at + total]))
        )
        at += total
    return elements


def _check_properties(length: int) -> None:
    if length > MAX_PROPERTIES_BYTES:
        raise BadBatch(
            f"properties of {length} bytes are over the limit of {MAX_PROPERTIES_BYTES}",
            field="properties length",
            limit=MAX_PROPERTIES_BYTES,
        )
