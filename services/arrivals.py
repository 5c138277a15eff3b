"""Arrivals at queues that a service waits for (RMQ_PORT_ARRIVALS). Dispatch also starts the worker for them."""

from __future__ import annotations

from ringmq.ipc.plane import Plane
from ringmq.native import ffi, lib


class Arrivals:
    """The flags and the ring of one port."""

    def __init__(self, plane: Plane, port: int) -> None:
        self._plane, self._port = plane, port
        self._row = plane.header.ports.port[port]
        base = ffi.cast("uint8_t *", plane.struct.base)
        self._slots = ffi.cast("uint32_t *", base + int(self._row.arrived.slots_at))

    def want(self, queue_slot: int) -> None:
        """Ask for the next arrival at a queue. The caller looks at the queue afterwards: earlier ones are not told.

        The word `awaits` stays 0, so dispatch goes on napping between batches. An arrival comes up to a nap later. With
        the word set, write woke dispatch for every batch of every send, though nothing was delayed.
        """
        lib.rmq_port_want_arrival(self._plane.struct, self._port, queue_slot)

    @property
    def is_waiting(self) -> bool:
        """True if an arrival waits."""
        return int(self._row.arrived.head) != int(self._row.arrived.tail)

    def take(self) -> set[int]:
        """The queue slots that have grown."""
        ring = self._row.arrived
        tail, head = int(ring.tail), int(ring.head)
        found = {int(self._slots[position & (int(ring.capacity) - 1)]) for position in range(tail, head)}
        ring.tail = head
        return found
