"""`<root>/config/brokerName`: the name of the broker that owns the store, for readers of its files.

The file is RingMQ's own. RocketMQ ignores it.
"""

import contextlib
from pathlib import Path

from ringmq.fastjson.files import read_head
from ringmq.store import layout
from ringmq.store.markers import replace_file

DEFAULT_BROKER = "DEFAULT_BROKER"  # stock's name of a broker without brokerName
NAME_BYTES_MAX = 4096


def _path(root: Path) -> Path:
    return root / layout.CONFIG / "brokerName"


def _read(path: Path) -> str:
    return read_head(path, NAME_BYTES_MAX).decode("utf-8", "replace").strip()


def read_broker_name(root: Path) -> str:
    """Return the name of the last owner, DEFAULT_BROKER in a store that only stock brokers have owned."""
    try:
        return _read(_path(root)) or DEFAULT_BROKER
    except FileNotFoundError:
        return DEFAULT_BROKER


def write_broker_name(root: Path, name: str) -> None:
    """Write the owner's name into the store. Raises OSError."""
    path = _path(root)
    with contextlib.suppress(FileNotFoundError):
        if _read(path) == name:
            return  # no write, so that a full disk does not prevent the start
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, name.encode())
