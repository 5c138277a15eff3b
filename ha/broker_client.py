"""A remoting connection to another broker: made when needed, closed at the first fault, one request at a time."""

from __future__ import annotations

import contextlib
import socket
import time

from ringmq.remoting.command import MAX_FRAME_BYTES, RemotingCommand, encode_frame
from ringmq.remoting.frame import FrameDecoder

RECEIVE_BYTES = 262_144
PORT_MAX = 65_535
PORT_CHARS_MAX = 5


class BrokerClient:
    """A connection to `address`, host:port. One thread uses it and calls `close`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket: socket.socket | None = None
        self._opaque = 0

    def ask(self, command: RemotingCommand, timeout_ms: int, *, if_connected: bool = False) -> RemotingCommand:
        """The answer, whatever its code. Raises OSError, RemotingError.

        An open connection may be stale, so a request that fails on it is sent once more. With `if_connected`, the
        request uses no new connection: ConnectionError if none is open.
        """
        if if_connected:
            if self._socket is None:
                raise ConnectionError("the connection was lost")
            return self._ask(command, timeout_ms)
        if self._socket is not None:
            with contextlib.suppress(ConnectionError):
                return self._ask(command, timeout_ms)
        return self._ask(command, timeout_ms)

    @property
    def descriptor(self) -> int | None:
        """Descriptor of the open connection. None if none is open."""
        return None if self._socket is None else self._socket.fileno()

    @property
    def peer_host(self) -> str:
        """The peer's address of the open connection, as text. "" if none is open."""
        return "" if self._socket is None else peer_host(self._socket)

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _ask(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        try:
            return self._exchange(command, time.monotonic() + timeout_ms / 1000)
        except BaseException:
            self.close()  # an answer that comes late must not be taken for the next one's
            raise

    def _exchange(self, command: RemotingCommand, deadline: float) -> RemotingCommand:
        if self._socket is None:
            self._socket = socket.create_connection(_target(self.address), _left(deadline))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._opaque += 1
        command.opaque = self._opaque
        self._socket.settimeout(_left(deadline))
        self._socket.sendall(encode_frame(command))
        decoder = FrameDecoder(MAX_FRAME_BYTES)
        while True:
            self._socket.settimeout(_left(deadline))
            data = self._socket.recv(RECEIVE_BYTES)
            if not data:
                raise ConnectionResetError(f"{self.address} closed the connection")
            for received in decoder.feed(data):
                if received.is_response and received.opaque == command.opaque:
                    return received


def peer_host(connection: socket.socket) -> str:
    """The peer's address as text. "" if the connection has ended."""
    try:
        return str(connection.getpeername()[0])
    except OSError:
        return ""


def _target(address: str) -> tuple[str, int]:
    """Host and port. Raises OSError."""
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdecimal() and len(port) <= PORT_CHARS_MAX and int(port) <= PORT_MAX):
        raise OSError(f"{address} is no host:port")
    return host.strip("[]"), int(port)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("no answer in time")
    return left
