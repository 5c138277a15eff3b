"""The journal of write, which `write` and `ha` of a slave pass to one another (native/src/plane/journal.h)."""

from __future__ import annotations

from ringmq.ipc.plane import Plane
from ringmq.ipc.worker import STATE_SERVING
from ringmq.native import lib

WAIT_MS = 100
"""Time between two looks, if a bell is lost."""


def await_journal(plane: Plane, role: int) -> bool:
    """Sleep until the role owns the journal. False: a clean stop has come first.

    A worker that waits serves: this broker is on the side that needs no more of it.
    """
    block = plane.role(role)
    while not lib.rmq_journal_is_owned(plane.struct, role):
        if plane.watermarks.stop_requested >= lib.RMQ_STOP_WRITE:
            return False
        block.state = STATE_SERVING
        block.progress += 1
        plane.arm(role)
        if lib.rmq_journal_is_owned(plane.struct, role):
            plane.disarm(role)
        else:
            plane.wait(role, WAIT_MS)
    return True
