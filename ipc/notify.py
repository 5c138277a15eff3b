"""What a service says to its manager: readiness, status, signs of life, sockets to keep (sd_notify(3)).

Datagrams of KEY=VALUE lines to the socket that NOTIFY_SOCKET names. Where it is unset nothing is sent, so callers need
not ask. What is said is lost when the manager does not listen; a service must not end of that.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping

STATUS_BYTES_MAX = 512
STILL_WORKING_EVERY_S = 5.0
EXTEND_US = 30_000_000
"""How much longer a start may take from each sign that it works; more than the pause between two signs."""
CPU_MIN_S = 0.002
"""Less than this between two signs is no work: the main thread waits for something that does not come."""


class ServiceManager:
    """Owned by the main process. Use from any thread."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]
        self._status = ""
        self.watchdog_ms = _watchdog_ms(environ) if self._address else 0
        """Without a sign of life for this long the manager ends the service; 0 = it does not look."""

    @property
    def is_there(self) -> bool:
        """Somebody listens, or is said to."""
        return bool(self._address)

    def ready(self, status: str) -> None:
        """All that depends on this service may start."""
        self._status = status
        self._send(f"READY=1\nSTATUS={_one_line(status)}")

    def status(self, text: str) -> None:
        """The line that `systemctl status` shows; sent when it has changed."""
        if text != self._status:
            self._status = text
            self._send(f"STATUS={_one_line(text)}")

    def stopping(self, status: str) -> None:
        """The stop has begun."""
        self._status = status
        self._send(f"STOPPING=1\nSTATUS={_one_line(status)}")

    def alive(self) -> None:
        """Feed the watchdog."""
        self._send("WATCHDOG=1")

    def getting_on(self) -> None:
        """Feed the watchdog, and ask for more time where a start takes longer than it may."""
        self._send(f"EXTEND_TIMEOUT_USEC={EXTEND_US}\nWATCHDOG=1")

    def keep(self, name: str, descriptor: int) -> None:
        """Have the manager hold a socket over a restart, under `name` (FileDescriptorStoreMax must allow it)."""
        self._send(f"FDSTORE=1\nFDNAME={name}\nFDPOLL=0", descriptor)

    def forget(self, name: str) -> None:
        """The manager closes the sockets it holds under `name`."""
        self._send(f"FDSTOREREMOVE=1\nFDNAME={name}")

    @contextlib.contextmanager
    def patience(self) -> Iterator[None]:
        """Around long work of the calling thread: while that uses its CPU, neither start-up time nor watchdog end it.

        A thread of its own looks, because the work may be one long call. Work that hangs uses no CPU.
        """
        if not self.is_there:
            yield
            return
        over = threading.Event()
        clock = time.pthread_getcpuclockid(threading.get_ident())

        def tell() -> None:
            seen = time.clock_gettime(clock)
            while not over.wait(STILL_WORKING_EVERY_S):
                used = time.clock_gettime(clock)
                if used - seen >= CPU_MIN_S:
                    seen = used
                    self.getting_on()

        thread = threading.Thread(target=tell, name="patience", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _send(self, text: str, descriptor: int | None = None) -> None:
        if not self._address:
            return
        rights = [] if descriptor is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))]
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(1.0)  # a manager that is busy for longer must not hold the service up
            sender.sendmsg([text.encode(errors="replace")], rights, 0, self._address)


def service_manager() -> ServiceManager:
    """Of this process. Its children shall not speak for it: the variables are taken out of the environment."""
    manager = ServiceManager(os.environ)
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
        os.environ.pop(name, None)
    return manager


def _one_line(text: str) -> str:
    return " ".join(text.split())[:STATUS_BYTES_MAX]


def _watchdog_ms(environ: Mapping[str, str]) -> int:
    """WATCHDOG_USEC, unless WATCHDOG_PID says that it is meant for another process."""
    text, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not text.isdecimal() or (pid.isdecimal() and int(pid) != os.getpid()):
        return 0
    return int(text) // 1000
