"""What the flush worker's shell decides, and what is left behind a failed sync of queues."""

import errno
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from ringmq.broker import flush_shell
from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.relations import changed
from ringmq.broker.config.run_config import write_run_config
from ringmq.broker.flush_shell import FlushShell
from ringmq.broker.server import finish
from ringmq.ipc.exit_status import EXIT_CLEAN, EXIT_UNCLEAN_STOP
from ringmq.ipc.plane import Capacity, Plane
from ringmq.native import lib
from ringmq.store import markers
from ringmq.store.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from ringmq.store.config import StoreConfig
from ringmq.store.retention import LogRetention, RetentionSettings
from tests.native.plane_kit import Kit
from tests.waiting import TIMEOUT_S, wait_until


def test_a_fault_is_taken_back_when_a_dead_predecessor_has_made_the_file(tmp_path: Path) -> None:
    kit = Kit(tmp_path / "store")
    kit.create_segment(65536)
    with kit.flusher() as flush:
        assert lib.rmq_flusher_set_fault(flush.handle, lib.RMQ_FAULT_CREATE_FILE, 5) == 0
        shell = FlushShell.__new__(FlushShell)  # without its thread and configuration
        shell._flusher = flush.handle
        assert shell._make_next_segment()
        assert kit.marks.store_fault == lib.RMQ_FAULT_NONE
        assert lib.rmq_flusher_set_fault(flush.handle, lib.RMQ_FAULT_FSYNC, 5) == 0
        assert shell._make_next_segment()
        assert kit.marks.store_fault == lib.RMQ_FAULT_FSYNC


def test_a_file_that_cannot_be_made_is_told_once(tmp_path: Path, log_text: Callable[[], str]) -> None:
    kit = Kit(tmp_path / "store")
    with kit.flusher() as flush:
        shell = FlushShell.__new__(FlushShell)
        shell._flusher, shell._root, shell._not_made = flush.handle, kit.root, None
        shell._store_config = StoreConfig(root=kit.root, commit_log_file_bytes=65536)
        shell._plane = SimpleNamespace(watermarks=kit.marks, wake=lambda role: None)  # type: ignore[assignment]
        folder = tmp_path / "away"
        shell._directory = folder
        for _ in range(5):
            assert not shell._make_next_segment()
        file = folder / f"{65536:020d}"
        assert log_text() == f"log file {file} cannot be made: No such file or directory\n"
        folder.mkdir()
        assert shell._make_next_segment() and shell._not_made is None


def test_retention_follows_the_configuration(tmp_path: Path, log_text: Callable[[], str]) -> None:
    config = changed(BrokerConfig(), {"storePathRootDir": str(tmp_path)})
    name = f"test-{uuid.uuid4().hex[:12]}"
    path = write_run_config(name, config)
    shell = FlushShell.__new__(FlushShell)
    shell._config_path, shell._config_seen = path, flush_shell._identity_of(path)
    shell._retention = LogRetention(StoreConfig(root=tmp_path), RetentionSettings(), lambda: 0)
    try:
        shell._follow_config()
        assert shell._retention.settings == RetentionSettings()
        write_run_config(name, changed(config, {"fileReservedTime": "1", "deleteWhen": "05;17"}))
        shell._follow_config()
        assert (shell._retention.settings.reserved_s, shell._retention.settings.delete_hours) == (3600, (5, 17))
        path.write_text("{")
        shell._follow_config()
        assert shell._retention.settings.reserved_s == 3600
        assert "retention keeps its settings" in log_text()
    finally:
        path.unlink()


def test_it_is_tried_again_after_a_while_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flush_shell, "SEGMENT_RETRY_MS", 200)
    shell = FlushShell.__new__(FlushShell)
    shell._clean_every_s, shell._closing, shell._work = 60.0, threading.Event(), threading.Event()
    shell._deleted = []
    tries: list[float] = []

    def try_and_fail() -> bool:
        tries.append(time.monotonic())
        return False

    shell._make_next_segment = try_and_fail  # type: ignore[method-assign]
    thread = threading.Thread(target=shell._housekeeping_loop)
    thread.start()

    def four_tries() -> bool:
        shell._work.set()
        return len(tries) >= 4

    wait_until(four_tries, "the file is asked for four times")
    shell._closing.set()
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()
    assert tries[3] - tries[0] >= 0.6, "the file is asked for all the time"


def test_a_checkpoint_that_cannot_be_written_is_told_once(
    tmp_path: Path, log_text: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = Kit(tmp_path / "store")
    shell = FlushShell.__new__(FlushShell)
    shell._root, shell._unwritten = kit.root, ""
    shell._plane = SimpleNamespace(watermarks=kit.marks, role=lambda role: kit.header.roles[role])  # type: ignore[assignment]
    state = SimpleNamespace(store_fault=lib.RMQ_FAULT_NONE, flushed_store_time_ms=70_000)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(flush_shell, "write_checkpoint", full)
        for _ in range(3):
            shell._write_checkpoint(state)
    assert log_text().count("the checkpoint cannot be written") == 1
    shell._write_checkpoint(state)
    assert read_checkpoint(kit.root).physic_time_ms == 70_000 and shell._unwritten == ""


@pytest.mark.parametrize("fault", [lib.RMQ_FAULT_NONE, lib.RMQ_FAULT_QUEUE_SYNC])
def test_no_checkpoint_after_a_failed_sync_of_queues(tmp_path: Path, fault: int) -> None:
    kit = Kit(tmp_path / "store")
    kit.marks.dispatch_fault = fault
    write_checkpoint(kit.root, Checkpoint(1, 1, 1))
    shell = FlushShell.__new__(FlushShell)
    shell._root = kit.root
    shell._plane = SimpleNamespace(watermarks=kit.marks, role=lambda role: kit.header.roles[role])  # type: ignore[assignment]
    shell._write_checkpoint(SimpleNamespace(store_fault=lib.RMQ_FAULT_NONE, flushed_store_time_ms=70_000))
    assert read_checkpoint(kit.root).physic_time_ms == (1 if fault else 70_000)


@pytest.mark.parametrize("fault", [lib.RMQ_FAULT_NONE, lib.RMQ_FAULT_QUEUE_SYNC])
def test_a_stop_is_clean_only_when_the_last_sync_of_queues_was(tmp_path: Path, fault: int) -> None:
    capacity = Capacity(
        topics=64, queues=64, groups=64, subscriptions=64, offsets=64, parked_slots=64,
        commit_slots=64, arrived_slots=64,
    )  # fmt: skip
    plane = Plane.create(f"test-{uuid.uuid4().hex[:12]}", capacity, tmp_path.stat(), 1)
    plane.watermarks.dispatch_fault, plane.watermarks.dispatch_fault_errno = fault, errno.EIO if fault else 0
    markers.write_abort(tmp_path, 1)
    status = finish(plane, tmp_path, EXIT_CLEAN)
    assert status == (EXIT_UNCLEAN_STOP if fault else EXIT_CLEAN)
    assert markers.has_abort(tmp_path) == bool(fault)
    assert (markers.failed_cause(tmp_path) or "").startswith("fsync of a consume queue" if fault else "")


def test_a_failed_housekeeping_ends_the_worker() -> None:
    """Its thread alone would end unseen, and no log file would be made any more: the supervisor starts flush again."""
    script = """if True:
        import threading, time
        from ringmq.broker.flush_shell import FlushShell
        def clean():
            raise ValueError("a surprise")
        shell = FlushShell.__new__(FlushShell)
        shell._clean_every_s, shell._closing, shell._work = 0.0, threading.Event(), threading.Event()
        shell._deleted = []
        shell._make_next_segment, shell._clean = lambda: True, clean
        thread = threading.Thread(target=shell._housekeeping_loop)
        thread.start()
        thread.join(60)
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "ValueError: a surprise" in done.stderr and "_housekeeping_loop" in done.stderr


def test_deleted_files_are_let_go_one_by_one_when_readers_have_had_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0
    monkeypatch.setattr(flush_shell, "time", SimpleNamespace(monotonic=lambda: now_s))
    shell = FlushShell.__new__(FlushShell)
    shell._work = threading.Event()
    shell._deleted = []
    descriptors = [os.open(tmp_path, os.O_RDONLY) for _ in range(2)]
    for descriptor in descriptors:
        shell._deleted.append((now_s + flush_shell.DEFERRED_CLOSE_S, descriptor))

    def is_open(descriptor: int) -> bool:
        return Path(f"/proc/self/fd/{descriptor}").exists()

    shell._free_deleted()
    assert all(map(is_open, descriptors)), "a reader may map them yet"
    now_s += flush_shell.DEFERRED_CLOSE_S
    shell._free_deleted()
    assert [is_open(descriptor) for descriptor in descriptors] == [False, True]
    assert shell._work.is_set(), "the next one has its turn soon"
    shell._free_deleted()
    assert not shell._deleted
