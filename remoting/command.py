"""One remoting command and its two encodings.

A frame on the wire (all numbers big-endian):

     0        4      5              8          8+h            4+length
    +--------+------+--------------+----------+----------------+
    | length | type | header len h | header h | body           |
    | int32  | u8   | u24          |          |                |
    +--------+------+--------------+----------+----------------+

length counts what follows it. type 0: the header is a JSON object; type 1: the header is binary:

     0      2      3         5        9      13       17     17+r      21+r
    +------+------+---------+--------+------+--------+------+---------+-------------------------------------+
    | code | lang | version | opaque | flag | r      | text | e       | entries, e bytes: u16 k, key,       |
    | i16  | u8   | i16     | i32    | i32  | i32    | r    | i32     | i32 v, value                        |
    +------+------+---------+--------+------+--------+------+---------+-------------------------------------+

A zero length means null in the binary form: an empty remark reads as None, an entry with an empty value as
absent.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ringmq.remoting.codes import VERSION_V5_3_3, LanguageCode, SerializeType
from ringmq.remoting.errors import BadFrame, BadHeader, EncodeError, FrameTooLarge, RemotingError, UnreadableHeader
from ringmq.remoting.java_numbers import INT32, java_integer
from ringmq.remoting.json_text import dump_json, load_json
from ringmq.remoting.unreadable import as_unreadable

__all__ = [
    "MAX_FRAME_BYTES",
    "BadFrame",
    "BadHeader",
    "EncodeError",
    "FrameTooLarge",
    "RemotingCommand",
    "RemotingError",
    "SerializeType",
    "UnreadableHeader",
    "decode_frame",
    "decode_payload",
    "encode_frame",
]

MAX_FRAME_BYTES = 16_777_216
"""Largest frame, counted with its length field (`NettyDecoder`)."""
FLAG_RESPONSE = 1
FLAG_ONEWAY = 2

_MAX_HEADER_BYTES = 0xFFFFFF
_BINARY_FIXED = struct.Struct(">hBhiii")
_PREFIX = struct.Struct(">iI")
_INT32 = struct.Struct(">i")
_UINT16 = struct.Struct(">H")
_LANGUAGE_NAMES = {int(code): code.name for code in LanguageCode}
_LANGUAGE_NUMBERS = {code.name: int(code) for code in LanguageCode}
_NULLS = ("", "null", "NULL")
_ZERO_FRACTION = re.compile(r"\.0*\Z")
DIALECT_HEADER_BYTES_MAX = 16_384
"""The largest header that is not standard JSON, which Python reads."""


@dataclass(slots=True)
class RemotingCommand:
    """A request or an answer.

    `language` is "" when the peer named none or an unknown one. `ext_fields` never holds None: a null value on the
    wire reads as absent. This module does not parse `body`.
    """

    code: int
    opaque: int = 0
    flag: int = 0
    language: str = "PYTHON"
    version: int = VERSION_V5_3_3
    remark: str | None = None
    ext_fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    serialize_type: SerializeType = SerializeType.JSON

    @property
    def is_response(self) -> bool:
        """True if bit 0 of the flag is set."""
        return self.flag & FLAG_RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        """True if bit 1 of the flag is set: the peer waits for no answer, and none may be sent."""
        return self.flag & FLAG_ONEWAY != 0

    @classmethod
    def request(
        cls,
        code: int,
        ext_fields: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        opaque: int = 0,
        oneway: bool = False,
        remark: str | None = None,
        serialize_type: SerializeType = SerializeType.JSON,
    ) -> RemotingCommand:
        """Return a new request. `opaque` is the caller's counter, which the answer repeats."""
        return cls(
            code=code,
            opaque=opaque,
            flag=FLAG_ONEWAY if oneway else 0,
            remark=remark,
            ext_fields=dict(ext_fields) if ext_fields else {},
            body=body,
            serialize_type=serialize_type,
        )

    @classmethod
    def response_to(
        cls,
        request: RemotingCommand,
        code: int,
        remark: str | None = None,
        ext_fields: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> RemotingCommand:
        """Return the answer to `request`: same opaque, same encoding (every client accepts its own encoding)."""
        return cls(
            code=code,
            opaque=request.opaque,
            flag=FLAG_RESPONSE,
            remark=remark,
            ext_fields=dict(ext_fields) if ext_fields else {},
            body=body,
            serialize_type=request.serialize_type,
        )

    @classmethod
    def unreadable(cls, error: UnreadableHeader) -> RemotingCommand:
        """Return what is known of the command whose header did not parse."""
        return cls(
            code=error.request_code,
            opaque=error.opaque,
            flag=error.flag,
            language="",
            serialize_type=SerializeType.JSON if error.is_json else SerializeType.ROCKETMQ,
        )


def encode_frame(command: RemotingCommand) -> bytes:
    """Return the complete frame, length field included. Raises `EncodeError` for values that the wire cannot carry."""
    return b"".join(encode_parts(command))


def encode_parts(command: RemotingCommand) -> tuple[bytes, bytes]:
    """Return the frame up to its body, and the body, which is not copied. Raises `EncodeError`."""
    binary = command.serialize_type is SerializeType.ROCKETMQ
    header = _encode_binary_header(command) if binary else _encode_json_header(command)
    if len(header) > _MAX_HEADER_BYTES:
        raise EncodeError(
            f"header of {len(header)} bytes is over the limit of {_MAX_HEADER_BYTES}",
            field="header length",
            limit=_MAX_HEADER_BYTES,
        )
    body = command.body
    prefix = _PREFIX.pack(4 + len(header) + len(body), command.serialize_type << 24 | len(header))
    return prefix + header, body


def decode_frame(data: bytes | bytearray | memoryview, max_frame_bytes: int = MAX_FRAME_BYTES) -> RemotingCommand:
    """Return the command in exactly one complete frame (with its length field).

    Raises `FrameError` and `UnreadableHeader`.
    """
    view = memoryview(data)
    if len(view) < 8:
        raise BadFrame(f"frame of {len(view)} bytes is shorter than its 8-byte prefix", field="frame length", limit=8)
    check_prefix(view, max_frame_bytes)
    (length,) = _INT32.unpack_from(view)
    if length != len(view) - 4:
        raise BadFrame(f"frame length says {length}, {len(view) - 4} bytes follow", field="frame length")
    return decode_payload(view[4:])


def check_prefix(view: memoryview, max_frame_bytes: int, max_header_bytes: int = MAX_FRAME_BYTES) -> int:
    """Return the whole frame's size in bytes, from its first 8 bytes.

    A length over the limit fails here, before any byte of the frame is stored.
    """
    length: int
    length, type_and_header = _PREFIX.unpack_from(view)
    if length < 4:
        raise BadFrame(f"frame length {length} is below 4", field="frame length", limit=4)
    if length + 4 > max_frame_bytes:
        raise FrameTooLarge(length + 4, max_frame_bytes)
    serialize_type, header_length = type_and_header >> 24, type_and_header & _MAX_HEADER_BYTES
    if serialize_type > SerializeType.ROCKETMQ:
        raise BadFrame(f"serialize type {serialize_type} is neither 0 (JSON) nor 1 (ROCKETMQ)", field="serialize type")
    if header_length > length - 4:
        raise BadFrame(
            f"header length {header_length} is over the frame's {length - 4}",
            field="header length",
            limit=length - 4,
        )
    if header_length > max_header_bytes:
        raise BadFrame(
            f"header of {header_length} bytes is over the limit of {max_header_bytes}",
            field="header length",
            limit=max_header_bytes,
        )
    return length + 4


def decode_payload(payload: memoryview) -> RemotingCommand:
    """Return the command in a frame without its length field, after `check_prefix` has checked its lengths.

    Raises `BadHeader`, and `UnreadableHeader` if the opaque is known.
    """
    header_length = int.from_bytes(payload[1:4], "big")
    header, body = payload[4 : 4 + header_length], bytes(payload[4 + header_length :])
    is_json = payload[0] == SerializeType.JSON
    try:
        command = _decode_json_header(header) if is_json else _decode_binary_header(header)
    except BadHeader as error:
        raise as_unreadable(error, bytes(header), is_json=is_json) from error.__cause__
    command.body = body
    return command


# ---- JSON header ----


def _encode_json_header(command: RemotingCommand) -> bytes:
    """Return the keys in the alphabetical order of stock's writer, nulls left out."""
    header: dict[str, Any] = {"code": command.code}
    if command.ext_fields:
        header["extFields"] = command.ext_fields
    header["flag"] = command.flag
    if command.language:
        header["language"] = command.language
    header["opaque"] = command.opaque
    if command.remark is not None:
        header["remark"] = command.remark
    header["serializeTypeCurrentRPC"] = "JSON"
    header["version"] = command.version
    return dump_json(header)


def _decode_json_header(data: memoryview) -> RemotingCommand:
    """Decode a JSON header as tolerantly as stock's reader.

    Accepted are numbers in text, text in numbers, missing and unknown keys, and any language. `load_json` names more.
    """
    try:
        header = load_json(bytes(data), DIALECT_HEADER_BYTES_MAX)
    except ValueError as error:
        raise BadHeader(f"JSON header does not parse: {error}", field="header") from error
    if not isinstance(header, dict):
        raise BadHeader(f"JSON header is a {type(header).__name__}, not an object", field="header")
    remark = header.get("remark")
    return RemotingCommand(
        code=_json_int32(header, "code"),
        opaque=_json_int32(header, "opaque"),
        flag=_json_int32(header, "flag"),
        language=_json_language(header.get("language")),
        version=_json_int32(header, "version"),
        remark=None if remark is None else _json_text(remark),
        ext_fields=_json_ext_fields(header.get("extFields")),
    )


def _json_int32(header: dict[str, Any], key: str) -> int:
    value = header.get(key)
    if type(value) is not int:
        try:
            value = _odd_number(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise BadHeader(f"header field {key} = {str(value)[:64]!r} is not an integer", field=key) from error
    if not -0x80000000 <= value <= 0x7FFFFFFF:
        raise BadHeader(f"header field {key} = {value} is outside int32", field=key, limit=0x7FFFFFFF)
    return value


def _odd_number(value: object) -> int:
    """Return an int field that is no JSON integer, as fastjson reads it. C twin: `odd_number` of frame_header.c.

    Fractions are cut off. Text may end with zeros behind a point.
    """
    if isinstance(value, str):
        return 0 if value in _NULLS else java_integer(_ZERO_FRACTION.sub("", value), *INT32)
    if value is None or isinstance(value, (bool, float)):
        return int(value or 0)
    raise TypeError(type(value).__name__)


def _json_language(value: object) -> str:
    """Return the language of a name in any case, or of an ordinal. Any other value is no language and no error."""
    if isinstance(value, str):
        if value in _LANGUAGE_NUMBERS:
            return value
        return value.upper() if value.upper() in _LANGUAGE_NUMBERS else ""
    return _LANGUAGE_NAMES.get(value, "") if type(value) is int else ""


def _json_text(value: object) -> str:
    """Return a scalar as Java would print it, an object or list as its JSON text."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    try:
        return dump_json(value).decode()
    except RecursionError as error:
        raise BadHeader("a value is nested too deep for a header", field="extFields") from error


def _json_ext_fields(value: object) -> dict[str, str]:
    if value is None or value == "":
        return {}
    if not isinstance(value, dict):
        raise BadHeader(f"header field extFields is a {type(value).__name__}, not an object", field="extFields")
    return {
        str(key): entry if type(entry) is str else _json_text(entry)
        for key, entry in value.items()
        if entry is not None
    }


# ---- binary header ----


def _encode_binary_header(command: RemotingCommand) -> bytes:
    remark = command.remark.encode("utf-8", "replace") if command.remark else b""
    entries = bytearray()
    for key, value in command.ext_fields.items():
        key_bytes, value_bytes = key.encode("utf-8", "replace"), value.encode("utf-8", "replace")
        if len(key_bytes) > 0x7FFF:
            raise EncodeError(
                f"ext key of {len(key_bytes)} bytes is over the limit of 32767",
                field="extFields",
                limit=0x7FFF,
            )
        entries += _UINT16.pack(len(key_bytes)) + key_bytes + _INT32.pack(len(value_bytes)) + value_bytes
    try:
        fixed = _BINARY_FIXED.pack(
            command.code,
            _LANGUAGE_NUMBERS.get(command.language, LanguageCode.OTHER),
            command.version,
            command.opaque,
            command.flag,
            len(remark),
        )
    except struct.error as error:
        raise EncodeError(
            f"code {command.code}, version {command.version} (int16), opaque {command.opaque} or "
            f"flag {command.flag} (int32) does not fit the binary header; codes above 32767 travel as JSON",
            field="code",
            limit=0x7FFF,
        ) from error
    return b"".join((fixed, remark, _INT32.pack(len(entries)), entries))


def _decode_binary_header(data: memoryview) -> RemotingCommand:
    if len(data) < 21:
        raise BadHeader(f"binary header of {len(data)} bytes is below 21", field="header length", limit=21)
    code, language, version, opaque, flag, remark_length = _BINARY_FIXED.unpack_from(data)
    remark, at = _read_text(data, _BINARY_FIXED.size, remark_length, "remark")
    if at + 4 > len(data):
        raise BadHeader("binary header ends before the length of extFields", field="extFields", limit=len(data))
    (ext_length,) = _INT32.unpack_from(data, at)
    at += 4
    if ext_length > len(data) - at:
        raise BadHeader(
            f"length of extFields {ext_length} is over the header's remaining {len(data) - at}",
            field="extFields",
            limit=len(data) - at,
        )
    return RemotingCommand(
        code=code,
        opaque=opaque,
        flag=flag,
        language=_LANGUAGE_NAMES.get(language, ""),
        version=version,
        remark=remark or None,
        ext_fields=_read_entries(data[at : at + ext_length]) if ext_length > 0 else {},
        serialize_type=SerializeType.ROCKETMQ,
    )


def _read_entries(data: memoryview) -> dict[str, str]:
    """Return the entries of a binary header. Hot: every answer to a binary request runs it, so its code is inlined.

    `_refuse_entry` finds the text for a fault.
    """
    entries: dict[str, str] = {}
    raw, at, end = bytes(data), 0, len(data)
    while at < end:
        key_at = at + 2
        key_end = key_at + int.from_bytes(raw[at:key_at], "big")
        value_at = key_end + 4
        value_end = value_at + int.from_bytes(raw[key_end:value_at], "big", signed=True)
        if not key_at <= end >= value_at <= value_end <= end:
            _refuse_entry(data, at)
        if key_end == key_at or value_end == value_at:  # null takes the place of an earlier value, as in Java's map
            entries.pop(raw[key_at:key_end].decode("utf-8", "replace"), None)
        else:
            entries[raw[key_at:key_end].decode("utf-8", "replace")] = raw[value_at:value_end].decode("utf-8", "replace")
        at = value_end
    return entries


def _refuse_entry(data: memoryview, at: int) -> NoReturn:
    """Raise for the entry at `at`, a length of which exceeds the header or is cut."""
    end = len(data)
    if at + 2 > end:
        raise BadHeader("an ext key's length is cut", field="extFields", limit=end)
    key, at = _read_text(data, at + 2, _UINT16.unpack_from(data, at)[0], "ext key")
    if at + 4 > end:
        raise BadHeader(f"the length of ext value {key[:64]!r} is cut", field="extFields", limit=end)
    _read_text(data, at + 4, _INT32.unpack_from(data, at)[0], key or "extFields")
    raise AssertionError(f"entry at {at} of {end} bytes has nothing wrong")


def _read_text(data: memoryview, at: int, length: int, name: str) -> tuple[str, int]:
    """Return the text of `length` bytes at `at` and the position behind it. Invalid UTF-8 is replaced, as in Java."""
    if length < 0 or length > len(data) - at:
        raise BadHeader(
            f"length {length} of {name[:64]!r} is outside 0..{len(data) - at}",
            field=name,
            limit=len(data) - at,
        )
    return str(data[at : at + length], "utf-8", "replace"), at + length
