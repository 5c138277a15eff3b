"""Code, flag and opaque of a header that does not parse, so that its request is answered. C twin: frame_header.c."""

from __future__ import annotations

import re
import struct

from ringmq.remoting.errors import BadHeader, UnreadableHeader
from ringmq.remoting.java_numbers import INT32, java_integer

_TOKEN = re.compile(rb'"((?:[^"\\]|\\.)*+)"|([0-9A-Za-z]+)|(")', re.DOTALL)
"""A string, a word, or the quote of a string that does not end."""
_COLON = re.compile(rb"'?[\x00- ]*:[\x00- ]*")
_SCALAR = re.compile(rb'"((?:[^"\\]|\\.)*+)"|([-+.0-9A-Za-z]+)(?=[\x00- ,}\]]|\Z)', re.DOTALL)
_NAMES = (b"opaque", b"code", b"flag")
_BINARY_NUMBERS = struct.Struct(">hBhii")


def as_unreadable(error: BadHeader, header: bytes, *, is_json: bool) -> BadHeader | UnreadableHeader:
    """Return the error for a header that does not parse: `error` itself if the opaque is unknown."""
    if is_json:
        numbers = _find_numbers(header)
        opaque, code, flag = numbers.get(b"opaque"), numbers.get(b"code") or 0, numbers.get(b"flag") or 0
    elif len(header) >= _BINARY_NUMBERS.size:
        code, _, _, opaque, flag = _BINARY_NUMBERS.unpack_from(header)
    else:
        return error
    if opaque is None:
        return error
    return UnreadableHeader(error, request_code=code, flag=flag, opaque=opaque, is_json=is_json)


def _find_numbers(header: bytes) -> dict[bytes, int | None]:
    """Return key -> the number behind it, wherever that is: the brackets of malformed text prove nothing.

    None = something else is behind it, or two different numbers are.
    """
    found: dict[bytes, int | None] = {}
    for token in _TOKEN.finditer(header):
        if token[3] is not None:
            break
        name = token[2] if token[1] is None else token[1]
        if name in _NAMES and (colon := _COLON.match(header, token.end())) is not None:
            number = _number_at(header, colon.end())
            found[name] = number if found.get(name, number) == number else None
    return found


def _number_at(header: bytes, at: int) -> int | None:
    value = _SCALAR.match(header, at)
    if value is None:
        return None
    try:
        return java_integer((value[1] or value[2] or b"").decode("latin-1"), *INT32)
    except ValueError:
        return None
