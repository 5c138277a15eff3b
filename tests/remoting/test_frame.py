"""The stream decoder: whole, byte by byte, cut, followed by junk, and lied to."""

import contextlib
import gc
import struct
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.remoting.command import RemotingCommand, SerializeType, decode_frame, encode_frame
from ringmq.remoting.errors import BadFrame, BadHeader, EncodeError, FrameError, FrameTooLarge, UnreadableHeader
from ringmq.remoting.frame import FrameDecoder

JSON_105 = bytes.fromhex("0000007f0000007b") + (
    b'{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":1,'
    b'"serializeTypeCurrentRPC":"JSON","version":479}'
)
BINARY_105 = bytes.fromhex("000000250100002100690001df0000000100000000000000000000000c0005746f7069630000000154")
BINARY_ANSWER = bytes.fromhex("0000001e0100001700110001df0000000100000001000000026e6f00000000010203")

VECTORS = [
    (JSON_105, RemotingCommand(105, 1, language="JAVA", ext_fields={"topic": "T"})),
    (
        BINARY_105,
        RemotingCommand(105, 1, language="JAVA", ext_fields={"topic": "T"}, serialize_type=SerializeType.ROCKETMQ),
    ),
    (
        BINARY_ANSWER,
        RemotingCommand(
            17,
            1,
            1,
            "JAVA",
            remark="no",
            body=b"\x01\x02\x03",
            serialize_type=SerializeType.ROCKETMQ,
        ),
    ),
]


@pytest.mark.parametrize(("frame", "command"), VECTORS)
def test_vectors_both_ways(frame: bytes, command: RemotingCommand) -> None:
    assert decode_frame(frame) == command
    assert encode_frame(command) == frame


@pytest.mark.parametrize(("frame", "command"), VECTORS)
def test_byte_by_byte_and_with_a_successor(frame: bytes, command: RemotingCommand) -> None:
    decoder = FrameDecoder()
    for byte in frame[:-1]:
        assert decoder.feed(bytes((byte,))) == []
    assert decoder.feed(frame[-1:] + frame[:3]) == [command]
    assert decoder.buffered_bytes == 3
    assert decoder.feed(frame[3:] + frame) == [command, command]


@pytest.mark.parametrize(("frame", "_"), VECTORS)
def test_a_cut_frame_is_no_frame(frame: bytes, _: RemotingCommand) -> None:
    for length in range(len(frame)):
        with pytest.raises(FrameError):
            decode_frame(frame[:length])
    with pytest.raises(BadFrame):
        decode_frame(frame + b"x")


def test_commands_before_junk_are_kept_and_the_decoder_stays_broken() -> None:
    decoder = FrameDecoder()
    with pytest.raises(FrameTooLarge) as caught:
        decoder.feed(JSON_105 + BINARY_105 + b"GET / HTTP/1.1\r\n")
    assert [command.opaque for command in caught.value.commands_before if isinstance(command, RemotingCommand)] == [
        1,
        1,
    ]
    with pytest.raises(FrameTooLarge):
        decoder.feed(JSON_105)


def prefix(length: int, kind: int, header: int) -> bytes:
    return struct.pack(">iI", length, kind << 24 | header)


@pytest.mark.parametrize(
    ("data", "error", "field"),
    [
        (prefix(3, 0, 0), BadFrame, "frame length"),
        (prefix(0, 0, 0), BadFrame, "frame length"),
        (prefix(-1, 0, 0), BadFrame, "frame length"),
        (prefix(-(1 << 31), 0, 0), BadFrame, "frame length"),
        (prefix((1 << 24) - 3, 0, 8), FrameTooLarge, "frame length"),
        (prefix(0x7FFFFFFF, 0, 8), FrameTooLarge, "frame length"),
        (prefix(100, 2, 8), BadFrame, "serialize type"),
        (prefix(100, 255, 8), BadFrame, "serialize type"),
        (prefix(100, 0, 97), BadFrame, "header length"),
        (prefix(100, 1, 0xFFFFFF), BadFrame, "header length"),
    ],
)
def test_a_lying_prefix_is_refused_before_its_bytes_come(data: bytes, error: type[FrameError], field: str) -> None:
    with pytest.raises(error) as caught:
        FrameDecoder().feed(data)
    assert caught.value.field == field


def test_the_largest_frame_passes_and_one_byte_more_does_not() -> None:
    limit = 4096
    empty = len(encode_frame(RemotingCommand(10)))
    fits = encode_frame(RemotingCommand(10, body=b"x" * (limit - empty)))
    assert len(fits) == limit
    assert len(FrameDecoder(limit).feed(fits)) == 1
    with pytest.raises(FrameTooLarge) as caught:
        FrameDecoder(limit).feed(encode_frame(RemotingCommand(10, body=b"x" * (limit - empty + 1))))
    assert caught.value.limit == limit
    assert str(limit + 1) in str(caught.value)


def json_frame(header: bytes) -> bytes:
    return struct.pack(">iI", 4 + len(header), len(header)) + header


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (b'{"code":34}', RemotingCommand(34, language="", version=0)),
        (b'{"code":34,"language":"go"}', RemotingCommand(34, language="GO", version=0)),
        (b'{"code":34,"language":"KLINGON"}', RemotingCommand(34, language="", version=0)),
        (b'{"code":34,"language":9}', RemotingCommand(34, language="GO", version=0)),
        (b'{"code":34,"language":99}', RemotingCommand(34, language="", version=0)),
        (b'{"code":"34","opaque":"7"}', RemotingCommand(34, 7, language="", version=0)),
        (b'{"code":34,"unknown":[1,{"a":2}]}', RemotingCommand(34, language="", version=0)),
        (
            b'{"code":34,"extFields":{"a":1,"b":true,"c":null,"d":"x","e":-2}}',
            RemotingCommand(34, language="", version=0, ext_fields={"a": "1", "b": "true", "d": "x", "e": "-2"}),
        ),
        (b'{"code":34,"extFields":null,"remark":""}', RemotingCommand(34, language="", version=0, remark="")),
        (
            b'{code:34,"extFields":{1:"x",},}',
            RemotingCommand(34, language="", version=0, ext_fields={"1": "x"}),
        ),
        (b'{"code":34,"remark":"\xff"}', RemotingCommand(34, language="", version=0, remark="\ufffd")),
        # recorded from fastjson 1.2.83
        (b'{"code":34,"remark":"a\\ud83d"}', RemotingCommand(34, language="", version=0, remark="a?")),
        (b'{"code":34,"remark":"\\ude00\\uD83D\\u0041"}', RemotingCommand(34, language="", version=0, remark="??A")),
        (b'{"code":34,"remark":"\\\\ud83d"}', RemotingCommand(34, language="", version=0, remark="\\ud83d")),
        (b'{"code":34}\0\0', RemotingCommand(34, language="", version=0)),
        (b'\xef\xbb\xbf{"code":34}', RemotingCommand(34, language="", version=0)),
        (
            b'{"code":34,"extFields":{"a":NaN,"b":"1"}}',
            RemotingCommand(34, language="", version=0, ext_fields={"b": "1"}),
        ),
        (b'{"code":34.0,"opaque":79.9,"flag":2e0}', RemotingCommand(34, 79, 2, language="", version=0)),
        (b'{"code":"+34","opaque":"79.0","flag":"null"}', RemotingCommand(34, 79, language="", version=0)),
        (b'{"code":+34,"opaque":true,"flag":NaN}', RemotingCommand(34, 1, language="", version=0)),
        (b'{"code":34,"extFields":""}', RemotingCommand(34, language="", version=0)),
    ],
)
def test_json_headers_as_tolerant_as_stock(header: bytes, expected: RemotingCommand) -> None:
    assert decode_frame(json_frame(header)) == expected


@pytest.mark.parametrize(
    ("header", "field"),
    [
        (b"", "header"),
        (b"[]", "header"),
        (b"{", "header"),
        (b'{"code":34}x', "header"),
        (b'{"code":{}}', "code"),
        (b'{"code":2147483648}', "code"),
        (b'{"code":1,"opaque":-2147483649}', "opaque"),
        (b'{"code":1e999}', "code"),
        (b'{"code":1,"extFields":[]}', "extFields"),
        (b"[" * 5000, "header"),
        (b'{"a":' * 5000, "header"),
    ],
)
def test_json_headers_that_break_the_connection(header: bytes, field: str) -> None:
    with pytest.raises(BadHeader) as caught:
        decode_frame(json_frame(header))
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("header", "field", "known"),
    [
        (b'{"opaque":79,"code":34,"flag":2}x', "header", (34, 2, 79)),
        (b'{"code":34,"opaque":79,"extFields":{"e":Infinity}}', "header", (34, 0, 79)),
        (b'{"opaque":"79","code":{}}', "code", (0, 0, 79)),
        (b'{"code":2147483648,"opaque":79}', "code", (0, 0, 79)),
        (b'{"code":34,"opaque":79,"extFields":[]}', "extFields", (34, 0, 79)),
        (b'{"code":34,"opaque":79,"remark":"\\q"}', "header", (34, 0, 79)),
        (b"{'code':34,'opaque':79}", "header", (34, 0, 79)),
        (b'{"code":34,"opaque":79,"remark":"cut', "header", (34, 0, 79)),
    ],
)  # fmt: skip
def test_an_unreadable_header_with_an_opaque_can_be_answered(
    header: bytes, field: str, known: tuple[int, int, int]
) -> None:
    decoder = FrameDecoder()
    decoder.push(json_frame(header) + json_frame(b'{"code":35}'))
    with pytest.raises(UnreadableHeader) as caught:
        decoder.take()
    error = caught.value
    assert (error.field, error.code, (error.request_code, error.flag, error.opaque)) == (field, 1, known)
    following = decoder.take()
    assert following is not None and following.code == 35
    assert decoder.take() is None


@pytest.mark.parametrize(
    "header",
    [
        b'{"opaque":1,"opaque":2}x',
        b'{"opaque":{}}',
        b'{"opaque":4294967375}',
        b'{"remark":"\\"opaque\\":79"}x',
    ],
)
def test_an_unknown_opaque_breaks_the_connection(header: bytes) -> None:
    with pytest.raises(BadHeader):
        decode_frame(json_frame(header))


def binary_frame(header: bytes) -> bytes:
    return struct.pack(">iI", 4 + len(header), 1 << 24 | len(header)) + header


FIXED = bytes.fromhex("0069 00 01df 00000001 00000000")


@pytest.mark.parametrize(
    ("header", "field"),
    [
        (FIXED + b"\0" * 7, "header length"),
        (FIXED + struct.pack(">i", 1) + b"\0" * 4, "extFields"),
        (FIXED + struct.pack(">i", -1) + b"\0" * 4, "remark"),
        (FIXED + struct.pack(">i", 0x7FFFFFFF) + b"\0" * 4, "remark"),
        (FIXED + struct.pack(">ii", 0, 1), "extFields"),
        (FIXED + struct.pack(">ii", 0, 1) + b"\0", "extFields"),
        (FIXED + struct.pack(">ii", 0, 3) + b"\0\1k", "extFields"),
        (FIXED + struct.pack(">ii", 0, 7) + b"\0\1k" + struct.pack(">i", 1), "k"),
        (FIXED + struct.pack(">ii", 0, 7) + b"\0\1k" + struct.pack(">i", -5), "k"),
        (FIXED + struct.pack(">ii", 0, 4) + b"\xff\xffkk", "ext key"),
    ],
)
def test_unreadable_binary_headers(header: bytes, field: str) -> None:
    with pytest.raises(UnreadableHeader) as caught:
        decode_frame(binary_frame(header))
    error = caught.value
    assert (error.field, error.request_code, error.flag, error.opaque) == (field, 105, 0, 1)


def test_a_binary_header_without_an_opaque_breaks_the_connection() -> None:
    for length in (0, 12):
        with pytest.raises(BadHeader):
            decode_frame(binary_frame(FIXED[:length]))


def test_zero_lengths_mean_null_in_the_binary_form() -> None:
    header = FIXED + struct.pack(">ii", 0, 14) + b"\0\1k" + struct.pack(">i", 0) + b"\0\1v" + struct.pack(">i", 0)
    command = decode_frame(binary_frame(header))
    assert command.remark is None
    assert command.ext_fields == {}
    assert decode_frame(binary_frame(FIXED + struct.pack(">ii", 0, -1))).ext_fields == {}


def test_an_unknown_language_byte_is_no_language() -> None:
    command = decode_frame(binary_frame(b"\0\x69\x63" + FIXED[3:] + b"\0" * 8))
    assert command.language == ""


@pytest.mark.parametrize("code", [-1000, -1006, 32767])
def test_negative_codes_survive_the_binary_form(code: int) -> None:
    command = RemotingCommand(code, serialize_type=SerializeType.ROCKETMQ)
    assert decode_frame(encode_frame(command)) == command


@pytest.mark.parametrize("code", [200050, 32768, -32769])
def test_codes_over_16_bits_do_not_travel_binary(code: int) -> None:
    with pytest.raises(EncodeError) as caught:
        encode_frame(RemotingCommand(code, serialize_type=SerializeType.ROCKETMQ))
    assert caught.value.field == "code"
    assert decode_frame(encode_frame(RemotingCommand(code))).code == code


TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT16 = st.integers(-(1 << 15), (1 << 15) - 1)
COMMANDS = st.builds(
    RemotingCommand,
    code=INT16,
    opaque=INT32,
    flag=INT32,
    language=st.sampled_from(["JAVA", "GO", "PYTHON", "NODE_JS"]),
    version=INT16,
    remark=st.none() | st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
    ext_fields=st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
        max_size=6,
    ),
    body=st.binary(max_size=200),
    serialize_type=st.sampled_from(list(SerializeType)),
)


@given(COMMANDS)
def test_any_command_comes_back(command: RemotingCommand) -> None:
    assert decode_frame(encode_frame(command)) == command


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_raise_a_frame_error(data: bytes) -> None:
    try:
        FrameDecoder().feed(data)
    except (FrameError, UnreadableHeader) as error:
        assert error.field


def test_a_value_without_a_key_that_leads_out_of_the_header_names_the_fields() -> None:
    entry = b"\0\0" + (7).to_bytes(4, "big") + b"x"
    header = struct.pack(">HBHiiii", 105, 0, 1, 1, 0, 0, len(entry)) + entry
    frame = (4 + len(header)).to_bytes(4, "big") + (1 << 24 | len(header)).to_bytes(4, "big") + header
    with pytest.raises(UnreadableHeader, match="length 7 of 'extFields' is outside") as caught:
        FrameDecoder().feed(frame)
    assert caught.value.field == "extFields"


@given(st.sampled_from([frame for frame, _ in VECTORS]), st.data())
def test_any_damaged_frame_decodes_or_raises_a_frame_error(frame: bytes, data: st.DataObject) -> None:
    damaged = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    try:
        FrameDecoder(1 << 16).feed(bytes(damaged))
    except (FrameError, UnreadableHeader) as error:
        assert error.field


@given(st.binary(max_size=120))
def test_any_binary_header_decodes_or_raises(header: bytes) -> None:
    try:
        decode_frame(binary_frame(FIXED + header))
    except UnreadableHeader as error:
        assert error.field is not None


@pytest.mark.parametrize(
    "junk", [b"{" * 64, encode_frame(RemotingCommand(105))[:8] + b"}" * 200, struct.pack(">ii", 1 << 30, 0)]
)
def test_a_broken_decoder_and_its_bytes_go_without_the_garbage_collector(junk: bytes) -> None:
    gc.disable()
    try:
        decoder = FrameDecoder()
        decoder.push(junk)
        for _ in range(2):
            with contextlib.suppress(FrameError):
                decoder.take()
        gone = weakref.ref(decoder)
        assert decoder.is_ready
        assert decoder.buffered_bytes == 0
        del decoder
        assert gone() is None
    finally:
        gc.enable()
