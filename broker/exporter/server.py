"""The HTTP part: /metrics, /health, /ready. `http.server` with bounds: connections, time, size of a request.

A thread per connection, at most CONNECTIONS_MAX; one scrape at a time, and who comes while one is made gets the same
text. Nothing but GET and HEAD is answered, and what comes with a request is not read.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import Any, ClassVar

from ringmq.broker.exporter.text import CONTENT_TYPE, PageText

CONNECTIONS_MAX = 16
REQUEST_TIMEOUT_S = 5.0
"""Silence on a connection, also between requests."""
LIFE_MAX_S = 30.0
"""One request with its answer, whatever comes and goes meanwhile."""
TOLD_EVERY_S = 60.0
"""At most as often a request that failed gets into the log."""
INDEX = b"RingMQ: /metrics (Prometheus), /health, /ready\n"


@dataclass(frozen=True, slots=True)
class Pages:
    """What the paths show."""

    metrics: Callable[[], PageText]
    health: Callable[[], tuple[bool, dict[str, Any]]]
    ready: Callable[[], tuple[bool, dict[str, Any]]]


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_version = "RingMQ"
    sys_version = ""
    timeout = REQUEST_TIMEOUT_S
    disable_nagle_algorithm = True
    server: ExporterServer
    JSON_PATHS: ClassVar[dict[str, str]] = {"/health": "health", "/ready": "ready"}

    def setup(self) -> None:
        """The way to a client on this machine needs no pace: with BBR's a page takes twice the time."""
        super().setup()
        if ip_address(self.client_address[0]).is_loopback:
            with contextlib.suppress(OSError):
                self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")

    def do_GET(self) -> None:
        """Any path."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """The same without the body."""
        self._answer(with_body=False)

    def handle_one_request(self) -> None:
        """A request begins its time anew."""
        self.server.touch(self.connection)
        super().handle_one_request()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: whoever sends junk must not fill the log."""

    def _answer(self, *, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        pages = self.server.pages
        if path == "/metrics":
            self._send_parts(self.server.metrics_page().pieces() if with_body else ())
        elif path in self.JSON_PATHS:
            good, value = getattr(pages, self.JSON_PATHS[path])()
            status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
            self._send_whole(status, "application/json", json.dumps(value).encode() + b"\n", with_body)
        else:
            status = HTTPStatus.OK if path == "/" else HTTPStatus.NOT_FOUND
            self._send_whole(status, "text/plain; charset=utf-8", INDEX, with_body)

    def _send_whole(self, status: HTTPStatus, kind: str, body: bytes, with_body: bool) -> None:
        self._send_head(status, {"Content-Type": kind, "Content-Length": str(len(body))})
        if with_body:
            self.wfile.write(body)

    def _send_parts(self, pieces: Iterable[bytes | memoryview]) -> None:
        """A page whose length nobody knows before it is made. HTTP before 1.1 has no chunks: it ends the connection.

        After each piece whoever else waits for this CPU comes first: he that has just had more than his share would
        wait until the next tick of the kernel's clock, while a page is made.
        """
        in_chunks = self.request_version not in ("HTTP/0.9", "HTTP/1.0")
        self.close_connection |= not in_chunks
        self._send_head(
            HTTPStatus.OK, {"Content-Type": CONTENT_TYPE, **({"Transfer-Encoding": "chunked"} if in_chunks else {})}
        )
        between = b""
        for piece in pieces:
            head = b"%s%x\r\n" % (between, len(piece)) if in_chunks else b""
            between = b"\r\n"
            sent = self.connection.sendmsg([head, piece], (), socket.MSG_MORE)
            for part in (head, piece):
                if sent < len(part):
                    self.connection.sendall(memoryview(part)[sent:], socket.MSG_MORE)
                sent = max(0, sent - len(part))
            os.sched_yield()
        if in_chunks and self.command != "HEAD":
            self.connection.sendall(b"%s0\r\n\r\n" % between)

    def _send_head(self, status: HTTPStatus, fields: dict[str, str]) -> None:
        if self.headers.get("Content-Length") or self.headers.get("Transfer-Encoding"):
            self.close_connection = True
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()


class ExporterServer(ThreadingHTTPServer):
    """Serves a listening socket that somebody else owns."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, listener: socket.socket, pages: Pages) -> None:
        super().__init__(("", 0), Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_name, self.server_port = listener.getsockname()[:2]
        self.pages = pages
        self._since: dict[socket.socket, float] = {}
        self._silent_until = 0.0
        self._guard = threading.Lock()
        self._scrape = threading.Lock()
        self._page = PageText()
        self._page_number = 0

    def process_request(self, request: Any, client_address: Any) -> None:
        """Take the connection unless there are enough."""
        with self._guard:
            full = len(self._since) >= CONNECTIONS_MAX
            if not full:
                self._since[request] = time.monotonic()
        if full:
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """The connection is over."""
        with self._guard:
            self._since.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no event. Anything else is told, since the client is told nothing."""
        if isinstance(sys.exception(), ConnectionError | TimeoutError):
            return
        now = time.monotonic()
        with self._guard:
            if now < self._silent_until:
                return
            self._silent_until = now + TOLD_EVERY_S
        text = f"a request failed (told once in {TOLD_EVERY_S:.0f} s):\n{traceback.format_exc()}"
        print(f"ringmq: metrics: {text}", file=sys.stderr, flush=True)

    def touch(self, connection: socket.socket) -> None:
        """A request begins."""
        with self._guard:
            if connection in self._since:
                self._since[connection] = time.monotonic()

    def close_late(self) -> None:
        """End what has taken longer than LIFE_MAX_S; call it every second."""
        limit = time.monotonic() - LIFE_MAX_S
        with self._guard:
            late = [connection for connection, since in self._since.items() if since < limit]
        for connection in late:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def metrics_page(self) -> PageText:
        """A page that was begun after the call, shared by all who wait for one."""
        wanted = self._page_number + 1 + self._scrape.locked()
        with self._scrape:
            if self._page_number < wanted:
                self._page = self.pages.metrics()
                self._page_number += 1
            return self._page
