"""Listening sockets that outlive a restart of the service: the manager's descriptor store (sd_listen_fds(3)).

A start takes over what the manager has kept, as far as it wants to listen on the same addresses, and gives it what is
new. Connections that come meanwhile wait in the sockets' queues. What nobody wants any more is closed: the kernel would
go on handing connections to it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, MutableMapping
from typing import Any, Protocol

from ringmq.ipc.notify import ServiceManager

FIRST_DESCRIPTOR = 3
KEPT_MAX = 256
"""More than FileDescriptorStoreMax of our units."""


class ListeningSocket(Protocol):
    """What is needed of one: `socket.socket` and asyncio's view of its own both are."""

    def fileno(self) -> int: ...
    def getsockname(self) -> Any: ...


class KeptSockets:
    """Owned by the main process, during its start."""

    def __init__(self, manager: ServiceManager, inherited: list[tuple[str, socket.socket]]) -> None:
        self._manager = manager
        self._inherited = inherited
        self._released: list[str] = []

    @classmethod
    def of_this_process(cls, manager: ServiceManager) -> KeptSockets:
        """Take LISTEN_FDS and its companions out of the environment, and the descriptors they stand for."""
        return cls(manager, _inherited(os.environ))

    def take(self, host: str, port: int) -> socket.socket | None:
        """A kept socket that listens there, None when there is none (left)."""
        if not port:
            return None
        for number, (_, kept) in enumerate(self._inherited):
            if _listens_on(kept, host, port):
                del self._inherited[number]
                return kept
        return None

    def release(self, port: int) -> bool:
        """Give up what listens on `port` of other addresses: it stands in the way of a wildcard, or is one. False when
        there is nothing; the manager closes its own within milliseconds."""
        blocking = [entry for entry in self._inherited if _address(entry[1])[1] == port]
        self._inherited = [entry for entry in self._inherited if entry not in blocking]
        self._give_up(blocking)
        return bool(blocking)

    def close_rest(self) -> list[str]:
        """Give up the sockets that nobody took; the addresses of all that were given up."""
        rest, self._inherited = self._inherited, []
        self._give_up(rest)
        return self._released

    def _give_up(self, entries: list[tuple[str, socket.socket]]) -> None:
        for name, kept in entries:
            host, port = _address(kept)
            self._released += [f"{host}:{port}"] if port else []
            kept.close()
            self._manager.forget(name)

    def keep(self, listeners: Iterable[ListeningSocket]) -> None:
        """Have these ones kept over the next restart. Those that are kept already are known to the manager."""
        for listener in listeners:
            host, port = listener.getsockname()[:2]
            inode = os.fstat(listener.fileno()).st_ino  # a name for this very socket
            self._manager.keep(f"{host.replace(':', '.')}_{port}_{inode}", listener.fileno())


def _inherited(environ: MutableMapping[str, str]) -> list[tuple[str, socket.socket]]:
    """(name, socket) of every descriptor that was handed over to this very process."""
    texts = {name: environ.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")}
    if texts["LISTEN_PID"] != str(os.getpid()) or not texts["LISTEN_FDS"].isdecimal():
        return []
    count = min(int(texts["LISTEN_FDS"]), KEPT_MAX)
    names = texts["LISTEN_FDNAMES"].split(":")
    names += ["unknown"] * (count - len(names))
    found = []
    for number in range(count):
        descriptor = FIRST_DESCRIPTOR + number
        os.set_inheritable(descriptor, False)
        try:
            found.append((names[number], socket.socket(fileno=descriptor)))
        except OSError:  # not a socket: none of ours
            os.close(descriptor)
    return found


def _address(kept: socket.socket) -> tuple[str, int]:
    try:
        host, port = kept.getsockname()[:2]
        return str(host), int(port)
    except (OSError, ValueError):  # a Unix socket's address is another
        return "", 0


def _listens_on(kept: socket.socket, host: str, port: int) -> bool:
    try:
        if not kept.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return False
        wanted = {found[4][:2] for found in socket.getaddrinfo(host, port, kept.family, socket.SOCK_STREAM)}
    except OSError:
        return False
    return kept.getsockname()[:2] in wanted
