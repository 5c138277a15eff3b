"""Text of peers for people: terminals, logs, error messages. The only module that makes such text printable.

Any client chooses keys, tags, properties and bodies. Control characters drive a terminal (ESC, U+009B). Separators of
lines (U+2028) imitate lines. Controls of the direction of writing (U+202E and others) show text in another order than
it is read. The C twin for log lines is native/src/base/log_line.c.
"""

from __future__ import annotations

import json
import re
from typing import Any

_DIRECTIONS = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # Bidi_Control of Unicode
_OTHERS = "\x7f-\x9f\u2028\u2029\ud800-\udfff" + _DIRECTIONS  # surrogates: bytes of file names that are no UTF-8
_UNPRINTABLE = re.compile(f"[\x00-\x1f{_OTHERS}]")
_UNPRINTABLE_IN_LINES = re.compile(f"[\x00-\x09\x0b-\x1f{_OTHERS}]")
_UNPRINTABLE_IN_BODIES = re.compile(f"[\x00-\x08\x0b-\x1f{_OTHERS}]")
_UNESCAPED_BY_JSON = re.compile(f"[{_OTHERS}]")


def printable(text: str, chars_max: int | None = None) -> str:
    """Return `text` as one line, with unprintable characters as `\\xNN` or `\\uNNNN`, of `chars_max` at most."""
    return _UNPRINTABLE.sub(_escaped, text if chars_max is None else text[:chars_max])


def printable_lines(text: str, indent: str = "") -> str:
    """Return the same with its newlines, for text of our own. `indent` begins each further line."""
    shown = _UNPRINTABLE_IN_LINES.sub(_escaped, text)
    return shown.replace("\n", f"\n{indent}") if indent else shown


def printable_body(body: bytes) -> str:
    """Return a message's body for a terminal, with its newlines and tabs. Bytes that are no UTF-8 become `\\xNN`."""
    return _UNPRINTABLE_IN_BODIES.sub(_escaped, body.decode("utf-8", "backslashreplace"))


def printable_json(value: Any, **options: Any) -> str:
    """Return JSON that stays readable: `json` itself leaves all but the first 32 control characters as they are."""
    text = json.dumps(value, ensure_ascii=False, **options)
    return _UNESCAPED_BY_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
