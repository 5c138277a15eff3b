"""The addresses and the start time under which clients, name servers and other brokers know this broker."""

from __future__ import annotations

from msgspec import Struct

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.remoting.response_headers import GetBrokerRuntimeInfoResponseHeader


class Identity(Struct, frozen=True):
    """The addresses of this broker. `host` and `ha_host` are the addresses in routes (brokerIP1, brokerIP2)."""

    host: str
    port: int
    ha_host: str
    started_ms: int
    store_path: str = ""
    store_folder: GetBrokerRuntimeInfoResponseHeader | None = None
    """The folder of the store, for readers on this host. None if `store_path` holds no commit log."""

    @property
    def address(self) -> str:
        """ip:port of the main listener."""
        return f"{self.host}:{self.port}"

    def ha_address(self, config: BrokerConfig) -> str:
        """ip:port where slaves connect. A slave registers one too, as in stock."""
        return f"{self.ha_host}:{config.ha_listen_port}"
