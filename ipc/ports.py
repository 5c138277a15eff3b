"""The table of ports: the roles that submit requests to write, and the share of each (native/src/plane/ports_layout.h).

A port belongs to one role. The supervisor fills the table when it makes the plane. Every other process looks up ports
and their owners in the table and assumes no numbers.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from ringmq.native import ffi, lib

READERS_MAX = 16
"""Largest number of read workers. Their roles are RMQ_ROLE_READ and those behind it."""
REQUEST_SLOTS = 16_384
"""Slots of each request ring: the requests that a port may have in flight."""
COMPLETIONS_MAX = 4_096
"""Completions that one `tally` reads."""
MARK_OFFSET_BITS: dict[int, int] = {lib.RMQ_ROLE_POP: lib.RMQ_MARK_POP_SHIFT}
"""Bits of the queue offset in the marks of the roles that have not RMQ_MARK_LANE_SHIFT of them."""
_PARTS_MASK: int = (1 << lib.RMQ_MARK_RANGE_SHIFT) - 1
PARKED_SLOTS = 65_536
"""Requests of all ports that may wait for the disk or for replicas at a time."""
WEIGHT = 4
"""Weight of a read worker. A service has less, because clients go first."""


class PortPlan(Struct, frozen=True):
    """A row of the table that the supervisor fills.

    `weight`: share of a batch of write, relative to the other ports that have requests. `parked_max`: requests of the
    port that may wait for the disk or for replicas at a time.
    """

    role: int
    arena_bytes: int = 0
    flags: int = 0
    weight: int = WEIGHT
    parked_max: int = PARKED_SLOTS
    request_slots: int = REQUEST_SLOTS


class Reader(Struct, frozen=True):
    """The port and the role of a read worker."""

    port: int
    role: int

    @property
    def number(self) -> int:
        """Number of the read worker, from 0 on."""
        return int(self.role - lib.RMQ_ROLE_READ)


class PortRow(Struct, frozen=True):
    """The port of a worker, as its row in the worker table (ipc/workers.py) declares it."""

    arena: str
    """Size of its arena in bytes: function(configuration) -> int, named `package.module:function`."""
    flags: int = 0
    """RMQ_PORT_*."""
    weight: int = WEIGHT
    parked_max: int = PARKED_SLOTS
    request_slots: int = REQUEST_SLOTS

    def plan(self, role: int, arena_bytes: int) -> PortPlan:
        """The row of the table of ports."""
        return PortPlan(role, arena_bytes, self.flags, self.weight, self.parked_max, self.request_slots)


def tie(requests: Any, first: int, count: int) -> None:
    """Make one chain of `count` requests (struct rmq_request *). Write stores all of them or none.

    Raises ValueError if write would refuse every such chain.
    """
    if not 1 <= count <= lib.RMQ_CHAIN_MAX:
        raise ValueError(f"a chain has 1 to {lib.RMQ_CHAIN_MAX} requests, not {count}")
    for at in range(first, first + count - 1):
        requests[at].flags |= lib.RMQ_APPEND_FLAG_WITH_NEXT
    requests[first + count - 1].flags &= ~lib.RMQ_APPEND_FLAG_WITH_NEXT


def readers_of(header: Any) -> tuple[Reader, ...]:
    """The read workers of a plane (its struct rmq_plane_header)."""
    ports = header.ports
    rows = ((number, ports.port[number]) for number in range(ports.count))
    return tuple(Reader(number, int(row.role)) for number, row in rows if row.flags & lib.RMQ_PORT_CONNECTIONS)


def refusal_at(refused_at: int, acknowledged: int, position: int) -> int:
    """The refusal that still applies to `position` of an ordered port's request ring. 0 = none.

    `refused_at`: position + 1 of the refused request, 0 = none. `acknowledged`: first position that the owner has
    submitted after it saw the refusal. Twin: rmq_port_refusal in native/src/plane/port.h.
    """
    return 0 if acknowledged >= refused_at and position >= acknowledged else refused_at


def mark_of(role: int, lane: int, offset: int) -> int:
    """The mark of a record that the service with this role has published. It is the token of its request, too.

    `lane`: number of the service's source. `offset`: the queue offset in that source. native/src/plane/ports_layout.h
    has the layout of a mark, which depends on the role.
    """
    bits = MARK_OFFSET_BITS.get(role, lib.RMQ_MARK_LANE_SHIFT)
    assert 0 < role < lib.RMQ_ROLES_MAX and 0 <= lane << bits <= _PARTS_MASK and 0 <= offset >> bits < 1
    return int(role << lib.RMQ_MARK_RANGE_SHIFT | lane << bits | offset)


def parts_of_mark(mark: int) -> tuple[int, int, int]:
    """(role, lane, offset) of a mark. Role 0: the record is no published one, or a staged write has it."""
    role = mark >> lib.RMQ_MARK_RANGE_SHIFT
    bits = MARK_OFFSET_BITS.get(role, lib.RMQ_MARK_LANE_SHIFT)
    return role, (mark & _PARTS_MASK) >> bits, mark & ((1 << bits) - 1)


def tally(completions: Iterable[Any], stored: list[int]) -> int:
    """Raise stored[lane] to one behind the largest offset whose request was stored. Returns the number of refused
    requests.

    Twin: rmq_port_tally in native/src/plane/port.c.
    """
    refused = 0
    for completion in completions:
        _, lane, offset = parts_of_mark(completion.token)
        if not completion.bytes:
            refused += 1
        elif lane < len(stored):
            stored[lane] = max(stored[lane], offset + 1)
    return refused


def fill_port_plans(target: Any, plans: Sequence[PortPlan]) -> None:
    """Copy the plans into a struct rmq_plane_capacity. Raises ValueError if there are more than the table takes."""
    if len(plans) > lib.RMQ_PORTS_MAX:
        raise ValueError(f"{len(plans)} ports are more than the table's {lib.RMQ_PORTS_MAX}")
    target.port_count = len(plans)
    for number, plan in enumerate(plans):
        for field in PortPlan.__struct_fields__:
            setattr(target.ports[number], field, getattr(plan, field))


class Port:
    """An owner's access to its port (native/src/plane/port.h): submit requests, read their completions.

    The process must have mapped the port's arena. It calls `claim` first. A replacement then waits for `answered`,
    reads the completions of the dead process by `peek`, and returns them by `done`.
    """

    def __init__(self, plane: Any, number: int) -> None:
        self._owner = plane  # maps what the struct points at
        self._plane = plane.struct
        self.number = number
        self.row: Any = lib.rmq_port_at(self._plane, number)
        self._found = ffi.new("struct rmq_completion *")

    @property
    def answer_rings(self) -> list[Any]:
        """The rings of completions (struct rmq_ring *), for a wait that looks at them."""
        return [ffi.addressof(self.row, name) for name in ("appended", "completed")]

    @property
    def arena(self) -> Any:
        """The arena that requests point into, as a cffi buffer: a slice that is read is a copy.

        Not a memoryview: CPython 3.11 crashes when its collector clears one that `ffi.from_buffer` still holds. A
        process that ends with its owner in a cycle of objects would die of it.
        """
        return ffi.buffer(self._plane.arenas[self.number], int(self._plane.arena_bytes[self.number]))

    def claim(self) -> None:
        """Make this process the owner: its requests carry its generation. Write drops requests of a dead owner in the
        ring."""
        lib.rmq_port_claim(self._plane, self.number)

    def submit(self, requests: Any, count: int = 1) -> int:
        """Put `count` requests (struct rmq_request *) into the ring in order. Returns the number that fitted.

        A chain (`tie`) goes into the ring with its end or not at all.
        """
        return int(lib.rmq_port_submit(self._plane, self.number, requests, count))

    def peek(self, ring: int, out: Any, room: int) -> int:
        """Copy waiting completions of any generation out of RMQ_PORT_APPENDED or RMQ_PORT_COMPLETED. Returns the number
        copied."""
        return int(lib.rmq_port_peek(self._plane, self.number, ring, out, room))

    def tally(self, ring: int, stored: Any, lanes: int, result: Any) -> int:
        """Sum up the completions of the ring. Returns the number of completions, which the caller returns by `done`.

        `stored` (a uint64_t[lanes]): raised to one behind the largest stored offset of each lane. `result` (a struct
        rmq_port_tally *): the counts are added to it.
        """
        return int(lib.rmq_port_tally(self._plane, self.number, ring, COMPLETIONS_MAX, stored, lanes, result))

    def done(self, ring: int, count: int) -> None:
        """Return the oldest `count` completions of the ring."""
        lib.rmq_port_done(self._plane, self.number, ring, count)

    def take(self) -> Any | None:
        """The next completion of this generation, valid until the next call. None if none waits."""
        return self._found if lib.rmq_port_take(self._plane, self.number, self._found) else None

    def commit(self, commits: Any, count: int = 1) -> int:
        """Report consumer offsets (struct rmq_offset_commit *) to control, which stores them in this order. Returns the
        number that fitted; the rest is for a later turn.

        Raises ValueError if the port's row has no RMQ_PORT_COMMITS.
        """
        if not self.row.flags & lib.RMQ_PORT_COMMITS:
            raise ValueError(
                f"port {self.number} of role {self.row.role} reports no offsets: it needs RMQ_PORT_COMMITS"
            )
        return int(lib.rmq_port_commit(self._plane, self.number, commits, count))

    @property
    def room(self) -> int:
        """Requests that fit into the ring now."""
        ring = self.row.request
        return int(ring.capacity - (ring.head - ring.tail))

    @property
    def has_answers(self) -> bool:
        """True if a completion waits."""
        return bool(lib.rmq_port_has_answers(self._plane, self.number))

    @property
    def settled_end(self) -> int | None:
        """End of the log behind all submitted requests. None while write has not processed all of them."""
        end = int(lib.rmq_port_settled(self._plane, self.number))
        return None if end < 0 else end

    @property
    def answered(self) -> bool:
        """True if write has taken all requests and each request that had to wait has its completion."""
        return bool(lib.rmq_port_answered(self._plane, self.number))

    def acknowledge(self) -> None:
        """Acknowledge a refusal, so that write accepts requests submitted from now on. For ordered ports, once for each
        refusal with a cause other than RMQ_CAUSE_BEHIND_REFUSED."""
        lib.rmq_port_acknowledge(self._plane, self.number)
