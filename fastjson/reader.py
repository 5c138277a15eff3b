"""A reader of the JSON dialect that fastjson 1.2 writes, in frames and in config files.

Beyond standard JSON the reader accepts:

* unquoted keys: `{0:"10.0.0.1:10911"}`;
* whole objects as keys, in frames alone: `{{"brokerName":"b","queueId":0,"topic":"T"}:12}`. Such a key becomes its
  compact JSON text. Writers that quote the key produce the same text, so readers of `Map<MessageQueue, X>` meet one
  form;
* superfluous commas;
* control characters between the parts of a value;
* signs and points without digits behind them in numbers: `+1`, `1.`;
* NaN, in frames as null;
* the escapes `\\v` and `\\'`.

An object in a key must not have an object as a key: each level would double the escapes of its text. The depth is
bounded, so no input ends in a RecursionError.
"""

from __future__ import annotations

import json
import re
from typing import Any

DEPTH_MAX = 64

_SPACE = re.compile(r"[\x00- ]*")
_SPACE_AND_COMMAS = re.compile(r"[\x00- ,]*")
_NUMBER = re.compile(r"[-+]?[0-9]{1,400}(\.[0-9]*)?([eE][-+]?[0-9]+)?")
_IS_ODD = re.compile(r"\[|[0-9]{401}")
_NOT_FINITE = re.compile(r"-?Infinity\b|NaN\b")
_BARE_KEY = re.compile(r"[-+\w.$]+")
_WHOLE = re.compile(r"-?\d{1,400}")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_OTHER_ESCAPES = {"v": "\\u000b", "'": "'"}
_scan_string = json.decoder.scanstring  # type: ignore[attr-defined]  # C where there is C
_WORDS: dict[str, tuple[str, bool | None]] = {
    "t": ("true", True),
    "f": ("false", False),
    "n": ("null", None),
    "N": ("NaN", None),
}


class FastJsonError(ValueError):
    """The text is not in fastjson's dialect. The message names the position."""


def read_json(text: str) -> Any:
    """Return the value in a frame's `text`. All keys are str. Raises `FastJsonError`.

    A lone surrogate stays one. UTF-8 cannot encode such text, so `load_json` replaces them first.
    """
    return _read(_Reader(text))


def read_config(text: str) -> Any:
    """Return the value in a config file's `text`. `write_config` turns the value into the same text.

    Bare keys become int, and a list on a single line becomes a tuple. Raises `FastJsonError`.
    """
    try:
        # text without lists and bare keys is standard JSON, which the C code of `json` reads 20 times as fast
        value = None if _IS_ODD.search(text) else json.loads(text)
    except (ValueError, RecursionError):
        value = None
    return _read(_ConfigReader(text)) if value is None or is_nested_deeper(value, DEPTH_MAX - 1) else value


def is_nested_deeper(value: Any, levels: int = DEPTH_MAX) -> bool:
    """True if lists and objects of a value lie in one another more than `levels` times.

    Values of other readers are checked before code goes down into them: a RecursionError would end that code.
    """
    level = [value] if type(value) in (dict, list) else []
    for _ in range(levels + 1):
        if not level:
            return False
        level = [
            entry
            for part in level
            for entry in (part.values() if type(part) is dict else part)
            if type(entry) is dict or type(entry) is list
        ]
    return bool(level)


def _read(reader: _Reader) -> Any:
    value = reader.value(0)
    reader.skip(_SPACE)
    if reader.at != len(reader.text):
        raise reader.fault("the end of the text")
    return value


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.in_key = False

    def fault(self, wanted: str) -> FastJsonError:
        if self.at >= len(self.text):
            return FastJsonError(f"wanted {wanted} at character {self.at}, but the text ends there")
        return FastJsonError(f"wanted {wanted} at character {self.at}, found {self.text[self.at : self.at + 16]!r}")

    def skip(self, pattern: re.Pattern[str]) -> str:
        """Skip `pattern` and return the character that follows, "" at the end."""
        match = pattern.match(self.text, self.at)
        if match is not None:
            self.at = match.end()
        return self.text[self.at : self.at + 1]

    def value(self, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise FastJsonError(f"nested deeper than {DEPTH_MAX} levels at character {self.at}")
        head = self.skip(_SPACE)
        if head == "{":
            return self.object(depth)
        if head == "[":
            return self.array(depth)
        if head == '"':
            return self.string()
        if head in _WORDS:
            word, value = _WORDS[head]
            if not self.text.startswith(word, self.at):
                raise self.fault("a value")
            self.at += len(word)
            return value
        match = _NUMBER.match(self.text, self.at)
        if match is None:
            raise self.fault("a value")
        self.at = match.end()
        return float(match[0]) if match[1] or match[2] else int(match[0])

    def string(self) -> str:
        value: str
        try:
            value, self.at = _scan_string(self.text, self.at + 1, False)
        except ValueError as error:
            match = _STRING.match(self.text, self.at)
            plain = match and _ESCAPE.sub(lambda escape: _OTHER_ESCAPES.get(escape[1], escape[0]), match[0])
            if match is None or plain == match[0]:
                raise self.bad_string() from error
            try:
                value, _ = _scan_string(plain, 1, False)
            except ValueError:
                raise self.bad_string() from error
            self.at = match.end()
        return value

    def bad_string(self) -> FastJsonError:
        return FastJsonError(f"string at character {self.at} does not end or holds a bad escape")

    def array(self, depth: int) -> list[Any] | tuple[Any, ...]:
        self.at += 1
        items: list[Any] = []
        while self.skip(_SPACE_AND_COMMAS) != "]":
            items.append(self.value(depth + 1))
            if self.skip(_SPACE) not in (",", "]"):
                raise self.fault("',' or ']'")
        self.at += 1
        return items

    def object(self, depth: int) -> dict[Any, Any]:
        self.at += 1
        entries: dict[Any, Any] = {}
        while self.skip(_SPACE_AND_COMMAS) != "}":
            key = self.key(depth)
            if self.skip(_SPACE) != ":":
                raise self.fault("':'")
            self.at += 1
            entries[key] = self.value(depth + 1)
            if self.skip(_SPACE) not in (",", "}"):
                raise self.fault("',' or '}'")
        self.at += 1
        return entries

    def key(self, depth: int) -> str | int:
        head = self.text[self.at : self.at + 1]
        if head == '"':
            return self.string()
        if head == "{" and not self.in_key:
            self.in_key = True
            value = self.value(depth + 1)
            self.in_key = False
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        match = _BARE_KEY.match(self.text, self.at)
        if match is None:
            raise self.fault("a key")
        self.at = match.end()
        return match[0]


class _ConfigReader(_Reader):
    def value(self, depth: int) -> Any:
        """A number that is not finite is read, so that the table's own check leaves out its entry alone."""
        self.skip(_SPACE)
        match = _NOT_FINITE.match(self.text, self.at)
        if match is None:
            return super().value(depth)
        self.at = match.end()
        return float(match[0])

    def array(self, depth: int) -> list[Any] | tuple[Any, ...]:
        one_line = not self.text[self.at + 1 : self.at + 2].isspace()
        items = super().array(depth)
        return tuple(items) if one_line else items

    def key(self, depth: int) -> str | int:
        if self.text[self.at : self.at + 1] == '"':
            return self.string()
        match = _BARE_KEY.match(self.text, self.at)
        if match is None or _WHOLE.fullmatch(match[0]) is None:
            raise self.fault("a key of text or a whole number")
        self.at = match.end()
        return int(match[0])
