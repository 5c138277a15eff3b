"""Listening sockets that outlive a restart of the service, in the manager's descriptor store (sd_listen_fds(3)).

At its start the main process reuses stored sockets that listen on the addresses it needs. It gives the manager the new
ones. Connections that arrive meanwhile wait in the sockets' queues. The main process closes the stored sockets that it
does not need, because the kernel would go on handing connections to them.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, MutableMapping
from typing import Any, Protocol

from ringmq.ipc.notify import ServiceManager

FIRST_DESCRIPTOR = 3
FD_STORE_MAX = 256
"""Largest number of stored sockets. It exceeds FileDescriptorStoreMax of our units."""


class ListeningSocket(Protocol):
    """The methods of a socket that this module calls. `socket.socket` and asyncio's transport socket both have them."""

    def fileno(self) -> int: ...
    def getsockname(self) -> Any: ...


class FdStore:
    """The stored sockets. The main process owns them during its start."""

    def __init__(self, manager: ServiceManager, inherited: list[tuple[str, socket.socket]]) -> None:
        self._manager = manager
        self._inherited = inherited
        self._released: list[str] = []

    @classmethod
    def of_this_process(cls, manager: ServiceManager) -> FdStore:
        """Take the descriptors of LISTEN_FDS over, and remove LISTEN_FDS and its companions from the environment."""
        return cls(manager, _inherited(os.environ))

    def take(self, host: str, port: int) -> socket.socket | None:
        """The stored socket that listens on this address. None if there is none (left)."""
        if not port:
            return None
        for number, (_, kept) in enumerate(self._inherited):
            if _listens_on(kept, host, port):
                del self._inherited[number]
                return kept
        return None

    def release(self, port: int) -> bool:
        """Close the stored sockets that listen on `port` of any other address.

        A wildcard address and a single one of the same port exclude each other. False if there is no such socket. The
        manager closes its own descriptor within milliseconds.
        """
        blocking = [entry for entry in self._inherited if _address(entry[1])[1] == port]
        self._inherited = [entry for entry in self._inherited if entry not in blocking]
        self._give_up(blocking)
        return bool(blocking)

    def close_rest(self) -> list[str]:
        """Close the stored sockets that `take` has not returned. Returns the addresses of all closed sockets."""
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
        """Store these sockets for the next restart. The manager recognizes those that it has already."""
        for listener in listeners:
            host, port = listener.getsockname()[:2]
            inode = os.fstat(listener.fileno()).st_ino  # so that the name is that of one socket
            self._manager.keep(f"{host.replace(':', '.')}_{port}_{inode}", listener.fileno())


def _inherited(environ: MutableMapping[str, str]) -> list[tuple[str, socket.socket]]:
    """(name, socket) of every descriptor that the manager has passed to this very process."""
    texts = {name: environ.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")}
    if texts["LISTEN_PID"] != str(os.getpid()) or not texts["LISTEN_FDS"].isdecimal():
        return []
    count = min(int(texts["LISTEN_FDS"]), FD_STORE_MAX)
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
    except (OSError, ValueError):  # a Unix socket has no host and port
        return "", 0


def _listens_on(kept: socket.socket, host: str, port: int) -> bool:
    try:
        if not kept.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return False
        wanted = {found[4][:2] for found in socket.getaddrinfo(host, port, kept.family, socket.SOCK_STREAM)}
    except OSError:
        return False
    return kept.getsockname()[:2] in wanted
