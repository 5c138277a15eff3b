"""A slave of the simulation: the core as it is; IO is a few lines of Python."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ringmq.ha import slave_core as core_module
from ringmq.ha import slave_events as events
from ringmq.ha.control_messages import AcceptedNews
from ringmq.ha.handshake import HandshakeAnswer, PeerClaim
from ringmq.ha.settings import HaSettings
from ringmq.ha.slave_core import MASTER_UNKNOWN_MS, State
from ringmq.store.store_task import CUT
from tests.ha.simulated_log import FILE_BYTES, RECORD_BYTES, Ledger, SimulatedLog
from tests.ha.simulated_master import BEAT_MS, HEARTBEAT_MS, LAZY_FLUSH_MS, RESTART_MS, SimulatedMaster
from tests.ha.simulated_world import MS, Path, Pipe, World
from tests.ha.slave_machine import SLAVE

REPORT_EVERY_MS = HEARTBEAT_MS
TO_SLAVE, TO_MASTER = 0, 1


class Connection:
    """One HA connection; each side forgets it in its own time."""

    def __init__(self, slave: SimulatedSlave, master: SimulatedMaster, port: int) -> None:
        self.slave, self.master, self.port = slave, master, port
        self.down = Pipe(slave.path, TO_SLAVE, self._at_slave)
        self.up = Pipe(slave.path, TO_MASTER, self._at_master)
        self.slot = -1
        self.streaming = self.has_reported = False
        self.is_dead_here = False
        """For the master."""
        self.read_ms = self.written_ms = self.silent_since_ms = 0

    def send_down(self, what: tuple[Any, ...]) -> None:
        self.written_ms = self.slave.world.now_ms
        self.down.send(what)

    def _at_slave(self, what: tuple[Any, ...]) -> None:
        if self.slave.alive and self.slave.connection is self:
            self.slave.receive(*what)
        elif what[0] != "closed" and self.slave.alive:
            self.up.send(("closed", "reset by peer"))

    def _at_master(self, what: tuple[Any, ...]) -> None:
        if not self.is_dead_here:
            if what[0] == "report":
                self.master.report(self, what[1])
            else:
                self.master.gone(self, what[1])
        elif what[0] == "report" and self.master.alive:
            self.down.send(("closed", "reset by peer"))


@dataclass(slots=True)
class SimulatedSlave:
    """One slave and its way to the master."""

    world: World
    settings: HaSettings
    ledger: Ledger
    master: SimulatedMaster
    path: Path
    broker_id: int
    room: str = ""
    name_servers_answer_ms: float = 0
    alive: bool = False
    process: int = 0
    log: SimulatedLog = field(init=False)
    core: core_module.SlaveCore = field(init=False)
    connection: Connection | None = None
    connecting: int = 0
    limit: int = 0
    shown: int = 0
    """The highest offset that consumers could read; a start begins there."""
    heard_ms: int = 0
    """When the master has said something last, an end of the connection apart."""
    received: int = 0
    read_ms: int = 0
    written_ms: int = 0
    disk_full: bool = False
    flushing: bool = False

    def __post_init__(self) -> None:
        self.log = SimulatedLog(self.ledger, 1 << self.broker_id)

    @property
    def host(self) -> str:
        return f"slave{self.broker_id}"

    @property
    def flushes(self) -> bool:
        """Its reports are flushed offsets."""
        return self.settings.flush_disk_type == "SYNC_FLUSH"

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """A new process over the log as it is."""
        self.alive, self.process = True, self.process + 1
        self.limit = self.shown = min(self.shown, self.log.end * RECORD_BYTES)
        self.core = core_module.SlaveCore(self.settings, self._snapshot())
        self._flush_soon()
        self.step(events.MasterIs("master:1", ""))
        self.world.at(max(self.world.now_us, int(self.name_servers_answer_ms * MS)), self._named, self.process)
        self._beat(self.process)

    def _named(self, process: int) -> None:
        if self.alive and process == self.process:
            self.step(events.MasterIs("master:1", "master:0"))

    def stop(self, silently: bool) -> None:
        """The process ends; `silently`: its host with it."""
        self.alive = False
        if self.connection and not silently:
            self.connection.up.send(("closed", "the slave has gone"))
        self.connection, self.connecting = None, self.connecting + 1

    def _beat(self, process: int) -> None:
        if not self.alive or process != self.process:
            return
        if self.core.state is State.TRANSFER and self.world.now_ms - self.written_ms >= REPORT_EVERY_MS:
            self._report()
        self.step(None)
        self.world.after_ms(BEAT_MS, self._beat, process)

    # -- the core ------------------------------------------------------------------------------------------------------

    def _snapshot(self) -> events.Snapshot:
        low, end = self.log.first * RECORD_BYTES, self.log.end * RECORD_BYTES
        return events.Snapshot(low, end, self.log.flushed * RECORD_BYTES, self.received, self.read_ms)

    def step(self, event: events.Event | None) -> None:
        """A Tick with a fresh snapshot before everything; it may end the attempt that the event is about."""
        attempt, is_order = (self.connecting, self.process), isinstance(event, events.MasterIs)
        self._step(events.Tick(self._snapshot()))
        if event is not None and (is_order or attempt == (self.connecting, self.process)):
            self._step(event)

    def _step(self, event: events.Event) -> None:
        state = self.core.state
        effects = self.core.step(event, self.world.now_ms)
        if not SLAVE.allows(state, event, self.core.state):
            self.ledger.problem(f"{event} leads from {state.name} to {self.core.state.name}")
        for effect in effects:
            self._perform(effect)

    def _perform(self, effect: events.Effect) -> None:
        match effect:
            case events.Connect():
                self.connecting += 1
                arrival_us = self.path.arrival_us(TO_MASTER)
                self.world.at(arrival_us, self._reach, self.connecting, self.process)
            case events.Handshake(local_port=port, windows_end=windows_end):
                end = self.log.end * RECORD_BYTES
                self._ask(
                    PeerClaim(
                        self.settings.broker_cluster_name,
                        self.settings.broker_name,
                        self.broker_id,
                        f"{self.host}-{self.process}",
                        self.log.first * RECORD_BYTES,
                        end,
                        FILE_BYTES,
                        ha_port=port,
                        room=self.room,
                        report_level="flushed" if self.flushes else "cached",
                        tail=self.log.windows(end if windows_end is None else windows_end),
                    )
                )
            case events.NotifyControl(news=AcceptedNews(attempt=attempt)):
                self.world.after_ms(self.world.random.uniform(0, 5), self._agreed, attempt, self.process)
            case events.StartTransfer():
                self._report()
            case events.Disconnect():
                if self.connection:
                    self.connection.up.send(("closed", "the slave let go"))
                self.connection, self.connecting = None, self.connecting + 1
            case events.AskConfirm() if self.world.random.random() < 0.3:
                self.world.at(self.path.arrival_us(TO_MASTER), self._confirm_asked, self.connection)
            case events.Limit(offset=offset):
                self.limit = max(offset, self.shown)
                self.read()
            case events.RestartStore(order=order):
                index = order.offset // RECORD_BYTES
                self.stop(silently=False)
                if order.action == CUT:
                    self.log.cut(index)
                else:
                    self.log.rebase(index)
                self.world.after_ms(RESTART_MS, self.start)

    def _agreed(self, attempt: int, process: int) -> None:
        """Control has noted the epoch."""
        if self.alive and process == self.process:
            self.step(events.Stream(attempt))

    def read(self) -> None:
        """What consumers may see here now; nothing more than the master has confirmed unless it is silent for long."""
        end = min(self.log.end * RECORD_BYTES, self.limit)
        silent_ms = self.world.now_ms - self.heard_ms
        if end > max(self.shown, self.master.highest_confirmed) and silent_ms < MASTER_UNKNOWN_MS:
            self.ledger.problem(
                f"{self.host} shows {end}, its master, heard {silent_ms} ms ago, has confirmed "
                f"{self.master.highest_confirmed}"
            )
        self.shown = max(self.shown, end)
        for tag in self.log.tags[self.log.first : end // RECORD_BYTES][-8:]:
            self.ledger.promised.setdefault(tag, "readable")

    # -- towards the master --------------------------------------------------------------------------------------------

    def _reach(self, attempt: int, process: int) -> None:
        """The SYN has arrived."""
        if not self.alive or (attempt, process) != (self.connecting, self.process):
            return
        connection = Connection(self, self.master, 10_000 + self.connecting * 8 + self.broker_id)
        is_up = self.master.accept(connection)
        self.world.at(self.path.arrival_us(TO_SLAVE), self._reached, attempt, process, connection if is_up else None)

    def _reached(self, attempt: int, process: int, connection: Connection | None) -> None:
        if not self.alive or (attempt, process) != (self.connecting, self.process):
            if connection and self.alive:
                connection.up.send(("closed", "nobody waits for it any more"))
            return
        if connection is None:
            self.step(events.ConnectFailed("refused"))
            return
        self.connection = connection
        self.received, self.read_ms = 0, self.world.now_ms
        self.step(events.Connected(connection.port, "10.0.0.1"))

    def _ask(self, claim: PeerClaim) -> None:
        self.world.at(self.path.arrival_us(TO_MASTER), self._asked, claim, self.connection)

    def _asked(self, claim: PeerClaim, connection: Connection) -> None:
        answer = self.master.decide(claim, self.host) if self.master.alive else None
        self.world.at(self.path.arrival_us(TO_SLAVE), self._answered, answer, connection)

    def _answered(self, answer: HandshakeAnswer | None, connection: Connection) -> None:
        if self.alive and self.connection is connection:
            self.heard_ms = self.world.now_ms if answer else self.heard_ms
            self.step(events.Answered(answer, "10.0.0.1") if answer else events.HandshakeFailed("refused"))

    def _confirm_asked(self, connection: Connection) -> None:
        if self.master.alive:
            event = events.Confirmed(self.master.confirmed, self.master.start_id)
            self.world.at(self.path.arrival_us(TO_SLAVE), self._confirmed, event, connection)

    def _confirmed(self, event: events.Confirmed, connection: Connection) -> None:
        if self.alive and self.connection is connection:
            self.heard_ms = self.world.now_ms
            self.step(event)

    # -- the stream ----------------------------------------------------------------------------------------------------

    def receive(self, kind: str, *what: Any) -> None:
        """A frame, or the end of the connection."""
        if kind == "closed":
            self.connection = None
            self.step(events.Closed(what[0]))
            return
        self.heard_ms = self.world.now_ms
        index, tags = what
        if index != self.log.end:
            self.step(events.StreamStartsAt(index * RECORD_BYTES))
            return
        if tags and self.disk_full:
            self.step(events.StoreFault("the disk is full"))
            return
        self.received, self.read_ms = self.received + 12 + len(tags), self.world.now_ms
        self.log.append(tags)
        if tags:
            self._flush_soon()
            self.read()
            if not self.flushes:
                self._report()

    def _flush_soon(self) -> None:
        """In groups: one flush is under way at a time."""
        if not self.flushing:
            self.flushing = True
            delay_ms = self.world.random.uniform(1, 8) if self.flushes else LAZY_FLUSH_MS
            self.world.after_ms(delay_ms, self._flush, self.process)

    def _flush(self, process: int) -> None:
        self.flushing = False
        if self.alive and process == self.process and self.log.flushed < self.log.end:
            self.log.flush()
            if self.flushes and self.core.state is State.TRANSFER:
                self._report()

    def _report(self) -> None:
        if self.connection:
            self.written_ms = self.world.now_ms
            end = self.log.flushed if self.flushes else self.log.end
            self.connection.up.send(("report", end * RECORD_BYTES))
