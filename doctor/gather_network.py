"""Facts about ports and name servers: free ports, the owners of taken ones, servers that answer."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable
from dataclasses import replace

import psutil

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.listening import METRICS_PORT
from ringmq.doctor.facts import PeerFacts, PortFacts, RunningBrokerFacts

CONNECT_TIMEOUT_S = 1.0
NAME_SERVERS_MAX = 16
NAMESRV_PORT = 9876


def wanted_ports(config: BrokerConfig) -> list[tuple[str, str, int]]:
    """Return (property, host, port) of every listener of a broker with this configuration. Port 0 means any port."""
    host, port = config.bind_address, config.listen_port
    ports = []
    if port:
        ports += [("listenPort", host, port), ("listenPort - 2 (VIP)", host, port - 2)]
        ports.append(("haListenPort", host, config.ha_listen_port or port + 1))
    # a RingMQ broker takes any other port if the usual one is taken
    if config.metrics_exporter_type == "PROM" and config.metrics_prom_exporter_port not in (0, METRICS_PORT):
        metrics_host = config.metrics_prom_exporter_host or host
        ports.append(("metricsPromExporterPort", metrics_host, config.metrics_prom_exporter_port))
    return ports


def gather_ports(ports: Iterable[tuple[str, str, int]]) -> tuple[PortFacts, ...]:
    """Try to bind each port as the server does."""
    return tuple(_port(name, host, port) for name, host, port in ports)


def gather_serve_port(config: BrokerConfig) -> tuple[PortFacts, ...]:
    """Return the port of the name server of `ringmq serve`, which starts one if no other name server is configured."""
    if config.namesrv_addr:
        return ()
    return (replace(_port("--namesrv-port", config.bind_address, NAMESRV_PORT), is_needed=False),)


def _port(name: str, host: str, port: int) -> PortFacts:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
            trial.listen(1)
        except OSError as error:
            return PortFacts(name, f"{host}:{port}", error.strerror or str(error), _owner(port))
        except OverflowError as error:  # haListenPort is above 65535 where it is listenPort + 1
            return PortFacts(name, f"{host}:{port}", str(error))
    return PortFacts(name, f"{host}:{port}")


def _owner(port: int) -> str:
    """Return `name (pid)` of one process that listens on `port`, empty if this user may not know it."""
    with contextlib.suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,) and connection.pid:
                name = psutil.Process(connection.pid).name()
                return f"{name.encode(errors='replace').decode()} ({connection.pid})"
    return ""


def gather_broker(main_pid: int, *, is_of_other_build: bool = False) -> RunningBrokerFacts | None:
    """Return facts about a running broker, None if `main_pid` is 0 or the process has ended.

    Each process of the broker is asked for its own sockets. A search by port finds one owner of a socket only, which
    is systemd where the service keeps its sockets over restarts.
    """
    if not main_pid:
        return None
    listeners: set[tuple[str, int]] = set()
    try:
        main = psutil.Process(main_pid)
        for process in (main, *main.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                found = process.net_connections("tcp")
                listeners |= {(sock.laddr[0], sock.laddr[1]) for sock in found if sock.status == psutil.CONN_LISTEN}
    except psutil.Error:
        return None
    addresses = tuple(f"{host}:{port}" for host, port in sorted(listeners, key=lambda at: at[1]))
    return RunningBrokerFacts(main_pid, addresses, is_of_other_build)


def gather_name_servers(addresses: str) -> tuple[PeerFacts, ...]:
    """Connect to each of `host:port;host:port`, with a time-out of one second each."""
    return tuple(_peer(address) for address in [*filter(None, addresses.split(";"))][:NAME_SERVERS_MAX])


def _peer(address: str) -> PeerFacts:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S).close()
    except OSError as error:
        return PeerFacts(address, error.strerror or str(error))
    return PeerFacts(address)
