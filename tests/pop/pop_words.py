"""Counters and gauges of the worker `pop` of a running broker."""

from functools import cache

from ringmq.ipc.plane import Plane
from ringmq.ipc.segment import plane_name
from ringmq.loadtest.load.running import RunningBroker
from ringmq.native import lib


@cache
def _plane(name: str, pid: int) -> Plane:
    return Plane.open(name)


def word(broker: RunningBroker, number: int) -> int:
    """The value of a `Counter`, `RevivalWord` or `Gauge`."""
    plane = _plane(plane_name(broker.store), broker.process.pid)
    return int(plane.role(lib.RMQ_ROLE_POP).counters[number])
