"""What a start of the worker decides before the store is open, and what ends its loop."""

from array import array
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.ipc.exit_status import EXIT_CLEAN, EXIT_RESTED
from ringmq.ipc.role_loop import RoleError
from ringmq.ipc.tenure import AS_MASTER, Tenure, TenureState
from ringmq.ipc.worker import STATE_SERVING
from ringmq.native import ffi
from ringmq.services.kit.loop import Part
from ringmq.store.queue_reader import DeletedError, NotConfirmedError, NotMappedError, QueueReadError
from ringmq.timer import worker
from ringmq.timer.progress import Saved
from ringmq.timer.recovery import open_files
from ringmq.timer.timer_files import TimerFiles
from tests.timer.test_timer_files import PAGES, filled, finish

FINE = replace(BrokerConfig(), timer_precision_ms=100)


@pytest.mark.parametrize(
    ("config", "saved", "oldest", "own_from", "expected_ms"),
    [
        (FINE, Saved(), 500, 500, 100),
        (FINE, Saved(), 499, 500, 1000),
        (FINE, Saved(), None, 500, 1000),
        (FINE, Saved(coarsest_ms=200), 499, 500, 200),
        (FINE, Saved(), 500, None, 1000),
        (BrokerConfig(), Saved(coarsest_ms=100), 499, 500, 1000),
    ],
)
def test_records_of_this_broker_alone_have_its_precision(
    config: BrokerConfig, saved: Saved, oldest: int | None, own_from: int | None, expected_ms: int
) -> None:
    """The log ended at 500 when it started. Else a rolled delay would come up to 1 s late."""
    assert worker.coarsest_ms(config, saved, oldest, own_from) == expected_ms


def test_a_long_start_shows_its_progress() -> None:
    """The supervisor kills a worker whose start shows none for a minute. A start may read hours of log."""
    block, stop, seen = SimpleNamespace(progress=0), SimpleNamespace(is_set=False), []

    def steps() -> Iterator[None]:
        for _ in range(3):
            seen.append(block.progress)
            stop.is_set = len(seen) == 3
            yield

    assert worker.in_turns(steps(), stop, block) is None  # type: ignore[arg-type]
    assert seen[0] == 1


def run(monkeypatch: pytest.MonkeyPatch, config: BrokerConfig, opened: Any) -> SimpleNamespace:
    """Serve with parts that do nothing. Returns the role's block as it was when the store was opened."""
    block, found = SimpleNamespace(progress=0, state=0), SimpleNamespace()

    def open_store(*_: Any) -> Any:
        found.state = block.state
        return opened

    monkeypatch.setattr(worker, "ConfigWatcher", lambda _: lambda: config)
    monkeypatch.setattr(worker, "open_store", open_store)
    monkeypatch.setattr(worker, "make_delivery", lambda *_: Part())
    marks = SimpleNamespace(tenure=AS_MASTER.word)
    plane, spec = SimpleNamespace(role=lambda _: block, watermarks=marks), SimpleNamespace(role=0, config_path="")
    worker.serve(spec, plane, SimpleNamespace(is_set=False))  # type: ignore[arg-type]
    return found


def test_the_supervisor_looks_at_the_progress_of_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, BrokerConfig(), None).state == STATE_SERVING


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (TenureState.MASTER, TenureState.YIELDING),
        (TenureState.SLAVE, TenureState.MASTER),
        (TenureState.MASTER, None),
    ],
)
def test_a_start_ends_when_the_broker_changes_its_side(
    monkeypatch: pytest.MonkeyPatch, before: TenureState, after: TenureState | None
) -> None:
    """`write` may wait for the end of each owner of a port, so this start must not wait for `write`. None: a stop."""
    marks, dormant = SimpleNamespace(tenure=Tenure(before).word), list[int]()
    stop, block = SimpleNamespace(is_set=False), SimpleNamespace(progress=0, state=0)

    def open_store(plane: Any, role: int, config: Any, starting: Any) -> None:
        assert not starting.is_set
        stop.is_set, marks.tenure = after is None, Tenure(after or before).word
        assert starting.is_set

    monkeypatch.setattr(worker, "ConfigWatcher", lambda _: lambda: BrokerConfig())
    monkeypatch.setattr(worker, "open_store", open_store)
    plane: Any = SimpleNamespace(role=lambda _: block, watermarks=marks, deactivate=dormant.append)
    spec: Any = SimpleNamespace(role=7, config_path="")
    assert worker.serve(spec, plane, stop) == (EXIT_RESTED if after else EXIT_CLEAN)  # type: ignore[arg-type]
    assert dormant == ([7] if after else [])


def test_a_shorter_time_of_retention_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one files again what would wait for longer than its record is kept."""
    shorter = replace(BrokerConfig(), file_reserved_time=24)
    struct = SimpleNamespace(window_slots=worker.roll_slots(BrokerConfig()))
    opened = SimpleNamespace(files=SimpleNamespace(struct=struct), config=lambda: shorter, follows=False)
    with pytest.raises(RoleError, match="fileReservedTime is shorter now"):
        run(monkeypatch, shorter, opened)


def test_copies_that_the_timer_topic_does_not_have_yet_tell_what_was_rolled() -> None:
    """A kill comes between a rolled copy and its dispatch. A rebuild would roll the message again."""
    opened: Any = SimpleNamespace(queue=SimpleNamespace(queue_slot=0), role=0)
    slots: Any = SimpleNamespace(work=SimpleNamespace(index=SimpleNamespace(secret=None)))
    recovered: Any = SimpleNamespace(progress=SimpleNamespace(queue_offset=5), queue_end=5)
    reader: Any = None  # all records of the timer topic have units
    sources, end = finish(worker.find_rolled(opened, slots, reader, recovered, array("Q", [7, 3])))
    assert (list(sources), end) == ([3, 7], 5)


def test_a_start_waits_until_the_copies_are_confirmed() -> None:
    """A kill comes while a replica is late. What a start does not see of the timer topic, it would roll again."""
    waits = list[tuple[int, int]]()
    left: list[QueueReadError] = [NotConfirmedError("late"), NotMappedError("no memory"), DeletedError("", 6)]

    def hold(batch: Any, slot: int, offset: int) -> int:
        if left:
            raise left.pop(0)
        assert offset == 6
        batch.count, batch.next_offset = 0, 9
        return 0

    plane = SimpleNamespace(wait=lambda role, wait_ms: waits.append((role, wait_ms)))
    opened: Any = SimpleNamespace(queue=SimpleNamespace(queue_slot=0), role=4, plane=plane)
    slots: Any = SimpleNamespace(work=SimpleNamespace(index=SimpleNamespace(secret=ffi.new("uint64_t[2]"))))
    recovered: Any = SimpleNamespace(progress=SimpleNamespace(queue_offset=5), queue_end=9)
    reader: Any = SimpleNamespace(hold=hold)
    sources, end = finish(worker.find_rolled(opened, slots, reader, recovered, array("Q", [3])))
    assert (list(sources), end, waits) == ([3], 9, [(4, worker.SETTLE_MS)] * 2)


def opened_files(root: Path, saved: Saved, window_slots: int, lines: list[str], **more: Any) -> TimerFiles:
    opening = open_files(
        root, saved, precision_ms=1000, window_slots=window_slots, file_bytes=PAGES, log_line=lines.append, **more
    )
    found = finish(opening)
    assert isinstance(found, TimerFiles)
    return found


@pytest.mark.parametrize(
    ("saved", "window_slots", "line"),
    [
        (Saved(window_slots=20), 20, ""),
        (Saved(window_slots=20), 21, "the roll window is 21 slots, units were filed by one of 20"),
        (Saved(window_slots=20), 19, "the roll window is 19 slots, units were filed by one of 20"),
        (Saved(), 20, ""),
        (Saved(), 21, ""),
        (Saved(), 19, "the roll window is 19 slots, units were filed by one of 20"),
        (Saved(window_slots=20, needs_rebuild=True), 20, "the former master may have rolled messages at other times"),
    ],
)
def test_units_that_would_wait_for_too_long_or_in_other_slots_are_filed_again(
    tmp_path: Path, saved: Saved, window_slots: int, line: str
) -> None:
    """A smaller fileReservedTime makes a smaller window: retention would take the records of units beyond it. If a
    larger window rebuilt nothing, a window that grows and shrinks again would leave such units."""
    filled(tmp_path).close()
    lines: list[str] = []
    files = opened_files(tmp_path, saved, window_slots, lines, usual_slots=20)
    assert bool(lines) == bool(line) == files.is_rebuilt and line in "".join(lines)
    assert files.window_slots == (window_slots if line or saved.window_slots == window_slots else 0)
    assert files.widest_slots == (172_800 if saved.window_slots else 604_740)
    files.close()


def test_a_slave_keeps_units_in_other_slots_until_it_is_made_master(tmp_path: Path) -> None:
    filled(tmp_path).close()
    lines: list[str] = []
    files = opened_files(tmp_path, Saved(window_slots=20, needs_rebuild=True), 20, lines, is_slave=True)
    assert not lines and files.log_end > 0
    files.close()
