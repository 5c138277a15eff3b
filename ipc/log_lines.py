"""The form of a log line. The C twin is native/src/base/log_line.c.

Text:  TIME LEVEL WORKER TEXT NAME=VALUE ...    each further line of TEXT is indented, so that no text imitates a line
JSON:  {"time":TIME,"level":LEVEL,"worker":WORKER,"text":TEXT,NAME:VALUE ...}

TIME is UTC with milliseconds. For the journal, a line begins with systemd's priority (`<4>`, sd-daemon(3)), and a text
line has no time, because the journal has its own. C writes no fields.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from ringmq.remoting.printable import printable_json, printable_lines

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
"""The values of `logLevel`. CRITICAL is always written."""
FIELD_CHARS_MAX = 4096
"""The longest value of a field in a line. A longer one is cut."""
_BARE = re.compile(r"[\w.:/@%|+-]{1,256}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))


class Style(Struct, frozen=True):
    """The style of the lines of a process."""

    is_json: bool = False
    is_journal: bool = False
    """True if standard error is the journal of systemd."""


def format_line(
    style: Style, time_ms: int, level: int, worker: str, text: str, fields: Mapping[str, object] | None = None
) -> str:
    """The line without its newline. `time_ms`: since 1970. `level`: of `logging`. `fields`: values that JSON has."""
    prefix = f"<{_priority(level)}>" if style.is_journal else ""
    name = logging.getLevelName(_floor(level))
    if style.is_json:
        value = {"time": time_text(time_ms), "level": name, "worker": worker, "text": text}
        return prefix + _json(value | {key: _cut(field) for key, field in (fields or {}).items()})
    clock = "" if style.is_journal else f"{time_text(time_ms)} "
    parts = [text, *(f"{key}={_field(value)}" for key, value in (fields or {}).items())]
    indent = f"{prefix}    "
    return f"{prefix}{clock}{name} {printable_lines(worker, indent)} {printable_lines(' '.join(parts), indent)}"


def time_text(time_ms: int) -> str:
    """A time of the years 1970 to 9999 in UTC, such as 2026-11-27T02:12:07.123Z."""
    moment = _EPOCH + timedelta(milliseconds=time_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03d}Z"


def _floor(level: int) -> int:
    return max(logging.DEBUG, min(level // 10 * 10, logging.CRITICAL))


def _priority(level: int) -> int:
    return next((priority for least, priority in _PRIORITIES if level >= least), 7)


def _field(value: object) -> str:
    value = _cut(value)
    return value if isinstance(value, str) and _BARE.fullmatch(value) else _json(value)


def _cut(value: object) -> object:
    """`value`, or the begin of its text if it is too long."""
    text = value if isinstance(value, str) else _json(value)
    return value if len(text) <= FIELD_CHARS_MAX else f"{text[:FIELD_CHARS_MAX]}..."


def _json(value: object) -> str:
    return printable_json(value, separators=(",", ":"), default=str)
