"""Recovery on golden stores: stock's answers for clean and crashed ones, same-boot starts, repairs."""

import errno
import fcntl
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ringmq.store import layout, markers, recovery
from ringmq.store.checkpoint import Checkpoint, write_checkpoint
from ringmq.store.config import StoreConfig
from ringmq.store.consume_queue import Unit
from ringmq.store.index_file import IndexFile, index_paths
from ringmq.store.mapped_file import StoreLoadError
from ringmq.store.message_store import MessageStore
from ringmq.store.recovery import recover, survey
from ringmq.store.recovery_caches import LogInUseError
from ringmq.store.recovery_state import RecoveredStore
from ringmq.store.store_lock import byte_0_lock
from ringmq.store.topic_start_offsets import START_OFFSETS_FILE, read_start_offsets
from tests.store.golden_stores import basic_config, crashed_config

Copy = Callable[[str], Path]
Answers = Callable[[str], dict[str, Any]]
CUT = 1342373  # begin of the last record of the crash-* stores
END = 1343209
NEVER_MS = 1 << 42


def _bounds(result: RecoveredStore) -> dict[tuple[str, int], tuple[int, int]]:
    return {name: (state.min_offset, state.max_offset) for name, state in result.queues.items() if state.max_offset}


def _expected(queues: list[dict[str, Any]]) -> dict[tuple[str, int], tuple[int, int]]:
    return {(q["topic"], q["queueId"]): (q["minOffset"], q["maxOffset"]) for q in queues}


def _files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_clean_store_is_taken_as_it_is(basic_copy: Path, expected: dict[str, Any]) -> None:
    before = _files(basic_copy)
    result = recover(basic_config(basic_copy))
    assert result.mode == recovery.CLEAN
    assert (result.min_offset, result.append_offset) == (expected["commitLogMinOffset"], expected["commitLogMaxOffset"])
    assert _bounds(result) == _expected(expected["queues"])
    assert result.redispatch_offset == result.unsynced_offset == result.append_offset
    assert (result.cut_bytes, result.reasons) == (0, [])
    assert _files(basic_copy) == before


@pytest.mark.parametrize(
    ("variant", "answers"),
    [
        ("crash-kill9", "crash-kill9"),
        ("crash-live", "crash-live"),
        ("crash-torn-body", "crash-torn-body"),
        ("crash-torn", "crash-torn-body"),  # stock serves the damaged record, we do not
    ],
)
def test_crashed_stores_give_stocks_answers(
    crashed_copy: Copy, crashed_answers: Answers, variant: str, answers: str
) -> None:
    root = crashed_copy(variant)
    load, broker = crashed_answers(f"{answers}.load.json"), crashed_answers(f"{answers}.broker.json")
    result = recover(crashed_config(root))
    assert result.mode == recovery.CHECKPOINT
    assert result.append_offset == load["commitLogMaxOffset"] == broker["commitLogMaxOffset"]
    assert _bounds(result) == _expected(load["queues"]) == _expected(broker["queues"])
    assert result.next_offsets == {name: bounds[1] for name, bounds in _bounds(result).items()}
    store = MessageStore(crashed_config(root))
    assert store.queue_end() == result.append_offset
    assert max(store.commit_log.files.starts) <= result.append_offset


def test_what_is_cut_is_kept_and_zeroed(crashed_copy: Copy) -> None:
    root = crashed_copy("crash-torn-body")
    before = (root / "commitlog" / f"{1310720:020d}").read_bytes()
    result = recover(crashed_config(root))
    after = (root / "commitlog" / f"{1310720:020d}").read_bytes()
    at = CUT - 1310720
    assert after == before[:at] + bytes(262144 - at)
    kept = (root / "ringmq.cut" / f"{CUT:020d}").read_bytes()
    assert before[at:].startswith(kept.rstrip(b"\0")) and len(kept.rstrip(b"\0")) == result.cut_bytes > 0


def test_recovery_twice_changes_nothing_more(crashed_copy: Copy) -> None:
    for variant in ("crash-kill9", "crash-torn"):
        root = crashed_copy(variant)
        first = recover(crashed_config(root))
        files = _files(root)
        second = recover(crashed_config(root))
        assert (second.append_offset, _bounds(second)) == (first.append_offset, _bounds(first))
        assert _files(root) == files


def test_stores_are_trusted_within_one_boot_and_only_the_tail_is_read(crashed_copy: Copy) -> None:
    root = crashed_copy("crash-kill9")
    markers.write_boot_marker(root)
    result = recover(crashed_config(root), window_bytes=4096)
    assert result.mode == recovery.SAME_BOOT
    assert result.append_offset == END
    assert 1 <= result.scanned_records < 40
    assert END - 2 * 4096 < result.redispatch_offset <= END
    assert len(index_paths(root / "index")) == len(index_paths(crashed_copy("crash-torn") / "index"))
    full = recover(crashed_config(root), trust_boot=False)
    assert _bounds(full) == _bounds(result)


def test_within_one_boot_a_dispatched_record_is_never_torn(crashed_copy: Copy) -> None:
    root = crashed_copy("crash-torn")
    markers.write_boot_marker(root)
    assert recover(crashed_config(root)).append_offset == END


def _drop_units(root: Path, topic: str, queue_id: int, keep: int) -> None:
    directory = root / "consumequeue" / topic / str(queue_id)
    for path in sorted(directory.iterdir()):
        used = max(0, min(6000, keep * 20 - int(path.name)))
        path.write_bytes(path.read_bytes()[:used].ljust(6000, b"\0"))


def _unit(root: Path, topic: str, queue_id: int, number: int) -> Unit:
    queue = MessageStore(crashed_config(root)).queue(topic, queue_id)
    assert queue is not None
    unit = queue.unit(number)
    assert isinstance(unit, Unit)
    return unit


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize("keep", [0, 1, 299, 300, 301, 735])
def test_missing_units_are_found_and_reported(crashed_copy: Copy, trusted: bool, keep: int) -> None:
    root = crashed_copy("crash-kill9")
    if trusted:
        markers.write_boot_marker(root)
    unit = _unit(root, "CrashA", 0, keep)
    _drop_units(root, "CrashA", 0, keep)
    window = END if trusted else recovery.REDISPATCH_WINDOW_BYTES
    write_checkpoint(root, Checkpoint(0, 0, 0))
    result = recover(crashed_config(root), window_bytes=window)
    state = result.queues[("CrashA", 0)]
    assert (state.max_offset, state.next_offset, state.missing_from) == (keep, 737, unit.commit_log_offset)
    assert result.redispatch_offset <= unit.commit_log_offset


@pytest.mark.parametrize("keep", [1, 299, 301])
@pytest.mark.parametrize("time_ms", [1 << 60, -(1 << 60)])
def test_an_impossible_checkpoint_hides_no_missing_unit(crashed_copy: Copy, time_ms: int, keep: int) -> None:
    root = crashed_copy("crash-kill9")
    unit = _unit(root, "CrashA", 0, keep)
    _drop_units(root, "CrashA", 0, keep)
    write_checkpoint(root, Checkpoint(time_ms, time_ms, time_ms))
    result = recover(crashed_config(root))
    state = result.queues[("CrashA", 0)]
    assert (state.max_offset, state.next_offset, state.missing_from) == (keep, 737, unit.commit_log_offset)
    assert any(f"{root / 'checkpoint'}: a time of {time_ms} ms is impossible" in reason for reason in result.reasons)


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize("damage", [b"", b"\1"])
def test_a_last_unit_gets_the_tags_code_again_that_a_pages_end_cut_off(
    crashed_copy: Copy, trusted: bool, damage: bytes
) -> None:
    """Bytes that are not zero are damage of another kind, which is mended and named, too."""
    root = crashed_copy("crash-kill9")
    if trusted:
        markers.write_boot_marker(root)
    whole, keep = _unit(root, "CrashA", 0, 204), 4080 // 20 + 1
    assert whole.tags_code % (1 << 32) != 0
    _drop_units(root, "CrashA", 0, keep)
    path = root / "consumequeue" / "CrashA" / "0" / f"{0:020d}"
    path.write_bytes((path.read_bytes()[:4096] + damage).ljust(6000, b"\0"))
    write_checkpoint(root, Checkpoint(0, 0, 0))
    result = recover(crashed_config(root), window_bytes=END)
    assert result.queues["CrashA", 0].max_offset == keep
    assert _unit(root, "CrashA", 0, 204) == whole
    assert ("CrashA/0: unit 204 had half of its tags code, it is whole again" in result.reasons) is not bool(damage)
    assert any("CrashA/0: unit 204 named" in reason for reason in result.reasons) is bool(damage)


@pytest.mark.parametrize("trusted", [True, False])
def test_a_last_unit_gets_its_size_again(crashed_copy: Copy, trusted: bool) -> None:
    root = crashed_copy("crash-kill9")
    if trusted:
        markers.write_boot_marker(root)
    whole, keep = _unit(root, "CrashA", 0, 204), 205
    assert whole.size > 256 and whole.size % 256 != 0
    _drop_units(root, "CrashA", 0, keep)
    path = root / "consumequeue" / "CrashA" / "0" / f"{0:020d}"
    path.write_bytes(path.read_bytes()[: 4080 + 11].ljust(6000, b"\0"))
    write_checkpoint(root, Checkpoint(0, 0, 0))
    result = recover(crashed_config(root), window_bytes=END)
    state = result.queues["CrashA", 0]
    assert (state.max_offset, state.next_offset) == (keep, 737)
    assert _unit(root, "CrashA", 0, 204) == whole
    assert state.physical_end == whole.end
    line = f"CrashA/0: unit 204 named {whole.size // 256 * 256} bytes of a record of {whole.size}, it is whole again"
    assert line in result.reasons


def test_a_hole_in_a_queue_ends_it_and_what_stands_behind_is_wiped(crashed_copy: Copy) -> None:
    """After a power cut pages of a queue may be zero though later ones are not."""
    root = crashed_copy("crash-kill9")
    path = root / "consumequeue" / "CrashA" / "0" / f"{6000:020d}"
    data = bytearray(path.read_bytes())
    data[1000:1020] = bytes(20)
    path.write_bytes(data)
    result = recover(crashed_config(root))
    state = result.queues[("CrashA", 0)]
    assert (state.max_offset, state.next_offset) == (350, 737)
    assert path.read_bytes() == bytes(data[:1000]).ljust(6000, b"\0")
    assert not (root / "consumequeue" / "CrashA" / "0" / f"{12000:020d}").exists()


def test_units_behind_the_end_of_the_log_go_but_offsets_do_not_start_again(crashed_copy: Copy) -> None:
    root = crashed_copy("crash-kill9")
    first = root / "consumequeue" / "CrashA" / "0" / f"{0:020d}"
    first.unlink()
    (root / "consumequeue" / "CrashA" / "0" / f"{6000:020d}").unlink()
    for path in sorted((root / "commitlog").iterdir())[3:]:
        path.unlink()
    result = recover(crashed_config(root))
    state = result.queues[("CrashA", 0)]
    assert (state.min_offset, state.max_offset) == (600, 600)
    assert (root / "consumequeue" / "CrashA" / "0" / f"{12000:020d}").read_bytes() == bytes(6000)


def test_index_newer_than_the_checkpoint_is_rebuilt_from_the_end_of_the_last_good_file(crashed_copy: Copy) -> None:
    root = crashed_copy("crash-kill9")
    config = crashed_config(root)
    paths = index_paths(root / "index")
    good = IndexFile(paths[2], config.index_slots, config.index_entries).header
    write_checkpoint(root, Checkpoint(0, 0, good.end_time_ms))
    result = recover(config)
    assert index_paths(root / "index")[-1] in paths[2:4]  # files may share the millisecond
    newest = IndexFile(index_paths(root / "index")[-1], config.index_slots, config.index_entries).header
    assert newest.end_time_ms <= good.end_time_ms
    assert result.redispatch_offset == newest.end_offset


def test_without_any_good_index_file_all_is_indexed_again(crashed_copy: Copy) -> None:
    root = crashed_copy("crash-kill9")
    write_checkpoint(root, Checkpoint(1 << 60, 1 << 60, 0))
    result = recover(crashed_config(root))
    assert index_paths(root / "index") == [] and result.redispatch_offset == 0
    assert len(result.notes) > 5


def test_index_entries_of_cut_records_are_taken_back(crashed_copy: Copy) -> None:
    root = crashed_copy("crash-torn-body")
    markers.write_boot_marker(root)
    config = crashed_config(root)
    before = [IndexFile(path, 100, 400) for path in index_paths(root / "index")]
    entries = {entry for file in before for entry in file.entries_from() if entry[1] < CUT}
    assert any(entry[1] >= CUT for file in before for entry in file.entries_from())
    recover(config)
    after = [IndexFile(path, 100, 400) for path in index_paths(root / "index")]
    assert {entry for file in after for entry in file.entries_from()} == entries
    assert all(file.unreachable_entries() == 0 for file in after)
    assert after[-1].header.end_offset == max(entry[1] for entry in entries)


def test_damage_after_a_clean_stop_does_not_cut_the_log(basic_copy: Path, expected: dict[str, Any]) -> None:
    path = basic_copy / "commitlog" / f"{3145728:020d}"
    data = bytearray(path.read_bytes())
    data[60_000:60_400] = b"\xff" * 400
    path.write_bytes(data)
    result = recover(basic_config(basic_copy))
    assert result.append_offset == expected["commitLogMaxOffset"]
    assert "damaged" in result.reasons[0]


def test_no_queue_is_searched_for_what_stands_behind_the_end_of_a_clean_log(
    basic_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With thousands of queues that search would be the longest part of a start."""

    def search(store: MessageStore, offset: int, readable_offset: int) -> int | None:
        raise AssertionError(f"a border behind {offset} was looked for, the queues end at {readable_offset}")

    monkeypatch.setattr(MessageStore, "next_border", search)
    assert recover(basic_config(basic_copy)).mode == recovery.CLEAN


def test_log_files_behind_a_hole_are_set_aside(crashed_copy: Copy) -> None:
    root = crashed_copy("crash-kill9")
    path = root / "commitlog" / f"{786432:020d}"
    path.write_bytes(bytes(262144))
    write_checkpoint(root, Checkpoint(0, 0, 0))
    result = recover(crashed_config(root))
    assert result.append_offset == 786432
    assert (root / "ringmq.cut" / f"{1048576:020d}.commitlog").exists()
    assert not (root / "commitlog" / f"{1048576:020d}").exists()


def _log_elsewhere(root: Path) -> StoreConfig:
    """The store's log in a folder of its own, as on a mount."""
    folder = root.with_name("mount") / "log"
    folder.parent.mkdir()
    (root / "commitlog").rename(folder)
    return replace(crashed_config(root), commit_log_directories=(folder,))


def test_what_is_cut_is_kept_in_the_store_wherever_the_log_lies(crashed_copy: Copy) -> None:
    root = crashed_copy("crash-torn-body")
    config = _log_elsewhere(root)
    result = recover(config)
    assert result.cut_bytes > 0
    assert [path.name for path in (root / "ringmq.cut").iterdir()] == [f"{CUT:020d}"]
    (log,) = config.commit_log_directories
    assert list(log.parent.iterdir()) == [log], "the folder above is not ours"
    assert all(path.is_file() for path in log.iterdir()), "stock may refuse a log with a folder in it"


def test_log_files_on_another_disk_than_the_store_are_copied(
    crashed_copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = crashed_copy("crash-kill9")
    config = _log_elsewhere(root)
    (log,) = config.commit_log_directories
    (log / f"{786432:020d}").write_bytes(bytes(262144))
    behind = {f"{path.name}.commitlog": path.read_bytes() for path in log.iterdir() if int(path.name) > 786432}
    behind = {name: data for name, data in behind.items() if data.strip(b"\0")}
    write_checkpoint(root, Checkpoint(0, 0, 0))

    def refuse(path: Path, target: Path) -> Path:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(Path, "rename", refuse)
    assert recover(config).append_offset == 786432
    kept = {path.name: path.read_bytes() for path in (root / "ringmq.cut").iterdir()}
    assert kept == behind and kept
    assert max(int(path.name) for path in log.iterdir()) == 786432


def test_a_death_between_two_files_that_are_set_aside_leaves_no_gap(
    crashed_copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = crashed_copy("crash-kill9")
    (root / "commitlog" / f"{524288:020d}").write_bytes(bytes(262144))
    write_checkpoint(root, Checkpoint(0, 0, 0))
    rename, done = Path.rename, list[Path]()

    def once(path: Path, target: Path) -> Path:
        if done:
            raise OSError(errno.EIO, "the disk is gone")
        done.append(path)
        return rename(path, target)

    with monkeypatch.context() as dying:
        dying.setattr(Path, "rename", once)
        with pytest.raises(OSError, match="the disk is gone"):
            recover(crashed_config(root))
    assert recover(crashed_config(root)).append_offset == 524288


def test_a_log_that_is_read_cannot_be_read_anew_from_the_disk(crashed_copy: Copy) -> None:
    root = crashed_copy("crash-kill9")
    markers.write_failed_marker(root, "fdatasync: EIO")
    path = root / "commitlog" / f"{786432:020d}"
    with path.open("rb") as reader:
        fcntl.fcntl(reader, fcntl.F_OFD_SETLK, byte_0_lock(fcntl.F_RDLCK))
        with pytest.raises(LogInUseError, match=f"{path} is being read by another process: end the readers"):
            recover(crashed_config(root))
        assert markers.failed_cause(root) == "fdatasync: EIO"
        markers.remove_failed_marker(root)
        recover(crashed_config(root))  # without a failed fsync nobody minds readers
    markers.write_failed_marker(root, "fdatasync: EIO")
    recover(crashed_config(root))
    assert markers.failed_cause(root) is None


def test_failed_marker_means_no_trust(crashed_copy: Copy) -> None:
    root = crashed_copy("crash-kill9")
    markers.write_boot_marker(root)
    markers.write_failed_marker(root, "fdatasync: EIO")
    result = recover(crashed_config(root))
    assert result.mode == recovery.CHECKPOINT and "EIO" in result.reasons[0]
    assert markers.failed_cause(root) is None


@pytest.mark.parametrize("failed", [True, False], ids=["failed fsync", "reboot"])
def test_units_missing_far_back_are_found_again_until_dispatch_has_made_them(crashed_copy: Copy, failed: bool) -> None:
    """A process that dies between the recovery and the end of dispatch leaves a tail that looks whole."""
    root = crashed_copy("crash-kill9")
    unit = _unit(root, "CrashA", 0, 1)
    _drop_units(root, "CrashA", 0, 1)
    write_checkpoint(root, Checkpoint(0, 0, 0))
    if failed:
        markers.write_boot_marker(root)
        markers.write_failed_marker(root, "fdatasync: EIO")
    for _ in range(2):
        result = recover(crashed_config(root), window_bytes=4096)
        assert result.queues[("CrashA", 0)].missing_from == unit.commit_log_offset
        assert result.redispatch_offset <= unit.commit_log_offset
        assert not result.is_tail_enough
        assert not markers.is_same_boot(root)


@pytest.mark.parametrize("mode", [recovery.SAME_BOOT, recovery.CHECKPOINT])
def test_units_missing_in_the_tail_alone_leave_the_boot_trusted(crashed_copy: Copy, mode: str) -> None:
    root = crashed_copy("crash-kill9")
    markers.write_boot_marker(root)
    write_checkpoint(root, Checkpoint(NEVER_MS, NEVER_MS, NEVER_MS))
    _drop_units(root, "CrashA", 0, 735)
    result = recover(crashed_config(root), window_bytes=8192, trust_boot=mode == recovery.SAME_BOOT)
    assert result.mode == mode
    assert result.queues[("CrashA", 0)].missing_from >= 0
    assert result.is_tail_enough and markers.is_same_boot(root)


def test_empty_and_new_stores(tmp_path: Path) -> None:
    result = recover(crashed_config(tmp_path))
    assert (result.append_offset, result.redispatch_offset, result.min_offset, result.queues) == (0, 0, 0, {})
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").touch()
    result = recover(crashed_config(tmp_path))
    assert result.append_offset == 0 and not list((tmp_path / "commitlog").iterdir())


def test_impossible_files_are_refused(basic_copy: Path, tmp_path: Path) -> None:
    config = basic_config(basic_copy)
    (basic_copy / "commitlog" / f"{1048576:020d}").rename(tmp_path / "gone")
    with pytest.raises(StoreLoadError, match="gap"):
        recover(config)
    (tmp_path / "gone").rename(basic_copy / "commitlog" / f"{1048576:020d}")
    with (basic_copy / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(StoreLoadError, match="1000 bytes"):
        recover(config)
    shutil.rmtree(basic_copy / "commitlog")
    with pytest.raises(StoreLoadError, match="has no log file with records"):
        recover(config)


def test_a_topic_made_again_counts_from_its_new_life(crashed_copy: Copy) -> None:
    """The log still holds 737 messages of the first life; the queue folder says that a new one began."""
    root = crashed_copy("crash-kill9")
    shutil.rmtree(root / "consumequeue" / "CrashB")
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "topics.json").write_text('{"topicConfigTable":{"CrashA":{}}}')
    (root / "config" / "topics.json.bak").unlink(missing_ok=True)
    result = recover(crashed_config(root))
    assert ("CrashB", 0) not in result.queues


def _made_again(root: Path, start_offsets: str) -> None:
    """CrashB has no queues, is known, and says from where on it is a new topic."""
    shutil.rmtree(root / "consumequeue" / "CrashB")
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "topics.json").write_text('{"topicConfigTable":{"CrashA":{},"CrashB":{}}}')
    (root / "config" / START_OFFSETS_FILE).write_text(start_offsets)
    write_checkpoint(root, Checkpoint(0, 0, 0))  # the whole log is read


def test_what_an_earlier_topic_of_the_name_has_in_the_log_is_not_taken_for_lost(crashed_copy: Copy) -> None:
    root = crashed_copy("crash-kill9")
    config = crashed_config(root)
    records = [record for _, record in MessageStore(config).commit_log.scan(0, END) if record.topic == "CrashB"]
    own = records[-3:]
    _made_again(root, json.dumps({"CrashB": own[0].commit_log_offset, "Gone": END + 1000, "Old": 0}))
    for found in (survey(config), recover(config)):
        states = {name: state for name, state in found.queues.items() if name[0] == "CrashB"}
        assert sorted(states) == sorted({("CrashB", record.queue_id) for record in own})
        for (_, queue_id), state in states.items():
            mine = [record for record in own if record.queue_id == queue_id]
            assert state.missing_from == mine[0].commit_log_offset
            assert state.next_offset == mine[-1].queue_offset + 1
    assert read_start_offsets(root) == {"CrashB": own[0].commit_log_offset, "Gone": found.append_offset}, (
        "it ends there now"
    )


def test_a_queue_of_a_new_topic_counts_on_from_its_units(crashed_copy: Copy) -> None:
    """Another owner may have cut the log and gone on below the place: units know better."""
    root = crashed_copy("crash-kill9")
    write_checkpoint(root, Checkpoint(0, 0, 0))
    _drop_units(root, "CrashA", 0, 300)
    without = survey(crashed_config(root)).queues
    assert without["CrashA", 0].missing_from >= 0
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / START_OFFSETS_FILE).write_text(json.dumps({"CrashA": END}))
    assert survey(crashed_config(root)).queues == without


@pytest.mark.parametrize("junk", ["{", "[]", '{"CrashB": "0"}', '{"CrashB": -1}', '{"CrashB": true}'])
def test_start_offsets_that_cannot_be_read_are_told_and_passed_over(crashed_copy: Copy, junk: str) -> None:
    root = crashed_copy("crash-kill9")
    _made_again(root, junk)
    result = recover(crashed_config(root))
    assert any("messages of topics that were deleted before may come back" in reason for reason in result.reasons)
    assert result.queues["CrashB", 0].missing_from >= 0
    assert START_OFFSETS_FILE in " ".join(result.reasons)


def test_a_queue_says_which_records_of_the_log_are_its_own(crashed_copy: Copy) -> None:
    root = crashed_copy("crash-kill9")
    result = recover(crashed_config(root))
    state = result.queues["CrashA", 0]
    assert state.replay_from(END) == state.physical_end > 0, "what it has units for is not taken twice"
    write_checkpoint(root, Checkpoint(0, 0, 0))
    _drop_units(root, "CrashA", 0, 300)
    state = recover(crashed_config(root)).queues["CrashA", 0]
    assert state.physical_end <= state.replay_from(END) <= state.missing_from
    _drop_units(root, "CrashA", 0, 0)
    state = recover(crashed_config(root)).queues["CrashA", 0]
    assert state.physical_end == -1 and state.replay_from(END) == state.missing_from


def test_a_queue_whose_records_were_all_cut_takes_none_that_are_left(crashed_copy: Copy) -> None:
    root = crashed_copy("crash-kill9")
    directory = root / "consumequeue" / "Again" / "0"
    directory.mkdir(parents=True)
    unit = layout.CONSUME_QUEUE_UNIT.pack(END + 1000, 100, 0)
    (directory / f"{0:020d}").write_bytes(unit.ljust(6000, b"\0"))
    result = recover(crashed_config(root))
    state = result.queues["Again", 0]
    assert (state.max_offset, state.physical_end, state.missing_from) == (0, -1, -1)
    assert state.replay_from(result.append_offset) == result.append_offset
