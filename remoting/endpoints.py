"""Open endpoints: listeners beyond loopback whose list of networks is empty, so that every host may use them.

Stock RocketMQ has an empty list by default, so an open endpoint is a warning and no error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ringmq.remoting.networks import listens_beyond_loopback, networks


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One listener and the property that bounds which hosts may use it."""

    listener: str
    """host:port."""
    shut_by: str
    """The property that names the allowed networks."""
    networks: str
    """The property's value."""
    offer: str
    """The listener's action for an allowed host, with a preposition, as in "sends the log to"."""
    where: str = ""
    """The place of the property, empty for the configuration of the listening server."""

    @property
    def is_open(self) -> bool:
        """True if every network may use the listener."""
        return listens_beyond_loopback(_host(self.listener)) and not networks(self.networks)

    @property
    def warning(self) -> str:
        """Return the log line of an open endpoint: its listener, its offer and the remedy."""
        return f"listener {self.listener} {self.offer} every network: {self.remedy}"

    @property
    def remedy(self) -> str:
        """Return the instruction that restricts the listener: the property and its place."""
        return f"set {self.shut_by}" + (f" ({self.where})" if self.where else "")


def broker_endpoints(
    host: str, port: int, ha_port: int, http: str | None, *, admin: str, ha: str, http_networks: str
) -> Iterator[Endpoint]:
    """Yield the endpoints of a broker. The VIP port (port - 2) belongs to the broker's own endpoint.

    `ha_port` is the replication port. `http` is host:port of /metrics, None without it.
    `admin`, `ha` and `http_networks` are adminAddresses, haAllowedNetworks and httpAllowedNetworks.
    """
    yield Endpoint(address(host, port), "adminAddresses", admin, "takes requests that change the broker from")
    yield Endpoint(address(host, ha_port), "haAllowedNetworks", ha, "sends the log to")
    if http is not None:
        yield Endpoint(http, "httpAllowedNetworks", http_networks, "shows metrics and health to")


def name_server_endpoints(host: str, port: int, *, admin: str, brokers: str, where: str = "") -> Iterator[Endpoint]:
    """Yield the endpoints of a name server. `admin` and `brokers` are its adminAddresses and brokerAddresses.

    `where` names the place of brokerAddresses, if it is not in the configuration of this server.
    """
    listener = address(host, port)
    yield Endpoint(listener, "adminAddresses", admin, "takes requests that change the name server from")
    yield Endpoint(listener, "brokerAddresses", brokers, "registers brokers of", where)


def served_name_server_endpoints(host: str, port: int, *, admin: str, brokers: str = "") -> Iterator[Endpoint]:
    """Yield the endpoints of the name server of `ringmq serve`, which has adminAddresses of the broker."""
    yield from name_server_endpoints(host, port, admin=admin, brokers=brokers, where="--namesrv-set of ringmq serve")


def public_endpoints(endpoints: Iterable[Endpoint]) -> list[Endpoint]:
    """Return the endpoints that every network may use."""
    return [endpoint for endpoint in endpoints if endpoint.is_open]


def address(host: str, port: int) -> str:
    """Return host:port, an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _host(listener: str) -> str:
    return listener.rpartition(":")[0].strip("[]")
