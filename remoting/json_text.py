"""JSON text in and out, by orjson if it is installed, else by the standard library and a tolerant reader.

Stock bodies are in fastjson's dialect (integer and object keys, `$ref`): `load_json` reads it, `dump_json` writes
standard JSON. `json_body` writes the bodies with unquoted keys.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

from ringmq.fastjson.reader import DEPTH_MAX, is_nested_deeper, read_json

orjson: Any
try:
    import orjson
except ImportError:  # the SDK works without it
    orjson = None


def dump_json(value: Any) -> bytes:
    """Return compact standard JSON in UTF-8, keys in insertion order. Lone surrogates become "?" as in Java."""
    if orjson is not None:
        try:
            encoded: bytes = orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
            return encoded
        except (TypeError, orjson.JSONEncodeError):  # integers over 64 bits, lone surrogates
            pass
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


_MARK = b"\xef\xbb\xbf"
"""A byte order mark."""
_SPACE = bytes(range(33))
_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_LONE_SURROGATE = re.compile(rb"%s(?!%s)|(?<!%s)%s" % (_HIGH, _LOW, _HIGH, _LOW))
"""A surrogate without the other half, in text without escaped backslashes."""
_BACKSLASH, _BACKSLASH_CODE = rb"\\", rb"\u005c"


def load_json(data: bytes, dialect_bytes_max: int | None = None, tolerant_bytes_max: int | None = None) -> Any:
    """Read standard JSON quickly, else as fastjson does. Raises `ValueError` with the position of the fault.

    As in fastjson, control characters are text within strings and space around the value, a byte order mark is
    skipped, NaN is null, and text with a lone surrogate has "?" in its place, as in the bytes of a Java string.

    Values are nested in DEPTH_MAX levels at most, as the dialect's reader has it. orjson reads 1024.
    The dialect's reader is Python and needs some 1 us a byte. `dialect_bytes_max` bounds its input, None = unbounded.
    The tolerant parser of the standard library needs up to 70 ns a byte. `tolerant_bytes_max` bounds its input.
    """
    if orjson is not None:
        try:
            return _not_too_deep(orjson.loads(data), data)
        except ValueError:
            if tolerant_bytes_max is not None and len(data) > tolerant_bytes_max:
                raise
    sound = data
    if b"\\ud" in data or b"\\uD" in data:
        sound = _LONE_SURROGATE.sub(b"?", data.replace(_BACKSLASH, _BACKSLASH_CODE))
    text = sound.removeprefix(_MARK).strip(_SPACE).decode("utf-8", "replace")
    with contextlib.suppress(ValueError, RecursionError):
        return _not_too_deep(json.loads(text, strict=False, parse_constant=_constant), data)
    if dialect_bytes_max is not None and len(data) > dialect_bytes_max:
        raise ValueError(
            f"{len(data)} bytes are no standard JSON of at most {DEPTH_MAX} levels; in fastjson's dialect at most "
            f"{dialect_bytes_max} are read"
        )
    return read_json(text)


def _not_too_deep(value: Any, data: bytes) -> Any:
    """Return the value that was read from `data`. Most texts have too few brackets to be too deep."""
    if data.count(b"[") + data.count(b"{") > DEPTH_MAX and is_nested_deeper(value):
        raise ValueError(f"nested deeper than {DEPTH_MAX} levels")
    return value


def _constant(name: str) -> None:
    """The value of a word that standard JSON does not have."""
    if name != "NaN":
        raise ValueError(f"{name} is no value")
