"""Requests of clients and slaves that control answers for a guest. The function that a guest names gets `ControlParts`,
and returns a handler for each code.

The worker of a guest answers most of its requests itself. A slave has no such worker, so control refuses them there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from ringmq.broker.config.live_config import LiveConfig
from ringmq.broker.requests.request import Answer, Request, Slices

ON_SLAVE = "service not available now: this broker is a slave, send to its master"
Handlers = Mapping[int, Callable[[Request], Answer | Slices]]


class ControlParts(Struct, frozen=True):
    """The parts of control for guests."""

    live: LiveConfig
    started_ms: int
    log_end: Callable[[], int]
    stock_slave_ends: Callable[[str], list[int] | None]
    """Ends of the logs of stock slaves by the host that asks (`ReplicationView.stock_slave_ends`)."""
