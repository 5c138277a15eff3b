"""The loop of the worker `services`: takes requests out of its inbox, has guests answer them, puts answers back.

One turn: answers that did not fit -> requests, while there is time -> slices of long requests -> the guests' own work
-> what is due by time -> answers. Nothing waits: `TurnClock` says how long a turn may take.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.requests import access
from ringmq.broker.requests.outlets import Outlets
from ringmq.broker.requests.records import connection_of, request_of
from ringmq.broker.requests.request import Connection, Hangup, Outbox, Request
from ringmq.broker.requests.slow_requests import UNTOLD_COUNTER, SlowRequests, slow_request
from ringmq.broker.requests.turns import INTAKE_MS, TurnClock
from ringmq.ipc.asks import Ask, Inbox
from ringmq.ipc.plane import Plane
from ringmq.ipc.worker_blocks import rest
from ringmq.native import ffi, lib
from ringmq.remoting.errors import RemotingError
from ringmq.remoting.log_throttle import LogThrottle
from ringmq.services.control_topics import ControlTopics
from ringmq.services.guest import Guest
from ringmq.services.guest_requests import GuestRequests
from ringmq.services.log_view import LogView

RECORDS_PER_TURN = 512
TICK_MS = 250
POLL_MS = 2
"""While a guest waits for words that ring no bell."""
STORE_LOOK_MS = 10_000
"""Blocks of a log file that retention has unlinked stay used for so long, if this process had it mapped."""
BACKLOG_RETRY_MS = 1
INCOMPLETE_RETRY_MS = 1
LINES_PER_MINUTE = 10
"""Any peer can send failing requests at any rate."""


class ServiceLoop:
    """Owns the guests and their way in and out. `turn` does one round; the caller parks between rounds."""

    def __init__(
        self,
        plane: Plane,
        role: int,
        inbox: Inbox,
        guests: Sequence[Guest],
        maker: ControlTopics,
        outbox: Outbox,
        config: Callable[[], BrokerConfig],
        log_view: LogView,
        log: Callable[[str], None],
        *,
        rest_after_ms: int,
    ) -> None:
        self._plane = plane
        self._role = role
        self._inbox = inbox
        self._guests = guests
        self._maker = maker
        self._config = config
        self._log_view = log_view
        self._log = log
        self._rest_after_ms = rest_after_ms
        self._clock = TurnClock()
        self._outlets = Outlets(plane.readers, inbox)
        self._refusals = access.Refusals()
        self._slow_requests = SlowRequests()
        self._latency = plane.header.latency[role][lib.RMQ_SERVICES_LATENCY_ANSWERED]
        self._requests = GuestRequests(
            guests, outbox, self._clock, self._outlets.backlog_bytes, self._refusal, self._measure, self._tell
        )
        self._generations: dict[int, int] = {}
        self._ports = {reader.role: reader.port for reader in plane.readers}
        self._lines = LogThrottle(LINES_PER_MINUTE)
        self._now_ms = 0
        self._next_tick_ms = 0
        self._next_store_look_ms = 0
        self._blocked_parks = 0
        self._worked_ms = 0
        """When there was work last."""

    # ---- one round ----

    def turn(self, now_ms: int) -> bool:
        """Do what there is. True if more may follow at once."""
        self._now_ms = now_ms
        self._clock.begin()
        self._outlets.send_waiting()
        taken = self._take_records(now_ms)
        self._requests.turn()
        worked = self._maker.turn(now_ms) or taken > 0
        for guest in self._guests:
            worked |= guest.turn(now_ms)
        if now_ms >= self._next_tick_ms:
            self._next_tick_ms = now_ms + TICK_MS
            self._tick(now_ms)
        self._outlets.perform(self._requests.take_effects())
        self._plane.role(self._role).progress += 1
        self._blocked_parks = 0 if taken else self._blocked_parks
        if worked or not self._worked_ms or not self._is_idle:
            self._worked_ms = now_ms
        return worked or self._requests.is_busy

    def _take_records(self, now_ms: int) -> int:
        """Take records out of the inbox while the turn has time for them; how many."""
        taken = 0
        while taken < RECORDS_PER_TURN and self._clock.is_within(INTAKE_MS):
            self._requests.begin_next()
            if self._outlets.is_choked or self._requests.is_choked:
                break
            record = self._inbox.take()
            if record is None:
                break
            taken += 1
            self._on_record(record, now_ms)
        return taken

    def park(self, now_ms: int) -> None:
        """Sleep until the bell rings or something is due."""
        timeout_ms = max(0, self._next_tick_ms - now_ms)
        if any(guest.is_polling for guest in self._guests):
            timeout_ms = min(timeout_ms, POLL_MS)
        if self._outlets.is_waiting:
            timeout_ms = BACKLOG_RETRY_MS
        self._plane.arm(self._role)
        if self._maker.has_news or any(guest.has_news for guest in self._guests):
            self._plane.disarm(self._role)
            return
        if self._inbox.is_blocked:
            # Something came just now; or the record at the front is incomplete: its writer is at it, is stopped, or has
            # died, and then the record is freed here.
            self._blocked_parks += 1
            if self._inbox.unblock() or self._blocked_parks == 1:
                self._plane.disarm(self._role)
                return
            timeout_ms = INCOMPLETE_RETRY_MS
        else:
            self._blocked_parks = 0
        self._plane.wait(self._role, timeout_ms)

    def may_rest(self, now_ms: int) -> bool:
        """True if there has been no work for a while, and there is none now: the process may end. What comes later has
        the worker started again."""
        if now_ms - self._worked_ms < self._rest_after_ms:
            return False
        rest(self._plane, self._role)
        return self._is_idle and not self._inbox.is_blocked

    def close(self, now_ms: int) -> None:
        """A clean stop: answer what is in the inbox and what waits."""
        while self.turn(now_ms) or self._requests.has_work:
            self._requests.finish()
        for guest in self._guests:
            guest.close()
        self._outlets.perform(self._requests.take_effects())

    @property
    def _is_idle(self) -> bool:
        if self._requests.has_work or self._outlets.is_waiting or self._maker.is_waiting:
            return False
        return all(guest.is_idle for guest in self._guests)

    # ---- in ----

    def _on_record(self, record: Ask, now_ms: int) -> None:
        reader = self._ports.get(record.role)
        if reader is None or record.role_generation < self._generations.get(reader, 0):
            return  # left behind by a reader that is gone
        self._see_generation(reader, record.role_generation)
        connection = connection_of(record, reader)
        if record.type == lib.RMQ_INBOX_CLOSED:
            self._requests.end(connection)
            self._outlets.end(connection)
        if record.type != lib.RMQ_INBOX_COLD_FRAME:
            return
        try:
            request = request_of(record, connection, now_ms)
        except Exception as error:  # a defect of the decoder costs one connection, as junk does
            what = str(error) if isinstance(error, RemotingError) else f"{type(error).__name__}: {error}"
            self._tell(f"junk from {connection.host}: {what}")
            self._requests.effects.append(Hangup(connection, record.pending))
            return
        self._requests.run(request)

    def _see_generation(self, reader: int, generation: int) -> None:
        """A read worker that was started again has none of its old connections."""
        if self._generations.get(reader) != generation:
            self._generations[reader] = generation
            self._outlets.start_anew(reader, generation)

    def _refusal(self, code: int, connection: Connection) -> str | None:
        return access.refusal(self._config(), code, connection)

    # ---- time ----

    def _tick(self, now_ms: int) -> None:
        for reader in self._plane.readers:
            generation = int(self._plane.role(reader.role).generation)
            if generation:
                self._see_generation(reader.port, generation)
        for guest in self._guests:
            self._guard(guest.name, lambda: guest.save_if_due(now_ms))  # noqa: B023 (called within)
        if now_ms >= self._next_store_look_ms:
            self._next_store_look_ms = now_ms + STORE_LOOK_MS
            self._guard("files that retention took", self._log_view.look_again)
        slow = self._slow_requests
        for line in slow.told(slow.own(), now_ms):
            self._log(line)
        self._plane.role(self._role).counters[UNTOLD_COUNTER] += slow.untold
        slow.untold = 0

    def _measure(self, request: Request) -> None:
        if not request.received_mono_ns:
            return
        took_ns = time.monotonic_ns() - request.received_mono_ns
        lib.rmq_latency_count(ffi.addressof(self._latency), took_ns, 1)
        limit_ms = self._config().slow_request_ms
        if limit_ms and took_ns >= limit_ms * 1_000_000:
            self._slow_requests.add(slow_request(request, took_ns // 1000))

    # ---- trouble ----

    def _guard(self, what: str, action: Callable[[], object]) -> None:
        """Files and defects must not end the worker: tell once, try again at the next chance."""
        try:
            action()
        except (OSError, RuntimeError) as error:
            self._tell(f"{what}: {error}")
        except Exception:  # a defect: the trace is for the operator
            self._tell(f"{what}:\n{traceback.format_exc()}")

    def _tell(self, text: str) -> None:
        line = self._lines.line(text, self._now_ms)
        if line is not None:
            self._log(line)
