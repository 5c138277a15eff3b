"""Java's properties text: `broker.conf`, `namesrv.conf`, and the bodies of requests that change or return properties.

Rules of `java.util.Properties.load`: a line is `name=value`, `name:value` or `name value`. Lines that start with `#`
or `!` are comments. An odd number of backslashes at a line's end joins the next line. Escapes are t, n, r, f, uXXXX,
and any other character for itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ringmq.remoting.named_files import open_named_file

MAX_LINES = 10_000
MAX_FILE_BYTES = 1_048_576
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"
_NAME = re.compile(r"(?:[^\\=: \t\f]+|\\.?)*", re.DOTALL)


class BadProperties(ValueError):
    """The text is not properties text. The message names the line. `line` is its number, or 0 for the whole text."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class PropertyLine:
    """One assignment and the number of its first line (from 1)."""

    name: str
    value: str
    line: int


def read_properties_text(path: Path) -> str:
    """Return the text of a properties file. Raises OSError, and BadProperties if it is too large or not UTF-8."""
    with open_named_file(path) as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise BadProperties(f"is over the limit of {MAX_FILE_BYTES} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadProperties(f"line {line}: {error.reason} at byte {error.start}: not UTF-8", line) from error


def parse_properties(text: str) -> list[PropertyLine]:
    """Return the assignments in order. A repeated name appears repeatedly (the last one wins in Java)."""
    return [_parse_line(line, number) for number, line in _logical_lines(text)]


def format_properties(values: Mapping[str, str]) -> str:
    """Return `name=value` lines in the given order, as RocketMQ writes them (`MixAll.properties2String`)."""
    return "".join(f"{name}={value}\n" for name, value in values.items())


def parse_assignment(text: str, form: str = "NAME=VALUE") -> tuple[str, str]:
    """Return name and value of an argument, the value unchanged. Raises BadProperties naming the wanted form."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise BadProperties(f"{text!r} is not {form}")
    return name.strip(), value


def parse_assignments(texts: Iterable[str], form: str = "NAME=VALUE") -> dict[str, str]:
    """Return all assignments, the last one of a name. Raises BadProperties."""
    return dict(parse_assignment(text, form) for text in texts)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if len(lines) > MAX_LINES:
        raise BadProperties(f"{len(lines)} lines are over the limit of {MAX_LINES}")
    joined, begun = "", 0
    for number, raw in enumerate(lines, start=1):
        line = raw.lstrip(_BLANKS)
        if not begun and (not line or line[0] in "#!"):
            continue
        begun = begun or number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            joined += line[:-1]
            continue
        yield begun, joined + line
        joined, begun = "", 0
    if begun:
        yield begun, joined


def _parse_line(line: str, number: int) -> PropertyLine:
    match = _NAME.match(line)
    end = match.end() if match else 0
    rest = line[end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return PropertyLine(_unescape(line[:end], number), _unescape(rest, number), number)


def _unescape(text: str, number: int) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        if text[at] != "\\":
            out.append(text[at])
            at += 1
            continue
        mark = text[at + 1 : at + 2]
        if mark == "u":
            digits = text[at + 2 : at + 6]
            if len(digits) != 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                raise BadProperties(f"line {number}: \\u needs four hexadecimal digits, got {digits!r}", number)
            out.append(chr(int(digits, 16)))
            at += 6
        else:
            out.append(_ESCAPES.get(mark, mark))
            at += 2
    return "".join(out)
