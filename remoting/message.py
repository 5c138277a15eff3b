"""Messages: as sent, as received, and in the stored form that pull, view and query bodies carry.

Stored form, all numbers big-endian; offsets from 48 on grow by 12 for each IPv6 host:

      0 total size  i32      20 queue offset     i64      56 store time           i64
      4 magic       u32      28 commit-log offset i64     64 store host 4|16 + port i32
      8 body CRC    i32      36 sysFlag          i32      72 reconsume times      i32
     12 queue id    i32      40 born time        i64      76 prepared offset      i64
     16 flag        i32      48 born host 4|16 + port i32 84 body length i32, body
                                                             topic length u8 (V1) | u16 (V2), topic
                                                             properties length i16, properties

V2 is written only for topics over 127 bytes. The CRC covers the stored, maybe compressed, body.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
import zlib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar, overload

from ringmq.remoting import properties as names
from ringmq.remoting.errors import RemotingError
from ringmq.remoting.flags import MessageSysFlag
from ringmq.remoting.message_id import encode_offset_id
from ringmq.remoting.properties import decode_properties, encode_properties

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAX_V1_TOPIC_BYTES = 127
MAX_BODY_BYTES = 4_194_304
"""The broker's maxMessageSize. The Java client checks the size before compression."""

MIN_RECORD_BYTES = 91

_V4 = struct.Struct(">iIiiiqqiq4siq4siiqi")
_INT32 = struct.Struct(">i")
_UINT16 = struct.Struct(">H")
_V6_HOSTS = int(MessageSysFlag.BORN_HOST_V6 | MessageSysFlag.STORE_HOST_V6)  # a plain number: flags are slow


class BadMessage(RemotingError):
    """Bytes that are no stored message."""


@dataclass(slots=True)
class Message:
    """A message of an application. `properties` carries tags and keys too, under RocketMQ's names."""

    topic: str
    body: bytes
    properties: dict[str, str] = field(default_factory=dict)
    flag: int = 0

    @property
    def tags(self) -> str | None:
        """The tag for subscriptions of consumers."""
        return self.properties.get(names.TAGS)

    @property
    def keys(self) -> list[str]:
        """The keys for queries by key."""
        return self.properties.get(names.KEYS, "").split()

    @property
    def uniq_key(self) -> str | None:
        """The client's message id."""
        return self.properties.get(names.UNIQ_KEY)


@dataclass(slots=True)
class MessageExt(Message):
    """A stored message. Times in ms, hosts as (address, port), `store_size` in bytes of the stored form.

    Readers add `broker_name`. They add `read_topic`, the topic of the read queue, if it differs from `topic`. Readers
    that check bodies set `is_body_damaged` if the stored body does not have `body_crc`.
    """

    queue_id: int = 0
    queue_offset: int = 0
    commit_log_offset: int = 0
    sys_flag: int = 0
    body_crc: int = 0
    born_timestamp_ms: int = 0
    born_host: tuple[str, int] = ("0.0.0.0", 0)
    store_timestamp_ms: int = 0
    store_host: tuple[str, int] = ("0.0.0.0", 0)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    store_size: int = 0
    broker_name: str = ""
    read_topic: str = ""
    is_body_damaged: bool = False

    @property
    def offset_msg_id(self) -> str:
        """The position of the message in its broker's log, as text for `queryMsgById`."""
        return encode_offset_id(self.store_host[0], self.store_host[1], self.commit_log_offset)

    @property
    def msg_id(self) -> str:
        """The unique key, or the offset id without one."""
        return self.uniq_key or self.offset_msg_id


M = TypeVar("M", bound=MessageExt)


@overload
def decode_message(data: bytes | memoryview, at: int = 0, *, check_crc: bool = False) -> tuple[MessageExt, int]: ...


@overload
def decode_message(
    data: bytes | memoryview, at: int = 0, *, check_crc: bool = False, kind: type[M]
) -> tuple[M, int]: ...


def decode_message(
    data: bytes | memoryview, at: int = 0, *, check_crc: bool = False, kind: type[Any] = MessageExt
) -> tuple[Any, int]:
    """Return the message at `at`, as an object of class `kind`, and the position behind it.

    Raises `BadMessage` naming the field.
    """
    view = memoryview(data)
    if at < 0 or len(view) - at < 4:
        raise BadMessage(f"{len(view) - at} bytes hold no message size", field="total size", limit=4)
    (size,) = _INT32.unpack_from(view, at)
    if not MIN_RECORD_BYTES <= size <= len(view) - at:
        raise BadMessage(
            f"message size {size} is outside {MIN_RECORD_BYTES}..{len(view) - at}",
            field="total size",
            limit=len(view) - at,
        )
    try:
        message = _decode(view[at : at + size], kind)
    except (struct.error, IndexError) as error:
        raise BadMessage(f"message of {size} bytes ends inside its fields", field="total size") from error
    if check_crc and not has_its_crc(message):
        raise BadMessage(f"body CRC of message at {message.commit_log_offset} does not match", field="body CRC")
    return message, at + size


def has_its_crc(message: MessageExt) -> bool:
    """True if the body, as it was stored, has the CRC of the record. An empty body has none."""
    return not message.body or zlib.crc32(message.body) & 0x7FFFFFFF == message.body_crc


def decode_messages(data: bytes | memoryview, *, check_crc: bool = False) -> list[MessageExt]:
    """Return all messages of a pull, view or query body, up to the first that does not parse, as stock's clients do."""
    messages: list[MessageExt] = []
    view, at = memoryview(data), 0
    while at < len(view):
        try:
            message, at = decode_message(view, at, check_crc=check_crc)
        except BadMessage:
            break
        messages.append(message)
    return messages


def _decode(view: memoryview, kind: type[M]) -> M:
    magic = int.from_bytes(view[4:8], "big")
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise BadMessage(f"magic {magic:08X} is no message's", field="magic")
    (sys_flag,) = _INT32.unpack_from(view, 36)
    if sys_flag & _V6_HOSTS:
        fields, at = _unpack_v6(view, sys_flag)
    else:
        fields, at = _V4.unpack_from(view), _V4.size
    (
        size, _, crc, queue_id, flag, queue_offset, commit_log_offset, _, born_ms, born_ip, born_port,
        store_ms, store_ip, store_port, reconsume_times, prepared_offset, body_length,
    ) = fields  # fmt: skip
    body, at = _take(view, at, body_length, "body length")
    topic_length, at = (view[at], at + 1) if magic == MAGIC_V1 else (_UINT16.unpack_from(view, at)[0], at + 2)
    topic, at = _take(view, at, topic_length, "topic length")
    text, at = _take(view, at + 2, _UINT16.unpack_from(view, at)[0], "properties length")
    return kind(
        topic=topic.decode("utf-8", "replace"),
        body=body,
        properties=decode_properties(text.decode("utf-8", "replace")),
        flag=flag,
        queue_id=queue_id,
        queue_offset=queue_offset,
        commit_log_offset=commit_log_offset,
        sys_flag=sys_flag,
        body_crc=crc,
        born_timestamp_ms=born_ms,
        born_host=(_host(born_ip), born_port),
        store_timestamp_ms=store_ms,
        store_host=(_host(store_ip), store_port),
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_offset,
        store_size=size,
    )


def _unpack_v6(view: memoryview, sys_flag: int) -> tuple[tuple[Any, ...], int]:
    """The same fields as `_V4`, one or both hosts with 16 bytes."""
    born = 16 if sys_flag & MessageSysFlag.BORN_HOST_V6 else 4
    store = 16 if sys_flag & MessageSysFlag.STORE_HOST_V6 else 4
    layout = struct.Struct(f">iIiiiqqiq{born}siq{store}siiqi")
    return layout.unpack_from(view), layout.size


def _take(view: memoryview, at: int, length: int, name: str) -> tuple[bytes, int]:
    if not 0 <= length <= len(view) - at:
        raise BadMessage(f"{name} {length} is outside 0..{len(view) - at}", field=name, limit=len(view) - at)
    return bytes(view[at : at + length]), at + length


@lru_cache(1024)
def _host(packed: bytes) -> str:
    if len(packed) == 4:
        return socket.inet_ntoa(packed)
    return str(ipaddress.ip_address(packed))


def encode_message(message: MessageExt) -> bytes:
    """Return the stored form.

    Host flags, sizes, magic and CRC are computed. `store_size` and `body_crc` are ignored.
    """
    topic = message.topic.encode()
    text = encode_properties(message.properties).encode()
    if len(text) > names.MAX_PROPERTIES_BYTES:
        raise BadMessage(
            f"properties of {len(text)} bytes are over the limit of {names.MAX_PROPERTIES_BYTES}",
            field="properties length",
            limit=names.MAX_PROPERTIES_BYTES,
        )
    v2 = len(topic) > MAX_V1_TOPIC_BYTES
    born, store = (ipaddress.ip_address(host).packed for host in (message.born_host[0], message.store_host[0]))
    sys_flag = message.sys_flag & ~(MessageSysFlag.BORN_HOST_V6 | MessageSysFlag.STORE_HOST_V6)
    sys_flag |= MessageSysFlag.BORN_HOST_V6 if len(born) == 16 else 0
    sys_flag |= MessageSysFlag.STORE_HOST_V6 if len(store) == 16 else 0
    size = 80 + len(born) + len(store) + len(message.body) + (2 if v2 else 1) + len(topic) + 2 + len(text)
    head = struct.pack(
        f">iIiiiqqiq{len(born)}siq{len(store)}siiqi",
        size, MAGIC_V2 if v2 else MAGIC_V1, zlib.crc32(message.body) & 0x7FFFFFFF,
        message.queue_id, message.flag, message.queue_offset, message.commit_log_offset, sys_flag,
        message.born_timestamp_ms, born, message.born_host[1],
        message.store_timestamp_ms, store, message.store_host[1], message.reconsume_times,
        message.prepared_transaction_offset, len(message.body),
    )  # fmt: skip
    topic_length = _UINT16.pack(len(topic)) if v2 else bytes((len(topic),))
    return b"".join((head, message.body, topic_length, topic, _UINT16.pack(len(text)), text))
