"""`<root>/config/ringmqDeletions.json`: deleted topics whose queues are still on disk.

A list of names, written before topics.json loses them. A name that topics.json has is no deletion: the deletion was
not answered yet, or another owner of the store has made the topic again.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from ringmq.store import layout, markers
from ringmq.store.config_files import ConfigFileError, read_standard_json

DELETIONS_FILE = "ringmqDeletions.json"


def read_deletions(root: Path) -> frozenset[str]:
    """Return the names. Raises ConfigFileError for a file that cannot be RingMQ's."""
    path = root / layout.CONFIG / DELETIONS_FILE
    try:
        names = read_standard_json(path)
    except FileNotFoundError:
        return frozenset()
    if type(names) is not list or any(type(name) is not str for name in names):
        raise ConfigFileError(f"{path}: holds no list of deleted topics", [path])
    return frozenset(names)


def write_deletions(root: Path, names: Iterable[str]) -> None:
    """Write the names durably. Without names remove the file. Raises OSError."""
    waiting = sorted(names)
    markers.replace_or_remove(root / layout.CONFIG / DELETIONS_FILE, json.dumps(waiting).encode() if waiting else None)
