"""Control's calls to the name servers, and the answers that wait for these calls.

`Registration` decides the time and the content of each call. This module makes the calls and keeps the held answers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from msgspec import Struct

from ringmq.broker.control_report import NameServerState
from ringmq.broker.core import Broker
from ringmq.broker.duplicate_watch import DuplicateWatch
from ringmq.broker.outbound_calls import OutboundCalls, Outcome
from ringmq.broker.registration import (
    Call,
    Registration,
    register_steps,
    register_topic_command,
    unregister_command,
)
from ringmq.broker.replication.slave_role import SEARCH_PERIOD_MS
from ringmq.broker.requests.request import Effect
from ringmq.broker.requests.turns import SLICE_MS, Steps, TurnClock
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.command import RemotingCommand

log = logging.getLogger(__name__)

STOP_CALL_MS = 1000
HOLD_MAX_MS = 3000
ERRORS_PER_SERVER_MAX = 100


class _Held(Struct, frozen=True):
    """An answer that is sent once the name servers know its change."""

    reply: Effect
    change: int
    deadline_ms: int


class Registrar:
    """Registers the broker and its changed topics with every name server. `ControlLoop` owns it."""

    def __init__(
        self,
        broker: Broker,
        name_servers: OutboundCalls,
        clock: TurnClock,
    ) -> None:
        self._broker = broker
        self._name_servers = name_servers
        self._clock = clock
        self._tables: list[tuple[str, Steps[RemotingCommand]]] = []
        """Name servers -> steps to the whole table for them."""
        self._registration = Registration.of(broker.config)
        config = broker.config
        self._duplicates = DuplicateWatch(config.broker_name, broker.identity.address)
        self._held: list[_Held] = []
        self._errors: dict[str, set[str]] = {}
        """Name server -> the errors logged since its last good answer."""

    @property
    def is_registered(self) -> bool:
        """True if every name server knows the broker, or if there is none."""
        return all(server.registered for server in self._registration.servers.values())

    @property
    def is_busy(self) -> bool:
        """True while a whole table is being encoded."""
        return bool(self._tables)

    def states(self) -> tuple[NameServerState, ...]:
        """One state per name server, for metrics and health."""
        servers = self._registration.servers.items()
        others = self._duplicates.others
        return tuple(
            NameServerState(address, server.registered, server.failures, others.get(address, ""))
            for address, server in servers
        )

    def record_changes(self) -> int | None:
        """Collect the changes for the name servers. Returns the number of the change, None if there is none."""
        outbox = self._broker.outbox
        if not outbox.register and not outbox.changed_topics:
            return None
        changed = outbox.changed_topics
        has_deleted = any(topic not in self._broker.topics for topic in changed)
        topics = None if outbox.register or has_deleted else changed
        outbox.register, outbox.changed_topics = False, set()
        return self._registration.changed(topics)

    def hold(self, reply: Effect, change: int, now_ms: int) -> None:
        """Keep `reply` until every name server knows `change`, at most `HOLD_MAX_MS`."""
        self._held.append(_Held(reply, change, now_ms + HOLD_MAX_MS))

    def turn(self, now_ms: int) -> None:
        """Handle the outcomes of earlier calls and make the calls that are due."""
        self.record_changes()
        config = self._broker.config
        self._registration.apply_config(config)
        for outcome in self._name_servers.outcomes():
            self._on_outcome(outcome, now_ms)
        for address in self._name_servers.lost():
            self._registration.lost(address, now_ms)
        slave = self._broker.slave
        if slave is not None and slave.is_searching:
            self._registration.expedite(now_ms, SEARCH_PERIOD_MS)
        for call in self._registration.due(now_ms) if self._broker.role.registers else ():
            self._make(call, now_ms)
        if self._tables:
            address, steps = self._tables[0]
            command = self._clock.advance(steps, SLICE_MS)
            if command is not None:
                del self._tables[0]
                self._name_servers.call(address, command, config.register_broker_timeout_mills)

    def released(self, now_ms: int) -> Iterable[Effect]:
        """The held answers whose change every name server knows, or whose deadline has passed."""
        ready = [
            held for held in self._held if now_ms >= held.deadline_ms or self._registration.is_registered(held.change)
        ]
        if ready:
            self._held = [held for held in self._held if held not in ready]
        return [held.reply for held in ready]

    def release_all(self) -> Iterable[Effect]:
        """Every held answer, because the broker stops."""
        held, self._held = self._held, []
        return [one.reply for one in held]

    def close(self) -> None:
        """Unregister from the name servers that know the broker."""
        for address, server in self._registration.servers.items():
            if server.registered:
                command = unregister_command(self._broker.config, self._broker.identity)
                self._name_servers.call(address, command, STOP_CALL_MS)
        self._name_servers.close(STOP_CALL_MS / 1000)

    def _make(self, call: Call, now_ms: int) -> None:
        config, topics = self._broker.config, self._broker.topics
        timeout_ms = config.register_broker_timeout_mills
        # A topic that was deleted since is left out. Its deletion causes a registration of the whole table.
        found = [topic for topic in map(topics.get, call.topics or ()) if topic is not None]
        if found:
            commands = [register_topic_command(config, topic) for topic in found]
            self._name_servers.call_if_connected(call.address, commands, timeout_ms)
        else:
            look = self._duplicates.due_request(call.address, now_ms)
            if look is not None:
                self._name_servers.call_if_connected(call.address, [look], timeout_ms)
            text = self._broker.topics_body.steps()
            self._tables.append((call.address, register_steps(config, self._broker.identity, topics, text)))

    def _on_outcome(self, outcome: Outcome, now_ms: int) -> None:
        if outcome.request_code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            broker_id = self._broker.config.broker_id
            line = self._duplicates.on_answer(outcome.address, outcome.answer, broker_id, now_ms)
            if line is not None:
                log.warning("%s", line)
            return
        if outcome.request_code == RequestCode.REGISTER_TOPIC_IN_NAMESRV and outcome.answer and outcome.error:
            self._registration.refused(outcome.address)
            log.warning(
                "name server %s refuses a single topic (request 217), %s: until its connection ends, each change "
                "registers the whole table (request 103)",
                outcome.address,
                outcome.error,
            )
            return
        self._log_outcome(outcome)
        if self._broker.slave is not None:
            self._broker.slave.on_registration(outcome)
        self._registration.finished(outcome.address, outcome.error is None, now_ms)

    def _log_outcome(self, outcome: Outcome) -> None:
        """Log each error of a name server once until it answers again."""
        if outcome.error is None:
            if self._errors.pop(outcome.address, None):
                log.info("name server %s answers again", outcome.address)
            return
        errors = self._errors.setdefault(outcome.address, set())
        if outcome.error not in errors and len(errors) < ERRORS_PER_SERVER_MAX:
            errors.add(outcome.error)
            log.warning("name server %s: %s", outcome.address, outcome.error)
