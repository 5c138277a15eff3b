"""A slave for scenario files: its core alone, with a snapshot that the story sets."""

import logging

from msgspec.structs import replace

from ringmq.ha import slave_events as events
from ringmq.ha.control_messages import AcceptedNews
from ringmq.ha.handshake import HandshakeAnswer
from ringmq.ha.settings import HaSettings
from ringmq.ha.slave_core import SlaveCore
from tests.scenario import Phrases, Scenario

MASTER_HOST = "10.0.0.1"
phrase = Phrases()


class SlaveStage:
    """Ticks carry the snapshot as the story has it."""

    def __init__(self, scenario: Scenario) -> None:
        self.snapshot = events.Snapshot(0, 0, 0)
        self.core = SlaveCore(HaSettings.from_properties(scenario.properties), self.snapshot)
        self.has_control = True
        """Control lets the slave follow each master, within the step that asks for it."""

    def play(self, event: str, now_ms: int) -> list[str]:
        return phrase.perform(self, event, now_ms)

    def step(self, event: events.Event, now_ms: int) -> list[str]:
        said = []
        for effect in self.core.step(event, now_ms):
            match effect:
                case events.NotifyControl(news=AcceptedNews(attempt=attempt)) if self.has_control:
                    said += self.step(events.Stream(attempt), now_ms)
                case _:
                    said.append(self.said(effect))
        return said

    @staticmethod
    def said(effect: events.Effect) -> str:
        match effect:
            case events.Connect(address=address):
                return f"connect to {address}"
            case events.Handshake(address=address, local_port=port, windows_end=end):
                return f"ask {address} for a verdict, port {port}" + (f", with windows below {end}" if end else "")
            case events.StartTransfer():
                return "report the log's end and take the stream"
            case events.Disconnect(why=why):
                return f"disconnect: {why}"
            case events.AskConfirm(address=address):
                return f"ask {address} for its confirm offset"
            case events.Limit(offset=offset):
                return "readable: everything" if offset == events.NO_LIMIT else f"readable up to {offset}"
            case events.RestartStore(order=order):
                return f"restart the store: {order.action} at {order.offset}"
            case events.NotifyControl(news=news):
                return f"tell control: {news}"
            case events.Log(text=text, level=level):
                return f"log: {text}" if level == logging.INFO else f"log {logging.getLevelName(level).lower()}: {text}"


@phrase(r"tick")
def _tick(stage: SlaveStage, now_ms: int) -> list[str]:
    return stage.step(events.Tick(stage.snapshot), now_ms)


@phrase(r"the log is (?P<low>\d+)\.\.(?P<end>\d+)(, flushed (?P<flushed>\d+))?")
def _log(stage: SlaveStage, now_ms: int, low: int, end: int, flushed: int | None = None) -> list[str]:
    disk = end if flushed is None else flushed
    stage.snapshot = replace(stage.snapshot, min_offset=low, append_offset=end, flushed_offset=disk)
    return _tick(stage, now_ms)


@phrase(r"(?P<count>\d+) bytes have come")
def _came(stage: SlaveStage, now_ms: int, count: int) -> list[str]:
    stage.snapshot = replace(stage.snapshot, received_bytes=count, last_read_ms=now_ms)
    return _tick(stage, now_ms)


@phrase(r"the master is (?P<ha>\S+)( with broker (?P<broker>\S+))?")
def _master_is(stage: SlaveStage, now_ms: int, ha: str, broker: str = "") -> list[str]:
    return stage.step(events.MasterIs("" if ha == "nowhere" else ha, broker), now_ms)


@phrase(r"connected, port (?P<port>\d+)( to (?P<host>\S+))?")
def _connected(stage: SlaveStage, now_ms: int, port: int, host: str = MASTER_HOST) -> list[str]:
    return stage.step(events.Connected(port, host), now_ms)


@phrase(r"not connected: (?P<why>.+)")
def _connect_failed(stage: SlaveStage, now_ms: int, why: str) -> list[str]:
    return stage.step(events.ConnectFailed(why), now_ms)


@phrase(
    r"the master (?P<start_id>\w+)( at (?P<host>[\d.]+))? says (?P<verdict>\w+)( at (?P<offset>\d+))?"
    r"(, confirmed (?P<confirm>\d+))?"
)
def _answered(
    stage: SlaveStage,
    now_ms: int,
    start_id: str,
    verdict: str,
    offset: int = 0,
    confirm: int = 0,
    host: str = MASTER_HOST,
) -> list[str]:
    answer = HandshakeAnswer(verdict, offset, "its reason", start_id, 0, 0, confirm)
    return stage.step(events.Answered(answer, host), now_ms)


@phrase(r"the master does not know the code")
def _not_supported(stage: SlaveStage, now_ms: int) -> list[str]:
    return stage.step(events.NotSupported(), now_ms)


@phrase(r"no verdict: (?P<why>.+)")
def _handshake_failed(stage: SlaveStage, now_ms: int, why: str) -> list[str]:
    return stage.step(events.HandshakeFailed(why), now_ms)


@phrase(r"the stream starts at (?P<offset>\d+)")
def _stream_starts_at(stage: SlaveStage, now_ms: int, offset: int) -> list[str]:
    return stage.step(events.StreamStartsAt(offset), now_ms)


@phrase(r"control is away")
def _no_control(stage: SlaveStage, now_ms: int) -> list[str]:
    stage.has_control = False
    return []


@phrase(r"control agrees to attempt (?P<attempt>\d+)")
def _stream(stage: SlaveStage, now_ms: int, attempt: int) -> list[str]:
    return stage.step(events.Stream(attempt), now_ms)


@phrase(r"control rejects attempt (?P<attempt>\d+): (?P<why>.+)")
def _reject(stage: SlaveStage, now_ms: int, attempt: int, why: str) -> list[str]:
    return stage.step(events.Reject(attempt, why), now_ms)


@phrase(r"closed: (?P<why>.+)")
def _closed(stage: SlaveStage, now_ms: int, why: str) -> list[str]:
    return stage.step(events.Closed(why), now_ms)


@phrase(r"confirmed (?P<offset>\d+) by (?P<start_id>\w+)")
def _confirmed(stage: SlaveStage, now_ms: int, offset: int, start_id: str) -> list[str]:
    return stage.step(events.Confirmed(offset, start_id), now_ms)


@phrase(r"the store is full")
def _store_fault(stage: SlaveStage, now_ms: int) -> list[str]:
    return stage.step(events.StoreFault("the disk is full"), now_ms)


@phrase(r"the store is sound")
def _store_sound(stage: SlaveStage, now_ms: int) -> list[str]:
    return stage.step(events.StoreRecovered(), now_ms)
