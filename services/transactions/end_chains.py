"""Ends of transactions on their way to write: the loop is in native/src/services/transaction_ends.h.

C reads plain ends out of the inbox, the service adds the others. Both go the same way. C leaves those to the service
that it may only answer, or has to decide about.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ringmq.broker.requests.records import fill_plain_request
from ringmq.broker.requests.request import Request
from ringmq.ipc.plain_requests import Record, fill_record
from ringmq.ipc.plane import Plane
from ringmq.native import ffi, lib
from ringmq.services.transactions import finish_times, records
from ringmq.services.transactions.chain_port import ChainPort
from ringmq.services.transactions.ends import Arrival
from ringmq.services.transactions.half_table import HalfTable
from ringmq.store.queue_reader import QueueReader

LEFT_ROOM = 256
"""Ends that one call leaves to Python."""
OTHERS_ROOM = 256
"""Completions of other chains that one call returns."""


class EndChains:
    """Owns the chains of `port` from number CHAINS on, as C does."""

    def __init__(self, plane: Plane, role: int, port: ChainPort, reader: QueueReader, table: HalfTable) -> None:
        self._plane, self._port, self._reader, self._table = plane, port, reader, table
        self._latency = ffi.addressof(plane.header.latency[role][lib.RMQ_SERVICES_LATENCY_ANSWERED])
        self._words = plane.role(role).counters
        self._left = ffi.new("struct rmq_plain_end[]", LEFT_ROOM)
        self._others = ffi.new("struct rmq_completion[]", OTHERS_ROOM)
        self._marks = ffi.new("struct rmq_half_marks *")
        self._roles = {reader.port: reader.role for reader in plane.readers}
        self._chains = port.chains
        self.ended = 0
        """Ends of stored chains."""
        self.has_more = False
        """True if the last `send` has left as many ends as it may."""

    @property
    def log_end(self) -> int:
        """End of the last chain that is known to be stored."""
        return int(self._chains.log_end)

    @property
    def is_waiting(self) -> bool:
        """True if ends wait for their halves or for room, or answers for room."""
        return bool(self._chains.waiting_count or self._chains.unfinished)

    @property
    def is_idle(self) -> bool:
        """True if no end waits, and none is in a chain."""
        return not self._chains.waiting_count and not self._chains.busy_chains

    def take(self, room: int) -> int:
        """Take plain ends from the front of the inbox, at most `room`. Returns their number."""
        return int(lib.rmq_end_chains_take(self._plane.struct, self._chains, max(0, room)))

    @property
    def waiting(self) -> int:
        """Ends that wait for their halves or for room."""
        return int(self._chains.waiting_count)

    def add(self, request: Request, record: Record) -> None:
        """Have an end wait that was decoded into a record of `ends.TABLE`. Its time is counted elsewhere. The caller
        keeps `waiting` below RMQ_END_WAITING_MAX."""
        row = lib.rmq_end_chains_add(self._chains)
        fill_plain_request(request, self._roles[request.connection.reader], row.record, row.asked)
        fill_record(row, record)
        row.record.received_mono_ns = 0

    def add_again(self, row: Any) -> None:
        """Have an end wait once more that `send` has left."""
        to = lib.rmq_end_chains_add(self._chains)
        to[0] = row
        to.record.received_mono_ns = 0

    def send(
        self, arrival: Arrival, low: int | None, op_bytes_max: int, now_ns: int, wall_ms: int, slow_ns: int
    ) -> Iterator[Any]:
        """Send the ends whose halves have arrived. Yields those that are left to Python, and why (RMQ_END_*).

        `low`: for the mark of the op records (`records.op_mark`). Ends received before `slow_ns` get a log line.
        Yielded structs are valid until the next call.
        """
        self.has_more = False
        chains, marks = self._chains, self._marks
        if not chains.waiting_count and not chains.busy_chains:
            return
        marks.append_end, marks.dispatched, marks.end, marks.arrived, marks.is_full = arrival
        chains.op_bytes_max, chains.op_mark, chains.wall_ms = op_bytes_max, records.op_mark(low), wall_ms
        count = lib.rmq_end_chains_send(
            self._plane.struct, self._reader.native, chains, self._table.native, marks, now_ns, slow_ns, self._latency,
            self._left, LEFT_ROOM,
        )  # fmt: skip
        self.has_more = count == LEFT_ROOM
        for number in range(count):
            yield self._left[number]

    def collect(self) -> Iterator[Any]:
        """Take completions: answer the ends of stored chains, and yield the completions of the port's other chains."""
        chains, count = self._chains, OTHERS_ROOM
        while count == OTHERS_ROOM:
            count = lib.rmq_end_chains_collect(
                self._plane.struct, chains, self._table.native, self._others, OTHERS_ROOM
            )
            if ended := int(chains.committed + chains.rolled_back):
                self.ended += ended
                self._table.compact_if_due()
                self._words[lib.RMQ_TRANSACTIONS_COMMITTED] += chains.committed
                self._words[lib.RMQ_TRANSACTIONS_ROLLED_BACK] += chains.rolled_back
                self._words[lib.RMQ_TRANSACTIONS_PLAIN] += ended
                if chains.committed:
                    finish_times.add_counts(self._words, list(chains.finish_counts), int(chains.finish_seconds))
                    chains.finish_counts, chains.finish_seconds = [0] * lib.RMQ_FINISH_BUCKETS, 0
                chains.committed = chains.rolled_back = 0
            for number in range(count):
                yield self._others[number]

    def drop_waiting(self) -> Iterator[Any]:
        """The ends that wait, which the worker does not send any more."""
        count, self._chains.waiting_count = self._chains.waiting_count, 0
        for number in range(count):
            yield self._chains.rows[self._chains.waiting[number]]
