"""The request that asks a producer for the state of its transaction (39)."""

from __future__ import annotations

import struct

from ringmq.remoting import properties
from ringmq.remoting.client_headers import CheckTransactionStateRequestHeader
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand, encode_frame
from ringmq.remoting.properties import REAL_QID, REAL_TOPIC
from ringmq.store import layout
from ringmq.store.record import Record, offset_message_id

_U8, _U16, _U32 = struct.Struct(">B"), struct.Struct(">H"), struct.Struct(">I")
SIZE_AT, MAGIC_AT, QUEUE_ID_AT = 0, 4, 12
LONG_TOPIC = 127
QUEUE_DIGITS, TOPIC_BYTES_MAX = 10, 32_767


def message_of(data: bytes | memoryview, record: Record) -> bytes:
    """The half message as the producer gets it: the stored record with the topic and queue that the producer named.

    Raises ValueError if REAL_TOPIC or REAL_QID cannot be. No checksum covers the pairs of a record.
    """
    pairs = record.properties
    topic, queue_id = pairs.get(REAL_TOPIC, "").encode(), pairs.get(REAL_QID, "0")
    if not (queue_id.isascii() and queue_id.isdecimal() and len(queue_id) < QUEUE_DIGITS):
        raise ValueError(f"REAL_QID = {queue_id[:32]!r} is no queue id")
    if len(topic) > TOPIC_BYTES_MAX:
        raise ValueError(f"REAL_TOPIC has {len(topic)} bytes, the most are {TOPIC_BYTES_MAX}")
    is_v2 = record.magic == layout.MAGIC_V2
    name_at = record.size - len(record.properties_raw) - 2 - len(record.topic_raw) - (2 if is_v2 else 1)
    length = _U16.pack(len(topic)) if len(topic) > LONG_TOPIC else _U8.pack(len(topic))
    tail = length + topic + _U16.pack(len(record.properties_raw)) + record.properties_raw
    head = bytearray(data[:name_at])
    _U32.pack_into(head, SIZE_AT, len(head) + len(tail))
    _U32.pack_into(head, MAGIC_AT, layout.MAGIC_V2 if len(topic) > LONG_TOPIC else layout.MAGIC_V1)
    _U32.pack_into(head, QUEUE_ID_AT, int(queue_id))
    return bytes(head) + tail


def check_frame(data: bytes | memoryview, record: Record, broker_name: str) -> tuple[str, bytes]:
    """(producer group, frame) of the check of a half message. Raises ValueError, see `message_of`."""
    pairs = record.properties
    uniq_key = pairs.get(properties.UNIQ_KEY)
    header = CheckTransactionStateRequestHeader(
        topic=record.topic,
        tran_state_table_offset=record.queue_offset,
        commit_log_offset=record.physical_offset,
        msg_id=uniq_key,
        transaction_id=uniq_key,
        offset_msg_id=offset_message_id(record),
        broker_name=broker_name,
    )
    command = RemotingCommand.request(
        RequestCode.CHECK_TRANSACTION_STATE, header.encode(), message_of(data, record), oneway=True
    )
    return pairs.get(properties.PGROUP, ""), encode_frame(command)
