"""The transition table of a slave's link, cell by cell and arrow by arrow."""

from typing import Any

import pytest

from ringmq.ha import handshake
from ringmq.ha.handshake import HandshakeAnswer
from ringmq.ha.settings import HaSettings
from ringmq.ha.slave_core import CONFIRM_PERIOD_MS, MASTER_UNKNOWN_MS, SlaveCore, State
from ringmq.ha.slave_events import (
    Answered,
    AskConfirm,
    Closed,
    Confirmed,
    ConfirmFailed,
    Connect,
    Connected,
    ConnectFailed,
    Disconnect,
    Event,
    Handshake,
    HandshakeFailed,
    Limit,
    Log,
    MasterIs,
    NotifyControl,
    NotSupported,
    Reject,
    RestartStore,
    Snapshot,
    StartTransfer,
    StoreFault,
    StoreRecovered,
    Stream,
    StreamStartsAt,
    Tick,
)
from ringmq.ipc.transitions import Kind
from tests.ha.slave_machine import SLAVE

IDLE, WAITING, CONNECTING, HANDSHAKE, ACCEPTED, TRANSFER, FAULTY, RESTARTING = State
HOST, FILE_BYTES, SOON_MS, LATE_MS = "10.0.0.1", 4096, 1, 60_000
MASTER, NOWHERE, UNNAMED = MasterIs("m:2", "m:1"), MasterIs("", ""), MasterIs("m:2", "")
EMPTY, LOG, UNFLUSHED = Snapshot(0, 0, 0), Snapshot(0, 100, 100), Snapshot(0, 100, 50)
CONNECTED, REFUSED = Connected(4000, HOST), ConnectFailed("refused")
TICK = Tick(LOG)


def answer(verdict: str, offset: int = 0) -> Answered:
    return Answered(HandshakeAnswer(verdict, offset, "so", "m1", 0, 0, 100), HOST)


def core_in(
    state: State, *, master: MasterIs = MASTER, log: Snapshot = LOG, tries: int = 0, **properties: str
) -> SlaveCore:  # fmt: skip
    """A core that events have brought into this state. `tries`: attempts that have failed at the connection."""
    found = {"haAllowedNetworks": HOST, "mappedFileSizeCommitLog": str(FILE_BYTES), **properties}
    core = SlaveCore(HaSettings.from_properties(found), log)
    to_connecting: list[Event] = [master, *[event for _ in range(tries) for event in (REFUSED, Tick(log))]]
    steps: dict[State, list[Event]] = {
        IDLE: [NOWHERE],
        WAITING: [master, *([REFUSED] * (2 - tries))],
        CONNECTING: to_connecting,
        HANDSHAKE: [*to_connecting, CONNECTED],
        ACCEPTED: [*to_connecting, CONNECTED, answer(handshake.ACCEPT)],
        TRANSFER: [*to_connecting, CONNECTED, *([answer(handshake.ACCEPT)] if master.broker else []), Stream(1)],
        FAULTY: [master, StoreFault("full")],
        RESTARTING: [*to_connecting, CONNECTED, answer(handshake.CUT, 50)],
    }  # fmt: skip
    for event in steps[state]:
        core.step(event, 0)
        if event is UNNAMED:
            core.step(Tick(log), MASTER_UNKNOWN_MS)
    assert core.state is state
    return core


CASES: list[tuple[State, Event, list[type], State, int, dict[str, Any]]] = [
    # state, event, effects but for log lines, then, after ms, given
    (IDLE, MASTER, [Connect], CONNECTING, SOON_MS, {}),
    (IDLE, NOWHERE, [], IDLE, SOON_MS, {}),
    (IDLE, UNNAMED, [], WAITING, SOON_MS, {"namesrvAddr": "n:9876"}),
    (IDLE, TICK, [], IDLE, SOON_MS, {}),
    (IDLE, TICK, [Limit], IDLE, LATE_MS, {}),
    (IDLE, StoreFault("full"), [], FAULTY, SOON_MS, {}),
    (WAITING, NOWHERE, [], IDLE, SOON_MS, {}),
    (WAITING, MASTER, [Connect], CONNECTING, SOON_MS, {}),
    (WAITING, UNNAMED, [], WAITING, SOON_MS, {}),
    (WAITING, MasterIs("n:2", "n:1"), [Connect], CONNECTING, SOON_MS, {}),
    (WAITING, TICK, [], WAITING, SOON_MS, {}),
    (WAITING, TICK, [Limit, Connect], CONNECTING, LATE_MS, {}),
    (WAITING, Tick(UNFLUSHED), [Limit], WAITING, LATE_MS, {"flushDiskType": "SYNC_FLUSH"}),
    (WAITING, StoreFault("full"), [], FAULTY, SOON_MS, {}),
    (CONNECTING, NOWHERE, [Disconnect], IDLE, SOON_MS, {}),
    (CONNECTING, MASTER, [], CONNECTING, SOON_MS, {"master": UNNAMED}),
    (CONNECTING, MasterIs("n:2", "n:1"), [Disconnect, Connect], CONNECTING, SOON_MS, {}),
    (CONNECTING, MasterIs("n:2", ""), [Disconnect], WAITING, SOON_MS, {"namesrvAddr": "n:9876"}),
    (CONNECTING, TICK, [], CONNECTING, SOON_MS, {}),
    (CONNECTING, TICK, [Disconnect, Connect], CONNECTING, LATE_MS, {}),
    (CONNECTING, TICK, [Limit, Disconnect], WAITING, LATE_MS, {"tries": 1}),
    (CONNECTING, CONNECTED, [Handshake], HANDSHAKE, SOON_MS, {}),
    (CONNECTING, CONNECTED, [NotifyControl], ACCEPTED, SOON_MS, {"master": UNNAMED}),
    (
        CONNECTING, CONNECTED, [Disconnect, NotifyControl], WAITING, LATE_MS,
        {"master": UNNAMED, "namesrvAddr": "n:9876"},
    ),
    (CONNECTING, REFUSED, [Connect], CONNECTING, SOON_MS, {}),
    (CONNECTING, REFUSED, [], WAITING, SOON_MS, {"tries": 1}),
    (CONNECTING, StoreFault("full"), [Disconnect], FAULTY, SOON_MS, {}),
    (HANDSHAKE, NOWHERE, [Disconnect], IDLE, SOON_MS, {}),
    (HANDSHAKE, MasterIs("m:2", ""), [], HANDSHAKE, SOON_MS, {}),
    (HANDSHAKE, MasterIs("n:2", "n:1"), [Disconnect, Connect], CONNECTING, SOON_MS, {}),
    (HANDSHAKE, MasterIs("n:2", ""), [Disconnect], WAITING, SOON_MS, {"namesrvAddr": "n:9876"}),
    (HANDSHAKE, TICK, [], HANDSHAKE, SOON_MS, {}),
    (HANDSHAKE, TICK, [Disconnect, Connect], CONNECTING, LATE_MS, {}),
    (HANDSHAKE, TICK, [Disconnect, Limit], WAITING, LATE_MS, {"tries": 1}),
    (HANDSHAKE, answer(handshake.COMPARE, 50), [Handshake], HANDSHAKE, SOON_MS, {}),
    (HANDSHAKE, answer(handshake.ACCEPT), [NotifyControl], ACCEPTED, SOON_MS, {}),
    (HANDSHAKE, answer(handshake.START_AT, FILE_BYTES), [Disconnect, RestartStore], RESTARTING, SOON_MS, {}),
    (HANDSHAKE, answer(handshake.CUT, 50), [Disconnect, RestartStore], RESTARTING, SOON_MS, {}),
    (HANDSHAKE, answer(handshake.CUT, 101), [Disconnect], WAITING, SOON_MS, {}),
    (HANDSHAKE, answer(handshake.CUT, 50), [Disconnect, NotifyControl], WAITING, SOON_MS, {"haAllowedNetworks": ""}),
    (HANDSHAKE, answer(handshake.HOLD, 50), [Disconnect, Limit, NotifyControl], WAITING, SOON_MS, {}),
    (HANDSHAKE, answer(handshake.REFUSE), [Disconnect], WAITING, SOON_MS, {}),
    (HANDSHAKE, NotSupported(), [NotifyControl], ACCEPTED, SOON_MS, {}),
    (HANDSHAKE, HandshakeFailed("no"), [Disconnect, Connect], CONNECTING, SOON_MS, {}),
    (HANDSHAKE, HandshakeFailed("no"), [Disconnect], WAITING, SOON_MS, {"tries": 1}),
    (HANDSHAKE, Closed("reset"), [Connect], CONNECTING, SOON_MS, {}),
    (HANDSHAKE, Closed("reset"), [], WAITING, SOON_MS, {"tries": 1}),
    (HANDSHAKE, StoreFault("full"), [Disconnect], FAULTY, SOON_MS, {}),
    (ACCEPTED, NOWHERE, [Disconnect], IDLE, SOON_MS, {}),
    (ACCEPTED, MasterIs("m:2", ""), [], ACCEPTED, SOON_MS, {}),
    (ACCEPTED, MasterIs("n:2", "n:1"), [Disconnect, Connect], CONNECTING, SOON_MS, {}),
    (ACCEPTED, MasterIs("n:2", ""), [Disconnect], WAITING, SOON_MS, {"namesrvAddr": "n:9876"}),
    (ACCEPTED, TICK, [], ACCEPTED, SOON_MS, {}),
    (ACCEPTED, TICK, [Disconnect, Connect], CONNECTING, LATE_MS, {}),
    (ACCEPTED, TICK, [Disconnect], WAITING, LATE_MS, {"tries": 1}),
    (ACCEPTED, Stream(1), [Limit, StartTransfer, NotifyControl], TRANSFER, SOON_MS, {}),
    (ACCEPTED, Stream(0), [], ACCEPTED, SOON_MS, {}),
    (ACCEPTED, Reject(1, "old"), [Disconnect, NotifyControl], WAITING, SOON_MS, {}),
    (ACCEPTED, Reject(0, "old"), [], ACCEPTED, SOON_MS, {}),
    (ACCEPTED, StoreFault("full"), [Disconnect], FAULTY, SOON_MS, {}),
    (TRANSFER, NOWHERE, [Disconnect, NotifyControl], IDLE, SOON_MS, {}),
    (TRANSFER, UNNAMED, [], TRANSFER, SOON_MS, {}),
    (TRANSFER, MASTER, [Disconnect, NotifyControl, Connect], CONNECTING, SOON_MS, {"master": UNNAMED}),
    (TRANSFER, MasterIs("n:2", ""), [Disconnect, NotifyControl], WAITING, SOON_MS, {"namesrvAddr": "n:9876"}),
    (TRANSFER, TICK, [], TRANSFER, SOON_MS, {}),
    (TRANSFER, TICK, [AskConfirm], TRANSFER, CONFIRM_PERIOD_MS, {}),
    (TRANSFER, TICK, [Disconnect, NotifyControl, Connect], CONNECTING, LATE_MS, {}),
    (TRANSFER, TICK, [Disconnect, NotifyControl], WAITING, LATE_MS, {"tries": 1}),
    (TRANSFER, StreamStartsAt(99), [Disconnect, NotifyControl, Connect], CONNECTING, SOON_MS, {}),
    (TRANSFER, StreamStartsAt(FILE_BYTES), [Disconnect, NotifyControl], WAITING, SOON_MS, {"tries": 1}),
    (TRANSFER, StreamStartsAt(FILE_BYTES), [Disconnect, RestartStore], RESTARTING, SOON_MS, {"log": EMPTY}),
    (TRANSFER, Closed("reset"), [NotifyControl, Connect], CONNECTING, SOON_MS, {}),
    (TRANSFER, Closed("reset"), [NotifyControl], WAITING, SOON_MS, {"tries": 1}),
    (TRANSFER, Confirmed(150, "m1"), [Limit], TRANSFER, SOON_MS, {}),
    (TRANSFER, Confirmed(150, "m2"), [Disconnect, NotifyControl, Connect], CONNECTING, SOON_MS, {}),
    (TRANSFER, Confirmed(150, "m2"), [Disconnect, NotifyControl], WAITING, SOON_MS, {"tries": 1}),
    (TRANSFER, ConfirmFailed("no"), [], TRANSFER, SOON_MS, {}),
    (TRANSFER, StoreFault("full"), [Disconnect, NotifyControl], FAULTY, SOON_MS, {}),
    (FAULTY, MasterIs("n:2", "n:1"), [], FAULTY, SOON_MS, {}),
    (FAULTY, TICK, [], FAULTY, LATE_MS, {}),
    (FAULTY, StoreFault("read-only"), [], FAULTY, SOON_MS, {}),
    (FAULTY, StoreRecovered(), [], IDLE, SOON_MS, {"master": NOWHERE}),
    (FAULTY, StoreRecovered(), [Connect], CONNECTING, SOON_MS, {}),
    (FAULTY, StoreRecovered(), [], WAITING, SOON_MS, {"log": UNFLUSHED, "flushDiskType": "SYNC_FLUSH"}),
]  # fmt: skip
SAMPLES: list[Event] = [
    MASTER, TICK, CONNECTED, REFUSED, answer(handshake.ACCEPT), NotSupported(), HandshakeFailed("no"), Closed("reset"),
    StreamStartsAt(FILE_BYTES), Confirmed(150, "m1"), ConfirmFailed("no"), StoreFault("full"), StoreRecovered(),
    Stream(1), Reject(1, "old"),
]  # fmt: skip


@pytest.mark.parametrize(("state", "event", "effects", "then", "after_ms", "given"), CASES)
def test_a_cell(
    state: State, event: Event, effects: list[type], then: State, after_ms: int, given: dict[str, Any]
) -> None:  # fmt: skip
    core = core_in(state, **given)
    happened = [type(effect) for effect in core.step(event, after_ms) if not isinstance(effect, Log)]
    assert (happened, core.state) == (effects, then)


@pytest.mark.parametrize(("state", "event"), SLAVE.cells(Kind.IGNORED))
def test_an_ignored_event_changes_nothing(state: State, event: type[Event]) -> None:
    core, untouched = core_in(state), core_in(state)
    sample = next(sample for sample in SAMPLES if type(sample) is event)
    assert core.step(sample, SOON_MS) == []
    assert core == untouched


def test_the_cases_are_all_cells_and_all_arrows() -> None:
    SLAVE.check_walked((state, type(event), then) for state, event, _, then, _, _ in CASES)
    assert not SLAVE.cells(Kind.IMPOSSIBLE)
