"""`<root>/config/ringmqDeletions.json`: topics that were deleted and whose queues still stand on disk.

A list of names, written before topics.json loses them. A name that topics.json has is no deletion: nobody was told of
it yet, or another broker that owned the store meanwhile has made the topic again.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from ringmq.store import layout, markers
from ringmq.store.config_files import ConfigFileError

DELETIONS_FILE = "ringmqDeletions.json"


def read_deletions(root: Path) -> frozenset[str]:
    """The names. ConfigFileError for a file that cannot be one of ours, OSError."""
    path = root / layout.CONFIG / DELETIONS_FILE
    try:
        names = json.loads(path.read_bytes())
    except FileNotFoundError:
        return frozenset()
    except ValueError as error:
        raise ConfigFileError(f"{path}: not a list of deleted topics ({error})") from error
    if type(names) is not list or any(type(name) is not str for name in names):
        raise ConfigFileError(f"{path}: not a list of deleted topics")
    return frozenset(names)


def write_deletions(root: Path, names: Iterable[str]) -> None:
    """Leave word durably; without any, take the file away. Raises OSError."""
    waiting = sorted(names)
    markers.replace_or_remove(root / layout.CONFIG / DELETIONS_FILE, json.dumps(waiting).encode() if waiting else None)
