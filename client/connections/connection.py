"""One TCP connection to a broker or name server: many requests in flight, answers matched by opaque.

The connection runs in the runtime that made it (`runtime`: an event loop, or threads with blocking sockets). Frames
of one loop iteration leave in one system call (or in several of 256 KiB). Time-outs are in one queue per distinct
duration, so a request costs an append instead of a timer. Time in which the loop was busy and could not read answers
does not count as waiting.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

from ringmq.client.errors import ConnectError, RequestTimeoutError
from ringmq.client.runtimes.runtime import Future, Timer, running_loop, shield, timeout
from ringmq.client.runtimes.socket_transport import end_when_stalled
from ringmq.client.security.tls import connect_error, describe_socket_failure
from ringmq.client.settings import ConnectionSettings
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.command import RemotingCommand, encode_frame
from ringmq.remoting.errors import FrameError, UnreadableHeader
from ringmq.remoting.frame import FrameDecoder

log = logging.getLogger("ringmq.client")

SWEEP_INTERVAL_S = 0.05  # a time-out is noticed this late at most
WRITE_BUFFER_HIGH_BYTES = 1 << 20
FLUSH_BYTES = 1 << 18
UNHEARD_HINT = " before it answered anything (does it want TLS, or a client certificate?)"

ResponseFuture = Future[RemotingCommand]
LateAnswer = Callable[[RemotingCommand], object]


class Transport(Protocol):
    """The methods of asyncio's transports that a connection uses."""

    def set_write_buffer_limits(self, high: int) -> None:
        """Set the size of the buffer above which the protocol is asked to pause."""

    def write(self, data: bytes) -> None:
        """Send bytes."""

    def is_closing(self) -> bool:
        """True if nothing can be sent any more."""

    def close(self) -> None:
        """Close after everything is sent."""


class RequestHandler(Protocol):
    """Answers a request of the server. Returns None for no answer."""

    def __call__(self, connection: "BrokerConnection", request: RemotingCommand) -> RemotingCommand | None: ...


class BrokerConnection(asyncio.Protocol):
    """Requests and answers over one socket. Made by `open_connection`.

    A waiting request fails with `ConnectError(sent=True)` if the socket breaks, and with `RequestTimeoutError` if its
    answer does not come in time. A late answer is dropped.
    """

    def __init__(
        self,
        address: str,
        on_request: RequestHandler,
        on_lost: Callable[["BrokerConnection"], None],
    ) -> None:
        self.address = address
        self._on_request = on_request
        self._on_lost = on_lost
        self._loop = running_loop()
        self._transport: Transport | None = None
        self._decoder = FrameDecoder()
        self._waiting: dict[int, ResponseFuture] = {}
        self._late: dict[int, LateAnswer] = {}
        self._deadlines: dict[int, deque[tuple[float, int]]] = {}
        self._sweep_timer: Timer | None = None
        self._sweep_due = 0.0
        self._stalled_s = 0.0  # sum of the delays by which sweeps came late
        self._outgoing: list[bytes] = []
        self._outgoing_bytes = 0
        self._room: Future[None] | None = None
        self._writing_paused = False
        self._draining = False
        self._failure: str | None = None
        self._has_received = False

    # ---- use ----

    @property
    def is_open(self) -> bool:
        """True if new requests may be sent."""
        return self._transport is not None and self._failure is None and not self._draining

    @property
    def heard(self) -> bool:
        """True if the peer has ever sent a frame."""
        return self._has_received

    @property
    def writing_paused(self) -> bool:
        """True if the peer reads more slowly than this side writes."""
        return self._writing_paused

    def request(self, opaque: int, frame: bytes, timeout_ms: int) -> ResponseFuture:
        """Send an encoded request and return the future of its answer. `opaque` must be the frame's."""
        if self._failure is not None or self._transport is None:
            raise ConnectError(self.address, self._failure or "not connected")
        future: ResponseFuture = self._loop.create_future()
        self._waiting[opaque] = future
        deadlines = self._deadlines.get(timeout_ms)
        if deadlines is None:
            deadlines = self._deadlines[timeout_ms] = deque()
        now = self._loop.time()
        deadlines.append((now - self._stalled_s + timeout_ms / 1000, opaque))
        if self._sweep_timer is None:
            self._schedule_sweep(now)
        self.write(frame)
        return future

    def when_late(self, opaque: int, on_late: LateAnswer) -> None:
        """Call `on_late` with the answer to a request whose waiter was cancelled, if it comes in time."""
        if opaque in self._waiting:
            self._late[opaque] = on_late

    def write(self, frame: bytes) -> None:
        """Send a frame without an answer (one-way requests, answers to the server)."""
        if self._failure is not None or self._transport is None:
            raise ConnectError(self.address, self._failure or "not connected")
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing.append(frame)
        self._outgoing_bytes += len(frame)
        if self._outgoing_bytes >= FLUSH_BYTES:
            self._flush()

    async def wait_writable(self, until: float | None = None) -> None:
        """Wait until the peer has read the buffered bytes. Returns at once if the buffer is small.

        Raises `ConnectError` at the monotonic time `until`.
        """
        while self._writing_paused and self._failure is None:
            if self._room is None:
                self._room = self._loop.create_future()
            try:
                async with timeout(None if until is None else max(0.0, until - self._loop.time())):
                    await shield(self._room)
            except TimeoutError:
                raise ConnectError(self.address, "it does not take what was sent before") from None

    def drain_and_close(self) -> None:
        """Send nothing new, and close after the answer to the last waiting request, as GO_AWAY asks for."""
        self._draining = True
        self._close_if_drained()

    def close(self, reason: str = "closed by us") -> None:
        """Close at once. Waiting requests fail."""
        if self._transport is not None and self._failure is None:
            self._flush()
            self._fail(reason)
            self._transport.close()

    # ---- asyncio.Protocol ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected."""
        self._transport = cast(Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH_BYTES)

    def data_received(self, data: bytes) -> None:
        """Read bytes of the server: complete waiting requests, pass the server's requests to the handler."""
        try:
            commands = self._decode(data)
        except FrameError as error:
            log.warning("%s sent a broken frame: %s; closing the connection", self.address, error)
            self.close(f"broken frame: {error}")
            return
        if commands:
            self._has_received = True
        waiting = self._waiting
        for command in commands:
            if command.flag & 1:
                future = waiting.pop(command.opaque, None)
                if future is not None:
                    if not future.done():
                        future.set_result(command)
                    elif (on_late := self._late.pop(command.opaque, None)) is not None:
                        on_late(command)
            else:
                self._serve(command)
        if self._draining:
            self._close_if_drained()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        reason = describe_socket_failure(exc, in_handshake=False) if exc else "closed by the server"
        is_silent = not self._has_received and (exc is None or isinstance(exc, ConnectionError))
        self._fail(reason + (UNHEARD_HINT if is_silent else ""))
        self._transport = None
        self._on_lost(self)

    def pause_writing(self) -> None:
        """The write buffer is over its high mark."""
        self._writing_paused = True

    def resume_writing(self) -> None:
        """The write buffer has drained."""
        self._writing_paused = False
        self._wake_writers()

    # ---- inside ----

    def _decode(self, data: bytes) -> list[RemotingCommand]:
        """Return the commands completed by `data`. One that cannot be read costs its own request alone."""
        commands: list[RemotingCommand] = []
        while True:
            try:
                return commands + self._decoder.feed(data)
            except UnreadableHeader as error:
                log.warning("%s sent a frame that cannot be read: %s", self.address, error)
                commands += (one for one in error.commands_before if isinstance(one, RemotingCommand))
                self._answer_unreadable(RemotingCommand.unreadable(error), str(error))
                data = b""

    def _answer_unreadable(self, command: RemotingCommand, fault: str) -> None:
        """Fail the request whose answer this is, or answer the server's request."""
        if command.is_response:
            future = self._waiting.pop(command.opaque, None)
            if future is not None and not future.done():
                command.code, command.remark = ResponseCode.SYSTEM_ERROR, f"the answer cannot be read: {fault}"
                future.set_result(command)
        elif not command.is_oneway and self._failure is None:
            self.write(encode_frame(RemotingCommand.response_to(command, ResponseCode.SYSTEM_ERROR, fault)))

    def _flush(self) -> None:
        if self._outgoing and self._transport is not None and not self._transport.is_closing():
            outgoing, self._outgoing, self._outgoing_bytes = self._outgoing, [], 0
            self._transport.write(outgoing[0] if len(outgoing) == 1 else b"".join(outgoing))

    def _serve(self, command: RemotingCommand) -> None:
        answer = self._on_request(self, command)
        if answer is not None and not command.is_oneway and self._failure is None:
            self.write(encode_frame(answer))

    def _schedule_sweep(self, now: float) -> None:
        self._sweep_due = now + SWEEP_INTERVAL_S
        self._sweep_timer = self._loop.call_at(self._sweep_due, self._sweep)

    def _sweep(self) -> None:
        """Fail requests over their deadline. A queue's time-outs are equal, so it is in deadline order."""
        late_s = self._loop.time() - self._sweep_due
        if late_s > SWEEP_INTERVAL_S:
            self._stalled_s += late_s
        now = self._loop.time() - self._stalled_s
        for timeout_ms, deadlines in list(self._deadlines.items()):
            while deadlines:
                deadline, opaque = deadlines[0]
                if opaque in self._waiting:
                    if deadline > now:
                        break
                    future = self._waiting.pop(opaque)
                    self._late.pop(opaque, None)
                    if not future.done():
                        future.set_exception(RequestTimeoutError(self.address, timeout_ms))
                deadlines.popleft()
            if not deadlines:
                del self._deadlines[timeout_ms]
        self._sweep_timer = None
        if self._deadlines:
            self._schedule_sweep(self._loop.time())
        if self._draining:
            self._close_if_drained()

    def _close_if_drained(self) -> None:
        if not self._waiting:
            self.close("the server asked us to go away")

    def _wake_writers(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._room = None

    def _fail(self, reason: str) -> None:
        if self._failure is not None:
            return
        self._failure = reason
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        waiting, self._waiting = self._waiting, {}
        self._deadlines.clear()
        self._late.clear()
        for future in waiting.values():
            if not future.done():
                future.set_exception(ConnectError(self.address, reason, sent=True))
        self._wake_writers()


def split_address(address: str) -> tuple[str, int]:
    """Return (host, port) of "host:port". An IPv6 host may be in brackets. Raises ValueError."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"address {address!r} is not of the form host:port")
    return host.strip("[]"), int(port)


async def open_connection(
    address: str,
    on_request: RequestHandler,
    on_lost: Callable[[BrokerConnection], None],
    settings: ConnectionSettings,
    tls: ssl.SSLContext | None = None,
) -> BrokerConnection:
    """Connect to "host:port", over TLS with a context (that of `settings.tls`). Raises `ConnectError`."""
    loop = running_loop()
    connection: BrokerConnection
    try:
        host, port = split_address(address)
        server_name = None if settings.tls is None else settings.tls.name_to_verify(host)
        async with timeout(settings.connect_timeout_ms / 1000):
            transport, connection = await loop.create_connection(
                lambda: BrokerConnection(address, on_request, on_lost), host, port, ssl=tls, server_hostname=server_name
            )
    except TimeoutError:
        raise ConnectError(address, f"no answer to connect within {settings.connect_timeout_ms} ms") from None
    except OSError as error:
        raise connect_error(address, error, tls=tls is not None) from error
    except ValueError as error:  # no address, or a name that cannot be one: brokers register what they like
        raise ConnectError(address, str(error)) from error
    if isinstance(transport, asyncio.BaseTransport):  # the other runtime's does so by itself
        end_when_stalled(transport.get_extra_info("socket"))
    return connection
