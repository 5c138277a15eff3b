"""Key-value configuration by namespace, and its file `kvConfig.json` as stock writes it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from ringmq.remoting import json_body

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""The namespace whose values travel in routes and registrations."""


@dataclass(slots=True)
class KvConfig:
    """namespace -> key -> value. A namespace stays when its last key goes."""

    table: dict[str, dict[str, str]] = field(default_factory=dict)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value."""
        self.table.setdefault(namespace, {})[key] = value

    def get(self, namespace: str, key: str) -> str | None:
        """The value, if any."""
        return self.table.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """Remove a key; an absent one is no error."""
        self.table.get(namespace, {}).pop(key, None)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """All of a namespace."""
        return self.table.get(namespace)

    def to_bytes(self) -> bytes:
        """The file's content."""
        return json_body.write_body({"configTable": self.table})

    @classmethod
    def from_bytes(cls, content: bytes) -> KvConfig:
        """From the file's content. Raises `BadBody`."""
        table = json_body.mapping(json_body.read_object(content, "kvConfig.json"), "configTable")
        return cls({namespace: json_body.text_mapping(table, namespace) for namespace in table})


def load_kv(path: Path) -> KvConfig:
    """The configuration in the file; empty when there is no file. Raises `BadBody` and `OSError`."""
    if not path.exists():
        return KvConfig()
    return KvConfig.from_bytes(path.read_bytes())


def save_kv(kv: KvConfig, path: Path) -> None:
    """Replace the file in one step. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(kv.to_bytes())
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
