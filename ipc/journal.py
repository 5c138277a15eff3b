"""The journal of write, which `write` and `ha` of a slave pass to one another (native/src/plane/journal.h)."""

from __future__ import annotations

from ringmq.ipc.plane import Plane
from ringmq.ipc.tenure import is_master
from ringmq.ipc.worker import STATE_SERVING
from ringmq.native import lib

WAIT_MS = 100
"""Time between two looks, if a bell is lost."""


def await_journal(plane: Plane, role: int, *, or_master: bool = False) -> bool:
    """Sleep until the role owns the journal and may open the log. False: a clean stop has come first, or with
    `or_master` the broker has become the master.

    A worker that waits serves: this broker is on the side that needs no more of it.
    """
    block = plane.role(role)

    def may_open() -> bool:
        return bool(lib.rmq_journal_may_open(plane.struct, role))

    def is_over() -> bool:
        return may_open() or (or_master and is_master(plane.watermarks))

    while not is_over():
        if plane.watermarks.stop_requested >= lib.RMQ_STOP_WRITE:
            return False
        block.state = STATE_SERVING
        block.progress += 1
        plane.arm(role)
        if is_over():
            plane.disarm(role)
        else:
            plane.wait(role, WAIT_MS)
    return may_open()
