"""The parts of the worker `pop` together: work that keeps it from its rest."""

from types import SimpleNamespace
from typing import Any

import pytest

from ringmq.ipc.tenure import AS_MASTER, Tenure, TenureState
from ringmq.native import ffi, lib
from ringmq.pop import service
from ringmq.pop.check_points import HandOverError
from ringmq.pop.service import PopService
from ringmq.pop.window_memory import WindowMemory
from tests.pop.window_pair import NativeWindows


def part(goes_on: bool, is_saved: bool = True, no_room: str = "", failure: str | None = None) -> Any:
    """A part whose turns have more to do, or not, and whose last snapshot is written, or not."""
    return SimpleNamespace(
        turn=lambda *now_ms: goes_on, has_worked=False, reported=0, failure=failure, is_done=True, no_room=no_room,
        finish=lambda *now_ms: is_saved, close=lambda *, rests=True: None, is_idle=not goes_on, waits=goes_on,
        run=lambda deadline_ms, is_ready: None, is_busy=goes_on, is_answered=True, lend=lambda is_free: None,
        has_port=False, wants_port=False, free=lambda: None, exports=True, needs_port=False,
        has_begun=False,
    )  # fmt: skip


def made(windows: Any, lines: list[str], saves: list[bool], **parts: Any) -> PopService:
    """A service of these parts, and of others without work. `saves`: whether the image has all, at its end."""
    tenure = parts.pop("tenure", AS_MASTER)
    plane: Any = SimpleNamespace(
        role=lambda role: SimpleNamespace(counters=[0] * 64), watermarks=SimpleNamespace(tenure=tenure.word)
    )
    parts_of = (
        "desk", "recovery", "revival", "drain", "changes", "offsets", "orders", "hand_over", "notice", "switch",
        "records", "snapshots", "gauges",
    )  # fmt: skip
    others = {name: part(False) for name in parts_of}
    return PopService(
        plane=plane, role=0, windows=windows, close_memory=saves.append, log_line=lines.append,
        **{**others, **parts},
    )  # fmt: skip


def test_a_broker_that_becomes_a_slave_hands_nothing_over() -> None:
    """It stores no more records, and its slaves have the open messages."""
    runs: list[bool] = []
    hand_over = part(False)
    hand_over.run = lambda deadline_ms, is_ready: runs.append(is_ready)
    for tenure in (AS_MASTER, Tenure(TenureState.YIELDING)):
        memory, saves = WindowMemory(4, 16), list[bool]()
        pages = ffi.gc(lib.rmq_pop_pages_open(memory.bytes, memory.layout, -1), lib.rmq_pop_pages_close)
        windows = lib.rmq_pop_windows_open(pages, memory.layout, 0, 0, ffi.new("uint64_t *"))
        made(windows, [], saves, hand_over=hand_over, tenure=tenure).close(rests=False)
        assert saves == [True]
    assert runs == [True], "the master alone"


@pytest.mark.parametrize(
    ("desk", "revival", "offsets", "goes_on", "has_worked"),
    [
        (False, False, False, False, False), (True, False, False, True, True), (False, True, False, True, True),
        (False, False, True, True, False),
    ],
)  # fmt: skip
def test_a_pass_over_consumer_offsets_is_no_work(
    desk: bool, revival: bool, offsets: bool, goes_on: bool, has_worked: bool
) -> None:
    """It comes each second. With more windows than a turn looks at, the worker would never rest."""
    windows = NativeWindows(WindowMemory(4, 16), 0, 0)
    worker = made(windows.native, [], [], desk=part(desk), revival=part(revival), offsets=part(offsets))
    assert (worker.turn(1000), worker.has_worked) == (goes_on, has_worked)


@pytest.mark.parametrize(
    ("no_room", "failure", "cause"),
    [
        ("journal: No space left", None, "journal: No space left"), ("", "it cannot be saved", "it cannot be saved"),
        ("", None, "no snapshot within 9000 ms"),
    ],
)  # fmt: skip
def test_a_stop_without_a_last_snapshot_is_logged(
    monkeypatch: pytest.MonkeyPatch, no_room: str, failure: str | None, cause: str
) -> None:
    memory = WindowMemory(4, 16)
    pages = ffi.gc(lib.rmq_pop_pages_open(memory.bytes, memory.layout, -1), lib.rmq_pop_pages_close)
    windows = lib.rmq_pop_windows_open(pages, memory.layout, 0, 0, ffi.new("uint64_t *"))  # the service closes them
    lines: list[str] = []
    saves: list[bool] = []
    monkeypatch.setattr(service, "monotonic_ms", lambda: 1000)
    made(windows, lines, saves, snapshots=part(False, False, no_room, failure)).close(rests=False)
    assert (lines, saves) == (
        [f"pop: {cause}; what came since the last snapshot stays in shared memory for the next start"], [False],
    )  # fmt: skip


@pytest.mark.parametrize(("hand_over_ms", "left_ms"), [(0, 9000), (6000, 3000), (20_000, 0)])
def test_the_last_snapshot_has_what_is_left_of_the_stop(
    monkeypatch: pytest.MonkeyPatch, hand_over_ms: int, left_ms: int
) -> None:
    """A sync of the log that takes long cannot be ended. The supervisor kills the worker after 10 s."""
    memory, now_ms, times = WindowMemory(4, 16), [1000], list[int]()

    def run(deadline_ms: int, *, is_ready: bool) -> None:
        now_ms[0] += hand_over_ms

    pages = ffi.gc(lib.rmq_pop_pages_open(memory.bytes, memory.layout, -1), lib.rmq_pop_pages_close)
    windows = lib.rmq_pop_windows_open(pages, memory.layout, 0, 0, ffi.new("uint64_t *"))
    monkeypatch.setattr(service, "monotonic_ms", lambda: now_ms[0])
    snapshots = part(False)
    snapshots.finish = lambda timeout_ms: not times.append(timeout_ms)
    made(windows, [], [], hand_over=SimpleNamespace(run=run), snapshots=snapshots).close(rests=False)
    assert times == [left_ms]


def test_records_that_wait_for_another_broker_keep_the_worker() -> None:
    """The stop has to acknowledge those that are done. A worker that rests takes no part in it."""
    windows = NativeWindows(WindowMemory(4, 16), 0, 0)
    assert made(windows.native, [], []).is_idle
    assert not made(windows.native, [], [], notice=part(True)).is_idle


@pytest.mark.parametrize(
    ("exports", "what"), [(True, "a RocketMQ broker that gets"), (False, "an older version refuses this store")]
)
def test_a_hand_over_that_fails_is_logged_and_the_memory_saved(exports: bool, what: str) -> None:
    def run(deadline_ms: int, *, is_ready: bool) -> None:
        raise HandOverError(f"write refuses a record, {is_ready}")

    memory = WindowMemory(4, 16)
    pages = ffi.gc(lib.rmq_pop_pages_open(memory.bytes, memory.layout, -1), lib.rmq_pop_pages_close)
    windows = lib.rmq_pop_windows_open(pages, memory.layout, 0, 0, ffi.new("uint64_t *"))
    lines: list[str] = []
    saves: list[bool] = []
    made(windows, lines, saves, hand_over=SimpleNamespace(run=run, exports=exports)).close(rests=False)
    assert saves == [True]
    assert len(lines) == 1 and "write refuses a record, True; " in lines[0] and what in lines[0]


@pytest.mark.parametrize("is_switching", [False, True])
def test_records_of_a_drain_come_when_nothing_else_is_with_write(is_switching: bool) -> None:
    """All have the same port: each would take the answers of the others."""
    windows, calls = NativeWindows(WindowMemory(4, 16), 0, 0), list[str]()
    drain, revival, switch = part(False), part(False), part(False)
    drain.needs_port, revival.is_answered, switch.is_busy = True, False, is_switching

    def run() -> bool:
        calls.append("run")
        drain.has_begun = True
        return True

    def copy(now_ms: int, is_held: bool) -> bool:
        assert is_held == (not switch.is_busy), "a copy would be submitted"
        calls.append("copies")
        return False

    drain.run, revival.turn = run, copy
    worker = made(windows.native, [], [], drain=drain, revival=revival, switch=switch)
    assert not worker.turn(1000)
    revival.is_answered = True
    assert worker.turn(1000) == (not is_switching)
    switch.is_busy = False
    assert worker.turn(1000) and worker.turn(1000)
    runs = ["copies", "run", "run"] if is_switching else ["run", "run", "run"]
    assert calls == ["copies", "copies", *runs], "its own records may be with write then"


def test_a_stop_reports_offsets_behind_acknowledgements_that_are_stored() -> None:
    calls = list[str]()
    parts = {name: part(False) for name in ("revival", "desk", "offsets")}
    for name, one in parts.items():
        one.finish = lambda *now_ms, name=name: not calls.append(name)
    memory = WindowMemory(4, 16)
    pages = ffi.gc(lib.rmq_pop_pages_open(memory.bytes, memory.layout, -1), lib.rmq_pop_pages_close)
    windows = lib.rmq_pop_windows_open(pages, memory.layout, 0, 0, ffi.new("uint64_t *"))
    made(windows, [], [], **parts).close(rests=False)
    assert calls == ["revival", "desk", "offsets"]


def test_a_stop_waits_for_records_of_a_drain() -> None:
    calls = list[str]()
    drain = part(False)
    drain.has_begun = True

    def run() -> bool:
        calls.append("run")
        drain.has_begun = len(calls) < 3
        return True

    drain.run = run
    memory = WindowMemory(4, 16)
    pages = ffi.gc(lib.rmq_pop_pages_open(memory.bytes, memory.layout, -1), lib.rmq_pop_pages_close)
    windows = lib.rmq_pop_windows_open(pages, memory.layout, 0, 0, ffi.new("uint64_t *"))

    def hand_over(deadline_ms: int, *, is_ready: bool) -> None:
        calls.append(f"hand over {is_ready}")

    made(windows, [], [], drain=drain, hand_over=SimpleNamespace(run=hand_over)).close(rests=False)
    assert calls == ["run", "run", "run", "hand over True"]
