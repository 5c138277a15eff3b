"""The name server's process: sockets around `NamesrvHandlers`.

The cost of a client is bounded:

* frames by `max_frame_bytes`;
* requests and answers in memory together by `max_buffered_bytes`;
* connections by `max_connections`, and half of it for each host;
* silence by the idle time;
* processor time by `turns`.

A client that does not read its answers is not read from. Malformed frames close the connection without an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import heapq
import itertools
import logging
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ringmq.ipc.audit import AuditWriter
from ringmq.ipc.collector import bound_collections
from ringmq.ipc.exit_status import EXIT_BAD_CONFIG, EXIT_STORE_REFUSED
from ringmq.ipc.fd_store import FdStore, ListeningSocket
from ringmq.ipc.logs import configure, hold_standard_descriptors, level_number
from ringmq.ipc.notify import service_manager
from ringmq.ipc.steady_clock import SteadyClock
from ringmq.namesrv.config import ConfigError, NamesrvConfig
from ringmq.namesrv.connection import READ_BYTES, Connection
from ringmq.namesrv.core import RouteRegistry
from ringmq.namesrv.handlers import NamesrvHandlers
from ringmq.namesrv.kv import KvConfig, KvFile, KvFileError, load_kv
from ringmq.namesrv.service_report import report
from ringmq.namesrv.turns import Turns
from ringmq.remoting.endpoints import name_server_endpoints, public_endpoints
from ringmq.remoting.errors import RemotingError
from ringmq.remoting.log_throttle import CauseThrottle, LogThrottle
from ringmq.remoting.properties_text import BadProperties, parse_assignments

log = logging.getLogger("ringmq.namesrv")

RELEASE_S = 1.0
"""The time within which the service manager closes a removed socket."""


LINES_PER_MINUTE = 10
"""The limit of log lines about malformed frames, and again of lines about refused requests and disputes.

Peers cause both kinds at any rate.
"""

COLLECT_AFTER_CLOSED = 10_000
"""Closed connections between two collections of garbage.

asyncio leaves a cycle of 1 to 2 KB for each connection, which only the cyclic collector frees.
"""


class NamesrvServer:
    """Listens, passes requests to the handlers and closes connections that misbehave."""

    def __init__(self, config: NamesrvConfig) -> None:
        self.config = config
        self.now_ms = SteadyClock()
        """The time of requests, by which silent brokers expire."""
        kv_path = Path(config.kv_config_path) if config.kv_config_path else None
        kv = KvConfig() if kv_path is None else load_kv(kv_path)
        self.kv_file = None if kv_path is None else KvFile(kv, kv_path)
        self.handlers = NamesrvHandlers(config, RouteRegistry(), kv, self.now_ms(), self._kv_changed)
        self.buffered_bytes = 0
        self.read_buffer = memoryview(bytearray(READ_BYTES))
        """The read buffer of all connections. Each connection copies its bytes at once."""
        self._junk_lines = LogThrottle(LINES_PER_MINUTE)
        self._incident_lines = LogThrottle(LINES_PER_MINUTE)
        self._refused = CauseThrottle()
        self._audit = AuditWriter(self.handlers.audit)
        self.turns = Turns(lambda run: asyncio.get_running_loop().call_soon(run), time.monotonic)
        self._connections: dict[int, Connection] = {}
        self._by_host: dict[str, int] = {}
        self._closed_uncollected = 0
        self._numbers = itertools.count(1)
        self._server: asyncio.Server | None = None
        self._scanner: asyncio.Task[None] | None = None

    @property
    def connection_count(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    @property
    def is_full(self) -> bool:
        """True if a new connection would be refused, at least of one host."""
        most = self.config.max_connections
        return len(self._connections) >= most or max(self._by_host.values(), default=0) >= max(1, most // 2)

    @property
    def listeners(self) -> Sequence[ListeningSocket]:
        """The listening sockets, which the event loop owns."""
        return () if self._server is None else self._server.sockets

    async def start(self, listener: socket.socket | None = None) -> int:
        """Listen on `listener`, or on the configured address, and return the port. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        if listener is None:
            self._server = await loop.create_server(
                self._connected, self.config.bind_address, self.config.listen_port, backlog=1024
            )
        else:
            self._server = await loop.create_server(self._connected, sock=listener, backlog=1024)
        self._scanner = asyncio.create_task(self._scan_forever())
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def _connected(self) -> asyncio.BaseProtocol:
        return Connection(self, next(self._numbers))

    async def close(self) -> None:
        """Stop listening and close every connection."""
        if self._scanner is not None:
            self._scanner.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._scanner
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections.values()):
            connection.close("server stops")
        if self._server is not None:
            await self._server.wait_closed()
        if self.kv_file is not None:
            await self.kv_file.close()

    def add(self, connection: Connection) -> str | None:
        """Add a connection, or return the reason of a refusal: too many, in total or of its host (half of all)."""
        most, host = self.config.max_connections, connection.host
        if len(self._connections) >= most:
            return f"more than {most} connections"
        if self._by_host.get(host, 0) >= max(1, most // 2):
            text = f"host {host} has {self._by_host[host]} connections, half of ringmqMaxConnections"
            self._log_line(self._incident_lines, text)
            return text
        self._connections[connection.number] = connection
        self._by_host[host] = self._by_host.get(host, 0) + 1
        return None

    def remove(self, connection: Connection) -> None:
        """Remove a closed connection and the brokers that registered over it."""
        self.turns.give_back(connection)
        self._closed_uncollected += 1
        if self._connections.pop(connection.number, None) is not None:
            self._by_host[connection.host] -= 1
            if not self._by_host[connection.host]:
                del self._by_host[connection.host]
            self.handlers.registry.drop_connection(connection.number)

    def shed_memory(self) -> None:
        """Close the largest connections of the host with most bytes in memory, once all have too many.

        Closing goes on down to 7/8 of the limit, so an eighth of the limit must come in before the next walk over all
        connections.
        """
        limit = self.config.max_buffered_bytes
        if self.buffered_bytes <= limit:
            return
        by_host: dict[str, list[Connection]] = {}
        for connection in self._connections.values():
            connection.count_bytes()
            by_host.setdefault(connection.host, []).append(connection)
        for them in by_host.values():
            them.sort(key=lambda one: (one.counted_bytes, one.last_active_s))
        hosts = [(-sum(one.counted_bytes for one in them), host) for host, them in by_host.items()]
        heapq.heapify(hosts)
        while hosts and self.buffered_bytes > limit - limit // 8:
            kept, host = hosts[0]
            victim = by_host[host].pop()
            freed = victim.counted_bytes
            if not freed:
                return
            text = f"a connection of host {host} is closed: requests and answers are over ringmqMaxBufferedBytes"
            self._log_line(self._incident_lines, f"{text} = {limit}")
            victim.abort(text)
            if by_host[host]:
                heapq.heapreplace(hosts, (kept + freed, host))
            else:
                heapq.heappop(hosts)

    def scan(self, wall_ms: int, monotonic_s: float) -> None:
        """Forget silent brokers, close idle connections, and free the cycles that asyncio leaves of closed ones."""
        if self._closed_uncollected >= COLLECT_AFTER_CLOSED:
            self._closed_uncollected = 0
            gc.collect()
        for line in self._refused.due_lines(wall_ms):
            log.warning("%s", line)
        for number in self.handlers.registry.expire(wall_ms):
            if number in self._connections:
                self._connections[number].close("broker expired")
        for connection in list(self._connections.values()):
            if monotonic_s - connection.last_active_s > self.config.server_channel_max_idle_time_seconds:
                connection.close("idle")

    def _kv_changed(self, kv: KvConfig) -> None:
        if self.kv_file is not None:
            self.kv_file.is_dirty = True

    def log_junk(self, host: str, spoken: str) -> None:
        """Log that a connection of `host` is closed for its input. `spoken` is the fault, or the other protocol."""
        self._log_line(self._junk_lines, f"junk from {host}: {spoken}")

    def log_incidents(self) -> None:
        """Log the incidents of the handlers, and the changes that requests have made."""
        self._audit.turn(self.now_ms())
        for code, (text, count) in self.handlers.incidents.take_refusals().items():
            first = self._refused.line(code, text, self.now_ms(), count)
            if first is not None:
                log.warning("%s", first)
        for line in self.handlers.incidents.take_lines():
            self._log_line(self._incident_lines, line)

    def _log_line(self, throttle: LogThrottle, text: str) -> None:
        line = throttle.line(text, self.now_ms())
        if line is not None:
            log.warning("%s", line)

    async def _scan_forever(self) -> None:
        while True:
            await asyncio.sleep(self.config.scan_not_active_broker_interval_ms / 1000)
            self.scan(self.now_ms(), time.monotonic())


async def start_listening(server: NamesrvServer, fd_store: FdStore) -> int:
    """Start on the service manager's stored socket, or on the configured address, and return the port.

    Raises OSError.
    """
    taken = fd_store.take(server.config.bind_address, server.config.listen_port)
    deadline = time.monotonic() + (RELEASE_S if fd_store.close_rest() else 0)  # one of them may be in the way
    while True:
        try:
            return await server.start(taken)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() >= deadline:
                raise
            await asyncio.sleep(0.01)


async def run(config: NamesrvConfig) -> None:
    """Serve until SIGTERM or SIGINT, and notify the service manager if there is one."""
    manager = service_manager()
    fd_store = FdStore.of_this_process(manager)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server = NamesrvServer(config)
    bound_collections()
    port = await start_listening(server, fd_store)
    fd_store.keep(server.listeners)
    sys.stdout.write(f"ringmq namesrv ready on {config.bind_address}:{port}\n")
    sys.stdout.flush()
    lists = {"admin": config.admin_addresses, "brokers": config.broker_addresses}
    for endpoint in public_endpoints(name_server_endpoints(config.bind_address, port, **lists)):
        log.warning("%s", endpoint.warning)
    registry, address = server.handlers.registry, config.bind_address
    reporter = asyncio.create_task(report(manager, registry, address, port, lambda: server.is_full))
    await stop.wait()
    reporter.cancel()
    manager.stopping("stopping")
    await server.close()


def main(argv: list[str] | None = None) -> int:
    """Run `python -m ringmq.namesrv.server` and return the exit status."""
    import argparse  # a name server of `ringmq serve` has its settings from the broker

    parser = argparse.ArgumentParser(prog="ringmq namesrv", description="RingMQ name server")
    parser.add_argument("--port", type=int, help="port to listen on, 0 for any free one (default 9876)")
    parser.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--kv-config", metavar="FILE", help="where key-value configuration is kept")
    parser.add_argument("-c", "--config", metavar="FILE", help="namesrv.conf, with RocketMQ's property names")
    parser.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help="one property")
    options = parser.parse_args(argv)
    hold_standard_descriptors()
    configure("namesrv", is_json=False)
    try:
        config = NamesrvConfig.from_file(Path(options.config)) if options.config else NamesrvConfig()
        values = parse_assignments(options.set)
        for name, value in (
            ("listenPort", options.port),
            ("bindAddress", options.host),
            ("kvConfigPath", options.kv_config),
        ):
            if value is not None:
                values[name] = str(value)
        config.update(values)
        is_json = config.log_format == "json"
        configure("namesrv", is_json=is_json, level=lambda: level_number(config.log_level))
        asyncio.run(run(config))
    except BadProperties as error:
        log.critical("--set %s", error)
        return EXIT_BAD_CONFIG
    except KvFileError as error:
        log.critical("%s", error)
        return EXIT_STORE_REFUSED
    except (ConfigError, RemotingError, OSError) as error:
        log.critical("%s", error)
        return EXIT_BAD_CONFIG if isinstance(error, ConfigError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
