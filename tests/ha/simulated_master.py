"""A master of the simulation: the core, the waiter and the watermark as they are; IO is a few lines of Python.

What the C loops do is done here in the plainest way: frames while the window lasts, reports checked against what was
sent, watermarks after each report.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringmq.ha import handshake
from ringmq.ha import master_core as core_module
from ringmq.ha import master_events as events
from ringmq.ha import replica_watermark as watermark_module
from ringmq.ha import waiter as waiter_module
from ringmq.ha.control_messages import Identity
from ringmq.ha.handshake import HandshakeAnswer, MasterView, PeerClaim
from ringmq.ha.log_range import LogRange
from ringmq.ha.replica_watermark import LEVEL_FLUSHED, PEERS_MAX, PeerOffsets, Requirement
from ringmq.ha.settings import HaSettings
from ringmq.ha.waiter import Waiter, WaitSettings, Watermarks
from tests.ha.simulated_log import FILE_RECORDS, RECORD_BYTES, Ledger, SimulatedLog
from tests.ha.simulated_world import World

if TYPE_CHECKING:
    from tests.ha.simulated_slave import Connection, SimulatedSlave

WINDOW_RECORDS = 16
HEARTBEAT_MS = 500
BEAT_MS = 250
LAZY_FLUSH_MS = 400
RESTART_MS = 30
MASTER_BIT = 1


@dataclass(slots=True)
class SimulatedMaster:
    """`rooms`: of the slaves by their bit. `operator`: what somebody decided for a broker id."""

    world: World
    settings: HaSettings
    ledger: Ledger
    rooms: dict[int, str]
    slaves: list[SimulatedSlave] = field(default_factory=list)
    operator: dict[int, str] = field(default_factory=dict)
    alive: bool = False
    process: int = 0
    log: SimulatedLog = field(init=False)
    core: core_module.MasterCore = field(init=False)
    waiter: Waiter[tuple[int, int]] = field(init=False)
    table: list[PeerOffsets] = field(default_factory=list)
    connections: dict[int, Connection] = field(default_factory=dict)
    held: dict[int, handshake.Verdict] = field(default_factory=dict)
    answers: list[tuple[int, int]] = field(default_factory=list)
    require: events.Require = field(default_factory=lambda: events.Require(Requirement(), Requirement()))
    state: int = 0
    replicated: int = 0
    confirmed: int = 0
    flushing: bool = False
    highest_confirmed: int = 0

    def __post_init__(self) -> None:
        self.log = SimulatedLog(self.ledger, MASTER_BIT)

    @property
    def sync_flush(self) -> bool:
        return self.settings.flush_disk_type == "SYNC_FLUSH"

    @property
    def start_id(self) -> str:
        return f"master{self.process}"

    @property
    def range(self) -> LogRange:
        return LogRange(self.log.first * RECORD_BYTES, self.log.end * RECORD_BYTES)

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """A new process over the log as it is."""
        self.alive, self.process = True, self.process + 1
        self.core = core_module.MasterCore(self.settings)
        self.waiter = Waiter(
            WaitSettings(self.sync_flush, self.core.policy.waits, 5000, self.settings.slave_timeout_ms)
        )
        self.table = [PeerOffsets() for _ in range(PEERS_MAX)]
        self.connections, self.held = {}, {}
        self.state = self.replicated = 0
        self.confirmed = min(self.confirmed, self.range.append_offset)
        self.step(events.Tick())
        self._flush_soon()
        self._beat(self.process)

    def stop(self, silently: bool) -> None:
        """The process ends; `silently`: its host with it, no slave hears of it."""
        self.alive = False
        for connection in self.connections.values():
            if not silently:
                connection.down.send(("closed", "the master has gone"))
            connection.is_dead_here = True

    def _beat(self, process: int) -> None:
        if not self.alive or process != self.process:
            return
        for connection in self.connections.values():
            if connection.streaming and self.world.now_ms - connection.written_ms >= HEARTBEAT_MS:
                connection.send_down(("frame", self.table[connection.slot].sent_offset // RECORD_BYTES, []))
            if self.world.now_ms - connection.read_ms > self.settings.housekeeping_ms:
                self.world.after_ms(0, self.close, connection, "silent")
        self.look()
        self.world.after_ms(BEAT_MS, self._beat, process)

    # -- sends ---------------------------------------------------------------------------------------------------------

    def send(self, wait: bool) -> int | None:
        """A producer's message. Its tag when it was appended."""
        if not self.alive or waiter_module.refusal(self.waiter.waits, self.marks(), bool(self.held), wait) is not None:
            return None
        if self.held:
            self.ledger.problem(
                f"index {self.log.end} is given to a send, slaves {list(self.held)} have something there"
            )
        tag = self.ledger.new_tag(self.log.end)
        self.log.append([tag])
        if wait:
            self.waiter.park((tag, self.process), self.range.append_offset, self.world.now_ms)
        self._flush_soon()
        self.pump()
        self.settle()
        return tag

    def _flush_soon(self) -> None:
        """In groups: one flush is under way at a time."""
        if not self.flushing:
            self.flushing = True
            delay_ms = self.world.random.uniform(1, 8) if self.sync_flush else LAZY_FLUSH_MS
            self.world.after_ms(delay_ms, self._flush, self.process)

    def _flush(self, process: int) -> None:
        self.flushing = False
        if self.alive and process == self.process and self.log.flushed < self.log.end:
            self.log.flush()
            self.settle()

    def marks(self) -> Watermarks:
        return Watermarks(self.log.flushed * RECORD_BYTES, self.replicated, self.state)

    def settle(self) -> None:
        """What C does after a report: both watermarks, then the completer."""
        append = self.range.append_offset
        compute = watermark_module.watermark
        self.replicated = max(self.replicated, compute(self.require.answer, self.table, append))
        limit = compute(self.require.confirm, self.table, append)
        readable = min(limit, self.log.flushed * RECORD_BYTES) if self.sync_flush else limit
        if readable > self.confirmed:
            for tag in self.log.tags[max(self.confirmed // RECORD_BYTES, self.log.first) : readable // RECORD_BYTES]:
                self._check_held(tag, "readable", self.settings.min_in_sync_replicas)
            self.confirmed = readable
            self.highest_confirmed = max(self.highest_confirmed, readable)
        for (tag, _), code in self.waiter.step(self.marks(), self.world.now_ms):
            self.answers.append((tag, code))
            if code == 0:
                policy = self.core.policy
                self._check_held(tag, "acknowledged", policy.minimum if policy.auto else policy.need)

    def _check_held(self, tag: int, why: str, replicas: int) -> None:
        """The promise at the moment when it is made: so many brokers really have had the record at the level."""
        policy = self.core.policy
        held = self.ledger.flushed if policy.level == LEVEL_FLUSHED else self.ledger.cached
        slaves = held[tag] & ~MASTER_BIT
        if self.sync_flush and not self.ledger.flushed[tag] & MASTER_BIT:
            self.ledger.problem(f"record {tag} is {why} and not flushed by the master")
        if policy.waits and 1 + slaves.bit_count() < replicas:
            self.ledger.problem(f"record {tag} is {why}, {replicas} must have it, slaves that do: {slaves:b}")
        if policy.rooms and why == "acknowledged" and not policy.auto:
            rooms = {room for bit, room in self.rooms.items() if slaves & bit}
            if policy.own_room not in rooms or rooms == {policy.own_room}:
                self.ledger.problem(f"record {tag} is {why}, it is in the rooms {rooms} only")
        self.ledger.promised.setdefault(tag, why)

    # -- the core ------------------------------------------------------------------------------------------------------

    def step(self, event: events.Event) -> None:
        for effect in self.core.step(event, self.world.now_ms):
            self._perform(effect)

    def look(self) -> None:
        peers = tuple(
            events.PeerProgress(slot, self.table[slot].reported_offset, connection.silent_since_ms)
            for slot, connection in self.connections.items()
            if connection.streaming
        )
        self.step(events.Progress(peers, self.range))
        due_ms = self.core.due_ms()
        if due_ms is not None:
            self.world.at(max(due_ms * 1000, self.world.now_us + 1000), self._tick, self.process)
        self.settle()

    def _tick(self, process: int) -> None:
        if self.alive and process == self.process:
            self.step(events.Tick())
            self.settle()

    def _perform(self, effect: events.Effect) -> None:
        match effect:
            case events.Mark(peer=peer, level=level, counts=counts):
                self.table[peer].level, self.table[peer].counts = level, counts
            case events.Require():
                self.require = effect
            case events.State(replication_state=state):
                self.state = state
            case events.StartTransfer(peer=peer, offset=offset):
                self.table[peer].transfer, self.table[peer].sent_offset = True, offset
                self.connections[peer].streaming = True
                self._check_report(self.connections[peer], self.log.first, self.table[peer].reported_offset)
                self.pump()
            case events.Close(peer=peer, why=why):
                self.world.after_ms(0, self.close, self.connections[peer], why)
            case events.NotifyControl(news=core_module.LongerSlave()):
                self.ledger.problem("a slave with a verdict asks beyond the end")

    # -- connections ---------------------------------------------------------------------------------------------------

    def accept(self, connection: Connection) -> bool:
        """A slave connects; whether it reached a process."""
        free = [slot for slot in range(PEERS_MAX) if slot not in self.connections]
        if not self.alive or not free:
            return False
        connection.slot = self.world.random.choice(free)
        connection.read_ms = connection.written_ms = self.world.now_ms
        self.connections[connection.slot] = connection
        self.table[connection.slot] = PeerOffsets()
        self.step(events.Connected(connection.slot, connection.slave.host, connection.port))
        return True

    def close(self, connection: Connection, why: str) -> None:
        """End a connection from this side."""
        if connection.is_dead_here or self.connections.get(connection.slot) is not connection:
            return
        connection.down.send(("closed", why))
        self.gone(connection, why)

    def gone(self, connection: Connection, why: str) -> None:
        """It has ended, whoever did it."""
        connection.is_dead_here = True
        del self.connections[connection.slot]
        self.table[connection.slot] = PeerOffsets()
        self.step(events.Closed(connection.slot, why))
        self.settle()

    def pump(self) -> None:
        """Send to everybody while the window lasts, never across a file's end."""
        for slot, connection in self.connections.items():
            row = self.table[slot]
            sent, reported = row.sent_offset // RECORD_BYTES, row.reported_offset // RECORD_BYTES
            while connection.streaming and sent < self.log.end and sent - reported < WINDOW_RECORDS:
                count = min(self.world.random.randint(1, 6), FILE_RECORDS - sent % FILE_RECORDS)
                tags = self.log.tags[sent : sent + count]
                connection.send_down(("frame", sent, tags))
                sent += len(tags)
                connection.silent_since_ms = connection.silent_since_ms or self.world.now_ms
            row.sent_offset = max(row.sent_offset, sent * RECORD_BYTES)

    def report(self, connection: Connection, offset: int) -> None:
        """Eight bytes from a slave."""
        slot, row = connection.slot, self.table[connection.slot]
        connection.read_ms = self.world.now_ms
        if not connection.has_reported:
            connection.has_reported = True
            row.reported_offset = offset
            self.step(events.FirstReport(slot, offset, self.range))
        elif connection.streaming:
            if not row.reported_offset <= offset <= row.sent_offset:
                self.close(connection, f"reported {offset} of {row.reported_offset}..{row.sent_offset}")
                return
            self._check_report(connection, row.reported_offset // RECORD_BYTES, offset)
            if offset > row.reported_offset:
                connection.silent_since_ms = self.world.now_ms if offset < row.sent_offset else 0
            row.reported_offset = offset
            self.pump()
        self.settle()

    def _check_report(self, connection: Connection, first: int, offset: int) -> None:
        """Whatever is counted as replicated, the slave has had that very record at that very offset."""
        level = self.ledger.flushed if self.table[connection.slot].level == LEVEL_FLUSHED else self.ledger.cached
        for tag in self.log.tags[max(first, self.log.first) : offset // RECORD_BYTES]:
            if not level[tag] & connection.slave.log.bit:
                index = self.ledger.index_of[tag]
                self.ledger.problem(f"{connection.slave.host} has something else at {index} than record {tag}")
                return

    # -- control -------------------------------------------------------------------------------------------------------

    def decide(self, claim: PeerClaim, host: str) -> HandshakeAnswer:
        """Request 270002."""
        view = MasterView(
            self.settings.broker_cluster_name,
            self.settings.broker_name,
            self.start_id,
            self.range.min_offset,
            self.range.append_offset,
            self.settings.file_bytes,
            self.settings.divergence_rule,
            is_named=True,
            decided=self.operator,
        )
        verdict = handshake.decide(claim, view, self.log.checksum)
        if verdict.kind == handshake.HOLD:
            self.held[claim.broker_id] = verdict
            if verdict.adopt:
                self.world.after_ms(1, self._adopt, self.process, claim, verdict)
        elif verdict.kind not in (handshake.COMPARE, handshake.REFUSE):
            self.held.pop(claim.broker_id, None)
        if verdict.kind == handshake.ACCEPT:
            identity = Identity(host, claim.ha_port, claim.broker_id, claim.room, claim.report_level, claim.start_id)
            self.step(events.Identified(identity))
        return HandshakeAnswer(
            verdict.kind,
            verdict.offset,
            verdict.reason,
            self.start_id,
            view.min_offset,
            view.max_offset,
            self.confirmed,
        )

    def _adopt(self, process: int, claim: PeerClaim, verdict: handshake.Verdict) -> None:
        """Restart in place: fetch what the slave has beyond `offset`, and go on from there."""
        if not self.alive or process != self.process:
            return
        slave = next(slave for slave in self.slaves if slave.broker_id == claim.broker_id)
        first, last = verdict.offset // RECORD_BYTES, claim.max_offset // RECORD_BYTES
        self.operator.pop(claim.broker_id, None)
        self.stop(silently=False)
        if slave.alive and slave.log.first <= first and slave.log.end >= last:
            overlap = max(first - 8, self.log.first, slave.log.first)
            if self.log.tags[overlap:first] == slave.log.tags[overlap:first]:
                self.log.cut(first)
                self.log.append(slave.log.tags[first:last])
                self.log.flush()
        self.world.after_ms(RESTART_MS, self.start)
