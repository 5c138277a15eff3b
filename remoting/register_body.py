"""The body of REGISTER_BROKER: plain JSON, or the compressed form (spec remoting 6.2).

Compressed (`RegisterBrokerBody.encode`), inside one zlib stream, each item an int32 length and its bytes:

    DataVersion JSON
    int32 n, then n items "topic readQueues writeQueues perm filterType {attributes JSON}"
    filter servers, JSON array
    int32 m, then m items TopicQueueMappingInfo JSON      (only versions from 413 on; ignored here)
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Generator

from ringmq.remoting import json_body
from ringmq.remoting.config_beans import SLICE_TOPICS, DataVersion, TopicConfig, TopicConfigTable, finish
from ringmq.remoting.json_text import dump_json

MAX_INFLATED_BYTES = 64 * 1024 * 1024
"""Limit of a decompressed registration."""

_INT32 = struct.Struct(">i")


def body_crc32(body: bytes) -> int:
    """Return the bodyCrc32 field."""
    return zlib.crc32(body) & 0x7FFFFFFF


def encode_register_body(table: TopicConfigTable) -> bytes:
    """Return the uncompressed body, keys in stock's order."""
    return wrap_register_body(json_body.write_body(table.to_json()))


def wrap_register_body(table: bytes) -> bytes:
    """Return the uncompressed body of a table that is JSON already."""
    return b"".join((b'{"filterServerList":[],"topicConfigSerializeWrapper":', table, b"}"))


def decode_register_body(body: bytes, *, compressed: bool = False) -> TopicConfigTable:
    """Return the topics in a registration, none for an empty body. Raises `BadBody`."""
    return finish(decode_register_slices(body, compressed=compressed))


def decode_register_slices(
    body: bytes, *, compressed: bool = False, topics_max: int = 1 << 62
) -> Generator[None, None, TopicConfigTable]:
    """Like `decode_register_body`, with a pause after every SLICE_TOPICS topics.

    Raises `BadBody`, also beyond `topics_max` topics.
    """
    if not body:
        return TopicConfigTable({}, DataVersion())
    if compressed:
        return (yield from _decode_compressed(body, topics_max))
    value = json_body.read_large(body, "RegisterBrokerBody")
    yield
    inner = json_body.mapping(value, "topicConfigSerializeWrapper")
    return (yield from TopicConfigTable.from_json_slices(inner, topics_max))


def encode_compressed_body(table: TopicConfigTable) -> bytes:
    """Return the compressed form, without queue mappings."""
    parts = [_item(dump_json(table.data_version.to_json())), _INT32.pack(len(table.topics))]
    parts += [_item(_encode_topic(topic)) for topic in table.topics.values()]
    parts += [_item(b"[]"), _INT32.pack(0)]
    return zlib.compress(b"".join(parts))


def _item(data: bytes) -> bytes:
    return _INT32.pack(len(data)) + data


def _encode_topic(topic: TopicConfig) -> bytes:
    fields = (
        topic.topic_name,
        topic.read_queue_nums,
        topic.write_queue_nums,
        topic.perm,
        topic.topic_filter_type,
        dump_json(topic.attributes).decode(),
    )
    return " ".join(map(str, fields)).encode()


def _decode_compressed(body: bytes, topics_max: int) -> Generator[None, None, TopicConfigTable]:
    inflater = zlib.decompressobj()
    yield
    try:
        data = inflater.decompress(body, MAX_INFLATED_BYTES)
    except zlib.error as error:
        raise json_body.bad_body(f"RegisterBrokerBody does not inflate: {error}", "body") from error
    if inflater.unconsumed_tail:
        raise json_body.bad_body(
            f"RegisterBrokerBody inflates to more than the limit of {MAX_INFLATED_BYTES} bytes", "body"
        )
    version_json, at = _take_item(data, 0)
    version = DataVersion.from_json(json_body.read_object(version_json, "DataVersion"))
    count, at = _take_int(data, at)
    if count > topics_max:
        raise json_body.bad_body(f"{count} topics are over {topics_max}", "topicConfigTable")
    topics: dict[str, TopicConfig] = {}
    for number in range(1, count + 1):
        text, at = _take_item(data, at)
        topic = _decode_topic(text.decode("utf-8", "replace"))
        topics[topic.topic_name] = topic
        if number % SLICE_TOPICS == 0:
            yield
    return TopicConfigTable(topics, version)


def _decode_topic(text: str) -> TopicConfig:
    parts = text.split(" ", 5)
    if len(parts) < 4:
        raise json_body.bad_body(f"topic {text[:64]!r} has {len(parts)} fields, not 4 to 6", "topicConfigTable")
    read, write, perm = (json_body.as_integer(part, "topicConfigTable") for part in parts[1:4])
    attributes = json_body.read_object(parts[5].encode(), "attributes") if len(parts) == 6 else {}
    return TopicConfig(
        topic_name=parts[0],
        read_queue_nums=read,
        write_queue_nums=write,
        perm=perm,
        topic_filter_type=parts[4] if len(parts) > 4 else "SINGLE_TAG",
        attributes={key: json_body.text(attributes, key) for key in attributes},
    )


def _take_int(data: bytes, at: int) -> tuple[int, int]:
    if len(data) - at < 4:
        raise json_body.bad_body("RegisterBrokerBody ends inside a length", "body")
    return _INT32.unpack_from(data, at)[0], at + 4


def _take_item(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _take_int(data, at)
    if not 0 <= length <= len(data) - at:
        raise json_body.bad_body(f"item length {length} is outside 0..{len(data) - at}", "body")
    return data[at : at + length], at + length
