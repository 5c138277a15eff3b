"""The JSON dialect of RocketMQ's config files: fastjson 1.2.83's pretty writer and a reader that takes what it writes.

Values: dict with str keys = bean or map (one entry per line), dict with int keys = unquoted keys on one line, list =
one element per line, tuple (Set, array) = one line. Order is the caller's; beans are alphabetical in RocketMQ.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

_ESCAPES = {
    '"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
    "\u2028": "\\u2028", "\u2029": "\\u2029",
}  # fmt: skip
_UNESCAPES = {
    '"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'",
}  # fmt: skip
_PLAIN = re.compile(r"[ !#-\[\]-~]*")
_QUOTED = re.compile(r'"([^"\\]*)"')
_WHITE = " \t\r\n"
DEPTH_MAX = 64


class FastJsonError(ValueError):
    """The text is not what fastjson reads; the message says where."""


@lru_cache(4096)
def _text(value: str) -> str:
    """A quoted string; names come again and again when tables of thousands of topics are written at each change."""
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


def dumps(value: Any, *, pretty: bool = True) -> str:
    """Write one value; None entries of a dict are left out. Raises FastJsonError for what `loads` would not take."""
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


def loads(text: str) -> Any:
    """Read one value: keys quoted or bare numbers, trailing white space allowed.

    Bare number keys become int; a list that stood on one line becomes a tuple, so that writing it again gives the
    same text. Raises FastJsonError.
    """
    reader = _Reader(text)
    value = reader.value(0)
    reader.skip_white()
    if reader.at != len(text):
        raise FastJsonError(f"unexpected text at character {reader.at}")
    return value


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def skip_white(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in _WHITE:
            self.at += 1

    def peek(self) -> str:
        self.skip_white()
        if self.at >= len(self.text):
            raise FastJsonError("the text ends in the middle of a value")
        return self.text[self.at]

    def expect(self, char: str) -> None:
        if self.peek() != char:
            raise FastJsonError(f"{char!r} expected at character {self.at}, found {self.text[self.at]!r}")
        self.at += 1

    def value(self, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise FastJsonError(f"nested deeper than {DEPTH_MAX} levels at character {self.at}")
        char = self.peek()
        if char == "{":
            return self.map(depth)
        if char == "[":
            return self.array(depth)
        if char == '"':
            return self.string()
        return self.bare()

    def string(self) -> str:
        self.skip_white()
        simple = _QUOTED.match(self.text, self.at)  # nearly all of them
        if simple is not None:
            self.at = simple.end()
            return simple[1]
        self.expect('"')
        parts = []
        while True:
            end = self.at
            while end < len(self.text) and self.text[end] not in '"\\':
                end += 1
            if end >= len(self.text):
                raise FastJsonError("the text ends in the middle of a string")
            parts.append(self.text[self.at : end])
            self.at = end + 1
            if self.text[end] == '"':
                return "".join(parts)
            parts.append(self.escape())

    def escape(self) -> str:
        code = self.text[self.at : self.at + 1]
        self.at += 1
        if code == "u":
            digits = self.text[self.at : self.at + 4]
            self.at += 4
            try:
                return chr(int(digits, 16))
            except ValueError as error:
                raise FastJsonError(f"bad \\u escape at character {self.at}") from error
        if code not in _UNESCAPES:
            raise FastJsonError(f"unknown escape \\{code} at character {self.at}")
        return _UNESCAPES[code]

    def bare(self) -> Any:
        start = self.at
        while self.at < len(self.text) and self.text[self.at] not in ",:]}" + _WHITE:
            self.at += 1
        word = self.text[start : self.at]
        if word in ("true", "false", "null"):
            return {"true": True, "false": False, "null": None}[word]
        try:
            return int(word)
        except ValueError:
            pass
        try:
            return float(word)
        except ValueError as error:
            raise FastJsonError(f"{word!r} at character {start} is no value") from error

    def map(self, depth: int) -> dict[Any, Any]:
        self.expect("{")
        out: dict[Any, Any] = {}
        while self.peek() != "}":
            key = self.string() if self.peek() == '"' else self.bare()
            if not isinstance(key, str | int) or isinstance(key, bool):
                raise FastJsonError(f"a key before character {self.at} is neither text nor a whole number")
            self.expect(":")
            out[key] = self.value(depth + 1)
            if self.peek() == ",":
                self.at += 1
            elif self.peek() != "}":
                raise FastJsonError(f"',' or '}}' expected at character {self.at}")
        self.at += 1
        return out

    def array(self, depth: int) -> list[Any] | tuple[Any, ...]:
        self.expect("[")
        one_line = not self.text[self.at : self.at + 1].isspace()
        out = []
        while self.peek() != "]":
            out.append(self.value(depth + 1))
            if self.peek() == ",":
                self.at += 1
            elif self.peek() != "]":
                raise FastJsonError(f"',' or ']' expected at character {self.at}")
        self.at += 1
        return tuple(out) if one_line else out
