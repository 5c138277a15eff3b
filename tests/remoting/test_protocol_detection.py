"""The log's names for junk, by its first bytes."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.remoting.command import RemotingCommand, encode_frame
from ringmq.remoting.errors import FrameError
from ringmq.remoting.frame import FIRST_BYTES, FrameDecoder
from ringmq.remoting.protocol_detection import describe, describe_error, protocol_of

CASES = {
    b"GET / HTTP/1.1\r\n": "an HTTP request",
    b"POST /v1 HTTP/1.": "an HTTP request",
    b"OPTI": "an HTTP request",
    b"HTTP/1.1 400 Bad": "an HTTP answer",
    b"PRI * HTTP/2.0\r\n": "an HTTP/2 preface",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03": "a TLS hello",
    b"\x16\x03\x03\x00": "a TLS hello",
    b"SSH-2.0-OpenSSH_": "an SSH greeting",
    b"PROXY TCP4 10.0.": "a PROXY protocol header",
    b"\r\n\r\n\0\r\nQUIT\n": "a PROXY protocol header (version 2)",
    struct.pack(">i", 17 << 20): "frame length 17825792 over 16777212",
    struct.pack(">i", 3): "frame length 3 is below 4",
    struct.pack(">i", -1): "frame length -1 is below 4",
    struct.pack(">iI", 8, 2 << 24): "broken header: serialize type 2 is neither 0 (JSON) nor 1 (ROCKETMQ)",
    struct.pack(">iI", 6, 3) + b"{}": "broken header: header length 3 is over the frame's 2",
    struct.pack(">iI", 30, 26) + b'{"code":': "broken header: 26 bytes of JSON that begin with b'{\"code\":'",
    struct.pack(">iI", 30, 2) + b"{]abcdef": "broken header: 2 bytes of JSON that begin with b'{]'",
    struct.pack(">i", 30): "a frame of 30 bytes that ends early",
    b"\0\0": "2 bytes: b'\\x00\\x00'",
}


@pytest.mark.parametrize("first", CASES, ids=repr)
def test_junk_is_named(first: bytes) -> None:
    assert describe(first) == CASES[first]


def test_the_limit_is_the_servers() -> None:
    assert describe(struct.pack(">i", 2000), 1024) == "frame length 2000 over 1020"


@given(st.binary(max_size=FIRST_BYTES))
def test_any_bytes_make_one_short_printable_line(first: bytes) -> None:
    text = describe(first)
    assert text.isprintable()
    assert text.isascii()
    assert len(text) < 150
    assert protocol_of(first) in (None, text)


@pytest.mark.parametrize(
    ("junk", "spoken"),
    [
        (b"GET /metrics HTTP/1.1\r\n\r\n", "an HTTP request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", "a TLS hello"),
        (struct.pack(">iI", 17 << 20, 0), "frame of 17825796 bytes is over the limit of 16777216"),
    ],
)
def test_a_decoder_keeps_the_first_bytes_of_what_is_no_frame(junk: bytes, spoken: str) -> None:
    with pytest.raises(FrameError) as caught:
        FrameDecoder().feed(encode_frame(RemotingCommand(105)) + junk)
    assert caught.value.first_bytes == junk[:FIRST_BYTES]
    assert describe_error(caught.value) == spoken
