"""Key-value configuration by namespace, and its file `kvConfig.json` as stock writes it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct, field

from ringmq.remoting import json_body
from ringmq.remoting.errors import BadBody
from ringmq.remoting.json_text import dump_json
from ringmq.remoting.named_files import read_state_file

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""The namespace whose values travel in routes and registrations."""


FILE_BYTES_MAX = 1 << 30
"""Limit of the file, and the highest ringmqMaxKvBytes."""


class KvFileError(Exception):
    """The file cannot be read or holds no configuration. The message names the file and the remedy."""


class KvFullError(Exception):
    """A value does not fit. The message names the bound."""


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


class KvConfig(Struct):
    """namespace -> key -> value. A namespace stays when its last key goes."""

    table: dict[str, dict[str, str]] = field(default_factory=dict)
    entries: int = 0
    """The number of namespaces and keys."""
    text_bytes: int = 0
    """The bytes of namespaces, keys and values, as UTF-8."""

    def __post_init__(self) -> None:
        for namespace, keys in self.table.items():
            self.entries += 1 + len(keys)
            self.text_bytes += _size(namespace) + sum(_size(key) + _size(value) for key, value in keys.items())

    def put(self, namespace: str, key: str, value: str, max_entries: int = 1 << 62, max_bytes: int = 1 << 62) -> None:
        """Set a value. Raises KvFullError if there would be too many entries or bytes, and then sets nothing."""
        keys = self.table.get(namespace)
        old = None if keys is None else keys.get(key)
        entries = self.entries + (keys is None) + (old is None)
        text_bytes = self.text_bytes + (0 if keys is not None else _size(namespace)) + _size(value)
        text_bytes += _size(key) if old is None else -_size(old)
        if entries > max(max_entries, self.entries):
            raise KvFullError(f"ringmqMaxKvEntries = {max_entries} keys and namespaces are kept")
        if text_bytes > max(max_bytes, self.text_bytes):
            raise KvFullError(f"with {text_bytes} bytes ringmqMaxKvBytes = {max_bytes} would be exceeded")
        self.table.setdefault(namespace, {})[key] = value
        self.entries, self.text_bytes = entries, text_bytes

    def get(self, namespace: str, key: str) -> str | None:
        """Return the value, None if absent."""
        return self.table.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """Remove a key. An absent key is no error."""
        old = self.table.get(namespace, {}).pop(key, None)
        if old is not None:
            self.entries -= 1
            self.text_bytes -= _size(key) + _size(old)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """Return all values of a namespace, None if absent."""
        return self.table.get(namespace)

    def to_bytes(self) -> bytes:
        """Return the file's content."""
        return dump_json({"configTable": self.table})

    @classmethod
    def from_bytes(cls, content: bytes) -> KvConfig:
        """Return the configuration in the file's content. Raises `BadBody`."""
        table = json_body.mapping(json_body.read_object(content, "kvConfig.json"), "configTable")
        return cls({namespace: json_body.text_mapping(table, namespace) for namespace in table})


def load_kv(path: Path) -> KvConfig:
    """Return the configuration in the file, an empty one if there is no file. Raises `KvFileError`."""
    try:
        return KvConfig.from_bytes(read_state_file(path, FILE_BYTES_MAX))
    except FileNotFoundError:
        return KvConfig()
    except (OSError, BadBody) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise KvFileError(f"{path}: {reason}; repair the file, or move it away to start without its content") from error


def save_kv(content: bytes, path: Path) -> None:
    """Replace the file by `content` of `KvConfig.to_bytes` in one step. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    temporary.unlink(missing_ok=True)
    with temporary.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


class KvFile:
    """Writes the file in its own thread, so the disk never blocks the event loop. Many changes share one write."""

    def __init__(self, kv: KvConfig, path: Path) -> None:
        self.is_dirty = False
        """True if a change has not been passed to `save`."""
        self._kv = kv
        self._path = path
        self._waiting: list[Callable[[OSError | None], None]] = []
        self._task: asyncio.Task[None] | None = None

    def save(self, on_saved: Callable[[OSError | None], None]) -> None:
        """Write the current entries. `on_saved` runs in the event loop when they are on disk, or with the error."""
        self.is_dirty = False
        self._waiting.append(on_saved)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._write())

    async def close(self) -> None:
        """Wait for the requested writes."""
        if self._task is not None:
            await self._task

    async def _write(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            error: OSError | None = None
            try:
                await asyncio.to_thread(save_kv, self._kv.to_bytes(), self._path)
            except OSError as failed:
                error = failed
            for on_saved in waiting:
                on_saved(error)
        self._task = None
