"""The broker's current configuration. Control replaces the file beside the plane when a key changes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.run_config import read_run_config
from ringmq.services.kit.loop import Part


class ConfigWatcher(Part):
    """Reads the file again after control has replaced it.

    A look at the file costs a system call, and services ask for the configuration at each request and chunk. As the
    first part of a loop, the watcher looks once in each turn. Outside of a loop it looks at each call.

    `version_now`: the word of shared memory that control changes behind the file.
    """

    def __init__(self, path: Path, version_now: Callable[[], int] = lambda: 0) -> None:
        self._path, self._is_in_loop = path, False
        self._version_now = version_now
        self.version = version_now()
        """The word before the last look. While it stays the same, so does the configuration."""
        self._seen = _version(path)
        self._config = read_run_config(path)

    def __call__(self) -> BrokerConfig:
        """The current configuration. If the file cannot be read, the last one that could."""
        if not self._is_in_loop:
            self._look()
        return self._config

    def turn(self, now_ms: int) -> bool:
        """See Part."""
        self._is_in_loop = True
        self._look()
        return False

    def _look(self) -> None:
        self.version = self._version_now()
        try:
            version = _version(self._path)
            if version != self._seen:
                self._config, self._seen = read_run_config(self._path), version
        except (OSError, ValueError):  # the file is being replaced, or the broker ends
            pass


def _version(path: Path) -> tuple[int, int]:
    status = os.stat(path)  # noqa: PTH116 (at every turn)
    return status.st_ino, status.st_mtime_ns
