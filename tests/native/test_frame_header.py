"""The C frame parsers: against the Python codec and against recorded frames."""

import gzip
import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.native import ffi, lib
from ringmq.remoting.codes import SerializeType
from ringmq.remoting.command import RemotingCommand, decode_frame, encode_frame

WIRE = Path(__file__).parents[1] / "golden" / "wire"
BOTH = [SerializeType.JSON, SerializeType.ROCKETMQ]
NAME = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=20)
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=40)


def recorded_frames() -> list[bytes]:
    """Every recorded frame, requests and answers."""
    frames = []
    for path in sorted(WIRE.rglob("*.jsonl.gz")):
        with gzip.open(path, "rt") as lines:
            frames += [bytes.fromhex(row["hex"]) for row in map(json.loads, lines) if "hex" in row]
    return frames


def parse(frame: bytes) -> tuple[int, int, int, int, dict[str, str]] | None:
    """code, flag, opaque, version, fields as the C parser sees them; None when it refuses or calls it unusual."""
    header = ffi.new("struct rmq_frame_header *")
    source = ffi.from_buffer(frame)
    if lib.rmq_frame_header_parse(source, len(frame), header) < 0 or header.unusual:
        return None
    fields = {}
    for index in range(header.ext_count):
        entry = header.ext[index]
        value = bytes(ffi.buffer(entry.value, entry.value_length))
        if entry.escaped:
            area = ffi.from_buffer(bytearray(value))
            length = lib.rmq_json_unescape(area, len(value))
            assert length >= 0
            value = bytes(ffi.buffer(area, length))
        fields[bytes(ffi.buffer(entry.key, entry.key_length)).decode()] = value.decode()
    return header.code, header.flag, header.opaque, header.version, fields


def test_recorded_frames_read_like_the_python_codec() -> None:
    frames = recorded_frames()
    assert len(frames) > 500
    for frame in frames:
        command = decode_frame(frame)
        assert parse(frame) == (command.code, command.flag, command.opaque, command.version, command.ext_fields)


@pytest.mark.parametrize("serialise", BOTH)
@given(
    fields=st.dictionaries(NAME, TEXT, max_size=20),
    opaque=st.integers(-(2**31), 2**31 - 1), remark=st.none() | TEXT, body=st.binary(max_size=50),
)  # fmt: skip
def test_what_the_python_codec_writes(
    fields: dict[str, str], opaque: int, remark: str | None, body: bytes, serialise: SerializeType
) -> None:
    frame = encode_frame(
        RemotingCommand(code=310, opaque=opaque, remark=remark, ext_fields=fields, body=body, serialize_type=serialise)
    )
    parsed = parse(frame)
    assert parsed is not None
    assert parsed == (310, 0, opaque, 479, fields)


def json_frame(header: str) -> bytes:
    """A frame around a JSON header text."""
    data = header.encode()
    return struct.pack(">iI", 4 + len(data), len(data)) + data


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("{}", (0, 0, 0, 0, {})),
        (' { "version" : 1 , "opaque":-7,"code":"11" , "flag" : 2 }\n', (11, 2, -7, 1, {})),
        ('{"extFields":{"a":"x","n":12,"b":true,"z":null},"code":1}', (1, 0, 0, 0, {"a": "x", "n": "12", "b": "true"})),
        ('{"code":1,"language":9,"remark":null,"other":[1,{"a":"]"}],"x":{"y":{}}}', (1, 0, 0, 0, {})),
        ('{"extFields":{"a":"\\u00e4\\ud83d\\ude00\\n\\"\\\\\\/\\u0001"}}', (0, 0, 0, 0, {"a": 'ä😀\n"\\/\x01'})),
        ('{"code":1,"extFields":{"a":"1"},"extFields":{"b":"2"}}', (1, 0, 0, 0, {"b": "2"})),
        ('{"extFields":{"a":null,"b":"2","a":"1"}}', (0, 0, 0, 0, {"a": "1", "b": "2"})),
        ('{"extFields":{"a":"1","b":"2","a":null}}', None),
        ('{"code":1,"extFields":{"a":{"b":1}}}', None),
        ('{"code":1,"extFields":{"\\u0061":"x"}}', None),
        ('{"code":1,}', None), ('{"code":1 "flag":2}', None), ('{"code":1.5}', None), ('{"code":+1}', None),
        ('{"code":tru}', None), ("{'code':1}", None), ('{code:1}', None), ('[1]', None), ('{"code":1}}', None),
        ('{"code":2147483648}', None), ('{"a":"\\', None), ('{"a":"x', None), ('{"a"}', None), ('{"a":', None),
    ],
)  # fmt: skip
def test_json_by_hand(header: str, expected: object) -> None:
    assert parse(json_frame(header)) == expected


def binary_frame(*entries: tuple[bytes, bytes]) -> bytes:
    """A frame whose binary header has these entries."""
    ext = b"".join(struct.pack(">H", len(key)) + key + struct.pack(">i", len(value)) + value for key, value in entries)
    data = struct.pack(">hBhiii", 1, 0, 0, 0, 0, 0) + struct.pack(">i", len(ext)) + ext
    return struct.pack(">iI", 4 + len(data), 1 << 24 | len(data)) + data


def test_the_last_of_two_values_counts_and_null_is_one() -> None:
    """HashMap.put of stock's readers. C leaves a null behind a value to policy code."""
    for null_last in (
        binary_frame((b"a", b"1"), (b"b", b"2"), (b"a", b"")), json_frame('{"extFields":{"a":"1","b":"2","a":null}}'),
    ):  # fmt: skip
        assert parse(null_last) is None
        assert decode_frame(null_last).ext_fields == {"b": "2"}
    for null_first in (
        binary_frame((b"a", b""), (b"a", b"1"), (b"b", b"0"), (b"b", b"2")),
        json_frame('{"extFields":{"a":null,"a":"1","b":"0","b":"2"}}'),
    ):  # fmt: skip
        parsed = parse(null_first)
        assert parsed is not None and parsed[4] == {"a": "1", "b": "2"} == decode_frame(null_first).ext_fields


@pytest.mark.parametrize("text", [b"\\", b"\\x", b"\\u12", b"\\ud800", b"\\ud800\\u0041", b"\\udc00", b"\\u12g4"])
def test_escapes_that_are_none(text: bytes) -> None:
    assert lib.rmq_json_unescape(ffi.from_buffer(bytearray(text)), len(text)) == -1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0), ("-1", -1), ("007", 7), ("9223372036854775807", 2**63 - 1), ("-9223372036854775808", -(2**63)),
        ("9223372036854775808", None), ("", None), ("-", None), ("+1", None), (" 1", None), ("1 ", None), ("1e3", None),
        ("99999999999999999999", None), ("--1", None),
    ],
)  # fmt: skip
def test_integers(text: str, value: int | None) -> None:
    out = ffi.new("int64_t *")
    assert (out[0] if lib.rmq_text_int64(text.encode(), len(text), out) else None) == value


def test_more_fields_than_the_table_holds_is_unusual() -> None:
    for serialise in BOTH:
        fields = {f"k{n}": "v" for n in range(41)}
        assert parse(encode_frame(RemotingCommand(code=1, ext_fields=fields, serialize_type=serialise))) is None
