"""The broker's listening sockets: new ones, or those that the service manager has stored over a restart."""

from __future__ import annotations

import contextlib
import errno
import socket
import time
from collections.abc import Mapping
from ipaddress import ip_address

from msgspec import Struct

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.start_error import StartError
from ringmq.ipc.fd_store import FdStore
from ringmq.ipc.notify import ServiceManager
from ringmq.remoting.endpoints import Endpoint, address, broker_endpoints, served_name_server_endpoints

LISTEN_BACKLOG = 1024
METRICS_PORT = 5557
RELEASE_S = 1.0
"""Time in which the service manager closes a socket on request."""
EMPTY_FD_STORE = FdStore(ServiceManager({}), [])


def listen(host: str, port: int, fd_store: FdStore = EMPTY_FD_STORE, timeout_s: float = 1.0) -> socket.socket:
    """A listening TCP socket. Raises StartError, which names address and cause."""
    taken = fd_store.take(host, port)
    if taken is not None:
        return taken
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            listener.bind((host, port))
            break
        except OSError as error:
            # A port may stay bound for some ms after kill -9 of its last owner (multishot requests in flight).
            if error.errno == errno.EADDRINUSE and fd_store.release(port):
                deadline = max(deadline, time.monotonic() + RELEASE_S)
            elif error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                listener.close()
                advice = " (`ringmq doctor` names the process)" if error.errno == errno.EADDRINUSE else ""
                raise StartError(f"cannot listen on {host}:{port}: {error.strerror}{advice}") from error
            time.sleep(0.005)
    listener.listen(LISTEN_BACKLOG)
    return listener


def listen_pair(host: str, port: int, fd_store: FdStore = EMPTY_FD_STORE) -> tuple[socket.socket, socket.socket]:
    """The broker's port and its VIP port (port - 2). Port 0 = any free pair."""
    if port:
        return listen(host, port, fd_store), listen(host, port - 2, fd_store)
    for _ in range(64):
        main = listen(host, 0)
        with contextlib.suppress(StartError):
            return main, listen(host, main.getsockname()[1] - 2)
        main.close()
    raise StartError("no free pair of ports n and n - 2 was found: set listenPort")


def unreachable_note(host: str, namesrv_addr: str) -> str:
    """The log line of a broker whose name servers are on other hosts and would send clients to a loopback address.
    Empty if the address is reachable."""
    if not _is_loopback(host):
        return ""
    elsewhere = [address for address in namesrv_addr.split(";") if address and not _is_loopback(_host_of(address))]
    if not elsewhere:
        return ""
    return (
        f"name servers {';'.join(elsewhere)} send clients to {host}, which only this machine reaches: set bindAddress "
        "(0.0.0.0 = every address) or brokerIP1"
    )


def unregistered_note(namesrv_addr: str) -> str:
    """The log line of a broker without a name server. Empty if it has one."""
    if namesrv_addr:
        return ""
    return (
        "no name server is set, so no client finds this broker: give --namesrv HOST:PORT (namesrvAddr), or run "
        "ringmq serve, which starts one"
    )


def _host_of(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class ListenRequest(Struct, frozen=True):
    """The inputs of listeners beside the configuration."""

    any_port: bool
    """True if listenPort was 0: listeners without a port of their own may use any free one."""
    namesrv_port: int | None = None
    """The name server's port of the command line. None = no name server."""
    fd_store: FdStore = EMPTY_FD_STORE


def listen_for_slaves(config: BrokerConfig, request: ListenRequest) -> socket.socket:
    """The HA listener: haListenPort, by default listenPort + 1 (`BrokerStartup`). A slave closes its connections."""
    port = config.ha_listen_port or (0 if request.any_port else config.listen_port + 1)
    try:
        return listen(config.bind_address, port, request.fd_store)
    except StartError as error:
        raise StartError(f"the port for slaves: {error}; set haListenPort to a free port") from error


def listen_for_name_server(config: BrokerConfig, request: ListenRequest) -> socket.socket | None:
    """The listener of the name server of `ringmq serve`."""
    port = request.namesrv_port
    return None if port is None else listen(config.bind_address, port, request.fd_store)


def listen_for_metrics(config: BrokerConfig, request: ListenRequest) -> socket.socket | None:
    """The listener of /metrics. None if metrics are off.

    If the usual port is taken, most likely by another broker of this host, it listens on any free port.
    """
    if config.metrics_exporter_type == "DISABLE":
        return None
    host, port = config.metrics_prom_exporter_host or config.bind_address, config.metrics_prom_exporter_port
    if port != METRICS_PORT:
        try:
            return listen(host, port, request.fd_store)
        except StartError as error:
            raise StartError(f"the port of /metrics: {error}; set metricsPromExporterPort to a free port") from error
    if not request.any_port:
        with contextlib.suppress(StartError):
            return listen(host, port, request.fd_store, timeout_s=0.1)
    return listen(host, 0)


def endpoints_of(
    config: BrokerConfig,
    own: Mapping[str, socket.socket],
    namesrv_properties: Mapping[str, str],
) -> list[Endpoint]:
    """The open doors of a listening broker, and of its name server. `config`: with the actual ports. `own`: the
    listeners of workers that have one of their own."""
    namesrv, metrics = own.get("namesrv"), own.get("metrics")
    http_host = config.metrics_prom_exporter_host or config.bind_address
    endpoints = broker_endpoints(
        config.bind_address,
        config.listen_port,
        config.ha_listen_port,
        None if metrics is None else address(http_host, metrics.getsockname()[1]),
        admin=config.admin_addresses,
        ha=config.ha_allowed_networks,
        http_networks=config.http_allowed_networks,
    )
    if namesrv is None:
        return list(endpoints)
    port = int(namesrv.getsockname()[1])
    admin = namesrv_properties.get("adminAddresses", config.admin_addresses)
    brokers = namesrv_properties.get("brokerAddresses", "")
    return [*endpoints, *served_name_server_endpoints(config.bind_address, port, admin=admin, brokers=brokers)]


def listener_per_reader(first: socket.socket, readers: int, fd_store: FdStore = EMPTY_FD_STORE) -> list[socket.socket]:
    """`first`, and a socket on its address for each further reader. The kernel distributes new connections over them.

    With one common socket, one reader would get all connections. SO_REUSEPORT is set only after the bind. So the first
    socket of another broker, which is bound without it, still fails.
    """
    listeners = [first]
    host, port = first.getsockname()[:2]
    for _ in range(readers - 1):
        first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken = fd_store.take(host, port)
        listeners.append(_one_more(first) if taken is None else taken)
    return listeners


def _one_more(first: socket.socket) -> socket.socket:
    more = socket.socket(first.family, socket.SOCK_STREAM)
    more.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    more.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    more.bind(first.getsockname())
    more.listen(LISTEN_BACKLOG)
    return more
