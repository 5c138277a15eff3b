"""A proxy of a name server for a slave behind a link: it shows the link's port as the master's HA address.

A stock slave learns its master's HA address from its registration alone (`haMasterAddress` is lost on 5.3.3). So this
proxy replaces the port in the name server's answers.
"""

import contextlib
import socket
import struct
import threading
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"


class NameServerProxy:
    """Passes frames to the name server at `to_port`. In its answers HOST:`ha_port` becomes HOST:`shown_port`.

    Both ports need the same number of digits, so that no length in a frame changes.
    """

    def __init__(self, to_port: int, ha_port: int, shown_port: int) -> None:
        self._to_port = to_port
        self._old, self._new = f"{HOST}:{ha_port}".encode(), f"{HOST}:{shown_port}".encode()
        if len(self._old) != len(self._new):
            raise ValueError(f"ports {ha_port} and {shown_port} differ in length")
        self._listener = socket.create_server((HOST, 0))
        self._sockets: list[socket.socket] = []
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection((HOST, self._to_port))
                self._sockets += [near, far]
                threading.Thread(target=self._pass, args=(near, far, False), daemon=True).start()
                threading.Thread(target=self._pass, args=(far, near, True), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError, struct.error), source.makefile("rb") as stream:
            while head := stream.read(4):
                frame = head + stream.read(struct.unpack(">i", head)[0])
                target.sendall(frame.replace(self._old, self._new) if answers else frame)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the proxy and its connections."""
        for end in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
