"""The control role's loop: takes cold frames out of the inbox, runs the core over them, returns verdicts.

One turn: verdicts that did not fit -> records, while there is time -> slices of long requests -> timed work -> changed
config files -> effects. Files are written before the answers to their changes are sent. Control does no work per
message of the hot paths. It never waits: calls to name servers run on threads of their own. `turns` has the time
limits of a turn.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Hashable
from itertools import chain

from ringmq.broker.control_report import ClientCensus, ControlReport, ReportWriter
from ringmq.broker.control_wiring import handlers_of, limits_of, may_hold
from ringmq.broker.core import Broker
from ringmq.broker.health import fault_text
from ringmq.broker.outbound_calls import OutboundCalls
from ringmq.broker.questions import Questions
from ringmq.broker.registrar import STOP_CALL_MS, Registrar
from ringmq.broker.replication import refusals
from ringmq.broker.replication.proof_reader import ProofReader
from ringmq.broker.request_runner import RequestRunner
from ringmq.broker.requests import slow_requests
from ringmq.broker.requests.intake import Intake
from ringmq.broker.requests.reply_queue import ReplyQueues
from ringmq.broker.requests.request import Effect
from ringmq.broker.requests.runner import AnswerTimes
from ringmq.broker.requests.turns import TurnClock
from ringmq.broker.route_polls import RoutePolls
from ringmq.broker.table_saves import TableSaves
from ringmq.broker.tables import notifications
from ringmq.broker.tables.persistence import Persistence
from ringmq.broker.tables.stats import Totals
from ringmq.broker.worker_asks import LOOK_MS, WorkerAsks
from ringmq.ha.control_messages import AcceptedNews, LinkNews, MessageError, news_of
from ringmq.ipc.asks import Ask, Inbox
from ringmq.ipc.audit import AuditWriter
from ringmq.ipc.errors import PlaneFullError
from ringmq.ipc.memory import MemoryReturn
from ringmq.ipc.plane import Plane
from ringmq.ipc.steady_clock import SteadyClock
from ringmq.native import lib
from ringmq.remoting.log_throttle import CauseThrottle, LogThrottle
from ringmq.store.record_values import is_topic_name

log = logging.getLogger(__name__)

TICK_MS = 250
AUDIT_LINES = 128
"""Audit lines of one turn, some 6 ms."""
STORE_LOOK_MS = 10_000
"""Time for which the blocks of a deleted log file stay in use, if a request had it mapped."""
FAULT_LINES_PER_MINUTE = 60
PEER_LINES_PER_MINUTE = 10
"""Limit of log lines. Any peer can send malformed frames and failing requests at any rate."""


class ControlLoop:
    """Owns the core and its requests and answers. `turn` does one round; the caller parks between rounds."""

    def __init__(
        self,
        plane: Plane,
        broker: Broker,
        persistence: Persistence,
        name_servers: OutboundCalls,
        clock: TurnClock | None = None,
        route_calls: OutboundCalls | None = None,
    ) -> None:
        self.broker = broker
        self._plane = plane
        self._persistence = persistence
        self._proof_reader = ProofReader(lambda: plane.wake(lib.RMQ_ROLE_CONTROL))
        self._clock = TurnClock() if clock is None else clock
        self._registrar = Registrar(broker, name_servers, self._clock)
        self._route_polls = self._polls_by(route_calls)
        self._inbox = Inbox(plane)
        self._replies = ReplyQueues(plane.readers, self._inbox)
        self._next_tick_ms = 0
        self._next_store_look_ms = 0
        self._last_fault = 0
        self._now_ms = 0
        self._faults = LogThrottle(FAULT_LINES_PER_MINUTE)
        self._of_peers = LogThrottle(PEER_LINES_PER_MINUTE)
        self._failed_requests = LogThrottle(PEER_LINES_PER_MINUTE)
        self._refused = CauseThrottle()
        self._of_settings = LogThrottle(PEER_LINES_PER_MINUTE)
        self._audit = AuditWriter(broker.audit)
        self._handlers = handlers_of(broker)
        self._limits = limits_of(broker)
        self._census = ClientCensus(broker.consumers, broker.producers)
        self._report = ReportWriter(plane.name)
        self._slow_requests = slow_requests.SlowRequests()
        self._memory_return = MemoryReturn()
        self.worker_asks = self._asks_of(plane, broker)
        self._saves = TableSaves(
            persistence, self._clock, lambda action: self._guard("config files", action), self._log_files
        )
        backlog_bytes = self._replies.backlog_bytes
        self._questions = Questions(plane, broker, self._inbox, self._saves, backlog_bytes)
        role = lib.RMQ_ROLE_CONTROL
        latency = plane.header.latency[role][lib.RMQ_CONTROL_LATENCY_ANSWERED]
        self._requests = RequestRunner(
            broker,
            self._handlers,
            self._registrar,
            AnswerTimes(latency, self._slow_requests, lambda: broker.config.slow_request_ms),
            lambda text: self._log_line(self._failed_requests, text),
            self._clock,
            self._saves,
            backlog_bytes,
        )
        self._intake = Intake(
            plane,
            role,
            self._inbox,
            self._replies,
            self._requests,
            self._clock,
            lambda text: self._log_line(self._of_peers, text),
            before_request=self._drain_offsets,
            on_reader_restart=self._on_reader_restart,
            others={
                **dict.fromkeys(self._questions.types, self._on_question),
                lib.RMQ_INBOX_QUEUE: self._on_queue,
                lib.RMQ_INBOX_HA: self._on_ha_event,
            },
        )

    def _asks_of(self, plane: Plane, broker: Broker) -> WorkerAsks:
        """The asks to other workers. Requests of operators make them by the part `holders`."""
        broker.holders.asks = lambda: self.worker_asks
        broker.holders.is_concerned = may_hold(broker)
        return WorkerAsks(plane)

    def _polls_by(self, calls: OutboundCalls | None) -> RoutePolls:
        """The requests for routes. They are made by `calls`, by default by some of their own."""
        if calls is None:
            calls = OutboundCalls(lambda: self._plane.wake(lib.RMQ_ROLE_CONTROL))
        return RoutePolls(self.broker.routes, calls, lambda text: self._log_line(self._of_settings, text))

    # ---- one round ----

    def turn(self, now_ms: int) -> bool:
        """Do one round of work. True if there was any, so that more may follow at once."""
        self._now_ms = now_ms
        self._clock.begin()
        self._replies.send_waiting()
        taken = self._intake.take(now_ms)
        has_answers = self.worker_asks.turn(time.monotonic_ns())
        for request in self._route_polls.turn(now_ms):
            self._requests.run(request)
        self._requests.turn()
        effects = self._requests.take_effects()
        self.broker.notifications.turn(now_ms)
        effects += self.broker.outbox.take()
        if now_ms >= self._next_tick_ms:
            self._next_tick_ms = now_ms + TICK_MS
            effects += self._tick(now_ms)
        self._guard("consumer offsets", self._persistence.save_some)
        if self._saves.is_saving:  # so the hold on writes is also on disk before its answer
            self._guard("config files", self._persistence.save_hold)
        self._saves.turn()
        self._replies.perform([*effects, *self._requests.take_effects()])
        self._audit.turn(now_ms, AUDIT_LINES)
        while self.broker.replication.said:
            log.info("%s", self.broker.replication.said.pop(0))
        self._log_refusals(now_ms)
        lines, self.broker.outbox.lines = self.broker.outbox.lines, []
        for line in lines:
            self._log_line(self._of_settings, line)
        self._registrar.turn(now_ms)
        self._proof_reader.turn(self.broker.replication, now_ms)
        self.broker.role.turn(now_ms)
        if self.broker.slave is not None:
            self.broker.slave.turn(now_ms, int(self._plane.role(lib.RMQ_ROLE_HA).generation))
        self._replies.perform(self._registrar.released(now_ms))
        self._plane.role(lib.RMQ_ROLE_CONTROL).progress += 1
        is_saving = self._persistence.is_saving or self._saves.is_saving or self._registrar.is_busy
        return taken > 0 or has_answers or self._requests.is_busy or is_saving or self._audit.is_waiting

    def park(self, now_ms: int) -> None:
        """Sleep until the bell rings or something is due."""
        timeout_ms = max(0, self._next_tick_ms - now_ms)
        if self.broker.notifications.is_waiting:
            timeout_ms = min(timeout_ms, notifications.PAUSE_MS)
        if self.worker_asks.is_waiting:
            timeout_ms = min(timeout_ms, LOOK_MS)
        self._intake.park(timeout_ms, lambda: self.worker_asks.has_news)

    @property
    def is_registered(self) -> bool:
        """True if every name server has answered once, or if there is none."""
        return self._registrar.is_registered

    def close(self, now_ms: int) -> None:
        """Clean stop: answer the requests in the inbox, save everything, unregister from the name servers."""
        self.worker_asks.close()
        for request in self._route_polls.release_all(now_ms):
            self._requests.run(request)
        while self.turn(now_ms) or self._requests.has_work:
            self._requests.finish()
        self._replies.perform(self.broker.outbox.take())
        self._replies.perform(self._registrar.release_all())
        self._drain_offsets(now_ms)
        self._saves.finish()
        self._replies.perform(self._requests.take_effects())
        self._guard("consumer offsets", self._persistence.save_offsets)
        self._audit.turn(now_ms)
        self._registrar.close()
        self._route_polls.close(STOP_CALL_MS / 1000)
        self.broker.role.close(STOP_CALL_MS / 1000)
        if self.broker.slave is not None:
            self.broker.slave.close(STOP_CALL_MS / 1000)

    # ---- in ----

    def _on_reader_restart(self, reader: int, generation: int) -> None:
        """A read worker was started again. The clients of its old connections leave their groups."""
        for connection in self.broker.membership.connections():
            if connection.reader == reader and connection.reader_generation != generation:
                self._requests.end(connection)

    def _on_queue(self, record: Ask, now_ms: int) -> None:
        self._guard("the queue for a record of the master", lambda: self._make_queue(record))

    def _on_question(self, record: Ask, now_ms: int) -> None:
        self._guard("a question of a service", lambda: self._questions.take(record, now_ms))

    def _make_queue(self, record: Ask) -> None:
        """Publish a queue for which a slave's dispatch waits: its record has arrived before the settings of its
        topic."""
        topic = record.payload.decode(errors="replace")
        if not is_topic_name(record.payload):
            text = f"a record from the master is not dispatched: no folder can have the name of topic {topic!r}"
            self._log_line(self._of_peers, text)
            return
        # A topic that is being deleted needs no old records: its folder is removed, and a new topic begins at 0.
        replay_from = int(self._plane.watermarks.append_offset) if topic in self.broker.deletions else None
        batch = record.frame_length != 0
        try:
            self.broker.tables.publish_queue(topic, record.pending, batch=batch, replay_from=replay_from)
        except PlaneFullError as error:
            self._log_line(self._of_peers, f"no queue for a record of the master: {error}")
            return
        self._inbox.answer_role(record, b"")

    def _on_ha_event(self, record: Ask, now_ms: int) -> None:
        try:
            news = news_of(record.payload)
            if isinstance(news, AcceptedNews):
                self._guard("the tenure file", lambda: self.broker.role.on_accepted(news, now_ms))
                return
            if isinstance(news, LinkNews):
                self.broker.role.on_link()
            with self.broker.audit.caused_by("worker ha", "log of a slave"):
                self.broker.replication.take_news(news)
        except MessageError as error:
            self._log_line(self._of_peers, f"an event of worker ha is ignored: {error}")

    # ---- time ----

    def _tick(self, now_ms: int) -> list[Effect]:
        self._intake.look_at_readers()
        self._drain_offsets(now_ms)
        self.broker.stats.observe(self._totals())
        effects = [*self._requests.take_effects(), *self.broker.on_tick(now_ms), *self._handlers.run_due(now_ms)]
        self._guard("consumer offsets", lambda: self._persistence.save_offsets_if_due(now_ms))
        self._guard("deleted topics", lambda: self._persistence.remove_deleted(now_ms))
        if now_ms >= self._next_store_look_ms:
            self._next_store_look_ms = now_ms + STORE_LOOK_MS
            self._guard("files that retention has deleted", self.broker.store.refresh)
        self._watch_fault()
        self._log_slow(now_ms)
        for line in self._refused.due_lines(now_ms):
            log.warning("%s", line)
        for reason, count in self.broker.replication.refusals.take_counts().items():
            self._plane.role(lib.RMQ_ROLE_CONTROL).counters[refusals.COUNTERS[reason]] += count
        self._census.turn()
        self._guard("the report for metrics and health", lambda: self._report.publish(self._seen(), now_ms))
        return effects

    def _log_slow(self, now_ms: int) -> None:
        found = self._slow_requests
        for line in found.due_lines(chain(slow_requests.take(self._plane), found.own()), now_ms):
            log.warning("%s", line)
        self._plane.role(lib.RMQ_ROLE_CONTROL).counters[slow_requests.DROPPED_COUNTER] += found.dropped
        found.dropped = 0

    def _log_refusals(self, now_ms: int) -> None:
        """Log the first refusal of each cause."""
        of_requests, of_slaves = self.broker.refusals, self.broker.replication.refusals
        if not of_requests.by_code and not of_slaves.lines:
            return
        causes: list[tuple[Hashable, tuple[str, int]]] = [*of_requests.take().items(), *of_slaves.take_lines().items()]
        for cause, (text, count) in causes:
            line = self._refused.line(cause, text, now_ms, count)
            if line is not None:
                log.warning("%s", line)

    def _seen(self) -> ControlReport:
        states = self._registrar.states()
        permission = self.broker.config.broker_permission
        sends_from_ms = self.broker.config.start_accept_send_request_time_stamp
        refused = self.broker.refusals.counts()
        counts = self._limits.entry_counts()
        census = self._census
        role = self.broker.role.note()
        return ControlReport(permission, states, census.clients, census.left_out, sends_from_ms, refused, counts, role)

    def _drain_offsets(self, now_ms: int) -> None:
        """Apply the offsets that pulls have committed. An older commit must not undo a later request of the client."""
        self._guard("consumer offsets", lambda: self.broker.offsets.drain(now_ms))

    def _totals(self) -> Totals:
        counters = self._plane.role(lib.RMQ_ROLE_WRITE).counters
        flush = self._plane.role(lib.RMQ_ROLE_FLUSH).counters
        pop = self._plane.role(lib.RMQ_ROLE_POP).counters
        return Totals(
            put_messages=int(counters[lib.RMQ_WRITE_MESSAGES]),
            put_bytes=int(counters[lib.RMQ_WRITE_BYTES]),
            put_refused=int(counters[lib.RMQ_WRITE_REFUSED]),
            got_messages=self._sum_of_readers(lib.RMQ_READ_PULLED_MESSAGES)
            + self._sum_of_readers(lib.RMQ_READ_NAMED_MESSAGES),
            found=self._sum_of_readers(lib.RMQ_READ_PULLS_FOUND) + int(pop[lib.RMQ_POP_COUNT_POPS]),
            missed=self._sum_of_readers(lib.RMQ_READ_PULLS_MISSED) + int(pop[lib.RMQ_POP_COUNT_EMPTY]),
            too_few_replicas=int(counters[lib.RMQ_WRITE_TOO_FEW_REPLICAS]),
            slave_not_available=int(flush[lib.RMQ_FLUSH_SLAVE_LOST]),
            flush_slave_timeout=int(flush[lib.RMQ_FLUSH_SLAVE_TIMEOUTS]),
            degraded_entered=int(self._plane.role(lib.RMQ_ROLE_HA).counters[lib.RMQ_HA_DEGRADED_ENTERED]),
        )

    def _sum_of_readers(self, counter: int) -> int:
        return sum(int(self._plane.role(reader.role).counters[counter]) for reader in self._plane.readers)

    def _watch_fault(self) -> None:
        fault = int(self._plane.watermarks.store_fault)
        if fault != self._last_fault:
            self._last_fault = fault
            cause = int(self._plane.watermarks.store_fault_errno)
            if fault:
                log.error("%s", fault_text(fault, cause))
            else:
                log.info("the store accepts writes again")

    # ---- trouble ----

    def _log_files(self) -> None:
        self._faults.forget("config files:")
        log.info("config files are written again")

    def _guard(self, what: str, action: Callable[[], object]) -> str | None:
        """Run an action. Failing files, full tables and defects must not end control: each is logged once, and the
        action runs again at the next chance. Returns None, or the failure."""
        try:
            action()
        except (OSError, RuntimeError) as error:
            self._log_line(self._faults, f"{what}: {error}")
            return str(error)
        except Exception as error:  # a defect: the trace is for the operator
            self._log_line(self._faults, f"{what}:\n{traceback.format_exc()}")
            return f"{type(error).__name__}: {error}"
        return None

    def _log_line(self, throttle: LogThrottle, text: str) -> None:
        line = throttle.line(text, self._now_ms)
        if line is not None:
            log.warning("%s", line)


def now_ms() -> int:
    """The wall clock."""
    return time.time_ns() // 1_000_000


def run_control(
    plane: Plane,
    broker: Broker,
    persistence: Persistence,
    name_servers: OutboundCalls,
    should_stop: Callable[[], bool],
    on_serving: Callable[[], None],
    ready_within_ms: int = 2000,
) -> None:
    """Serve until `should_stop` and the role is settled, or until an operator's decision requires that the store be
    closed (`Replication.restart`).

    `on_serving` is called once: when every name server knows the broker, or after `ready_within_ms`.
    """
    loop, clock = ControlLoop(plane, broker, persistence, name_servers), SteadyClock()
    began_ms, serving = clock(), False
    while broker.replication.restart is None:
        if should_stop():
            broker.role.stop(clock())
        if broker.role.may_stop:
            break
        worked = loop.turn(clock())
        if not serving and (loop.is_registered or clock() - began_ms >= ready_within_ms):
            serving = True
            on_serving()
        if not worked:
            loop.park(clock())
    loop.close(clock())
