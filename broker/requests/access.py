"""The broker's access policy over the classes of `ringmq.remoting.access`, and the count of its refusals.

The policy decides by the address of the peer's connection, never by the content of the request.
"""

from __future__ import annotations

from msgspec import Struct, field

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.requests.request import Connection
from ringmq.remoting.access import BROKER, DECISIONS, Access, refusal_text
from ringmq.remoting.networks import is_loopback, networks

_NOT_ADMIN = "adminAddresses does not name this host"
_NOT_NAMED = "only loopback and networks of adminAddresses may send it"
_NOT_REPLICA = "haAllowedNetworks does not name this host"


def may_change(config: BrokerConfig, connection: Connection) -> bool:
    """True if the peer may change topics, groups, offsets and settings. An empty list allows every peer."""
    return networks(config.admin_addresses).allows(connection.host)


def may_decide(config: BrokerConfig, connection: Connection) -> bool:
    """True if the peer may order actions that can cost data: `adopt`, `salvage`, the lifting of a hold.

    Loopback may, and networks that adminAddresses names. An empty list names none.
    """
    return is_loopback(connection.host) or networks(config.admin_addresses).names(connection.host)


def may_replicate(config: BrokerConfig, connection: Connection) -> bool:
    """True if the peer may send requests of the class REPLICATION. An empty list allows every peer."""
    return networks(config.ha_allowed_networks).allows(connection.host)


def is_named_replica(config: BrokerConfig, connection: Connection) -> bool:
    """True if haAllowedNetworks names the peer: its log may hold writes. An empty list names none."""
    return networks(config.ha_allowed_networks).names(connection.host)


def refusal(config: BrokerConfig, code: int, connection: Connection) -> str | None:
    """The remark with which request `code` of this peer is refused. None if the peer may send it."""
    access = BROKER[code]
    why = None
    if code in DECISIONS:
        why = None if may_decide(config, connection) else _NOT_NAMED
    elif access is Access.CHANGE_ADMIN:
        why = None if may_change(config, connection) else _NOT_ADMIN
    elif access is Access.REPLICATION:
        why = None if may_replicate(config, connection) else _NOT_REPLICA
    return None if why is None else refusal_text(code, connection.host, why)


class Refusals(Struct):
    """Requests that were refused because of their sender, since control started."""

    by_class: dict[Access, int] = field(default_factory=dict)
    by_code: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Request code -> the remark of the first refusal since the last `take`, and their number."""

    def add(self, code: int, text: str) -> None:
        """Count one refusal. `text`: its remark."""
        access = BROKER[code]
        self.by_class[access] = self.by_class.get(access, 0) + 1
        first, count = self.by_code.get(code, (text, 0))
        self.by_code[code] = first, count + 1

    def take(self) -> dict[int, tuple[str, int]]:
        """`by_code` so far. It is removed."""
        taken, self.by_code = self.by_code, {}
        return taken

    def counts(self) -> tuple[tuple[str, int], ...]:
        """(class, count) of every class that this broker can refuse."""
        bounded = (Access.CHANGE_ADMIN, Access.REPLICATION)
        return tuple((access.value, self.by_class.get(access, 0)) for access in bounded)
