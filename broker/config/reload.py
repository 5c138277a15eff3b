"""A changed configuration and a running broker: the keys that it can apply, and the keys that need a restart."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from ringmq.broker.config.broker_config import BrokerConfig, property_table

FOUND_OUT = {"brokerIP1": "", "haListenPort": "0", "listenPort": "0", "storePathRootDir": ""}
"""Property -> value for which a start determines the value itself."""


class Difference(Struct, frozen=True):
    """One key whose value in the configuration differs from the broker's. Values as text."""

    name: str
    running: str
    wanted: str
    live: bool
    """True if the running broker can apply it."""


def differences(wanted: BrokerConfig, running: Mapping[str, str], *, has_own_namesrv: bool = False) -> list[Difference]:
    """The differences in the order of the table. `running`: the broker's own properties; others are not compared.

    `has_own_namesrv`: `ringmq serve` has appended its own name server to those of the configuration.
    """
    values = wanted.as_properties()
    found_out = dict(FOUND_OUT)
    if has_own_namesrv:
        found_out["namesrvAddr"] = running.get("namesrvAddr", "").rpartition(";")[0]
    found = []
    for name, (_, entry) in property_table().items():
        value = values[name]
        if name in running and value not in (running[name], found_out.get(name)):
            found.append(Difference(name, running[name], value, entry.live))
    return found
