"""Finds the listeners of a broker that every network may use, and names the property that restricts each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.listening import METRICS_PORT
from ringmq.doctor.finding import OK, WARN, Finding, graded
from ringmq.doctor.gather_network import NAMESRV_PORT
from ringmq.remoting.endpoints import Endpoint, address, broker_endpoints, served_name_server_endpoints


def endpoints_of(config: BrokerConfig) -> list[Endpoint]:
    """Return the endpoints of a broker with this configuration.

    Without namesrvAddr `ringmq serve` starts a name server, whose endpoints count as well.
    """
    host, port = config.bind_address, config.listen_port
    http_host = config.metrics_prom_exporter_host or host
    http = address(http_host, config.metrics_prom_exporter_port or METRICS_PORT)
    served = served_name_server_endpoints(host, NAMESRV_PORT, admin=config.admin_addresses)
    return [
        *broker_endpoints(
            host,
            port,
            config.ha_listen_port or port + 1,
            None if config.metrics_exporter_type == "DISABLE" else http,
            admin=config.admin_addresses,
            ha=config.ha_allowed_networks,
            http_networks=config.http_allowed_networks,
        ),
        *(() if config.namesrv_addr else served),
    ]


def check_endpoints(endpoints: Iterable[Endpoint]) -> Iterator[Finding]:
    """Yield a finding per endpoint, a warning for one that every network may use."""
    for endpoint in endpoints:
        state = endpoint.networks if endpoint.networks else "empty: every network" if endpoint.is_open else "loopback"
        yield graded(
            "doors",
            f"{endpoint.shut_by} of {endpoint.listener}",
            WARN if endpoint.is_open else OK,
            state,
            f"the listener {endpoint.offer} the networks of this list; an empty list allows every network",
            f"{endpoint.remedy} to the networks of your hosts (10.0.0.7;10.1.0.0/16), or bindAddress to an address "
            "that only they reach",
        )
