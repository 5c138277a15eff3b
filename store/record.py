"""Commit log records in Python: decode for readers, and a plain reference of the C parser.

`parse_record` follows CommitLog.checkMessageAndReturnSize result for result. The tests compare it with
`rmq_record_parse` on golden, cut and corrupted bytes.
"""

import struct
import zlib
from collections.abc import Callable
from ipaddress import ip_address
from socket import inet_ntoa

from msgspec import Struct

from ringmq.store import layout

OK = 1
BLANK = 0
SHORT = -1
BAD_MAGIC = -2
BAD_CRC = -3
MALFORMED = -4
BAD_LENGTH = -5
END = 2
FULL = 3
BAD_PLACE = -6

REASONS = {
    OK: "valid",
    BLANK: "end-of-file blank",
    SHORT: "fewer bytes left than the record claims",
    BAD_MAGIC: "neither a record nor a blank",
    BAD_CRC: "body CRC differs",
    MALFORMED: "an inner length leads out of the record",
    BAD_LENGTH: "inner lengths do not add up to the total size",
    END: "end of the range",
    BAD_PLACE: "the record names another physical offset",
}

_HEAD = struct.Struct(">IIIiiqqiq")  # up to and with the born time: 48 bytes
_TAIL = struct.Struct(">iqi")  # reconsume times, prepared transaction offset, body length
_I64 = struct.Struct(">q")
_CRC_STEP_BYTES = 1 << 20


class Record(Struct, frozen=True):
    """One record as stored. `body` is not decompressed. `properties` holds the last value of each name."""

    commit_log_offset: int
    size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_time_ms: int
    born_host: str
    store_time_ms: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic_raw: bytes
    properties_raw: bytes

    @property
    def topic(self) -> str:
        """Return the name as text. Invalid UTF-8 becomes U+FFFD, as in Java."""
        return self.topic_raw.decode("utf-8", "replace")

    @property
    def properties(self) -> dict[str, str]:
        """Return names and values. Pairs without name or value are left out, as by Java's decoder."""
        return parse_properties(self.properties_raw)

    @property
    def transaction_type(self) -> int:
        """Return the transaction bits of the sys flag (0, prepared 4, commit 8, rollback 12)."""
        return self.sys_flag & layout.TRANSACTION_MASK


def parse_properties(raw: bytes) -> dict[str, str]:
    """Decode `name 0x01 value 0x02 ...`. Of a repeated name the last value counts."""
    pairs: dict[str, str] = {}
    for pair in raw.decode("utf-8", "replace").split("\x02"):
        name, split, value = pair.partition("\x01")
        if split and name and value:
            pairs[name] = value
    return pairs


def crc32(data: bytes | memoryview) -> int:
    """Return the CRC of a body as stored: zlib's, without the sign bit."""
    return zlib.crc32(data) & 0x7FFFFFFF


def has_its_body(data: memoryview, record: Record, rest: Callable[[], None] = lambda: None) -> bool:
    """True if the checksum of the body is right. `data` begins with the bytes of `record`.

    `rest` is called between steps of about a millisecond: a body may have many MiB.
    """
    length_at = layout.body_length_at(record.sys_flag)
    begin = length_at + 4
    end, crc = begin + int.from_bytes(data[length_at:begin], "big"), 0
    for at in range(begin, end, _CRC_STEP_BYTES):
        crc = zlib.crc32(data[at : min(end, at + _CRC_STEP_BYTES)], crc)
        rest()
    return begin == end or crc & 0x7FFFFFFF == record.body_crc


def java_hash(text: str) -> int:
    """Return `String.hashCode()` of the text."""
    value = 0
    for (unit,) in struct.iter_unpack("<H", text.encode("utf-16-le", "surrogatepass")):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def _host(data: memoryview, at: int, is_v6: bool) -> tuple[str, int]:
    length = 16 if is_v6 else 4
    raw = _take(data, at, length, length)
    port = int.from_bytes(data[at + length : at + length + 4], "big", signed=True)
    return (f"[{ip_address(raw)}]:{port}" if is_v6 else f"{inet_ntoa(raw)}:{port}"), at + length + 4


def parse_record(
    data: bytes | memoryview, commit_log_offset: int | None = None, *, check_crc: bool = True, with_body: bool = True
) -> tuple[int, Record | None]:
    """Parse the record at the start of `data`, which holds all remaining bytes of its file.

    Returns (result, record): OK with a record, BLANK, or the reason why the bytes are no record. Without
    `commit_log_offset` the record lies where it says (`physical_offset`). `with_body` False leaves the body empty, and
    its checksum unread. So bytes that a client has made up cannot cost a copy of the log.
    """
    data = memoryview(data)
    if len(data) <= 4:
        return SHORT, None
    size = int.from_bytes(data[:4], "big", signed=True)
    if size < 0:
        return MALFORMED, None
    if size > len(data) or len(data) < layout.END_OF_FILE_BLANK_BYTES:
        return SHORT, None
    magic = int.from_bytes(data[4:8], "big")
    if magic == layout.MAGIC_BLANK:
        return BLANK, None
    if magic not in (layout.MAGIC_V1, layout.MAGIC_V2):
        return BAD_MAGIC, None
    try:
        return _parse_fields(data, commit_log_offset, check_crc, with_body)
    except (struct.error, IndexError, ValueError):
        return MALFORMED, None


def _take(data: memoryview, at: int, length: int, length_max: int) -> bytes:
    if not 0 <= length <= length_max or at + length > len(data):
        raise ValueError(f"length {length} at {at} ends beyond the {len(data)} bytes")
    return bytes(data[at : at + length])


def next_record(data: bytes | memoryview, begin: int, file_start: int) -> int | None:
    """Return the first place behind `begin` whose bytes are a record that names this place, None without one.

    `data` is a whole log file that begins at commit log offset `file_start`. The twin of `rmq_log_next_record`.
    """
    view = memoryview(data)
    for place in range(begin + 1, len(view)):
        if int.from_bytes(view[place + 4 : place + 8], "big") in (layout.MAGIC_V1, layout.MAGIC_V2):
            result, record = parse_record(view[place:], file_start + place, check_crc=False)
            if result == OK and record is not None and record.physical_offset == file_start + place:
                return place
    return None


def _parse_fields(data: memoryview, offset: int | None, check_crc: bool, with_body: bool) -> tuple[int, Record | None]:
    size, magic, body_crc, queue_id, flag, queue_offset, physical, sys_flag, born_time = _HEAD.unpack_from(data, 0)
    born_host, at = _host(data, 48, bool(sys_flag & layout.BORN_HOST_V6))
    (store_time,) = _I64.unpack_from(data, at)
    store_host, at = _host(data, at + 8, bool(sys_flag & layout.STORE_HOST_V6))
    reconsume_times, prepared_offset, body_length = _TAIL.unpack_from(data, at)
    at += _TAIL.size
    if body_length < 0:
        raise ValueError(f"the body has {body_length} bytes")
    body = _take(data, at, body_length, len(data)) if with_body else b""
    at += body_length
    width, limit = (2, 0x7FFF) if magic == layout.MAGIC_V2 else (1, 0x7F)
    topic_length = int.from_bytes(_take(data, at, width, width), "big")
    topic = _take(data, at + width, topic_length, limit)
    at += width + topic_length
    properties_length = int.from_bytes(_take(data, at, 2, 2), "big")
    properties = _take(data, at + 2, properties_length, 0x7FFF)
    at += 2 + properties_length
    if check_crc and body and crc32(body) != body_crc:
        return BAD_CRC, None
    if at != size:
        return BAD_LENGTH, None
    place = physical if offset is None else offset
    return OK, Record(
        place, size, magic, body_crc, queue_id, flag, queue_offset, physical, sys_flag, born_time, born_host,
        store_time, store_host, reconsume_times, prepared_offset, body, topic, properties,
    )  # fmt: skip


def offset_message_id(record: Record) -> str:
    """Return the upper-case hex of store host, port and offset: 32 digits for IPv4, 56 for IPv6."""
    host, _, port = record.store_host.rpartition(":")
    packed = ip_address(host.strip("[]")).packed + int(port).to_bytes(4, "big", signed=True)
    return (packed + _I64.pack(record.commit_log_offset)).hex().upper()


def torn_properties(raw: bytes) -> str | None:
    """Return the reason why no encoder wrote the string, None if an encoder may have.

    The rule for the last record of a log. No CRC covers the properties, but an encoder never writes a NUL, always
    ends with 0x02 and always writes 0x01 in a pair.
    """
    if not raw:
        return None
    if b"\x00" in raw:
        return "the properties hold a NUL byte"
    if raw[-1] != 2:
        return "the properties lack their final 0x02"
    if any(b"\x01" not in pair for pair in raw[:-1].split(b"\x02")):
        return "the properties hold a pair without 0x01"
    return None
