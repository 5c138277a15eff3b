"""Servers and stock clients that many tests share: one of each kind and set-up, started when first asked for.

A test may use a shared server when it leaves nothing behind but topics and groups with names of its own.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.conformance import servers
from tests.conformance.stock_client import StockClient
from tests.suite.processes import shared

# Full-size log files: scenarios send up to 4 MiB.
SETUPS: dict[str, dict[str, Any]] = {
    "default": {"mappedFileSizeCommitLog": 64 << 20},
    "sync": {"mappedFileSizeCommitLog": 64 << 20, "flushDiskType": "SYNC_FLUSH", "ringmqReaders": 2},
}
# What both do only when told, and waits that tests need not sit out: delay levels but the last, checks of transactions.
BOTH: dict[str, Any] = {
    "recallMessageEnable": True,
    "enablePropertyFilter": True,
    "messageDelayLevel": "1s 2s " + "1s " * 15 + "2h",
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 1000,
}
STOCK_SETTINGS: dict[str, Any] = {
    "traceTopicEnable": True,
    "timerFlushIntervalMs": 600_000,
    "waitTimeMillsInSendQueue": 60_000,  # on a busy machine it answers "busy" to replies that waited 200 ms
}
"""A stock broker compares the 37 MB of its timer wheel with the file at each flush, by default each second: it takes a
sixth of a CPU. Nobody reads the files of a shared broker."""


def settings_of(kind: str, setup: str) -> dict[str, Any]:
    """The settings of a set-up for a kind of server."""
    settings = {name: value for name, value in SETUPS[setup].items() if kind in name or "ringmq" not in name}
    return settings | BOTH | (STOCK_SETTINGS if kind == "stock" else {})


class ServerPool:
    """`pool(kind, setup)` gives a running server; `new_home` makes an empty folder for one by a name."""

    def __init__(self, new_home: Callable[[str], Path]) -> None:
        self.stages: list[tuple[str, float]] = []  # what was started, and the seconds that it took
        self._new_home = new_home
        self._running: dict[tuple[str, str], servers.Server] = {}
        self._clients: dict[str, StockClient] = {}

    def __call__(self, kind: str, setup: str = "default") -> servers.Server:
        """The shared server of a kind ("ringmq" or "stock") and a set-up."""
        if (kind, setup) not in self._running:
            with shared():
                self._running[kind, setup] = self.start(kind, setup, settings=settings_of(kind, setup))
        return self._running[kind, setup]

    def start(self, kind: str, name: str, **options: Any) -> servers.Server:
        """Start a server that is not shared. The caller closes it."""
        since = time.monotonic()
        server = servers.start(kind, self._new_home(f"{kind}-{name}"), **options)
        self.stages.append((f"start {kind} ({name})", time.monotonic() - since))
        return server

    def own(self, kind: str, name: str, **options: Any) -> servers.Server:
        """Start a server with settings of its own that lives as long as the shared ones."""
        with shared():
            server = self._running[kind, name] = self.start(kind, name, **options)
        return server

    def stock_client(self, name: str, options: Sequence[str]) -> StockClient:
        """The shared stock client of a name; `options` of its virtual machine count when it is started."""
        if name not in self._clients:
            since = time.monotonic()
            with shared():
                self._clients[name] = StockClient(self._new_home(f"stock-client-{name}"), options)
            self.stages.append((f"start the {name} client", time.monotonic() - since))
        return self._clients[name]

    def close_kind(self, kind: str) -> None:
        """Close the shared servers of a kind; asked again, new ones are started."""
        for key in [key for key in self._running if key[0] == kind]:
            self._running.pop(key).close()

    def close(self) -> None:
        """Close every shared server and client; asked again, new ones are started."""
        while self._clients:
            self._clients.popitem()[1].close()
        while self._running:
            self._running.popitem()[1].close()
