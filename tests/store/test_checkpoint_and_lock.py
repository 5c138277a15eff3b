"""Checkpoint bytes, the store lock against our own and Java's kind of lock, and the markers of the last run."""

import fcntl
import multiprocessing
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from ringmq.store import layout, markers
from ringmq.store.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from ringmq.store.store_lock import StoreLock, StoreLockedError


def test_golden_checkpoint_is_written_back_byte_for_byte(golden_basic: Path, tmp_path: Path) -> None:
    golden = (golden_basic / "checkpoint").read_bytes()
    checkpoint = read_checkpoint(golden_basic)
    assert checkpoint.encode() == golden
    assert struct.unpack(">qqqqq", golden[:40])[0] == checkpoint.physic_time_ms > 0
    write_checkpoint(tmp_path, checkpoint)
    assert (tmp_path / "checkpoint").read_bytes() == golden


def test_minimum_times() -> None:
    assert Checkpoint(10_000, 9_000, 20_000).min_time_ms == 6_000
    assert Checkpoint(10_000, 9_000, 5_000).min_time_with_index_ms == 5_000
    assert Checkpoint(1_000, 9_000, 0).min_time_ms == 0


def test_missing_and_short_checkpoint_count_as_zero(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path) == Checkpoint()
    (tmp_path / "checkpoint").write_bytes(b"\x00" * 9)
    assert read_checkpoint(tmp_path) == Checkpoint()


@pytest.mark.parametrize("field", range(3))
@pytest.mark.parametrize("time_ms", [-1, 1 << 60])
def test_a_checkpoint_with_an_impossible_time_has_no_times(tmp_path: Path, time_ms: int, field: int) -> None:
    times, lines = [1000, 2000, 3000], list[str]()
    times[field] = time_ms
    write_checkpoint(tmp_path, Checkpoint(*times, 4, 5))
    assert read_checkpoint(tmp_path, lines.append) == Checkpoint(0, 0, 0, 4, 5)
    assert len(lines) == 1 and f"{tmp_path / 'checkpoint'}: a time of {time_ms} ms is impossible" in lines[0]


def test_second_lock_of_this_and_another_process_is_refused(tmp_path: Path) -> None:
    lock = StoreLock(tmp_path)
    assert (tmp_path / "lock").read_bytes() == b"lock"
    with pytest.raises(StoreLockedError, match=str(tmp_path)):
        StoreLock(tmp_path)
    code = (
        f"from pathlib import Path; from ringmq.store.store_lock import StoreLock; StoreLock(Path({str(tmp_path)!r}))"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert other.returncode != 0 and "StoreLockedError" in other.stderr
    lock.close()
    StoreLock(tmp_path).close()


def _posix_lock(path: str, held: "multiprocessing.synchronize.Event", end: "multiprocessing.synchronize.Event") -> None:
    """What FileChannel.tryLock(0, 1, false) of a stock broker does."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    held.set()
    end.wait(60)


def test_conflict_with_the_lock_of_a_stock_broker(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    held, end = context.Event(), context.Event()
    stock = context.Process(target=_posix_lock, args=(str(tmp_path / "lock"), held, end))
    stock.start()
    assert held.wait(60)
    with pytest.raises(StoreLockedError, match=f"process {stock.pid}"):
        StoreLock(tmp_path)
    end.set()
    stock.join(60)
    lock = StoreLock(tmp_path)
    with pytest.raises(BlockingIOError):
        descriptor = os.open(tmp_path / "lock", os.O_RDWR)
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    os.close(descriptor)  # closing another descriptor drops a POSIX lock, not ours
    with pytest.raises(StoreLockedError):
        StoreLock(tmp_path)
    lock.close()


def test_lock_lives_as_long_as_a_process_that_inherited_it(tmp_path: Path) -> None:
    lock = StoreLock(tmp_path)
    worker = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, pass_fds=[lock.descriptor]
    )
    lock.close()
    with pytest.raises(StoreLockedError):
        StoreLock(tmp_path)
    worker.communicate(timeout=60)
    StoreLock(tmp_path).close()


def test_boot_marker_belongs_to_place_and_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, copy = tmp_path / "store", tmp_path / "copy"
    store.mkdir()
    copy.mkdir()
    assert not markers.is_same_boot(store)
    markers.write_boot_marker(store)
    assert markers.is_same_boot(store)
    (copy / "ringmq.boot").write_bytes((store / "ringmq.boot").read_bytes())
    assert not markers.is_same_boot(copy)
    other = tmp_path / "boot_id"
    other.write_text("another boot\n")
    monkeypatch.setattr(markers, "BOOT_ID", other)
    assert not markers.is_same_boot(store)
    (store / "ringmq.boot").write_bytes(b"\xff\xfe")
    assert not markers.is_same_boot(store)


def test_abort_and_failed_markers(tmp_path: Path) -> None:
    markers.write_abort(tmp_path, 4711)
    assert (tmp_path / "abort").read_text() == "4711 ringmq" and markers.has_abort(tmp_path)
    markers.remove_abort(tmp_path)
    markers.remove_abort(tmp_path)
    assert not markers.has_abort(tmp_path)
    assert markers.failed_cause(tmp_path) is None
    markers.write_failed_marker(tmp_path, "fdatasync of the log: EIO")
    assert markers.failed_cause(tmp_path) == "fdatasync of the log: EIO"
    (tmp_path / layout.FAILED_MARKER).write_bytes(b"EIO \xff")
    assert markers.failed_cause(tmp_path) == "EIO \ufffd"
    markers.remove_failed_marker(tmp_path)
    assert markers.failed_cause(tmp_path) is None
