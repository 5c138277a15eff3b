"""A reader for the JSON dialect that Java's side writes (fastjson 1.2).

Beyond standard JSON it takes:

* unquoted keys: `{0:"10.0.0.1:10911"}`;
* whole objects as keys: `{{"brokerName":"b","queueId":0,"topic":"T"}:12}`. Such a key becomes its compact
  JSON text, which is also what writers that quote it produce, so readers of `Map<MessageQueue, X>` meet one
  form;
* superfluous commas.

An object in a key has no key that is an object: each level would double the escapes of its text. Depth is bounded, so
that no input ends in a RecursionError. Lone surrogates are refused, as orjson does: text that no UTF-8 can hold
could be put into no file and no frame.
"""

from __future__ import annotations

import json
import re
from typing import Any

MAX_DEPTH = 64

_SPACE = re.compile(r"[ \t\r\n]*")
_SPACE_AND_COMMAS = re.compile(r"[ \t\r\n,]*")
_NUMBER = re.compile(r"-?\d{1,400}(\.\d+)?([eE][-+]?\d+)?")
_BARE_KEY = re.compile(r"[-+\w.$]+")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_scan_string = json.decoder.scanstring  # type: ignore[attr-defined]  # C where there is C
_WORDS: dict[str, tuple[str, bool | None]] = {"t": ("true", True), "f": ("false", False), "n": ("null", None)}


def read_json(text: str) -> Any:
    """The value in `text`. Raises `ValueError` naming the position of the fault."""
    reader = _Reader(text)
    value = reader.value(0)
    reader.skip(_SPACE)
    if reader.at != len(text):
        raise reader.fault("the end of the text")
    return value


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.last_key = ""
        self.in_key = False

    def fault(self, wanted: str) -> ValueError:
        return ValueError(f"wanted {wanted} at character {self.at}, found {self.text[self.at : self.at + 16]!r}")

    def skip(self, pattern: re.Pattern[str]) -> str:
        """Skip `pattern` and say which character follows, "" at the end."""
        match = pattern.match(self.text, self.at)
        if match is not None:
            self.at = match.end()
        return self.text[self.at : self.at + 1]

    def value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH} at character {self.at}")
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
        begin = self.at
        try:
            value, self.at = _scan_string(self.text, self.at + 1, False)
        except ValueError as error:
            raise ValueError(f"string at character {self.at} does not end or holds a bad escape") from error
        if _LONE_SURROGATE.search(value):
            raise ValueError(f"lone surrogate in the string at character {begin}, last key {self.last_key[:64]!r}")
        return str(value)

    def array(self, depth: int) -> list[Any]:
        self.at += 1
        items: list[Any] = []
        while self.skip(_SPACE_AND_COMMAS) != "]":
            items.append(self.value(depth + 1))
            if self.skip(_SPACE) not in (",", "]"):
                raise self.fault("',' or ']'")
        self.at += 1
        return items

    def object(self, depth: int) -> dict[str, Any]:
        self.at += 1
        entries: dict[str, Any] = {}
        while self.skip(_SPACE_AND_COMMAS) != "}":
            key = self.key(depth)
            if self.skip(_SPACE) != ":":
                raise self.fault("':'")
            self.at += 1
            self.last_key = key
            entries[key] = self.value(depth + 1)
            if self.skip(_SPACE) not in (",", "}"):
                raise self.fault("',' or '}'")
        self.at += 1
        return entries

    def key(self, depth: int) -> str:
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
