"""One client's connection to the name server: bytes in, requests served by turns, answers out."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Generator
from typing import Protocol

from ringmq.namesrv.config import NamesrvConfig
from ringmq.namesrv.handlers import NamesrvHandlers
from ringmq.namesrv.kv import KvFile
from ringmq.namesrv.turns import Turns
from ringmq.remoting.codes import RequestCode, ResponseCode
from ringmq.remoting.command import RemotingCommand, encode_frame
from ringmq.remoting.errors import FrameError, UnreadableHeader
from ringmq.remoting.frame import FrameDecoder
from ringmq.remoting.protocol_detection import describe_error

log = logging.getLogger("ringmq.namesrv")

WRITE_HIGH_WATER_BYTES = 256 * 1024
"""Bytes of unsent answers beyond which the connection is not read."""
READ_AHEAD_BYTES = 65_536
"""Bytes of input beyond which a connection with a whole request is not read until the request is served."""
HEADER_BYTES_MAX = 262_144
LARGE_BODY_BYTES = 65_536
"""Body size beyond which a registration waits for its grant."""
READ_BYTES = 16_384
"""Bytes that are read from one socket in a turn of the event loop, at most.

asyncio's own limit is 256 KiB. All ready sockets are read in one turn, and 300 sockets made turns of 360 ms.
"""


class Server(Protocol):
    """The name server as a connection sees it."""

    config: NamesrvConfig
    handlers: NamesrvHandlers
    turns: Turns
    kv_file: KvFile | None
    buffered_bytes: int
    """Bytes of requests and answers in memory, of all connections."""
    read_buffer: memoryview

    def now_ms(self) -> int:
        """Return the time of requests."""

    def add(self, connection: Connection) -> str | None:
        """Add a connection, or return the reason of a refusal."""

    def remove(self, connection: Connection) -> None:
        """Remove a closed connection."""

    def shed_memory(self) -> None:
        """Close connections while all together have too many bytes in memory."""

    def log_junk(self, host: str, spoken: str) -> None:
        """Log that a connection of `host` is closed for its input."""

    def log_incidents(self) -> None:
        """Log the incidents of the handlers, and the changes that requests have made."""


class Connection(asyncio.BufferedProtocol):
    """Serves requests of one client in order. Each answer is sent before the next request is looked at."""

    def __init__(self, server: Server, number: int) -> None:
        self.number = number
        self.host = ""
        self.last_active_s = time.monotonic()
        self.counted_bytes = 0
        """Bytes of requests and answers in memory at the last count."""
        self.is_queued = False
        self.waits_for_grant = False
        self._server = server
        self._decoder = FrameDecoder(server.config.max_frame_bytes, HEADER_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._peer = "?"
        self._paused = False
        self._request: RemotingCommand | None = None
        self._slices: Generator[None, None, RemotingCommand | None] | None = None
        self._waits_for_disk = False

    @property
    def is_open(self) -> bool:
        """False if the connection is lost."""
        return self._transport is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self._peer, self.host = str(peer), peer[0] if peer else ""
        transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        refused = self._server.add(self)
        if refused is not None:
            self.close(refused)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._slices = self._request = None
        self.count_bytes()
        self._server.remove(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._server.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active_s = time.monotonic()
        self._decoder.push(self._server.read_buffer[:nbytes])
        self.count_bytes()
        if self._decoder.is_ready:
            self._server.turns.add(self)
            self._set_reading()
        self._server.shed_memory()

    def pause_writing(self) -> None:
        self._paused = True
        self._set_reading()

    def resume_writing(self) -> None:
        self._paused = False
        self.last_active_s = time.monotonic()
        self.count_bytes()
        self._server.turns.add(self)
        self._set_reading()

    def close(self, why: str) -> None:
        """Close the connection: at once if answers are stuck, after sending them otherwise."""
        if self._transport is None:
            return
        log.debug("closing connection %d of %s: %s", self.number, self._peer, why)
        if self._paused:
            self._transport.abort()
        else:
            self._transport.close()

    def abort(self, why: str) -> None:
        """Close the connection and release all its resources at once."""
        self._paused = True
        self.close(why)
        self._decoder = FrameDecoder()
        self._request = self._slices = None
        self.count_bytes()

    def step(self) -> bool:
        """Serve a slice of a request. True if there is more to do at once."""
        if self._transport is None or self._paused or self._waits_for_disk or self.waits_for_grant:
            return False
        if self._transport.is_closing():
            return False
        if self._slices is None and not self._begin():
            return False
        return self.waits_for_grant is False and self._go_on()

    def count_bytes(self) -> None:
        """Count the bytes that this connection retains in memory.

        The transport's bytearray allocates up to twice the bytes that it holds.
        """
        now = 0
        if self._transport is not None:
            now = self._decoder.allocated_bytes + 2 * self._transport.get_write_buffer_size()
            now += 0 if self._request is None else len(self._request.body)
        self._server.buffered_bytes += now - self.counted_bytes
        self.counted_bytes = now

    def saved(self, response: RemotingCommand | None, error: OSError | None) -> None:
        """Send the answer after the KV file was written, or could not be written (`error`)."""
        self._waits_for_disk = False
        if error is not None and response is not None:
            response.code, response.remark = ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}"
        self._answer(response)
        self._server.turns.add(self)

    def _begin(self) -> bool:
        """Take the next request. False if none is complete."""
        try:
            request = self._decoder.take()
            while request is not None and request.is_response:  # a name server asks nothing: drop answers
                request = self._decoder.take()
        except UnreadableHeader as error:
            self._server.log_junk(self.host, str(error))
            self._request = RemotingCommand.unreadable(error)
            self._slices = _refusing(self._request, error)
            return True
        except FrameError as error:
            self._server.log_junk(self.host, describe_error(error))
            self.close(str(error))
            return False
        if request is None:
            self.count_bytes()
            self._set_reading()
            return False
        self._request = request
        self._slices = self._server.handlers.handle_slices(request, self.number, self._server.now_ms(), self.host)
        if request.code == RequestCode.REGISTER_BROKER and len(request.body) > LARGE_BODY_BYTES:
            self._server.turns.ask_for_grant(self)
        return True

    def _go_on(self) -> bool:
        """Run the request's next slice."""
        request, slices = self._request, self._slices
        assert request is not None and slices is not None
        response: RemotingCommand | None = None
        try:
            next(slices)
            return True
        except StopIteration as done:
            response = done.value
        except Exception as error:  # as stock: whatever a handler throws is answered, and the server goes on
            log.exception("the handler of request code %d of %s failed", request.code, self._peer)
            if not request.is_oneway:
                text = f"{type(error).__name__}: {error}"
                response = RemotingCommand.response_to(request, ResponseCode.SYSTEM_ERROR, text)
        self._request = self._slices = None
        self._server.turns.give_back(self)
        self._server.log_incidents()
        if self._server.kv_file is not None and self._server.kv_file.is_dirty:
            self._waits_for_disk = True
            self._server.kv_file.save(lambda error: self.saved(response, error))
            return False
        self._answer(response)
        return True

    def _answer(self, response: RemotingCommand | None) -> None:
        if response is not None and self._transport is not None:
            self._transport.write(encode_frame(response))
        self.count_bytes()
        self._server.shed_memory()

    def _set_reading(self) -> None:
        """Resume reading unless answers are stuck or whole requests wait in memory already."""
        if self._transport is None or self._transport.is_closing():
            return
        is_ahead = self._decoder.is_ready and self._decoder.buffered_bytes >= READ_AHEAD_BYTES
        if self._paused or is_ahead:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()


def _refusing(request: RemotingCommand, error: UnreadableHeader) -> Generator[None, None, RemotingCommand | None]:
    """Return the answer to a request whose header cannot be read, None if it waits for none."""
    yield
    if request.is_oneway or request.is_response:
        return None
    return RemotingCommand.response_to(request, error.code, str(error))
