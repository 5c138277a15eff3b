"""Records that Python unpacks: compressed bodies, inner batches (BatchCQ topics), properties with invalid UTF-8."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from ringmq.client.compression import DecompressionError, decompress_body
from ringmq.store import layout
from ringmq.store.record import parse_properties

_HEAD = struct.Struct(">iiiii")  # total size, magic, CRC, flag, body length
_LENGTH = struct.Struct(">h")


class FallbackRecordError(ValueError):
    """The record cannot be unpacked; the message says why."""


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record as stored. `raw` is all of it, `body` and `properties` are parts of it, `position` is its log offset."""

    position: int
    raw: bytes
    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    body: bytes
    properties: bytes


@dataclass(frozen=True, slots=True)
class RowMessage:
    """One message of a record, ready for a row: the sender's body, properties as UTF-8 with each name once."""

    queue_offset: int
    body: bytes
    properties: bytes


def messages_of(record: StoredRecord, *, wants_body: bool) -> Iterator[RowMessage]:
    """Yield the record's message, or those of its inner batch, one at a time: a batch may have millions.

    Raises `FallbackRecordError` before the first message.
    """
    if record.sys_flag & layout.INNER_BATCH:
        yield from _split(_plain_body(record), _base_offset(record))
    else:
        body = _plain_body(record) if wants_body else b""
        yield RowMessage(record.queue_offset, body, clean_properties(record.properties))


def _plain_body(record: StoredRecord) -> bytes:
    try:
        return decompress_body(record.body, record.sys_flag)
    except DecompressionError as error:
        raise FallbackRecordError(f"the body cannot be decompressed: {error}") from error


def clean_properties(raw: bytes) -> bytes:
    """Return the pairs as valid UTF-8, of equal names the last value. Invalid bytes are replaced, as in Java."""
    return "".join(f"{name}\x01{value}\x02" for name, value in parse_properties(raw).items()).encode()


def _base_offset(record: StoredRecord) -> int:
    text = parse_properties(record.properties).get("INNER_BASE", str(record.queue_offset))
    try:
        return int(text)
    except ValueError:
        raise FallbackRecordError(f"its INNER_BASE {text[:32]!r} is not a number") from None


def _split(body: bytes, base_offset: int) -> Iterator[RowMessage]:
    _check_lengths(body)
    at, offset = 0, base_offset
    while at < len(body):
        total, _, _, _, length = _HEAD.unpack_from(body, at)
        body_at = at + _HEAD.size
        properties = body[body_at + length + _LENGTH.size : at + total]
        yield RowMessage(offset, body[body_at : body_at + length], clean_properties(properties))
        at, offset = at + total, offset + 1


def _check_lengths(body: bytes) -> None:
    at = number = 0
    while at < len(body):
        if len(body) - at < _HEAD.size + _LENGTH.size:
            raise FallbackRecordError(f"its inner batch ends inside the head of message {number}")
        total, _, _, _, length = _HEAD.unpack_from(body, at)
        if not 0 <= length <= total - _HEAD.size - _LENGTH.size or at + total > len(body):
            raise FallbackRecordError(f"inner batch: lengths {total} and {length} of message {number} lead out of it")
        at, number = at + total, number + 1
