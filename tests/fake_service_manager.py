"""A service manager to test against: hears what a service says, and holds what it wants kept."""

import array
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.waiting import TIMEOUT_S

STARTER = """
import os, sys
names, count = sys.argv[1], int(sys.argv[2])
if count:
    os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(count), "LISTEN_FDNAMES": names}
os.execv(sys.argv[3], sys.argv[3:])
"""
"""LISTEN_PID is the service's own, so that it has to be set behind the fork."""


class FakeServiceManager:
    """Listens on a socket in `folder`. As systemd, it keeps one descriptor of a kind and knows it by its name."""

    def __init__(self, folder: Path, watchdog_ms: int = 0) -> None:
        self._path = folder / "notify"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self._path))
        self.environment = {"NOTIFY_SOCKET": str(self._path)}
        if watchdog_ms:
            self.environment["WATCHDOG_USEC"] = str(watchdog_ms * 1000)
        self.messages: list[dict[str, str]] = []
        self.passed: list[dict[str, str]] = []
        """Messages in front of those that `wait_for` returned."""
        self.store: dict[str, int] = {}
        self._number = 500
        """Above the places that descriptors are handed over in."""

    def receive(self, timeout_s: float = 0.0) -> None:
        """Receive all messages that have arrived, waiting at most this long for the first."""
        self._socket.settimeout(timeout_s or 1e-6)
        while True:
            try:
                data, ancillary, _, _ = self._socket.recvmsg(4096, 256)
            except (TimeoutError, BlockingIOError):
                return
            self._socket.settimeout(1e-6)
            message = dict(line.split("=", 1) for line in data.decode().splitlines())
            descriptors = array.array("i")
            for _, _, content in ancillary:
                descriptors.frombytes(content[: len(content) // 4 * 4])
            self.messages.append(message)
            if "FDSTORE" in message:
                (descriptor,) = descriptors
                self._keep(message["FDNAME"], descriptor)
            if "FDSTOREREMOVE" in message:
                os.close(self.store.pop(message["FDNAME"]))

    def wait_for(self, wanted: Callable[[dict[str, str]], bool], timeout_s: float = TIMEOUT_S) -> dict[str, str]:
        """Return the first wanted message of those not taken yet. Earlier ones go to `passed`."""
        deadline = time.monotonic() + timeout_s
        dropped: list[dict[str, str]] = []
        while True:
            while self.messages:
                message = self.messages.pop(0)
                if wanted(message):
                    return message
                dropped.append(message)
                self.passed.append(message)
            assert time.monotonic() < deadline, f"not received within {timeout_s} s, but {dropped[-20:]}"
            self.receive(0.1)

    def spawn(self, command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        """Start a service as systemd does: what is kept comes under the numbers 3, 4, ..."""
        kept = tuple(self.store.values())
        places = " ".join(f"{3 + number}<&{descriptor} {descriptor}<&-" for number, descriptor in enumerate(kept))
        starter = [sys.executable, "-c", STARTER, ":".join(self.store), str(len(kept)), *command]
        with log.open("ab") as errors:
            return subprocess.Popen(
                ["bash", "-c", f'exec "$@" {places}', "bash", *starter],
                env={**os.environ, **self.environment},
                pass_fds=kept,
                stdout=errors,
                stderr=errors,
                stdin=subprocess.DEVNULL,
            )

    def close(self) -> None:
        """Give up what is kept."""
        for descriptor in self.store.values():
            os.close(descriptor)
        self._socket.close()

    def _keep(self, name: str, descriptor: int) -> None:
        if any(_is_same(descriptor, kept) for kept in self.store.values()):
            os.close(descriptor)
            return
        self._number += 1
        self.store[name] = os.dup2(descriptor, self._number)
        os.close(descriptor)


def _is_same(one: int, other: int) -> bool:
    return os.fstat(one).st_ino == os.fstat(other).st_ino
