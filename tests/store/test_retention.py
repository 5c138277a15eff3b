"""Which log files go, and when; deletion by unlink below the safe offset only."""

import fcntl
import mmap
import os
import threading
import time
from pathlib import Path

import pytest

from ringmq.store.config import StoreConfig, StoreConfigError
from ringmq.store.retention import (
    LogFile,
    LogRetention,
    RetentionSettings,
    RetentionState,
    disk_ratios,
    parse_delete_when,
    step,
    used_ratio,
)
from ringmq.store.store_lock import byte_0_lock
from tests.store.golden_stores import SIZES

HOUR_S = 3600.0
NOW = 1_000_000.0
OLD, YOUNG = NOW - 73 * HOUR_S, NOW - 71 * HOUR_S
SETTINGS = RetentionSettings()


def _state(*modified: float, ratio: float = 0.5, hour: int = 12, queues: float = 0.1) -> RetentionState:
    return RetentionState(tuple(LogFile(i * 4096, at) for i, at in enumerate(modified)), ratio, queues, hour)


@pytest.mark.parametrize(
    ("state", "deleted", "full"),
    [
        (_state(OLD, OLD, YOUNG), 0, False),  # not the hour, enough space
        (_state(OLD, OLD, YOUNG, hour=4), 2, False),
        (_state(YOUNG, OLD, hour=4), 0, False),  # only a prefix goes
        (_state(OLD, YOUNG, ratio=0.75), 0, False),
        (_state(OLD, YOUNG, ratio=0.76), 1, False),
        (_state(YOUNG, YOUNG, ratio=0.85), 0, False),
        (_state(YOUNG, YOUNG, ratio=0.86), 2, False),  # forced
        (_state(YOUNG, YOUNG, ratio=0.91), 2, True),  # and refuse writes
        (_state(YOUNG, YOUNG, ratio=0.1, queues=0.91), 2, True),
        (_state(*[OLD] * 30, hour=4), 10, False),  # at most so many in one round
        (_state(hour=4), 0, False),
        (_state(ratio=0.95), 0, True),
    ],
)
def test_decision(state: RetentionState, deleted: int, full: bool) -> None:
    effects = step(SETTINGS, state, NOW)
    assert effects.delete == tuple(i * 4096 for i in range(deleted))
    assert effects.disk_full is full


def test_force_can_be_switched_off() -> None:
    settings = RetentionSettings(may_force=False)
    assert step(settings, _state(YOUNG, ratio=0.95), NOW).delete == ()
    assert step(settings, _state(OLD, ratio=0.95), NOW).delete == (0,)


def test_properties_are_clamped_like_stocks() -> None:
    settings = RetentionSettings.from_properties(
        {"diskMaxUsedSpaceRatio": "99", "diskSpaceCleanForciblyRatio": "1", "diskSpaceWarningLevelRatio": "100",
         "deleteWhen": "04;16", "fileReservedTime": "1"}
    )  # fmt: skip
    assert (settings.delete_ratio, settings.forced_ratio, settings.warning_ratio) == (0.95, 0.30, 0.90)
    assert (settings.delete_hours, settings.reserved_s) == ((4, 16), 3600.0)
    for bad in ("24", "x", "4;-1"):
        with pytest.raises(StoreConfigError, match="deleteWhen"):
            parse_delete_when(bad)


def _log(root: Path, count: int) -> StoreConfig:
    config = StoreConfig(root=root, commit_log_file_bytes=4096, **SIZES)  # type: ignore[arg-type]
    (root / "commitlog").mkdir()
    for i in range(count):
        path = root / "commitlog" / f"{i * 4096:020d}"
        path.write_bytes(bytes([i + 1]) * 4096)
        os.utime(path, (1, 1))
    return config


def _ratio(_: Path) -> float:
    return 0.8


def test_only_files_below_the_safe_offset_go_and_the_bound_is_published_first(tmp_path: Path) -> None:
    config = _log(tmp_path, 5)
    seen: list[tuple[int, int]] = []
    retention = LogRetention(config, SETTINGS, lambda: 2 * 4096 + 100, _ratio)
    outcome = retention.run(
        time.time(), publish=lambda offset: seen.append((offset, len(list((tmp_path / "commitlog").iterdir()))))
    )
    assert [path.name for path in outcome.deleted] == [f"{0:020d}", f"{4096:020d}"]
    assert outcome.min_offset == 8192 and seen == [(8192, 5)]
    assert retention.run(time.time()).deleted == ()


def test_the_newest_file_stays_whatever_the_safe_offset_says(tmp_path: Path) -> None:
    config = _log(tmp_path, 3)
    LogRetention(config, SETTINGS, lambda: 1 << 40, _ratio).run(time.time())
    assert [path.name for path in (tmp_path / "commitlog").iterdir()] == [f"{8192:020d}"]


def test_a_mapped_file_keeps_its_bytes(tmp_path: Path) -> None:
    config = _log(tmp_path, 2)
    with (tmp_path / "commitlog" / f"{0:020d}").open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    assert LogRetention(config, SETTINGS, lambda: 4096, _ratio).run(time.time()).min_offset == 4096
    assert mapped[:] == b"\x01" * 4096


def test_who_asks_for_it_lets_go_of_deleted_files_last(tmp_path: Path) -> None:
    config = _log(tmp_path, 3)
    kept: list[int] = []
    retention = LogRetention(config, SETTINGS, lambda: 2 * 4096, _ratio)
    assert len(retention.run(time.time(), keep_open=kept.append).deleted) == 2
    assert [os.fstat(descriptor).st_nlink for descriptor in kept] == [0, 0]
    assert [os.pread(descriptor, 1, 0) for descriptor in kept] == [b"\x01", b"\x02"]
    for descriptor in kept:
        os.close(descriptor)


def _read_lock(path: Path) -> int:
    """What a reader of the log does with a file that it maps."""
    descriptor = os.open(path, os.O_RDONLY)
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, byte_0_lock(fcntl.F_RDLCK))
    return descriptor


def test_a_file_that_is_read_stays_with_those_behind_it(tmp_path: Path) -> None:
    config = _log(tmp_path, 4)
    names = [f"{i * 4096:020d}" for i in range(4)]
    published: list[int] = []
    reader = _read_lock(tmp_path / "commitlog" / names[1])
    retention = LogRetention(config, SETTINGS, lambda: 1 << 40, _ratio)
    outcome = retention.run(time.time(), publish=published.append)
    assert [path.name for path in outcome.deleted] == names[:1]
    assert outcome.held == tmp_path / "commitlog" / names[1]
    assert (outcome.min_offset, published) == (4096, [4096])
    again = retention.run(time.time(), publish=published.append)
    assert (again.deleted, again.min_offset, again.held, published) == ((), None, outcome.held, [4096])
    os.close(reader)
    last = retention.run(time.time())
    assert [path.name for path in last.deleted] == names[1:3]
    assert last.held is None


def test_force_takes_files_that_are_read(tmp_path: Path) -> None:
    config = _log(tmp_path, 2)
    reader = _read_lock(tmp_path / "commitlog" / f"{0:020d}")
    outcome = LogRetention(config, SETTINGS, lambda: 1 << 40, lambda _: 0.86).run(time.time())
    assert [path.name for path in outcome.deleted] == [f"{0:020d}"]
    assert os.pread(reader, 4, 0) == b"\x01" * 4, "who has it open keeps the bytes"
    os.close(reader)


def test_a_reader_that_comes_during_a_deletion_waits_and_finds_the_file_gone(tmp_path: Path) -> None:
    config = _log(tmp_path, 2)
    path = tmp_path / "commitlog" / f"{0:020d}"
    links: list[int] = []

    def read() -> None:
        descriptor = os.open(path, os.O_RDONLY)
        opened.set()
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW, byte_0_lock(fcntl.F_RDLCK))
        links.append(os.fstat(descriptor).st_nlink)
        os.close(descriptor)

    opened = threading.Event()
    reader = threading.Thread(target=read)

    def come(min_offset: int) -> None:
        reader.start()
        opened.wait()

    LogRetention(config, SETTINGS, lambda: 1 << 40, _ratio).run(time.time(), publish=come)
    reader.join()
    assert links == [0]


def test_rounds_compare_the_emptiest_disk_of_the_log_and_that_of_the_queues(tmp_path: Path) -> None:
    used = {tmp_path / "a": 0.9, tmp_path / "b": 0.5, tmp_path / "consumequeue": 0.6}
    config = StoreConfig(root=tmp_path, commit_log_directories=(tmp_path / "a", tmp_path / "b"))
    assert disk_ratios(config, used.__getitem__) == (0.5, 0.6)


def test_used_ratio(tmp_path: Path) -> None:
    assert 0 <= used_ratio(tmp_path) <= 1
    assert used_ratio(tmp_path / "missing") == -1
