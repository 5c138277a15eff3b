"""The configuration in use, shared by everything that follows its changes."""

from __future__ import annotations

from dataclasses import dataclass

from ringmq.broker.config.broker_config import BrokerConfig


@dataclass(slots=True)
class LiveConfig:
    """Holds the newest configuration: request 25 replaces it, so readers keep this object and never the value."""

    config: BrokerConfig

    @property
    def is_slave(self) -> bool:
        """True on a slave."""
        return self.config.broker_role == "SLAVE"
