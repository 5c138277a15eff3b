"""Names other protocols by the first bytes of a stream that is not in the remoting protocol."""

from __future__ import annotations

from ringmq.remoting.codes import SerializeType
from ringmq.remoting.command import MAX_FRAME_BYTES
from ringmq.remoting.errors import FrameError
from ringmq.remoting.frame import FIRST_BYTES

_METHODS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC")
_BEGINNINGS = {
    **dict.fromkeys(_METHODS, "an HTTP request"),
    b"HTTP": "an HTTP answer",
    b"PRI ": "an HTTP/2 preface",
    b"SSH-": "an SSH greeting",
    b"PROX": "a PROXY protocol header",
    b"\r\n\r\n": "a PROXY protocol header (version 2)",
}
"""First 4 bytes -> the protocol that begins with them. As a frame's length each key is over every limit."""


def protocol_of(first_bytes: bytes) -> str | None:
    """Return the other protocol that begins with these bytes, None if no known one does."""
    if first_bytes[:2] == b"\x16\x03":
        return "a TLS hello"
    return _BEGINNINGS.get(first_bytes[:4])


def describe(first_bytes: bytes, max_frame_bytes: int = MAX_FRAME_BYTES) -> str:
    """Return the fault of a frame with these first bytes, for a log line: printable, under 150 characters.

    `max_frame_bytes` counts a whole frame with its length field. Fewer than 4 bytes are printed as they are.
    """
    known = protocol_of(first_bytes)
    if known is not None:
        return known
    if len(first_bytes) < 4:
        return f"{len(first_bytes)} bytes: {first_bytes!r}"
    length = int.from_bytes(first_bytes[:4], "big", signed=True)
    if length < 4:
        return f"frame length {length} is below 4"
    if length > max_frame_bytes - 4:
        return f"frame length {length} over {max_frame_bytes - 4}"
    if len(first_bytes) < 8:
        return f"a frame of {length} bytes that ends early"
    kind, header_length = first_bytes[4], int.from_bytes(first_bytes[5:8], "big")
    if kind > SerializeType.ROCKETMQ:
        return f"broken header: serialize type {kind} is neither 0 (JSON) nor 1 (ROCKETMQ)"
    if header_length > length - 4:
        return f"broken header: header length {header_length} is over the frame's {length - 4}"
    header = first_bytes[8 : min(8 + header_length, FIRST_BYTES)]
    return f"broken header: {header_length} bytes of {SerializeType(kind).name} that begin with {header!r}"


def describe_error(error: FrameError) -> str:
    """Return the fault of a stream that the decoder has given up: another protocol, or the decoder's message."""
    return protocol_of(error.first_bytes) or str(error)
