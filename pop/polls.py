"""Pops and notifications that wait for a message (native/src/pop/pop_hold.h, pop_waiting.h). C holds them, wakes them
and ends them.

Python has their limits, and tells C what it learns: closed connections, new processes of read workers, windows that
begin anew, topics of retries.
"""

from __future__ import annotations

from typing import Any

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.requests.request import Connection
from ringmq.ipc.plane import Plane
from ringmq.native import ffi, lib
from ringmq.services.kit.clocks import monotonic_ms
from ringmq.services.kit.loop import SLEEP_MAX_MS

POLLS_MAX: int = lib.RMQ_POP_POLLS_MAX
TURN_NS = 2_000_000
"""Time of a turn for polls. Requests, copies and the watch of the supervisor wait for it."""


class Polls:
    """The polls of a desk (struct rmq_pop_desk), whose time the caller sets."""

    def __init__(self, plane: Plane, desk: Any) -> None:
        tables = plane.header.tables
        opened = lib.rmq_pop_polls_open(tables.topic_capacity, tables.group_capacity, monotonic_ms())
        if opened == ffi.NULL:
            raise MemoryError(f"no memory for {POLLS_MAX} polls")
        self._desk = desk
        desk.polls = self._native = opened
        desk.port, desk.polls_ns = plane.port_of(desk.role), TURN_NS

    def __len__(self) -> int:
        return 0 if self._native == ffi.NULL else int(lib.rmq_pop_polls_count(self._native))

    @property
    def pops(self) -> int:
        """Those of pops. The others are notifications."""
        native = self._native
        return 0 if native == ffi.NULL else int(lib.rmq_pop_polls_count_kind(native, lib.RMQ_POP_POLL_POP))

    @property
    def limit(self) -> int:
        """Polls that may wait."""
        return int(self._desk.poll_limits.polls)

    def count_of(self, topic_id: int, group_id: int, queue_id: int) -> int:
        """Pops of a group that wait for a queue, or for all queues of the topic (-1)."""
        key = ffi.new("struct rmq_pop_key *", (topic_id, group_id, queue_id, lib.RMQ_POP_POLL_POP))
        return int(lib.rmq_pop_polls_count_of(self._native, key))

    def close(self) -> None:
        """Want no arrivals any more, and forget all polls. Their read workers have them. No call may follow."""
        lib.rmq_pop_want_none(self._desk)
        lib.rmq_pop_polls_close(self._native)
        self._desk.polls = self._native = ffi.NULL

    def begin(self) -> None:
        """Forget the arrivals that a dead process wanted."""
        lib.rmq_pop_want_none(self._desk)

    def set_limits(self, config: BrokerConfig) -> None:
        """Take over the limits of a configuration. Polls that wait already stay."""
        limits = self._desk.poll_limits
        limits.polls = min(config.max_pop_polling_size, POLLS_MAX)
        limits.keys, limits.of_key = config.pop_polling_map_size, config.pop_polling_size

    # ---- turns ----

    def turn(self) -> None:
        """Serve polls for which messages have come, and end those whose time is over."""
        lib.rmq_pop_waiting_turn(self._desk)
        lib.rmq_pop_desk_wake(self._desk)

    @property
    def has_more(self) -> bool:
        """True if the last turn has left work, for which no bell rings."""
        return bool(lib.rmq_pop_waiting_has_more(self._desk))

    def sleep_ms(self) -> int:
        """Time until the next turn is due. Arrivals ring the bell."""
        return max(0, min(int(lib.rmq_pop_waiting_next_ms(self._desk)) - monotonic_ms(), SLEEP_MAX_MS))

    def look(self) -> None:
        """Have the next turns find queues and topics of retries that were made, and polls of deleted topics and groups
        answered."""
        lib.rmq_pop_waiting_look(self._desk)

    # ---- what Python learns ----

    def wake_group(self, group_id: int) -> None:
        """The windows of a group have changed."""
        lib.rmq_pop_polls_wake_group(self._native, group_id)

    def wake_all(self) -> None:
        """All requests are refused from now on."""
        lib.rmq_pop_waiting_wake_all(self._desk)

    def closed(self, role: int, connection: Connection) -> None:
        """A connection of the read worker with this role is closed: its polls take no message."""
        lib.rmq_pop_polls_closed(
            self._native, role, connection.reader_generation, connection.number, connection.generation
        )

    def restarted(self, role: int, generation: int) -> None:
        """A read worker has another process, and the connections of the older ones are gone."""
        lib.rmq_pop_polls_restarted(self._native, role, generation)

    def unsent(self, serial: int) -> int:
        """No client has received the answer with this serial, or no read worker holds the poll. Returns the number of
        pops that are taken back."""
        return int(lib.rmq_pop_waiting_unsent(self._desk, serial))
