"""Notifications of a service to its manager: readiness, status, watchdog, sockets to store (sd_notify(3)).

Each is a datagram of KEY=VALUE lines to the socket that NOTIFY_SOCKET names. If the variable is unset, nothing is sent,
and callers need not check. A notification is lost if the manager does not listen; the service goes on all the same.
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
"""Time by which each sign of work extends the start-up limit. It exceeds the pause between two signs."""
CPU_MIN_S = 0.002
"""CPU time between two signs below which the main thread counts as waiting, not working."""


class ServiceManager:
    """The service manager of this process. The main process owns it; any thread may use it."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]
        self._status = ""
        self.watchdog_ms = _watchdog_ms(environ) if self._address else 0
        """The manager ends the service after this time without a sign of life. 0 = no watchdog."""

    @property
    def is_there(self) -> bool:
        """True if NOTIFY_SOCKET names a manager. It may be gone."""
        return bool(self._address)

    def ready(self, status: str) -> None:
        """Report that services that depend on this one may start."""
        self._status = status
        self._send(f"READY=1\nSTATUS={_one_line(status)}")

    def status(self, text: str) -> None:
        """Set the line that `systemctl status` shows. Sends it only after a change."""
        if text != self._status:
            self._status = text
            self._send(f"STATUS={_one_line(text)}")

    def stopping(self, status: str) -> None:
        """Report that the stop has begun."""
        self._status = status
        self._send(f"STOPPING=1\nSTATUS={_one_line(status)}")

    def alive(self) -> None:
        """Feed the watchdog."""
        self._send("WATCHDOG=1")

    def extend_timeout(self) -> None:
        """Feed the watchdog, and extend the start-up limit by EXTEND_US."""
        self._send(f"EXTEND_TIMEOUT_USEC={EXTEND_US}\nWATCHDOG=1")

    def keep(self, name: str, descriptor: int) -> None:
        """Store a socket under `name` with the manager over a restart (FileDescriptorStoreMax must allow it)."""
        self._send(f"FDSTORE=1\nFDNAME={name}\nFDPOLL=0", descriptor)

    def forget(self, name: str) -> None:
        """Have the manager close the sockets that it stores under `name`."""
        self._send(f"FDSTOREREMOVE=1\nFDNAME={name}")

    @contextlib.contextmanager
    def extended_timeouts(self) -> Iterator[None]:
        """Extend start-up limit and watchdog during long work of the calling thread, as long as the thread uses its
        CPU.

        The work may be one long call, so a thread of its own checks. Work that hangs uses no CPU.
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
                    self.extend_timeout()

        thread = threading.Thread(target=tell, name="extended-timeouts", daemon=True)
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
            sender.settimeout(1.0)  # a busy manager must not delay the broker for longer
            sender.sendmsg([text.encode(errors="replace")], rights, 0, self._address)


def service_manager() -> ServiceManager:
    """The service manager of this process. Removes the variables from the environment, so that children send
    nothing."""
    manager = ServiceManager(os.environ)
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
        os.environ.pop(name, None)
    return manager


def _one_line(text: str) -> str:
    return " ".join(text.split())[:STATUS_BYTES_MAX]


def _watchdog_ms(environ: Mapping[str, str]) -> int:
    """WATCHDOG_USEC in ms. 0 if WATCHDOG_PID names another process."""
    text, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not text.isdecimal() or (pid.isdecimal() and int(pid) != os.getpid()):
        return 0
    return int(text) // 1000
