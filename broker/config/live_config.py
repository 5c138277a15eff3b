"""The configuration in use and the side of the broker, shared by all objects that follow their changes."""

from __future__ import annotations

from msgspec import Struct

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.ipc.tenure import HasTenure, follows_master, is_master


class LiveConfig(Struct):
    """Holds the newest configuration. Request 25 replaces the value, so users keep this object and never the value.

    The side is that of the watermark page, and not brokerRole, which names the side of a start.
    """

    config: BrokerConfig
    marks: HasTenure
    """The watermark page."""

    @property
    def is_master(self) -> bool:
        """True if this broker takes the requests that a master alone may do."""
        return is_master(self.marks)

    @property
    def follows_master(self) -> bool:
        """True if the newest records and tables of this broker are those of another master."""
        return follows_master(self.marks)
