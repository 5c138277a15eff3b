"""A clean start finds that queues or index lack entries of stored messages, and makes them again from the log."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner

from ringmq.cli.main import main
from ringmq.native import ffi, lib
from ringmq.store import layout, markers
from ringmq.store.index_file import index_paths
from ringmq.store.mapped_file import StoreLoadError
from ringmq.store.queue_ends import read_rebuild, remove_rebuild, write_rebuild
from ringmq.store.recovery import recover
from ringmq.store.recovery_state import CLEAN, SAME_BOOT
from ringmq.store.repair import planned_repairs, repair
from ringmq.store.store_lock import StoreLock
from tests.store.damage_kit import is_index_whole, leave_bounds, messages, messages_after
from tests.store.golden_stores import basic_config

UNIT = 20


def largest_queue(root: Path) -> list[Path]:
    """The files of the queue with most files, oldest first."""
    queues = sorted((root / "consumequeue").glob("*/*"))
    return sorted(max(queues, key=lambda queue: (len(list(queue.iterdir())), str(queue))).iterdir())


def zero_unit(path: Path, number: int) -> None:
    data = bytearray(path.read_bytes())
    assert any(data[number * UNIT : (number + 1) * UNIT])
    data[number * UNIT : (number + 1) * UNIT] = bytes(UNIT)
    path.write_bytes(data)


@pytest.mark.parametrize("bounds", [True, False], ids=["after RingMQ", "after stock"])
@pytest.mark.parametrize(("file", "unit"), [(-1, 1), (-3, 150), (0, 0), (0, 299)])
def test_one_zeroed_unit_reuses_no_offset(basic_copy: Path, bounds: bool, file: int, unit: int) -> None:
    """A start reads the newest three files of a queue, and of older ones the first and the last unit."""
    config = basic_config(basic_copy)
    if bounds:
        leave_bounds(config)
    before = messages(config)
    paths = largest_queue(basic_copy)
    zero_unit(paths[file], unit)
    result = recover(config)
    topic, queue_id = paths[0].parts[-3], int(paths[0].parts[-2])
    end = 1 + max(place[2] for place in before if place[:2] == (topic, queue_id))
    assert result.mode == CLEAN
    assert result.queues[topic, queue_id].next_offset == end
    assert messages_after(config, result) == before
    assert sum(f"queue {topic}/{queue_id}: " in reason for reason in result.reasons) == 1
    assert read_rebuild(basic_copy) is not None


def _remove_folder(paths: list[Path]) -> None:
    for path in paths:
        path.unlink()
    paths[0].parent.rmdir()


DAMAGES: list[Callable[[list[Path]], object]] = [
    lambda paths: _remove_folder(paths),
    lambda paths: [path.unlink() for path in paths],
    lambda paths: paths[0].unlink(),
    lambda paths: paths[-1].unlink(),
    lambda paths: [path.write_bytes(bytes(6000)) for path in paths],
    lambda paths: paths[0].write_bytes(paths[0].read_bytes()[:700]),
    lambda paths: paths[-1].write_bytes(b""),
    lambda paths: paths[0].write_bytes(paths[0].read_bytes() + b"more"),
    lambda paths: paths[-1].rename(paths[-1].with_name(f"{int(paths[-1].name) + 7:020d}")),
    lambda paths: (paths[0].unlink(), paths[0].mkdir()),
    lambda paths: (paths[-1].unlink(), paths[-1].symlink_to("nowhere")),
    lambda paths: paths[0].write_bytes(bytes(range(1, 241)) * 25),
    lambda paths: paths[-1].write_bytes(paths[-1].read_bytes()[:40].ljust(6000, b"\0")),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=range(len(DAMAGES)))
def test_lost_files_of_a_queue_are_made_again(basic_copy: Path, damage: Callable[[list[Path]], object]) -> None:
    config = basic_config(basic_copy)
    leave_bounds(config)
    before = messages(config)
    damage(largest_queue(basic_copy))
    result = recover(config)
    assert messages_after(config, result) == before
    assert any("made again" in reason for reason in result.reasons)
    again = recover(config)  # a death right after the recovery, before dispatch: nothing is forgotten
    assert messages_after(config, again) == before


def test_a_folder_whose_name_is_no_queue_id_is_passed_over(basic_copy: Path) -> None:
    config = basic_config(basic_copy)
    (basic_copy / "consumequeue" / "T" / "99999999999").mkdir(parents=True)
    assert recover(config).reasons == []


def test_files_of_one_other_size_are_another_configuration(basic_copy: Path) -> None:
    for path in (basic_copy / "consumequeue").glob("*/*/*"):
        path.write_bytes(path.read_bytes().ljust(12_000, b"\0"))
    with pytest.raises(StoreLoadError, match="has 12000 bytes, not 6000 as configured"):
        recover(basic_config(basic_copy))
    assert read_rebuild(basic_copy) is None


@pytest.mark.parametrize("number", [-2, -1])
@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:999]),
        lambda path: path.write_bytes(path.read_bytes() + b"x"),
        lambda path: path.write_bytes(bytes(path.stat().st_size)),
        lambda path: path.write_bytes(b"\x7f" * path.stat().st_size),
        lambda path: (path.unlink(), path.mkdir()),
        lambda path: path.unlink(),
    ],
    ids=["short", "long", "zeros", "garbage", "folder", "missing"],
)
def test_a_damaged_index_file_is_named_and_the_index_is_made_again(
    basic_copy: Path, number: int, damage: Callable[[Path], object]
) -> None:
    config = basic_config(basic_copy)
    leave_bounds(config)
    path = index_paths(basic_copy / "index")[number]
    damage(path)
    result = recover(config)
    assert any(path.name in reason and "index is made again" in reason for reason in result.reasons), result.reasons
    assert is_index_whole(config, result)


def test_a_missing_newest_log_file_refuses_the_start(basic_copy: Path) -> None:
    config = basic_config(basic_copy)
    leave_bounds(config)
    newest = sorted((basic_copy / "commitlog").iterdir())[-1]
    used = [path for path in sorted((basic_copy / "commitlog").iterdir()) if any(path.read_bytes()[:8])][-1]
    for path in {newest, used}:
        path.unlink()
    with pytest.raises(StoreLoadError, match=f"{used.name} is missing or empty.*--accept-loss"):
        recover(config)
    result = recover(config, accept_loss=True)
    assert result.append_offset <= int(used.name)
    assert all(state.physical_end <= result.append_offset for state in result.queues.values())


@pytest.mark.parametrize("mode", [CLEAN, SAME_BOOT])
def test_a_log_that_has_only_its_empty_next_file_is_named(basic_copy: Path, mode: str) -> None:
    """The next file is made before the first record of it comes."""
    config = basic_config(basic_copy)
    leave_bounds(config)
    paths = sorted((basic_copy / "commitlog").iterdir())
    used = [path for path in paths if any(path.read_bytes()[:8])]
    for path in paths:
        path.unlink()
    (basic_copy / "commitlog" / layout.file_name(int(used[-1].name) + config.commit_log_file_bytes)).touch()
    if mode == SAME_BOOT:
        markers.write_abort(basic_copy, 1)
        markers.write_boot_marker(basic_copy)
    else:
        with pytest.raises(StoreLoadError, match=f"{used[0].name} is missing or empty.*put the file back .*--accept-l"):
            recover(config)
    result = recover(config, accept_loss=True)
    assert result.append_offset == 0
    line = f"{paths[0].parent}: the log ends at 0, and had records up to "
    assert [reason for reason in result.reasons if reason.startswith(line)]


def test_an_empty_next_log_file_is_removed(basic_copy: Path) -> None:
    config = basic_config(basic_copy)
    leave_bounds(config)
    before = messages(config)
    used = [path for path in sorted((basic_copy / "commitlog").iterdir()) if any(path.read_bytes()[:8])]
    following = basic_copy / "commitlog" / layout.file_name(int(used[-1].name) + config.commit_log_file_bytes)
    following.write_bytes(b"")
    result = recover(config)
    assert not following.exists() and messages_after(config, result) == before


def sound_units(units: list[tuple[int, int, int]], log_end: int, end: int) -> tuple[int, int]:
    """The twin of rmq_cq_sound_units."""
    for number, (place, size, _) in enumerate(units):
        if place < 0 or size <= 0:
            return number, end
        if (place, size) == (0, layout.FILLER_SIZE):
            continue
        if place < end or place + size > log_end:
            return number, end
        end = place + size
    return len(units), end


def test_units_are_sound_up_to_the_same_one_in_c_and_python() -> None:
    random = Random(31)
    stops = set()
    for _ in range(2000):
        units, at = [], random.randrange(3) * 50
        for _ in range(random.randrange(8)):
            size = random.choice([1, 90, 90, 90, 0, -5, layout.FILLER_SIZE])
            at += random.choice([0, 0, 0, 100, 5, -30])
            units.append((random.choice([at, at, at, at, 0, -1, (1 << 63) - 1]), size, 7))
            at += max(0, size) % layout.FILLER_SIZE
        log_end, end = random.choice([300, 1 << 62]), random.choice([-1, 60])
        data, last = b"".join(layout.CONSUME_QUEUE_UNIT.pack(*unit) for unit in units), ffi.new("int64_t *", end)
        found = lib.rmq_cq_sound_units(ffi.from_buffer(data), len(units), log_end, last), last[0]
        assert found == sound_units(units, log_end, end)
        stops.add(found[0])
    assert len(stops) > 4


def test_the_mark_of_a_rebuild_keeps_the_lowest_offset(tmp_path: Path) -> None:
    assert read_rebuild(tmp_path) is None
    write_rebuild(tmp_path, 500)
    write_rebuild(tmp_path, 700)
    assert read_rebuild(tmp_path) == 500
    (tmp_path / layout.REBUILD_MARKER).write_bytes(b"damaged")
    assert read_rebuild(tmp_path) == 0
    remove_rebuild(tmp_path)
    remove_rebuild(tmp_path)
    assert read_rebuild(tmp_path) is None


def _files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_repair_names_what_it_would_do_and_then_does_it(basic_copy: Path) -> None:
    config = basic_config(basic_copy)
    leave_bounds(config)
    before, paths = messages(config), largest_queue(basic_copy)
    paths[1].write_bytes(b"short")
    index_paths(basic_copy / "index")[-1].write_bytes(b"short")
    StoreLock(basic_copy).close()
    files = _files(basic_copy)
    sizes = ["--set", "maxHashSlotNum=100", "--set", "maxIndexNum=400", "-o", "json"]
    dry = CliRunner().invoke(main, ["store", "repair", str(basic_copy), "--dry-run", *sizes])
    assert dry.exit_code == 0, dry.output
    assert _files(basic_copy) == files
    done = CliRunner().invoke(main, ["store", "repair", str(basic_copy), *sizes])
    assert done.exit_code == 0, done.output
    for told in (json.loads(dry.output), json.loads(done.output)):
        text = "\n".join(told["repairs"])
        assert f"{paths[1]} has 5 bytes" in text and "the index is made again" in text
        assert 0 <= told["rebuild_from"] < told["append_offset"] == 3478574
    result = recover(config)
    assert messages_after(config, result) == before and is_index_whole(config, result)


@pytest.mark.parametrize("command", ["inspect", "verify", "repair", "timers", "unserved"])
def test_a_log_file_of_an_impossible_size_is_an_error_in_words(tmp_path: Path, command: str) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / ("0" * 20)).write_bytes(b"x" * 1000)
    said = CliRunner().invoke(main, ["store", command, str(tmp_path)])
    assert said.exit_code == 1 and "mappedFileSizeCommitLog = 1000" in said.output, said.exception


def test_repair_keeps_off_a_live_store(basic_copy: Path) -> None:
    lock = StoreLock(basic_copy)
    try:
        done = CliRunner().invoke(main, ["store", "repair", str(basic_copy)])
    finally:
        lock.close()
    assert done.exit_code == 1 and "has this store open" in done.output


@pytest.mark.parametrize("seed", range(6))
def test_repair_finds_a_flipped_bit_in_any_unit(basic_copy: Path, seed: int) -> None:
    """A start reads a part of the files, and takes a wrong place between two right ones."""
    random = Random(seed)
    config = basic_config(basic_copy)
    if seed % 2:
        leave_bounds(config)
    before = messages(config)
    for path in random.sample(sorted((basic_copy / "consumequeue").glob("*/*/*")), 3):
        data = bytearray(path.read_bytes())
        used = len(data.rstrip(b"\0")) // UNIT
        at = random.randrange(max(1, used)) * UNIT + random.choice([5, 6, 7, 10, 11, 19])
        data[at] ^= 1 << random.randrange(8)
        path.write_bytes(data)
    planned = planned_repairs(config, thorough=True)
    done = repair(config, accept_loss=False, thorough=True)
    result = recover(config)
    assert messages_after(config, result) == before
    for said in (planned.lines, done.lines):
        assert sum(line.startswith("queue ") for line in said) >= 1
    assert planned.append_offset == done.append_offset


def test_repair_makes_a_changed_index_again(basic_copy: Path) -> None:
    config = basic_config(basic_copy)
    before = messages(config)
    path = index_paths(basic_copy / "index")[0]
    data = bytearray(path.read_bytes())
    data[40 + 4 * 100 + 20 * 7 + 5] ^= 4  # of the place of an entry
    path.write_bytes(data)
    assert repair(config, accept_loss=False, thorough=False).lines == []
    said = repair(config, accept_loss=False, thorough=True).lines
    assert "the index differs from the log: it is made again" in said
    result = recover(config)
    assert is_index_whole(config, result) and messages_after(config, result) == before


def test_repair_of_a_sound_store_says_nothing(basic_copy: Path) -> None:
    config = basic_config(basic_copy)
    done = repair(config, accept_loss=False, thorough=True)
    assert (done.lines, done.rebuild_from) == ([], done.append_offset)
