"""Handles of timer messages, by which they are recalled (`RecallMessageHandle` of stock).

URL-safe Base64 of "v1 TOPIC BROKER TIME UNIQ_KEY". TIME is TIMER_OUT_MS + 1, in ms since the epoch.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

HANDLE_CHARS_MAX = 4096
VERSION = "v1"
_PARTS = 5
_BASE64 = re.compile(r"[A-Za-z0-9_-]*={0,2}")


class RecallHandleError(ValueError):
    """The text is no handle. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class RecallHandle:
    """The parts of a handle."""

    topic: str
    broker_name: str
    time_text: str
    uniq_key: str

    def encode(self) -> str:
        """Return the handle as text."""
        parts = (VERSION, self.topic, self.broker_name, self.time_text, self.uniq_key)
        return base64.urlsafe_b64encode(" ".join(parts).encode()).decode()


def decode_handle(text: str) -> RecallHandle:
    """Return the parts of a handle. Padding may be missing, as for Java's decoder. Raises RecallHandleError."""
    if len(text) > HANDLE_CHARS_MAX:
        raise RecallHandleError(f"recall handle of {len(text)} characters, the limit is {HANDLE_CHARS_MAX}")
    digits = text.rstrip("=")
    if not digits or not _BASE64.fullmatch(text) or len(digits) % 4 == 1:
        raise RecallHandleError(f"recall handle {text[:64]!r} is no URL-safe Base64")
    raw = base64.urlsafe_b64decode(digits + "=" * (-len(digits) % 4))
    parts = raw.decode(errors="replace").split(" ")
    if parts[0] != VERSION or len(parts) < _PARTS or not parts[4]:
        raise RecallHandleError(f"recall handle {text[:64]!r} is not of version {VERSION}")
    return RecallHandle(*parts[1:_PARTS])
