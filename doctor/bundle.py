"""The debug bundle: one archive of bounded size for a person who cannot reach the machine, without message bodies."""

from __future__ import annotations

import io
import json
import os
import tarfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringmq.ipc.redaction import redacted

ENTRY_BYTES_MAX = 1 << 20
BUNDLE_BYTES_MAX = 16 << 20
"""Limit of the bundle before compression."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of the bundle."""

    name: str
    data: bytes
    note: str = ""
    """The part of the file that was left out."""


def text_entry(name: str, text: str) -> Entry:
    """Return a text without secrets (`redacted`), cut to the limit."""
    return cut(Entry(name, redacted(text).encode("utf-8", "replace")))


def json_entry(name: str, value: Any) -> Entry:
    """Return a value as JSON."""
    return text_entry(name, json.dumps(value, ensure_ascii=False, indent=2, default=str))


def cut(entry: Entry) -> Entry:
    """Return the last ENTRY_BYTES_MAX of an entry: the newest lines of a log are at its end."""
    if len(entry.data) <= ENTRY_BYTES_MAX:
        return entry
    return Entry(entry.name, entry.data[-ENTRY_BYTES_MAX:], f"the last {ENTRY_BYTES_MAX} of {len(entry.data)} bytes")


def within(entries: Iterable[Entry], limit: int = BUNDLE_BYTES_MAX) -> tuple[list[Entry], list[Entry]]:
    """Return (entries that fit, in order; entries that do not fit)."""
    kept: list[Entry] = []
    left: list[Entry] = []
    room = limit
    for entry in entries:
        if len(entry.data) <= room:
            room -= len(entry.data)
            kept.append(entry)
        else:
            left.append(entry)
    return kept, left


def listing(kept: Sequence[Entry], left: Sequence[Entry]) -> list[dict[str, object]]:
    """Return one row per file: name, bytes, note about the part that was left out."""
    rows: list[dict[str, object]] = [
        {"name": entry.name, "bytes": len(entry.data), "note": entry.note or None} for entry in kept
    ]
    return rows + [{"name": entry.name, "bytes": 0, "note": "left out: the bundle is full"} for entry in left]


def write_bundle(path: Path, entries: Iterable[Entry], now_s: float | None = None) -> list[dict[str, object]]:
    """Write a .tar.gz that only this user may read, and return its listing. Raises OSError, also if the file exists."""
    kept, left = within(entries)
    rows = listing(kept, left)
    manifest = Entry("MANIFEST.json", json.dumps(rows, indent=2).encode())
    stem = path.name.removesuffix(".tar.gz")
    at_s = int(time.time() if now_s is None else now_s)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for entry in (manifest, *kept):
            info = tarfile.TarInfo(f"{stem}/{entry.name}")
            info.size, info.mtime, info.mode = len(entry.data), at_s, 0o600
            archive.addfile(info, io.BytesIO(entry.data))
    return rows
