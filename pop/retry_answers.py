"""A record of a retry topic, written anew for a consumer as MessageDecoder.encode of stock does.

Twin: native/src/pop/pop_records.c. The consumer gets the topic that it has asked for, and its receipt as the property
POP_CK. All else stays, but for our mark.
"""

from __future__ import annotations

import struct

from ringmq.native import ffi, lib

INLINE_BODY_MAX: int = lib.RMQ_POP_INLINE_BODY_MAX
PROPERTIES_BYTES_MAX: int = lib.RMQ_PROPERTIES_BYTES_MAX
_RECEIPT = b"POP_CK"


def retry_record(record: bytes, topic: str, receipt: str) -> bytes | None:
    """The record with another topic and a receipt, which a record that has one keeps. None if it is no record, or its
    properties have no room for a receipt."""
    view = ffi.new("struct rmq_record_view *")
    if lib.rmq_record_parse(record, len(record), 0, view) != lib.RMQ_RECORD_OK or view.total_size != len(record):
        return None
    properties = record[view.properties_at : view.properties_at + view.properties_length]
    if not any(pair.split(b"\1")[0] == _RECEIPT for pair in properties.split(b"\2") if _is_pair(pair)):
        if properties and not properties.endswith(b"\2"):
            properties += b"\2"
        properties += _RECEIPT + b"\1" + receipt.encode() + b"\2"
    if len(properties) > PROPERTIES_BYTES_MAX:
        return None
    name = topic.encode()
    is_long = len(name) > 127
    tail = struct.pack(">h" if is_long else ">b", len(name)) + name + struct.pack(">h", len(properties)) + properties
    end = view.body_at + view.body_length
    size = end + len(tail)
    magic = lib.RMQ_MAGIC_V2 if is_long else lib.RMQ_MAGIC_V1
    head = struct.pack(">II", size, magic) + record[8 : view.body_at - 12] + bytes(8) + record[view.body_at - 4 : end]
    return head + tail


def _is_pair(pair: bytes) -> bool:
    name, split, value = pair.partition(b"\1")
    return bool(name and split and value)
