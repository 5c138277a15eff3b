"""When a slave's wheel is not its master's, and what its checkpoint and a promotion make of that."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from ringmq.services.kit.loop import ServiceLoop
from ringmq.timer.follower import Follower
from ringmq.timer.master_timers import MasterTimers, write_master_timers
from ringmq.timer.progress import Saved, known_coarsest_ms, load_saved, of_master, save
from ringmq.timer.timer_checkpoint import Filing, checkpoint_for_slaves
from tests.timer.test_progress_bits import LOG_END, OPEN_MS, SNAPSHOT, Log

OWN = Filing(40, 100, 200, 100)
TIMERS = MasterTimers(OPEN_MS, 70, 5000, 4096, (0, OPEN_MS, 7), OWN)
OTHERS = (
    replace(OWN, window_slots=41), replace(OWN, window_slots=0), replace(OWN, precision_ms=200),
    replace(OWN, coarsest_ms=1000), None,
)  # fmt: skip


def follower(root: Path, own: Filing = OWN, *, has_units: bool = True) -> Any:
    found: Any = Follower.__new__(Follower)
    struct = SimpleNamespace(precision_ms=own.precision_ms, coarsest_ms=own.coarsest_ms)
    files = SimpleNamespace(struct=struct, window_slots=own.window_slots, log_begin=0, log_end=52 * has_units)
    found._store = SimpleNamespace(slots=SimpleNamespace(files=files), root=root)
    found._needs_rebuild, found._timers, found._seen = False, None, None
    return found


class Reader(Follower):
    """A follower over a queue of `end` records, which needs no files."""

    def __init__(self, plane: Any) -> None:
        self._plane, self._role, self._offset, self.end, self._save_at_ms = plane, 0, 0, 0, 1 << 62
        parts: Any = SimpleNamespace
        self._queue, self._rebuild = parts(queue_slot=0), parts(note=lambda offset: None)
        self._arrivals = parts(take=lambda: None, want=lambda slot: None)
        self._slots, self._enqueuer = parts(tally=parts(enqueued=0)), parts(has_more=False)

    def _look_at_master(self) -> None:
        pass

    def _enqueue(self) -> int:
        return self.end

    @property
    def is_idle(self) -> bool:
        return self._offset == self.end


def needs_rebuild(slave: Any, filing: Filing | None) -> bool:
    slave._compare(structs.replace(TIMERS, filing=filing))
    return bool(slave._needs_rebuild)


def test_units_in_other_slots_are_noted_for_good(tmp_path: Path) -> None:
    for filing in OTHERS:
        slave = follower(tmp_path)
        assert not needs_rebuild(slave, replace(OWN, known_coarsest_ms=500))
        assert needs_rebuild(slave, filing) and needs_rebuild(slave, OWN), filing
    assert needs_rebuild(follower(tmp_path, replace(OWN, window_slots=0)), OWN), "its own units are of several windows"


def test_the_first_unit_is_filed_by_the_masters_largest_step(tmp_path: Path) -> None:
    slave = follower(tmp_path, has_units=False)
    assert not needs_rebuild(slave, replace(OWN, coarsest_ms=1000))
    assert slave._store.slots.files.struct.coarsest_ms == 1000


def test_a_master_that_delivers_earlier_slots_again_is_noted(tmp_path: Path) -> None:
    """Units of such slots may lie before those that the start has read. A slave has none when its master stores its
    first timer message: until then the master tells the present time, then 0."""
    slave, empty = follower(tmp_path), follower(tmp_path, has_units=False)
    for open_ms, expected in ((OPEN_MS, False), (OPEN_MS + 1000, False), (OPEN_MS, True), (OPEN_MS + 9000, True)):
        write_master_timers(tmp_path, structs.replace(TIMERS, open_ms=open_ms))
        slave._look_at_master()
        empty._look_at_master()
        assert slave._timers.open_ms == open_ms and slave._needs_rebuild is expected and not empty._needs_rebuild


@pytest.mark.parametrize(
    ("timers", "expected"),
    [
        (TIMERS, False),
        (structs.replace(TIMERS, open_ms=OPEN_MS - 1000), True),
        *((structs.replace(TIMERS, filing=filing), True) for filing in OTHERS),
    ],
)
def test_a_promotion_rebuilds_unless_both_have_filed_alike(timers: MasterTimers, expected: bool) -> None:
    saved = Saved(OPEN_MS, precision_ms=100, coarsest_ms=200, window_slots=40)
    found = of_master(saved, timers, LOG_END)
    assert found.needs_rebuild is expected
    assert found.coarsest_ms == (1000 if timers.filing is None else timers.filing.coarsest_ms)
    assert of_master(structs.replace(saved, needs_rebuild=True), timers, LOG_END).needs_rebuild
    assert of_master(saved, timers, timers.log_offset - 1) == saved, "its log is shorter than it was"


def test_steps_of_a_master_that_does_not_tell() -> None:
    stock = structs.replace(TIMERS, marks_from=None, filing=None)
    assert known_coarsest_ms(stock) == 100, "all its messages are of one precision"
    assert known_coarsest_ms(structs.replace(TIMERS, filing=None)) == 1000, "of an older version: it loses none"
    assert known_coarsest_ms(structs.replace(TIMERS, filing=replace(OWN, known_coarsest_ms=500))) == 500


@pytest.mark.parametrize(
    ("more", "is_kept", "window"),
    [({}, False, 40), ({"needs_rebuild": True}, True, 0), ({"is_rebuilding": True}, False, 0)],
)
def test_a_checkpoint_keeps_it_and_tells_no_window(
    tmp_path: Path, more: dict[str, Any], is_kept: bool, window: int
) -> None:
    (tmp_path / "config").mkdir()
    save(tmp_path, structs.replace(SNAPSHOT, **more), 1000, Log(), OPEN_MS)
    found = checkpoint_for_slaves(tmp_path)
    assert found is not None and found.filing == Filing(window, 1000, 1000, 1000)
    assert load_saved(tmp_path, Log(), LOG_END).needs_rebuild is is_kept
    cut = load_saved(tmp_path, Log(), 1)
    assert cut.is_cut and cut.needs_rebuild is is_kept and cut.window_slots == 40


def test_a_log_that_was_cut_keeps_the_largest_step(tmp_path: Path) -> None:
    """A pair of 100 ms would differ otherwise, and delays that were rolled would come 0.9 s late."""
    (tmp_path / "config").mkdir()
    save(tmp_path, structs.replace(SNAPSHOT, coarsest_ms=200), 100, Log(), OPEN_MS)
    cut = load_saved(tmp_path, Log(), 1)
    assert cut.is_cut and cut.coarsest_ms == 200


def test_a_slave_that_reads_now_and_then_does_not_rest() -> None:
    """It reads one record each ten seconds, which its master delivers at once: nothing waits at any look."""
    role = SimpleNamespace(progress=0, counters=[0] * 64)
    plane: Any = SimpleNamespace(role=lambda number: role, deactivate=lambda number: None, is_held=lambda *_: False)
    slave: Any = Reader(plane)
    loop = ServiceLoop(plane, 0, [slave], rest_after_ms=30_000)
    for now_ms in range(1, 100_000, 1000):
        slave.end = now_ms // 10_000
        while loop.turn(now_ms):
            pass
        assert not loop.may_rest(now_ms), f"it has read {slave.end} records, the last one a while ago"
    assert not loop.turn(121_000) and loop.may_rest(121_000)
