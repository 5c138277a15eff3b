"""The configuration in use, shared by all objects that apply its changes."""

from __future__ import annotations

from msgspec import Struct

from ringmq.broker.config.broker_config import BrokerConfig


class LiveConfig(Struct):
    """Holds the newest configuration. Request 25 replaces the value, so users keep this object and never the value."""

    config: BrokerConfig

    @property
    def is_slave(self) -> bool:
        """True on a slave."""
        return self.config.broker_role == "SLAVE"
