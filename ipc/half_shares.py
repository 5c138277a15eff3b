"""The shares of open half messages (native/src/admission/half_shares.h).

`full` and `remark` are the twins of the C functions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ringmq.ipc.admission import Rule
from ringmq.ipc.plane import Plane
from ringmq.native import ffi, lib


class HalfCounts(NamedTuple):
    """Open half messages at the time of a send."""

    of_all: int
    """Those in the worker's table, and those that it has not read yet."""
    of_host: int
    of_group: int


def full(rule: Rule, counts: HalfCounts) -> int:
    """The share that has no room for one half more: RMQ_HALF_*."""
    if counts.of_all >= rule.halves_max:
        return int(lib.RMQ_HALF_ALL_FULL)
    if counts.of_host >= rule.host_halves_max:
        return int(lib.RMQ_HALF_HOST_FULL)
    return int(lib.RMQ_HALF_GROUP_FULL if counts.of_group >= rule.group_halves_max else lib.RMQ_HALF_FITS)


def remark(share: int, rule: Rule, counts: HalfCounts) -> str:
    """The text with which a send is refused."""
    count, of, name, limit = {
        lib.RMQ_HALF_ALL_FULL: (counts.of_all, "", "ringmqOpenHalvesMax", rule.halves_max),
        lib.RMQ_HALF_HOST_FULL: (
            counts.of_host, " of the producer's host", "ringmqHostOpenHalvesMax", rule.host_halves_max,
        ),
        lib.RMQ_HALF_GROUP_FULL: (
            counts.of_group, " of the producer group", "ringmqGroupOpenHalvesMax", rule.group_halves_max,
        ),
    }[share]  # fmt: skip
    return (
        f"[OVERLOAD]{count} half messages{of} are open, {name} is {limit}: the half message is not stored, end open "
        f"transactions and try again later"
    )


class HalfShares:
    """The counts in a plane, for the process that writes them."""

    def __init__(self, plane: Plane) -> None:
        self.struct: Any = ffi.addressof(plane.header.half_shares)

    def publish(self, count: int, arrived: int) -> None:
        """`count` halves are open, those below the half-queue offset `arrived` are among them."""
        self.struct.open = count
        self.struct.arrived = arrived
