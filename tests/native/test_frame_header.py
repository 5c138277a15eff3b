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
from ringmq.remoting.errors import BadHeader, UnreadableHeader
from ringmq.remoting.java_numbers import INT64, java_integer

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
        ('{"extFields":{"a":"1","b":"2","a":null}}', (0, 0, 0, 0, {"b": "2"})),
        ('\ufeff{"code":1}\0\0', (1, 0, 0, 0, {})), ('{"code":1\0,"flag":\x01 2\x1f}', (1, 2, 0, 0, {})),
        ('{"code":1.9,"opaque":-7.0,"flag":2e0,"version":3.}', (1, 2, -7, 3, {})),
        ('{"code":+1,"opaque":"79.00","flag":"","version":"null"}', (1, 0, 79, 0, {})),
        ('{"code":"\\u0037","opaque":true,"flag":false,"version":NaN}', (7, 0, 1, 0, {})),
        ('{"extFields":{"a":NaN,"b":+5,"c":"\\ud83d\\v\\u0027"}}', (0, 0, 0, 0, {"b": "+5", "c": "?\v'"})),
        ('{"code":1e10}', None), ('{"code":"1e1"}', None), ('{"code":"1.5"}', None), ('{"code":.5}', None),
        ('{"code":2147483648.0}', None), ('{"code":" 1"}', None), ('{"code":0x1}', None), ('{"code":Infinity}', None),
        ('{"code":-NaN}', None), ('{"extFields":{"a":-Infinity}}', None), ('{"code":1}\ufeff', None),
        ('{"code":1,"extFields":{"a":{"b":1}}}', None),
        ('{"code":1,"extFields":{"\\u0061":"x"}}', None),
        ('{"code":1,}', None), ('{"code":1 "flag":2}', None),
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
    """HashMap.put of stock's readers."""
    for null_last in (
        binary_frame((b"a", b"1"), (b"b", b"2"), (b"a", b"")), json_frame('{"extFields":{"a":"1","b":"2","a":null}}'),
    ):  # fmt: skip
        parsed = parse(null_last)
        assert parsed is not None and parsed[4] == {"b": "2"} == decode_frame(null_last).ext_fields
    for null_first in (
        binary_frame((b"a", b""), (b"a", b"1"), (b"b", b"0"), (b"b", b"2")),
        json_frame('{"extFields":{"a":null,"a":"1","b":"0","b":"2"}}'),
    ):  # fmt: skip
        parsed = parse(null_first)
        assert parsed is not None and parsed[4] == {"a": "1", "b": "2"} == decode_frame(null_first).ext_fields


@pytest.mark.parametrize("text", [b"\\", b"\\x", b"\\u12", b"\\u12g4", b"\\ud800\\", b"\\ud800\\u12g4"])
def test_escapes_that_are_none(text: bytes) -> None:
    assert lib.rmq_json_unescape(ffi.from_buffer(bytearray(text)), len(text)) == -1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0), ("-1", -1), ("007", 7), ("9223372036854775807", 2**63 - 1), ("-9223372036854775808", -(2**63)),
        ("9223372036854775808", None), ("", None), ("-", None), ("+", None), ("+1", 1), ("-0", 0), (" 1", None),
        ("1 ", None), ("1e3", None),
        ("99999999999999999999", None), ("--1", None), ("+-1", None), ("-9223372036854775809", None),
        ("0" * 30 + "5", 5), ("+" + "0" * 5000, 0), ("-" + "0" * 20 + "9223372036854775808", -(2**63)),
        ("1" + "0" * 5000, None), ("0x1", None), ("1_0", None), ("1.0", None), ("\u0663", None), ("\uff11", None),
    ],
)  # fmt: skip
def test_integers(text: str, value: int | None) -> None:
    out, raw = ffi.new("int64_t *"), text.encode()
    assert (out[0] if lib.rmq_text_int64(raw, len(raw), out) else None) == value
    if value is None:
        with pytest.raises(ValueError, match=r"."):
            java_integer(text, *INT64)
    else:
        assert java_integer(text, *INT64) == value


def test_more_fields_than_the_table_holds_is_unusual() -> None:
    for serialise in BOTH:
        fields = {f"k{n}": "v" for n in range(41)}
        assert parse(encode_frame(RemotingCommand(code=1, ext_fields=fields, serialize_type=serialise))) is None


def both(frame: bytes) -> None:
    """C and Python find the same numbers. What Python cannot read, C has not closed for unless Python would."""
    header = ffi.new("struct rmq_frame_header *")
    is_read = lib.rmq_frame_header_parse(ffi.from_buffer(frame), len(frame), header) == 0
    numbers = (header.code, header.flag, header.opaque)
    try:
        command = decode_frame(frame)
    except UnreadableHeader as error:
        if header.unusual == lib.RMQ_UNUSUAL_FORM:
            assert numbers == (error.request_code, error.flag, error.opaque)
        assert is_read
    except BadHeader:
        assert not is_read or header.unusual != lib.RMQ_UNUSUAL_FORM
    else:
        assert not is_read or header.unusual == lib.RMQ_UNUSUAL_FORM or numbers == (
            command.code, command.flag, command.opaque,
        )  # fmt: skip


HEADERS = [
    b'{"code":310,"extFields":{"e":"0","i":"k\\u0001v"},"flag":2,"language":"PYTHON","opaque":79,"version":479}',
    b'{"opaque":"79","remark":"x\\"opaque\\":5","flag":1,"x":[1,{"opaque":79}],"code":-1}',
    b"{code:310,'opaque':79,\"flag\" : 0,}",
]
PIECES = [
    b'"', b"'", b"\\", b"{", b"}", b"[", b"]", b":", b",", b"\0", b" ", b"79", b"NaN", b"-", b".0", b"e1", b"+",
    b"\xff", b"\xef\xbb\xbf", b'"opaque":', b'"opaque":79,', b"true", b"null", b'"code":"x",', b"\\ud83d", b"_",
    b"99999999999",
]  # fmt: skip


@given(st.sampled_from(HEADERS), st.data())
def test_damaged_json_headers_have_the_same_numbers_for_both(header: bytes, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 3))):
        at, size = data.draw(st.integers(0, len(header))), data.draw(st.integers(0, 6))
        header = header[:at] + data.draw(st.sampled_from(PIECES)) + header[at + size :]
    both(struct.pack(">iI", 4 + len(header), len(header)) + header)


@given(st.binary(max_size=40))
def test_damaged_binary_headers_have_the_same_numbers_for_both(header: bytes) -> None:
    both(struct.pack(">iI", 4 + len(header), 1 << 24 | len(header)) + header)
