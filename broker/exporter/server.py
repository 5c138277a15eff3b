"""The HTTP port: /metrics, /health, /ready. One thread with limits on connections, time and memory.

`http_connections` decides which connections stay open, this module moves the bytes. A thread of its own makes pages of
metrics, one at a time. All requests that arrive before a page is begun get that page. The port answers only GET and
HEAD, and reads no body.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import socket
import time
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from msgspec import Struct, field

from ringmq.broker.exporter import http_answer
from ringmq.broker.exporter.http_answer import Answer
from ringmq.broker.exporter.http_connections import HttpConnections, Phase
from ringmq.broker.exporter.http_counts import HttpCounts
from ringmq.broker.exporter.http_protocol import HEAD_BYTES_MAX, BadRequest, HttpProtocol, Request
from ringmq.broker.exporter.text import PageText
from ringmq.remoting.log_throttle import LogThrottle
from ringmq.remoting.networks import Networks, is_loopback

log = logging.getLogger(__name__)

PAGES_MAX = 16
"""Answers to /metrics in transmission at a time. More requests wait for their turn."""
PAGE_SHARE_S = 2.0
"""Time limit of an answer to /metrics while other requests wait. A longer one is closed."""
ACCEPTS_PER_TURN = 64
FRESH_S = 0.05
"""Shortest time between two health checks of the broker for /health and /ready."""
LOOK_S = 0.25
"""Time between two checks of the deadlines."""
NO_FILES_PAUSE_S = 0.01
LINES_PER_MINUTE = 10
TCP_NOTSENT_LOWAT = 25
INDEX = b"RingMQ: /metrics (Prometheus), /health, /ready\n"
JSON_PATHS = ("/health", "/ready")


class Pages(Struct, frozen=True):
    """The content of the paths."""

    metrics: Callable[[], PageText]
    health: Callable[[], tuple[bool, dict[str, Any]]]
    ready: Callable[[], tuple[bool, dict[str, Any]]]


class _Connection(Struct, eq=False):
    socket: socket.socket
    number: int
    protocol: HttpProtocol = field(default_factory=HttpProtocol)
    request: Request | None = None
    """A request that waits for a page."""
    answer: Answer | None = None
    is_refused: bool = False
    events: int = 0


class ExporterServer:
    """Serves a listening socket that the caller owns. `allowed`: hosts that may connect (httpAllowedNetworks)."""

    def __init__(
        self,
        listener: socket.socket,
        pages: Pages,
        allowed: Networks | None = None,
        counts: HttpCounts | None = None,
    ) -> None:
        self.pages = pages
        self.server_port = int(listener.getsockname()[1])
        self.counts = counts or HttpCounts()
        self._listener = listener
        self._listener.setblocking(False)
        self._allowed = allowed or Networks()
        self._table = HttpConnections()
        self._open: dict[int, _Connection] = {}
        """File descriptor -> connection. The descriptor is its number in the table."""
        self._again: deque[_Connection] = deque()
        """Connections whose next request has arrived together with the previous one."""
        self._fresh: dict[str, tuple[float, tuple[bool, dict[str, Any]]]] = {}
        self._waiting: deque[_Connection] = deque()
        self._in_scrape: list[_Connection] = []
        self._paging: dict[int, float] = {}
        """Answers to /metrics in transmission -> time when they began."""
        self._scrape: Future[PageText] | None = None
        self._scraper = ThreadPoolExecutor(1, "scrape")
        self._throttle = LogThrottle(LINES_PER_MINUTE)
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._stopped = False
        self._epoll = select.epoll()
        self._epoll.register(self._bell, select.EPOLLIN)
        self._epoll.register(listener, select.EPOLLIN)

    def serve_forever(self, look_s: float = LOOK_S, look: Callable[[], None] = lambda: None) -> None:
        """Answer until `shutdown`. Calls `look` each turn, at least every `look_s` seconds."""
        next_look = 0.0
        while not self._stopped:
            now = time.monotonic()
            if now >= next_look:
                next_look = now + min(look_s, LOOK_S)
                self._close_overdue(now)
            look()
            self.turn(0.0 if self._again else look_s)
        for connection in list(self._open.values()):
            self._close(connection, "client")
        self._scraper.shutdown(wait=False, cancel_futures=True)

    def shutdown(self) -> None:
        """End `serve_forever`. A signal handler or another thread may call it."""
        self._stopped = True
        os.eventfd_write(self._bell, 1)

    def _close_overdue(self, now: float) -> None:
        for number in self._table.overdue(now):
            self._close(self._open[number], "time")
        if self._waiting and len(self._paging) >= PAGES_MAX:
            for number in [number for number, began in self._paging.items() if now - began >= PAGE_SHARE_S]:
                self._close(self._open[number], "room")

    def turn(self, timeout_s: float) -> None:
        """Handle the waiting events, or wait for some up to `timeout_s` seconds."""
        again, self._again = self._again, deque()
        for number, events in self._epoll.poll(timeout_s):
            if number == self._bell:
                os.eventfd_read(self._bell)
            elif number == self._listener.fileno():
                self._accept()
            elif (connection := self._open.get(number)) is not None:
                self._guarded(self._on_event, connection, events)
        for connection in again:
            if self._open.get(connection.number) is connection:
                self._guarded(self._next_request, connection)
        self._turn_pages()

    # ---- connections ----

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                accepted, (host, *_) = self._listener.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    time.sleep(NO_FILES_PAUSE_S)  # the listener stays readable
                return
            self.counts.accepted += 1
            if not self._allowed.allows(host):
                self.counts.closed["network"] += 1
                accepted.close()
                self._log(f"a connection of {host} to /metrics is refused: httpAllowedNetworks does not name it")
                continue
            accepted.setblocking(False)
            connection = _Connection(accepted, accepted.fileno())
            self._open[connection.number] = connection
            self.counts.connections = len(self._open)
            self._make_room(self._table.opened(connection.number, host, time.monotonic()))
            if self._open.get(connection.number) is connection:
                self._guarded(self._begin, connection, host)

    def _begin(self, connection: _Connection, host: str) -> None:
        taken = connection.socket
        taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        taken.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, http_answer.UNSENT_BYTES_MAX)
        if is_loopback(host):  # BBR paces its segments: over loopback a page takes twice the time
            with contextlib.suppress(OSError):
                taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
        self._receive(connection)

    def _make_room(self, victim: int | None) -> None:
        if victim is not None:
            self._close(self._open[victim], "room")

    def _close(self, connection: _Connection, reason: str) -> None:
        if self._open.get(connection.number) is not connection:
            return
        del self._open[connection.number]
        self.counts.connections = len(self._open)
        self.counts.closed[reason] += 1
        self._table.closed(connection.number)
        self._paging.pop(connection.number, None)
        if connection.request is not None and connection in self._waiting:
            self._waiting.remove(connection)
        connection.answer = None
        if reason in ("client", "request"):
            with contextlib.suppress(OSError):
                connection.socket.shutdown(socket.SHUT_WR)
        connection.socket.close()  # takes it out of epoll, too

    def _guarded(self, action: Callable[..., None], connection: _Connection, *arguments: Any) -> None:
        """Run an action whose failure costs one connection. The end of a client is no failure. Other errors are logged,
        throttled."""
        try:
            action(connection, *arguments)
        except (ConnectionError, TimeoutError):
            self._close(connection, "client")
        except Exception:
            self._log(f"a request failed:\n{traceback.format_exc()}")
            self._close(connection, "fault")

    def _log(self, text: str) -> None:
        line = self._throttle.line(text, int(time.monotonic() * 1000))
        if line is not None:
            log.warning("%s", line)

    def _wait_for(self, connection: _Connection, events: int) -> None:
        if connection.events == events:
            return
        if connection.events == 0:
            self._epoll.register(connection.number, events)
        elif events == 0:
            self._epoll.unregister(connection.number)
        else:
            self._epoll.modify(connection.number, events)
        connection.events = events

    def _on_event(self, connection: _Connection, events: int) -> None:
        if connection.answer is not None:
            self._send(connection)
        elif connection.request is None:
            self._receive(connection)

    # ---- requests ----

    def _receive(self, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(HEAD_BYTES_MAX)
        except BlockingIOError:
            self._wait_for(connection, select.EPOLLIN)
            return
        if not data:
            self._close(connection, "client")
            return
        self._table.received(connection.number, time.monotonic())
        connection.protocol.receive(data)
        self._next_request(connection)

    def _next_request(self, connection: _Connection) -> None:
        now = time.monotonic()
        try:
            request = connection.protocol.next_request()
        except BadRequest as error:
            self._make_room(self._table.requested(connection.number, now, Phase.ANSWER))
            connection.is_refused = True
            text = f"{error}\n".encode()
            protocol = connection.protocol
            answer = http_answer.whole(protocol, error.status, http_answer.PLAIN, text, with_body=protocol.with_body)
            self._answer(connection, answer)
            return
        if request is None:
            self._wait_for(connection, select.EPOLLIN)
            return
        is_page = request.path == "/metrics" and request.with_body
        self._make_room(self._table.requested(connection.number, now, Phase.PAGE if is_page else Phase.ANSWER))
        if self._open.get(connection.number) is not connection:
            return
        if is_page:
            connection.request = request
            self._waiting.append(connection)
            self._wait_for(connection, 0)
        else:
            self._answer(connection, self._small(connection.protocol, request, now))

    def _small(self, protocol: HttpProtocol, request: Request, now: float) -> Answer:
        with_body = request.with_body
        if request.path == "/metrics":
            return http_answer.page(protocol, ())
        if request.path in JSON_PATHS:
            return http_answer.as_json(
                protocol, *self._health_of(request.path.removeprefix("/"), now), with_body=with_body
            )
        status = 200 if request.path == "/" else 404
        return http_answer.whole(protocol, status, http_answer.PLAIN, INDEX, with_body=with_body)

    def _health_of(self, name: str, now: float) -> tuple[bool, dict[str, Any]]:
        seen = self._fresh.get(name)
        if seen is None or now - seen[0] >= FRESH_S:
            seen = self._fresh[name] = now, getattr(self.pages, name)()
        return seen[1]

    # ---- pages ----

    def _turn_pages(self) -> None:
        if self._scrape is not None and self._scrape.done():
            scrape, self._scrape = self._scrape, None
            waited, self._in_scrape = self._in_scrape, []
            for connection in waited:
                if self._open.get(connection.number) is connection:
                    self._guarded(self._begin_page, connection, scrape)
        room = PAGES_MAX - len(self._paging)
        if self._scrape is None and self._waiting and room > 0:
            self._in_scrape = [self._waiting.popleft() for _ in range(min(room, len(self._waiting)))]
            self._scrape = self._scraper.submit(lambda: self.pages.metrics())
            self._scrape.add_done_callback(lambda done: os.eventfd_write(self._bell, 1))

    def _begin_page(self, connection: _Connection, scrape: Future[PageText]) -> None:
        connection.request = None
        pieces = scrape.result().pieces()
        self._table.answering(connection.number, time.monotonic())
        self._paging[connection.number] = time.monotonic()
        self._answer(connection, http_answer.page(connection.protocol, pieces))

    # ---- answers ----

    def _answer(self, connection: _Connection, answer: Answer) -> None:
        if self._open.get(connection.number) is connection:
            connection.answer = answer
            self._send(connection)

    def _send(self, connection: _Connection) -> None:
        """Send at most one piece a turn, so that other connections, and other processes on this CPU, get their turn."""
        answer = connection.answer
        assert answer is not None
        try:
            if answer.send(connection.socket):
                self._table.progressed(connection.number, time.monotonic())
        except BlockingIOError:
            self._wait_for(connection, select.EPOLLOUT)
            return
        if not answer.is_done:
            os.sched_yield()
            self._wait_for(connection, select.EPOLLOUT)
            return
        connection.answer = None
        self._paging.pop(connection.number, None)
        if connection.protocol.is_last:
            self._close(connection, "request" if connection.is_refused else "client")
            return
        self._table.answered(connection.number, time.monotonic())
        if connection.protocol.start_next():
            self._wait_for(connection, 0)
            self._again.append(connection)
        else:
            self._wait_for(connection, select.EPOLLIN)
