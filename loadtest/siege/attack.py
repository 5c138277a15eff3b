"""The definition of an attack: a row of data with a function that plans its waves."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ringmq.loadtest.siege.swarm import Wave

TOPIC = "Siege"
"""Attackers use it as they like; the canary has its own."""
QUEUES = 4


@dataclass(frozen=True, slots=True)
class Target:
    """Ports of the broker and its name server on 127.0.0.1.

    master_port: where a slave of the siege looks for its master. lying_port: of an attacker that gives a false log.
    """

    port: int
    vip_port: int
    ha_port: int
    name_server_port: int
    http_port: int
    master_port: int
    lying_port: int
    cluster: str
    broker_name: str
    log_file_bytes: int


Plan = Callable[[Target, random.Random], Sequence[Wave]]


@dataclass(frozen=True, slots=True)
class Attack:
    """`aims_at`: the resource or rule that it tries to exhaust or break. needs_slave: a slave of `master_port` runs."""

    name: str
    aims_at: str
    plan: Plan
    needs_slave: bool = False
