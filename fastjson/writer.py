"""The writer of RocketMQ's config files: the text of fastjson 1.2.83's pretty writer, byte for byte.

A dict with str keys is a bean or a map, one entry per line. A dict with int keys has unquoted keys on one line. A list
has one element per line; a tuple (Set, array) is one line. Entries keep the caller's order. RocketMQ's beans are in
alphabetical order.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ringmq.fastjson.reader import DEPTH_MAX, FastJsonError

_ESCAPES = {
    '"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
    "\u2028": "\\u2028", "\u2029": "\\u2029",
}  # fmt: skip
_PLAIN = re.compile(r"[ !#-\[\]-~]*")


@lru_cache(4096)
def _text(value: str) -> str:
    """Return a quoted string. Results are cached: each change of a topic writes the same thousands of names again."""
    if _PLAIN.fullmatch(value):
        return f'"{value}"'
    parts = []
    for char in value:
        escape = _ESCAPES.get(char)
        if escape is None and (char < " " or "\x7f" <= char <= "\xa0"):
            escape = f"\\u{ord(char):04X}" if char >= "\x7f" else f"\\u{ord(char):04x}"
        parts.append(escape or char)
    return '"' + "".join(parts) + '"'


def _scalar(value: object) -> str:
    if isinstance(value, str):
        return _text(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    raise TypeError(f"{type(value).__name__} has no place in a config file")


def write_config(value: Any, *, pretty: bool = True) -> str:
    """Return the text of one value, without the None entries of a dict.

    Raises FastJsonError for a value whose text `read_config` would reject.
    """
    return _dump(value, 0, 0, pretty)


def _dump(value: Any, depth: int, tabs: int, pretty: bool) -> str:
    if depth > DEPTH_MAX:
        raise FastJsonError(f"nested deeper than {DEPTH_MAX} levels: no start could read it; not written")
    if isinstance(value, Mapping):
        return _dump_map(value, depth, tabs, pretty)
    if isinstance(value, tuple) or (isinstance(value, list) and not pretty):
        return "[" + ",".join(_dump(item, depth + 1, tabs, pretty) for item in value) + "]"
    if isinstance(value, list):
        if not value:
            return "[]"
        indent = "\t" * (tabs + 1)
        lines = (indent + _dump(item, depth + 1, tabs + 1, pretty) for item in value)
        return "[\n" + ",\n".join(lines) + "\n" + "\t" * tabs + "]"
    return _scalar(value)


def _dump_map(value: Mapping[Any, Any], depth: int, tabs: int, pretty: bool) -> str:
    entries = [(key, item) for key, item in value.items() if item is not None]
    if not entries:
        return "{}"
    end = "\n" + "\t" * tabs if pretty else ""
    if isinstance(entries[0][0], int):
        # fastjson's pretty mode breaks the line neither before nor between non-string keys, only before the brace.
        return "{" + ",".join(f"{key}:{_dump(item, depth + 1, tabs + 1, pretty)}" for key, item in entries) + end + "}"
    start = "\n" + "\t" * (tabs + 1) if pretty else ""
    body = ("," + start).join(f"{_text(key)}:{_dump(item, depth + 1, tabs + 1, pretty)}" for key, item in entries)
    return "{" + start + body + end + "}"
