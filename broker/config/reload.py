"""What a changed configuration means for a broker that runs: which keys it can take over, which need a restart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ringmq.broker.config.broker_config import BrokerConfig, property_table

FOUND_OUT = {"brokerIP1": "", "haListenPort": "0", "listenPort": "0", "storePathRootDir": ""}
"""With this value a start finds a value of its own."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One key whose value in the configuration is not the broker's. Values as text."""

    name: str
    running: str
    wanted: str
    live: bool
    """The broker can take it over as it runs."""


def differences(wanted: BrokerConfig, running: Mapping[str, str], *, has_own_namesrv: bool = False) -> list[Difference]:
    """In the order of the table. `running`: the broker's own properties; what it does not name is not compared.

    `has_own_namesrv`: `ringmq serve` has put its own name server behind those of the configuration.
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
