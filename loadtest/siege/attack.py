"""The definition of an attack: a row of data with a function that plans its waves."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ringmq.loadtest.siege.figures import Limits
from ringmq.loadtest.siege.swarm import Wave

TOPIC = "Siege"
"""The attackers' topic. The canary has its own."""
QUEUES = 4


@dataclass(frozen=True, slots=True)
class Target:
    """Ports of the broker and its name server on 127.0.0.1.

    master_port is the address of the master for a slave of the siege. lying_port is that of an attacker with a false
    log.
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
    """One attack. `aims_at` is the resource or rule that it tries to exhaust or break.

    needs_slave: a slave of `master_port` runs.
    beside: kinds of `honest_requests` that run beside this attack alone.
    limits: the limits of this attack besides the goals.
    settings: not None: the attack has a broker of its own, with these settings.
    """

    name: str
    aims_at: str
    plan: Plan
    needs_slave: bool = False
    beside: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    settings: Mapping[str, object] | None = None
