"""The broker's current configuration. Control replaces the file beside the plane when a key changes."""

from __future__ import annotations

import os
from pathlib import Path

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.run_config import read_run_config


class ConfigWatcher:
    """Reads the file again after control has replaced it. A check costs one system call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = _version(path)
        self._config = read_run_config(path)

    def __call__(self) -> BrokerConfig:
        """The current configuration. If the file cannot be read, the last one that could."""
        try:
            version = _version(self._path)
            if version != self._seen:
                self._config, self._seen = read_run_config(self._path), version
        except (OSError, ValueError):  # the file is being replaced, or the broker ends
            pass
        return self._config


def _version(path: Path) -> tuple[int, int]:
    status = os.stat(path)  # noqa: PTH116 (at every request)
    return status.st_ino, status.st_mtime_ns
