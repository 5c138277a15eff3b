"""JSON text in and out, by orjson if it is installed, else by the standard library and a tolerant reader.

Stock bodies are in fastjson's dialect (integer and object keys, `$ref`): `load_json` reads it, `dump_json` writes
standard JSON. `json_body` writes the bodies with unquoted keys.
"""

from __future__ import annotations

import contextlib
import json
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


def load_json(data: bytes, dialect_bytes_max: int | None = None) -> Any:
    """Read standard JSON quickly, else fastjson's dialect. Raises `ValueError` with the position of the fault.

    Values are nested in DEPTH_MAX levels at most, as the dialect's reader has it. orjson reads 1024.
    The dialect's reader is Python and needs some 1 us a byte. `dialect_bytes_max` bounds its input, None = unbounded.
    """
    if orjson is not None:
        try:
            return _not_too_deep(orjson.loads(data), data)
        except ValueError:
            pass
    if dialect_bytes_max is not None and len(data) > dialect_bytes_max:
        return _load_standard(data, dialect_bytes_max)
    return read_json(data.decode("utf-8", "replace"))


def _not_too_deep(value: Any, data: bytes) -> Any:
    """Return the value that was read from `data`. Most texts have too few brackets to be too deep."""
    if data.count(b"[") + data.count(b"{") > DEPTH_MAX and is_nested_deeper(value):
        raise ValueError(f"nested deeper than {DEPTH_MAX} levels")
    return value


def _load_standard(data: bytes, dialect_bytes_max: int) -> Any:
    """Read standard JSON that is too large for the reader in Python. orjson, if installed, has rejected it."""
    if orjson is None:
        with contextlib.suppress(ValueError, RecursionError):
            return _not_too_deep(json.loads(data), data)
    raise ValueError(
        f"{len(data)} bytes are no standard JSON of at most {DEPTH_MAX} levels; in fastjson's dialect at most "
        f"{dialect_bytes_max} are read"
    )
