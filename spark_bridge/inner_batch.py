"""Splitting an inner batch (one record of a BatchCQ topic) into its messages."""

import struct
from dataclasses import dataclass

from ringmq.store.record import parse_properties

_HEAD = struct.Struct(">iiiii")  # total size, magic, CRC, flag, body length


@dataclass(frozen=True, slots=True)
class InnerMessage:
    """One message of the batch."""

    queue_offset: int
    body: bytes
    keys: bytes | None
    tags: str | None
    uniq_key: str | None


def split_inner_batch(body: bytes, batch_properties: bytes, queue_offset: int) -> list[InnerMessage]:
    """The messages of a decompressed batch body. Raises ValueError with the place when lengths contradict."""
    base_offset = int(parse_properties(batch_properties).get("INNER_BASE", queue_offset))
    messages: list[InnerMessage] = []
    at = 0
    while at < len(body):
        if len(body) - at < _HEAD.size + 2:
            raise ValueError(f"inner batch ends inside the head of message {len(messages)}")
        total, _, _, _, length = _HEAD.unpack_from(body, at)
        body_at = at + _HEAD.size
        if not 0 <= length <= total - _HEAD.size - 2 or at + total > len(body):
            raise ValueError(f"inner batch: lengths {total} and {length} of message {len(messages)} lead out of it")
        properties = parse_properties(body[body_at + length + 2 : at + total])
        keys = properties.get("KEYS")
        messages.append(
            InnerMessage(
                base_offset + len(messages),
                body[body_at : body_at + length],
                None if keys is None else keys.encode(),
                properties.get("TAGS"),
                properties.get("UNIQ_KEY"),
            )
        )
        at += total
    return messages
