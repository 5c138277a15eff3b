"""One blocking socket under a `BrokerConnection`. A thread of the connection connects and receives.

Any thread with data sends it itself. A thread of its own sends the part that the system does not accept at once. TLS
is done in memory, so the two directions never use one SSL object at the same time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import ssl
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from weakref import WeakSet

    from ringmq.client.runtimes.thread_tasks import ThreadFuture

log = logging.getLogger("ringmq.client")

CONNECT_GIVE_UP_S = 60.0  # beyond any connect_timeout_ms in use
STALL_S = 10.0  # a server that takes not one byte for so long is given up, in both runtimes
RECEIVE_BYTES = 1 << 18

T = TypeVar("T")


class Threads(Protocol):
    """The part of a `ThreadLoop` that a socket uses."""

    sockets: WeakSet[socket.socket]
    is_the_parent_s: bool
    """True in the child of a fork."""

    def entered(self) -> AbstractContextManager[None]:
        """Hold the monitor."""

    def outside(self, work: Callable[..., T], *args: Any) -> T:
        """Call `work(*args)` without the monitor."""

    def call_soon(self, callback: Callable[[], object], /) -> object:
        """Call before the running thread waits or leaves."""

    def start_thread(self, work: Callable[[], None], what: str) -> None:
        """Do `work` in a daemon thread."""


class _Tls:
    """The encrypted side of a connection, as bytes in and bytes out."""

    def __init__(self, context: ssl.SSLContext, server_name: str | None) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._session = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)

    def shake_hands(self, connected: socket.socket) -> None:
        """Do the handshake. Raises OSError."""
        while True:
            try:
                self._session.do_handshake()
                return connected.sendall(self._outgoing.read())
            except ssl.SSLWantReadError:
                connected.sendall(self._outgoing.read())
                received = connected.recv(RECEIVE_BYTES)
                if not received:
                    raise ConnectionError("closed during the TLS handshake") from None
                self._incoming.write(received)
            except ssl.SSLError:
                with contextlib.suppress(OSError):
                    connected.sendall(self._outgoing.read())  # the reason, for the server's log
                raise

    def decrypt(self, received: bytes) -> tuple[bytes, bytes]:
        """Return (decrypted data of the server, bytes to send back)."""
        self._incoming.write(received)
        parts = []
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            while part := self._session.read(RECEIVE_BYTES):
                parts.append(part)
        return b"".join(parts), self._outgoing.read()

    def encrypt(self, data: bytes) -> bytes:
        """Return `data` encrypted."""
        self._session.write(data)
        return self._outgoing.read()


class SocketTransport:
    """The part of asyncio's `Transport` that a `BrokerConnection` uses. The caller must hold the monitor."""

    def __init__(self, loop: Threads, connected: socket.socket, protocol: Any, tls: _Tls | None) -> None:
        self._loop = loop
        self._socket = connected
        self._protocol = protocol
        self._tls = tls
        self._outgoing: list[bytes] = []
        self._outgoing_bytes = 0
        self._high_bytes = RECEIVE_BYTES
        self._paused = self._sending = self._closing = self._ended = False
        self._failure: BaseException | None = None

    def set_write_buffer_limits(self, high: int) -> None:
        """Set the size of the buffer above which the protocol is asked to pause."""
        self._high_bytes = high

    def is_closing(self) -> bool:
        """True if nothing can be sent any more."""
        return self._closing

    def write(self, data: bytes) -> None:
        """Send, or begin to, before the running thread waits or leaves."""
        if self._closing:
            return
        if not self._outgoing and not self._sending:
            self._loop.call_soon(self._send)
        self._outgoing.append(data if self._tls is None else self._tls.encrypt(data))
        self._outgoing_bytes += len(data)
        if self._outgoing_bytes > self._high_bytes and not self._paused:
            self._paused = True
            self._protocol.pause_writing()

    def close(self) -> None:
        """Close after everything is sent."""
        self._closing = True
        if not self._outgoing and not self._sending:
            self._shut()

    def receive(self) -> None:
        """Pass received data on until the connection ends. Runs in the connection's thread, outside the monitor."""
        while True:
            try:
                received = self._socket.recv(RECEIVE_BYTES)
            except TimeoutError:
                continue
            except OSError as error:
                self._failure = self._failure or error
                break
            if not received:
                break
            try:
                with self._loop.entered():
                    self._take(received)
            except Exception as error:  # a fault of ours: the waiters of this connection get an error
                log.exception("what the server said could not be taken")
                self._failure = self._failure or error
                break
        if self._loop.is_the_parent_s:
            return  # a greenlet that came along with a fork
        with self._loop.entered():
            self._closing = self._ended = True
            self._shut()
            if not self._sending:
                self._socket.close()
            self._protocol.connection_lost(self._failure)

    def _take(self, received: bytes) -> None:
        if self._tls is not None:
            try:
                received, reply = self._tls.decrypt(received)
            except ssl.SSLError as error:
                self._fail(error)
                return
            if reply:
                self._outgoing.append(reply)
                self._loop.call_soon(self._send)
        if received:
            self._protocol.data_received(received)

    def _send(self) -> None:
        """Send, and leave the rest that the system does not accept at once to a thread of its own.

        The current thread has other connections to serve, or its call has a time limit.
        """
        if self._sending or not self._outgoing:
            return
        try:
            self._send_all(self._send_at_once)
        finally:  # an interrupt may come in the midst of the other one
            self._sending = False
        if self._outgoing and not self._ended:
            self._loop.start_thread(self._send_beside, "sends")

    def _send_beside(self) -> None:
        with self._loop.entered():
            if not self._sending:
                self._send_all(self._send_waiting)

    def _send_all(self, send: Callable[[bytes], bytes]) -> None:
        """Send the buffered data, and data that others add meanwhile, until `send` leaves a rest.

        The monitor is released while the socket works.
        """
        rest = b""
        try:
            self._sending = True
            while self._outgoing and not rest and self._failure is None:
                data = self._outgoing[0] if len(self._outgoing) == 1 else b"".join(self._outgoing)
                self._outgoing.clear()
                self._outgoing_bytes = 0
                if rest := self._loop.outside(send, data):
                    self._outgoing.insert(0, rest)
                    self._outgoing_bytes += len(rest)
                if self._paused and self._outgoing_bytes <= self._high_bytes // 4:
                    self._paused = False
                    self._protocol.resume_writing()
        except TimeoutError:
            self._fail(TimeoutError(f"the server took nothing for {STALL_S:.0f} s"))
        except OSError as error:
            self._fail(error)
        except BaseException:  # an interrupt: part of a frame may have left
            self._fail(ConnectionError("interrupted while sending"))
            raise
        finally:
            self._sending = False
            if self._ended:  # not before: a `send` on its way into the system would meet whose file has the number now
                self._socket.close()
            elif self._closing and not self._outgoing:
                self._shut()

    def _send_at_once(self, data: bytes) -> bytes:
        """Send and return the bytes that the system does not accept now.

        `socket.send` would wait for space, whatever its flags: the socket has a time-out, and so its file does not
        block.
        """
        try:
            return data[os.write(self._socket.fileno(), data) :]
        except BlockingIOError:
            return data

    def _send_waiting(self, data: bytes) -> bytes:
        """Send everything and return no bytes."""
        rest = memoryview(data)
        while rest:
            rest = rest[self._socket.send(rest) :]
        return b""

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._closing = True
        self._shut()

    def _shut(self) -> None:
        """Shut the socket down: the receiving thread wakes up and ends the connection, a sending one fails."""
        self._outgoing.clear()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


def end_when_stalled(connected: socket.socket) -> None:
    """Let the system break the connection if its peer, or the network, accepts nothing for `STALL_S`."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        with contextlib.suppress(OSError):  # it is closed already
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(STALL_S * 1000))


def connect_socket(
    loop: Threads,
    protocol: Any,
    address: tuple[str, int],
    context: ssl.SSLContext | None,
    server_name: str | None,
    connected: ThreadFuture[tuple[Any, Any]],
) -> None:
    """Connect, complete `connected`, and receive until the connection ends. The work of a connection's thread."""
    try:
        connection = socket.create_connection(address, CONNECT_GIVE_UP_S)
        loop.sockets.add(connection)
        try:
            connection.settimeout(STALL_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            end_when_stalled(connection)
            tls = None if context is None else _Tls(context, server_name)
            if tls is not None:
                tls.shake_hands(connection)
        except BaseException:
            connection.close()
            raise
    except (OSError, UnicodeError) as error:  # the second of names that cannot be a host's
        with loop.entered():
            if not connected.done():
                connected.set_exception(error)
        return
    transport = SocketTransport(loop, connection, protocol, tls)
    with loop.entered():
        if connected.done() or loop.is_the_parent_s:  # its waiter has given up
            connection.close()
            return
        protocol.connection_made(transport)
        connected.set_result((transport, protocol))
    transport.receive()
