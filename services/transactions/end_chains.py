"""Ends of transactions that need no decision, from the inbox to their answers in C.

The loop is in native/src/services/transaction_ends.h. The service does the same for all other ends.
tests/broker/test_plain_and_other_ends.py compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ringmq.ipc.plane import Plane
from ringmq.native import ffi, lib
from ringmq.services.transactions import finish_times, records
from ringmq.services.transactions.chain_port import ChainPort
from ringmq.services.transactions.ends import Arrival
from ringmq.services.transactions.half_table import HalfTable
from ringmq.store.queue_reader import QueueReader

LEFT_ROOM = 64
"""Ends that one call leaves to Python."""
OTHERS_ROOM = 256
"""Completions of other chains that one call returns."""

Queue = tuple[int, int, int]


class EndChains:
    """Owns the chains of `port` from number `port.chains` on. Queues: topic id, queue slot, queue id."""

    def __init__(
        self, plane: Plane, role: int, port: ChainPort, reader: QueueReader, table: HalfTable, half: Queue, op: Queue
    ) -> None:
        self._plane, self._reader, self._table = plane, reader, table
        self._latency = ffi.addressof(plane.header.latency[role][lib.RMQ_SERVICES_LATENCY_ANSWERED])
        self._words = plane.role(role).counters
        self._left = ffi.new("struct rmq_plain_end[]", LEFT_ROOM)
        self._others = ffi.new("struct rmq_completion[]", OTHERS_ROOM)
        self._marks = ffi.new("struct rmq_half_marks *")
        self.ended = 0
        """Ends of stored chains."""
        self._chains = chains = ffi.new("struct rmq_end_chains *")
        chains.port, chains.role = port.port.number, role
        chains.answerer = lib.rmq_answerer_find(plane.struct, role)
        chains.half_topic_id, chains.half_slot, _ = half
        chains.op_topic_id, chains.op_slot, chains.op_queue_id = op
        self._arena = port.give_chains(chains)
        chains.op_properties_length = len(records.OP_PROPERTIES)
        chains.op_properties = records.OP_PROPERTIES.ljust(len(chains.op_properties), b"\0")

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

    def send(
        self, arrival: Arrival, low: int | None, op_bytes_max: int, now_ns: int, wall_ms: int, slow_ns: int, room: int
    ) -> Iterator[Any]:
        """Send the ends whose halves have arrived. Yields those that are left to Python, at most `room`.

        `low`: for the mark of the op records (`records.op_mark`). Ends received before `slow_ns` are left, because
        slow requests get a log line. Yielded structs are valid until the next call.
        """
        chains, marks = self._chains, self._marks
        if not chains.waiting_count and not chains.busy_chains:
            return
        marks.append_end, marks.dispatched, marks.end, marks.arrived, marks.is_full = arrival
        chains.op_bytes_max, chains.op_mark, chains.wall_ms = op_bytes_max, records.op_mark(low), wall_ms
        count = lib.rmq_end_chains_send(
            self._plane.struct, self._reader.native, chains, self._table.native, marks, now_ns, slow_ns, self._latency,
            self._left, max(0, min(room, LEFT_ROOM)),
        )  # fmt: skip
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
            yield self._chains.waiting[number]
