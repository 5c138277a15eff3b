"""A log whose files are lost: nothing is given up unasked, a repair serves the rest, and its plan has its status."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ringmq.store import markers
from ringmq.store.log_loss import LostLogError
from ringmq.store.queue_ends import read_queue_ends, write_queue_ends, write_rebuild
from ringmq.store.recovery import recover
from ringmq.store.repair import planned_repairs, repair
from tests.store.advice_kit import given_up
from tests.store.damage_kit import Place, leave_bounds, messages, messages_after
from tests.store.salvage_kit import FILE_BYTES, config_of, store, template

__all__ = ["store", "template"]


def make_next(root: Path) -> None:
    """Make the file behind the newest one, as a broker does in advance."""
    newest = max((root / "commitlog").iterdir())
    with newest.with_name(f"{int(newest.name) + FILE_BYTES:020d}").open("wb") as file:
        file.truncate(FILE_BYTES)


def log_file(root: Path, number: int) -> Path:
    return sorted((root / "commitlog").iterdir())[number]


def cut_in_the_unused_part(root: Path) -> None:
    path = log_file(root, -1)
    os.truncate(path, len(path.read_bytes().rstrip(b"\0")) + 100)


def cut_in_the_blank(root: Path) -> None:
    """Of the file at 0, which ends with a blank."""
    path = log_file(root, 0)
    os.truncate(path, len(path.read_bytes().rstrip(b"\0")) + 2)


def too_long(root: Path) -> None:
    with log_file(root, 1).open("ab") as file:
        file.write(b"surplus")


@pytest.mark.parametrize("damage", [cut_in_the_unused_part, cut_in_the_blank, too_long])
def test_a_wrong_length_that_cost_nothing_needs_no_option(store: Path, damage: Callable[[Path], None]) -> None:
    config = config_of(store)
    leave_bounds(config)
    before = messages(config)
    damage(store)
    with pytest.raises(LostLogError, match="no message is lost, run: ringmq store repair"):
        recover(config)
    planned = planned_repairs(config, thorough=True)
    done = repair(config, accept_loss=False, thorough=True)
    assert planned.lines == done.lines and len(done.lines) == 1 and "not 16384 as configured" in done.lines[0]
    assert messages_after(config, recover(config)) == before
    assert len(list((store / "ringmq.cut" / "commitlog").iterdir())) == 1


@pytest.mark.parametrize("is_next_made", [False, True])
@pytest.mark.parametrize("is_queue_repaired", [False, True])
@pytest.mark.parametrize("numbers", [[-1], [0, 1, 2, 3, 4], [2], [1, 2]])
def test_lost_files_are_given_up_by_an_option_alone(
    store: Path, numbers: list[int], is_queue_repaired: bool, is_next_made: bool
) -> None:
    config = config_of(store)
    leave_bounds(config)
    before = messages(config)
    lost = [log_file(store, number) for number in numbers]
    if is_next_made:
        make_next(store)
    if is_queue_repaired:
        write_rebuild(store, 0)
    for path in lost:
        path.unlink()
    words = f"{lost[0]} is missing.*run: ringmq store repair {store} --accept-loss"
    with pytest.raises(LostLogError, match=words):
        recover(config)
    with pytest.raises(LostLogError, match=words):
        repair(config, accept_loss=False, thorough=True)
    with pytest.raises(LostLogError, match=words):
        planned_repairs(config, thorough=True)
    plan = planned_repairs(config, accept_loss=True, thorough=True)
    done = repair(config, accept_loss=True, thorough=True)
    assert done.lines[: len(plan.lines)] == plan.lines
    ranges = given_up(plan.lines)
    rest = {place: at for place, at in before.items() if not any(first <= at < end for first, end in ranges)}
    assert {int(path.name) for path in lost} == files_of(before) - files_of(rest), "sound files are touched"
    assert messages_after(config, recover(config)) == rest
    assert repair(config, accept_loss=False, thorough=True).append_offset == done.append_offset


def files_of(places: dict[Place, int]) -> set[int]:
    """The starts of the log files of these messages."""
    return {at // FILE_BYTES * FILE_BYTES for at in places.values()}


def test_queue_files_of_no_whole_units_are_no_configuration(store: Path) -> None:
    config = config_of(store)
    leave_bounds(config)
    before = messages(config)
    for path in (store / "consumequeue").glob("*/*/*"):
        os.truncate(path, 701)
    assert messages_after(config, recover(config)) == before


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_cut_file_is_a_loss_although_no_queue_names_its_records(store: Path, is_killed: bool) -> None:
    config = config_of(store)
    leave_bounds(config)
    if is_killed:
        markers.write_abort(store, 1)
    path = log_file(store, -1)
    os.truncate(path, 5000)
    shutil.rmtree(store / "consumequeue")
    with pytest.raises(LostLogError, match="--accept-loss"):
        repair(config, accept_loss=False, thorough=True)
    assert path.stat().st_size == 5000
    lines = repair(config, accept_loss=True, thorough=True).lines
    ((first, _),) = given_up(lines)
    assert int(path.name) < first < int(path.name) + 5000 and recover(config).append_offset == first


def test_a_log_that_another_broker_has_gone_on_with_is_sound(store: Path) -> None:
    """Its retention has deleted the files that the last stop of RingMQ knows."""
    config = config_of(store)
    leave_bounds(config)
    ends = read_queue_ends(store)
    assert ends is not None
    write_queue_ends(store, 0, FILE_BYTES, [])
    log_file(store, 0).unlink()
    assert recover(config).append_offset == ends.log_end


def test_a_gap_where_the_last_stop_was_is_given_up_once(store: Path) -> None:
    """Another broker has gone on since."""
    config = config_of(store)
    leave_bounds(config)
    before = messages(config)
    write_queue_ends(store, 0, 2 * FILE_BYTES + 5000, [])
    log_file(store, 2).unlink()
    with pytest.raises(LostLogError, match=f"{2 * FILE_BYTES:020d} is missing: the log has a gap"):
        recover(config)
    lines = repair(config, accept_loss=True, thorough=True).lines
    assert given_up(lines) == [(2 * FILE_BYTES, 3 * FILE_BYTES)]
    rest = {place: at for place, at in before.items() if at // FILE_BYTES != 2}
    assert messages_after(config, recover(config)) == rest
