"""The struct rmq_pop_desk: what C needs to serve requests (native/src/pop/pop_desk.h)."""

from __future__ import annotations

import time
from typing import Any

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.requests.records import fill_plain_request, host_text, plain_request
from ringmq.broker.requests.request import Request
from ringmq.ipc.asks import Inbox
from ringmq.ipc.plain_requests import Record, Table
from ringmq.ipc.plane import Plane
from ringmq.native import ffi, lib
from ringmq.pop.filters import Filters
from ringmq.pop.log_acks import LogAcks
from ringmq.pop.polls import Polls
from ringmq.pop.role_words import Counter
from ringmq.pop.window_names import WindowNames
from ringmq.remoting.address import address_text
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.flags import Perm
from ringmq.store.queue_reader import QueueReader

TABLES = {
    int(RequestCode.POP_MESSAGE): Table.of(lib.rmq_pop_table),
    int(RequestCode.ACK_MESSAGE): Table.of(lib.rmq_pop_ack_table),
    int(RequestCode.CHANGE_MESSAGE_INVISIBLETIME): Table.of(lib.rmq_pop_change_table),
    int(RequestCode.NOTIFICATION): Table.of(lib.rmq_pop_notification_table),
}
"""The tables of the requests that have a header of their own."""
OF_RECEIPTS = frozenset({int(RequestCode.ACK_MESSAGE), int(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)})
"""Their records are a struct rmq_pop_ack_fields, the others a struct rmq_pop_fields."""
SHARE_OF_ENTRIES = 4
"""A group may have this part of all entries open: nothing of one group can take what another needs."""
SHARE_MIN: int = lib.RMQ_POP_MESSAGES_MAX
BROKER_BYTES_MAX: int = lib.RMQ_POP_NAME_BYTES_MAX


class NativeDesk:
    """Owns the struct and what it points to. `marks_from`: of the memory's header. `seed`: of the choice of queues."""

    def __init__(
        self, plane: Plane, role: int, inbox: Inbox, windows: Any, names: WindowNames, filters: Filters,
        reader: QueueReader, broker_name: str, entries_max: int, marks_from: int, seed: int, log_acks: LogAcks | None,
    ) -> None:  # fmt: skip
        self.struct = d = ffi.new("struct rmq_pop_desk *")
        self._given = lib.rmq_pop_given_open()
        if self._given == ffi.NULL:
            raise MemoryError("no memory for the pops of the last answers")
        room = inbox.chunk_bytes
        self._kept = ffi.new("uint64_t[]", room // 8 + 1), ffi.new("uint8_t[]", room)
        self._clients = d.clients = ffi.new("struct rmq_pop_client[]", lib.RMQ_POP_CLIENTS)
        d.payload, d.texts, d.room_bytes = ffi.cast("uint8_t *", self._kept[0]), self._kept[1], room
        d.plane, d.queues, d.windows, d.index = plane.struct, reader.native, windows, names.index
        d.filters, d.given, d.answerer, d.role = filters.native, self._given, inbox.answerer, role
        d.latency = ffi.addressof(plane.header.latency[role][lib.RMQ_SERVICES_LATENCY_ANSWERED])
        d.acked = ffi.addressof(plane.header.latency[role][lib.RMQ_POP_LATENCY_ACKED])
        d.counters = ffi.cast("uint64_t *", ffi.addressof(plane.role(role), "counters"))
        broker = broker_name.encode()
        if len(broker) > BROKER_BYTES_MAX:
            raise ValueError(f"brokerName has {len(broker)} bytes, receipts hold {BROKER_BYTES_MAX}")
        d.broker_bytes, d.broker[0 : len(broker)] = len(broker), list(broker)
        d.entries_max, d.share_max = entries_max, max(entries_max // SHARE_OF_ENTRIES, SHARE_MIN)
        d.marks_from, d.random = marks_from, seed or 1
        self._log_acks = log_acks
        d.log_acks = ffi.NULL if log_acks is None else log_acks.native
        self.polls = Polls(plane, d)
        self._taken = ffi.new("uint32_t *")
        self._config: BrokerConfig | None = None
        """The configuration that the struct has."""

    def close(self) -> None:
        """Free what C has allocated. No call may follow."""
        self.polls.close()
        lib.rmq_pop_given_close(self._given)
        self._given = ffi.NULL

    def begin(self, config: BrokerConfig, *, stopped: bool, draining: bool = False) -> None:
        """Set the time and the settings for the next calls."""
        is_draining = bool(self.struct.settings & lib.RMQ_POP_IS_DRAINING)
        if config is not self._config or stopped or draining != is_draining:
            self._set(config, stopped=stopped, draining=draining)
        d = self.struct
        d.share_group = 0
        d.now_ms, d.now_ns = time.time_ns() // 1_000_000, time.monotonic_ns()
        d.began_ns = d.began_ns or d.now_ns

    def _set(self, config: BrokerConfig, *, stopped: bool, draining: bool) -> None:
        d, self._config = self.struct, config
        self.polls.set_limits(config)
        d.slow_after_ns = config.slow_request_ms * 1_000_000
        v2 = config.enable_retry_topic_v2
        v1 = not v2 or config.retrieve_message_from_pop_retry_topic_v1
        d.settings = (
            (lib.RMQ_POP_READABLE if config.broker_permission & Perm.READ else 0)
            | (lib.RMQ_POP_RETRY_V1 if v1 else 0)
            | (lib.RMQ_POP_RETRY_V2 if v2 else 0)
            | (lib.RMQ_POP_ACTUAL_TOPIC if config.pop_response_return_actual_retry_topic else 0)
            | (lib.RMQ_POP_IS_STOPPED if stopped else 0)
            | (lib.RMQ_POP_IS_DRAINING if draining else 0)
        )
        d.retry_percent, d.revive_queues = config.pop_from_retry_probability, config.revive_queue_num
        d.open_max = config.pop_inflight_message_threshold if config.enable_pop_message_threshold else 0

    def turn(self, room: int) -> tuple[int, int]:
        """Serve plain asks. Returns RMQ_POP_* and the number of asks that left the inbox."""
        why = int(lib.rmq_pop_desk_turn(self.struct, room, self._taken))
        return why, int(self._taken[0])

    def serve_waiting(self, serving: Any, timeout_ms: int) -> int:
        """Sleep and serve plain asks (`ringmq.services.kit.serving`). Returns RMQ_SERVING_*."""
        return int(lib.rmq_pop_desk_serve(self.struct, serving, timeout_ms))

    def serve(self, request: Request, role: int, record: Record, *, has_waited: bool = False) -> int:
        """Serve one request that was decoded into a record of its table. Returns RMQ_POP_*.

        `has_waited`: for something that the broker has made for it.
        """
        row, code = self.struct.row, request.command.code
        fill_plain_request(request, role, row.ask, row.asked)
        fields = row.ack if code in OF_RECEIPTS else row.pop
        ffi.memmove(ffi.addressof(fields), record.data, len(record.data))
        ffi.memmove(row.text, record.text, len(record.text))
        row.has_waited = has_waited
        ask = ffi.from_buffer("uint8_t[]", request.ask)
        row.frame, row.frame_bytes = ask if request.ask else ffi.NULL, len(request.ask)
        row.until_ns = request.held_until_ns
        why = int(lib.rmq_pop_serve(self.struct, code))
        lib.rmq_pop_desk_wake(self.struct)
        return why

    def request_of_row(self, reader: int, now_ms: int) -> Request:
        """The request of the row, for a log line."""
        row = self.struct.row
        return plain_request(row.ask, row.asked, reader, now_ms)

    def ack_bits(
        self, group: str, topic: str, flag: int, queue_id: int, start_offset: int, pop_time_ms: int, bits: bytes
    ) -> int:
        """Acknowledge base bits of a receipt. Returns the number of messages that are done by it."""
        group_name, topic_name = group.encode("utf-8", "replace"), topic.encode("utf-8", "replace")
        return int(
            lib.rmq_pop_ack_bits(
                self.struct, group_name, len(group_name), topic_name, len(topic_name), flag, queue_id, start_offset,
                pop_time_ms, bits, len(bits),
            )
        )  # fmt: skip

    def ack_order_bits(
        self, group: str, topic: str, flag: int, queue_id: int, start_offset: int, pop_time_ms: int, bits: bytes
    ) -> tuple[int, int] | None:
        """Acknowledge base bits of an orderly group's receipt. Returns (offset, committed offset of the group) of the
        last message that its batch does not have."""
        group_name, topic_name = group.encode("utf-8", "replace"), topic.encode("utf-8", "replace")
        illegal = ffi.new("int64_t *")
        lib.rmq_pop_ack_order_bits(
            self.struct, group_name, len(group_name), topic_name, len(topic_name), flag, queue_id, start_offset,
            pop_time_ms, bits, len(bits), illegal,
        )  # fmt: skip
        return None if illegal[0] < 0 else (int(illegal[0]), int(self.struct.committed_offset))

    def begin_batch_ack(self, request: Request, role: int) -> bool:
        """Begin a batch of acknowledgements. False: there is no room for those that wait for records."""
        d = self.struct
        fill_plain_request(request, role, d.row.ask, d.row.asked)
        acts = len(request.command.body) // 8 + lib.RMQ_POP_BATCH_GROUPS_MAX
        return d.log_acks == ffi.NULL or bool(lib.rmq_pop_log_has_room(d.log_acks, acts))

    def end_batch_ack(self, code: int) -> bool:
        """End a batch of acknowledgements. True: C answers it with this code, behind the records. -1: its answer is
        another one, and goes now."""
        return bool(lib.rmq_pop_log_wait(self.struct, code))

    def log_turn(self, now_ms: int) -> None:
        """End acknowledgements whose records are stored, and write those that wait."""
        if self._log_acks is not None:
            self._log_acks.turn(now_ms)
            lib.rmq_pop_log_turn(self.struct)
            lib.rmq_pop_desk_wake(self.struct)

    def extend_notice(self, due_ms: int) -> None:
        """Have the next start look for check points that are due then. Raises OSError."""
        if self._log_acks is not None:
            self._log_acks.extend(due_ms)

    @property
    def lacks_room(self) -> bool:
        """True if the answer to an acknowledgement waits for room in a ring."""
        return self._log_acks is not None and self._log_acks.lacks_room

    @property
    def is_idle(self) -> bool:
        """True if no acknowledgement waits for its record."""
        return self._log_acks is None or self._log_acks.is_idle

    def unsent(self, serial: int) -> int:
        """Take an answer back that no client has received. Returns the number of its pops."""
        count = self.polls.unsent(serial)
        self.count(Counter.UNSENT, count)
        return count

    def count(self, counter: Counter, more: int = 1) -> None:
        """Add to a counter of the role block."""
        self.struct.counters[counter] += more

    def counted(self, counter: Counter) -> int:
        """The value of a counter."""
        return int(self.struct.counters[counter])

    def address_of(self, client: int) -> str | None:
        """HOST:PORT of a connection, by the hash that entries have. None: it has not popped since the process began."""
        row = self._clients[lib.rmq_pop_client_row(client)]
        if not client or row.hash != client:
            return None
        return address_text(host_text(bytes(ffi.buffer(row.host, 16 if row.is_v6 else 4))), int(row.port))

    def take_trouble(self) -> tuple[int, int, int] | None:
        """(queue slot, queue offset, errno) of the queue that could not be read last. None: each could since the last
        call."""
        d = self.struct
        if not d.trouble_error:
            return None
        found = int(d.trouble_slot), int(d.trouble_offset), -int(d.trouble_error)
        d.trouble_error = 0
        return found
