"""A master for scenario files: its core, the table of peers, the watermark over it and the waiter."""

import logging
import re

from ringmq.ha import master_events as events
from ringmq.ha.control_messages import Identity
from ringmq.ha.log_range import LogRange
from ringmq.ha.master_core import MasterCore
from ringmq.ha.replica_watermark import LEVELS, PEERS_MAX, PeerOffsets, Requirement, watermark
from ringmq.ha.settings import HaSettings
from ringmq.ha.waiter import Waiter, WaitSettings, Watermarks, refusal
from tests.scenario import Phrases, Scenario

LEVEL_WORDS = {number: word for word, number in LEVELS.items()}
STATE_WORDS = {0: "OK", 11: "LOST", 12: "STALLED"}
RECORD_BYTES = 100
phrase = Phrases()


class MasterStage:
    """Sends are records of 100 bytes; what is appended is flushed unless `flush` is told to fail to."""

    def __init__(self, scenario: Scenario) -> None:
        settings = HaSettings.from_properties(scenario.properties)
        self.core = MasterCore(settings)
        sync_flush = settings.flush_disk_type == "SYNC_FLUSH"
        self.waits = WaitSettings(sync_flush, self.core.policy.waits, slave_timeout_ms=settings.slave_timeout_ms)
        self.waiter: Waiter[str] = Waiter(self.waits)
        self.peers = [PeerOffsets()] * PEERS_MAX
        self.silent_since_ms = [0] * PEERS_MAX
        self.log = LogRange(0, 0)
        self.flushed: int | None = None
        self.replicated = self.confirmed = 0
        self.state = 0
        self.require = events.Require(Requirement(), Requirement())
        self.moved = False

    def play(self, event: str, now_ms: int) -> list[str]:
        told = phrase.perform(self, event, now_ms)
        confirmed = max(self.confirmed, watermark(self.require.confirm, self.peers, self.log.append_offset))
        self.replicated = max(self.replicated, watermark(self.require.answer, self.peers, self.log.append_offset))
        if confirmed != self.confirmed:
            self.confirmed = confirmed
            told.append(f"readable up to {confirmed}")
        return told + [f"{name} is answered {code}" for name, code in self.waiter.step(self.marks(), now_ms)]

    def marks(self) -> Watermarks:
        flushed = self.log.append_offset if self.flushed is None else self.flushed
        return Watermarks(flushed, self.replicated, self.state)

    def step(self, event: events.Event, now_ms: int) -> list[str]:
        return [self.perform(effect) for effect in self.core.step(event, now_ms)]

    def perform(self, effect: events.Effect) -> str:
        match effect:
            case events.Mark(peer=peer, broker_id=broker_id, level=level, room=room, counts=counts, in_sync=in_sync):
                self.change(peer, level=level, counts=counts)
                who = f"broker {broker_id}" if broker_id >= 0 else "stock"
                flags = [word for word, is_set in (("counts", counts), ("in sync", in_sync)) if is_set]
                rooms = [f"room {room}"] if room else []
                return ", ".join([f"slave {peer} is {who}", LEVEL_WORDS[level], *rooms, *flags])
            case events.Require(answer=answer, confirm=confirm):
                self.require = effect
                return f"answers need {said(answer)}; readers need {said(confirm)}"
            case events.State(replication_state=state, in_sync_replicas=count):
                self.state = state
                return f"state {STATE_WORDS[state]}, {count} in sync"
            case events.StartTransfer(peer=peer, offset=offset):
                self.change(peer, transfer=True)
                return f"slave {peer} gets the log from {offset} on"
            case events.Close(peer=peer, why=why):
                return f"close slave {peer}: {why}"
            case events.NotifyControl(news=news):
                return f"tell control {type(news).__name__}"
            case events.Log(text=text, level=level):
                return f"log: {text}" if level == logging.INFO else f"log {logging.getLevelName(level).lower()}: {text}"
            case events.Count(name=name):
                return f"count {name}"

    def change(self, peer: int, **fields: object) -> None:
        old = self.peers[peer]
        values = {name: fields.get(name, getattr(old, name)) for name in PeerOffsets.__struct_fields__}
        self.peers[peer] = PeerOffsets(**values)  # type: ignore[arg-type]


def said(requirement: Requirement) -> str:
    """2 of {0,1,2} at cached; several conditions are joined by `and`."""
    parts = []
    for part in requirement.conditions:
        places = ",".join(str(slot) for slot in range(PEERS_MAX) if part.peers >> slot & 1)
        parts.append(f"{part.count} of {{{places}}} at {LEVEL_WORDS[part.level]}")
    return " and ".join(parts) or "no slave"


@phrase(r"tick")
def _tick(stage: MasterStage, now_ms: int) -> list[str]:
    return stage.step(events.Tick(), now_ms)


@phrase(r"the log is (?P<low>\d+)\.\.(?P<end>\d+)")
def _log(stage: MasterStage, now_ms: int, low: int, end: int) -> list[str]:
    stage.log = LogRange(low, end)
    return []


@phrase(r"the disk has (?P<offset>\d+)")
def _flushed(stage: MasterStage, now_ms: int, offset: int) -> list[str]:
    stage.flushed = offset
    return []


@phrase(r"slave (?P<peer>\d+) connects from (?P<host>\S+):(?P<port>\d+)")
def _connects(stage: MasterStage, now_ms: int, peer: int, host: str, port: int) -> list[str]:
    stage.peers[peer], stage.silent_since_ms[peer] = PeerOffsets(), 0
    return stage.step(events.Connected(peer, host, port), now_ms)


@phrase(
    r"(?P<host>\S+):(?P<port>\d+) is broker (?P<broker_id>\d+)(?P<flushed>, flushed)?(, room (?P<room>\w+))?"
    r"(, process (?P<process>\w+))?"
)
def _identified(
    stage: MasterStage,
    now_ms: int,
    host: str,
    port: int,
    broker_id: int,
    flushed: str = "",
    room: str = "",
    process: object = "",
) -> list[str]:
    level = "flushed" if flushed else "cached"
    identity = Identity(host, port, broker_id, room, level, str(process) or f"p{broker_id}")
    return stage.step(events.Identified(identity), now_ms)


@phrase(r"slave (?P<peer>\d+) asks for (?P<offset>\d+)")
def _asks(stage: MasterStage, now_ms: int, peer: int, offset: int) -> list[str]:
    stage.change(peer, sent_offset=offset, reported_offset=min(offset, stage.log.append_offset))
    return stage.step(events.FirstReport(peer, offset, stage.log), now_ms)


@phrase(r"slave (?P<peer>\d+) has reported (?P<reported>\d+)( of (?P<sent>\d+))?")
def _reported(stage: MasterStage, now_ms: int, peer: int, reported: int, sent: int | None = None) -> list[str]:
    sent = stage.log.append_offset if sent is None else sent
    stage.change(peer, reported_offset=reported, sent_offset=sent)
    stage.silent_since_ms[peer] = now_ms if sent > reported else 0
    return _poll(stage, now_ms)


@phrase(r"everything is sent")
def _poll(stage: MasterStage, now_ms: int) -> list[str]:
    streaming = [slot for slot in range(PEERS_MAX) if stage.peers[slot].transfer]
    for slot in streaming:
        if stage.log.append_offset > stage.peers[slot].sent_offset and not stage.silent_since_ms[slot]:
            stage.silent_since_ms[slot] = now_ms
        stage.change(slot, sent_offset=max(stage.peers[slot].sent_offset, stage.log.append_offset))
    peers = tuple(
        events.PeerProgress(slot, stage.peers[slot].reported_offset, stage.silent_since_ms[slot]) for slot in streaming
    )
    return stage.step(events.Progress(peers, stage.log), now_ms)


@phrase(r"slave (?P<peer>\d+) is gone: (?P<why>.+)")
def _gone(stage: MasterStage, now_ms: int, peer: int, why: str) -> list[str]:
    stage.peers[peer] = PeerOffsets()
    return stage.step(events.Closed(peer, why), now_ms)


@phrase(r"send (?P<name>\w+)(?P<no_wait>, WAIT=false)?")
def _send(stage: MasterStage, now_ms: int, name: str, no_wait: str = "") -> list[str]:
    code = refusal(stage.waits, stage.marks(), held=False, wait=not no_wait)
    if code is not None:
        return [f"{name} is refused {code}"]
    stage.log = LogRange(stage.log.min_offset, stage.log.append_offset + RECORD_BYTES)
    if no_wait:
        return [f"{name} is answered 0"]
    stage.waiter.park(name, stage.log.append_offset, now_ms)
    return []


@phrase(r"send (?P<names>\w+( \w+)+)")
def _sends(stage: MasterStage, now_ms: int, names: str) -> list[str]:
    return [line for name in re.findall(r"\w+", names) for line in _send(stage, now_ms, name)]
