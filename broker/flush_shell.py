"""The decisions of the flush worker between two slices of its C loop: next segment, checkpoint, retention, fault
marker.

A thread of its own makes and deletes files, because making 1 GiB of blocks must not delay a group commit.
"""

import contextlib
import errno
import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

from ringmq.broker.config.run_config import read_run_config, store_config
from ringmq.ipc.plane import Plane
from ringmq.ipc.worker import WorkerSpec
from ringmq.native import ffi, lib
from ringmq.store.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from ringmq.store.markers import write_failed_marker
from ringmq.store.retention import LogRetention, RetentionSettings

log = logging.getLogger(__name__)

CHECKPOINT_EVERY_MS = 1000
SEGMENT_RETRY_MS = 1000
DEFERRED_CLOSE_S = 3.0
"""Time from the deletion of a log file to the close of its last descriptor. Readers unmap it within a second."""
NOTHING_CONFIRMED = 1  # no record ends there


class FlushShell:
    """The shell. The flush worker owns it. `idle` runs on its main thread, `_housekeeping_loop` on a helper thread."""

    def __init__(self, plane: Plane, flusher: Any, spec: WorkerSpec) -> None:
        self._config_path = Path(spec.config_path)
        self._config_seen = _identity_of(self._config_path)
        config = read_run_config(self._config_path)
        self._plane = plane
        self._flusher = flusher
        self._root = Path(config.store_path_root_dir)
        self._store_config = store_config(config)
        self._directory = self._store_config.commit_log_directories[0]
        settings = RetentionSettings.from_properties(config.as_properties())
        self._retention = LogRetention(self._store_config, settings, self._safe_offset)
        self._clean_every_s = config.clean_resource_interval / 1000
        self._checkpoint_due_ms = 0
        self._marker_written = False
        self._held: Path | None = None  # said once for each file
        self._deleted: list[tuple[float, int]] = []
        """(time to close it, descriptor) of deleted log files."""
        self._not_made: tuple[int, int] | None = None
        self._unwritten = ""
        self._work = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._housekeeping_loop, name="segments", daemon=True)
        self._thread.start()

    def idle(self, reason: int) -> None:
        """Called after each slice with the C loop's reason."""
        state = self._state()
        if not state.next_segment_exists:
            self._work.set()
        if state.store_fault == lib.RMQ_FAULT_FSYNC and not self._marker_written:
            self._leave_marker(state.store_fault_errno)
        now_ms = time.monotonic_ns() // 1_000_000
        if now_ms >= self._checkpoint_due_ms:
            self._checkpoint_due_ms = now_ms + CHECKPOINT_EVERY_MS
            self._write_checkpoint(state)

    def close(self) -> None:
        """End the helper thread and write a last checkpoint."""
        self._closing.set()
        self._work.set()
        self._thread.join(timeout=5)
        self._write_checkpoint(self._state())

    def _state(self) -> Any:
        state = ffi.new("struct rmq_flush_state *")
        lib.rmq_flusher_state(self._flusher, state)
        return state

    def _leave_marker(self, number: int) -> None:
        self._marker_written = True
        cause = f"fdatasync of the commit log failed: {os.strerror(number)}"
        log.critical("%s; writes are refused until the broker is restarted", cause)
        try:
            write_failed_marker(self._root, cause)
        except OSError as error:
            log.critical("cannot write %s/ringmq.failed, so the next start trusts cached pages: %s", self._root, error)

    def _write_checkpoint(self, state: Any) -> None:
        queues_failed = self._plane.watermarks.dispatch_fault == lib.RMQ_FAULT_QUEUE_SYNC
        if state.store_fault == lib.RMQ_FAULT_FSYNC or queues_failed:
            return  # no more bytes are durable than the old checkpoint says
        old = read_checkpoint(self._root)
        dispatch = self._plane.role(lib.RMQ_ROLE_DISPATCH).counters
        new = Checkpoint(
            physic_time_ms=max(old.physic_time_ms, state.flushed_store_time_ms),
            logics_time_ms=max(old.logics_time_ms, dispatch[lib.RMQ_DISPATCH_QUEUES_SYNCED_MS]),
            index_time_ms=max(old.index_time_ms, dispatch[lib.RMQ_DISPATCH_INDEX_SYNCED_MS]),
            master_flushed_offset=old.master_flushed_offset,
            confirm_offset=self._confirmed(),
        )
        if new != old:
            try:
                write_checkpoint(self._root, new)
                self._unwritten = ""
            except OSError as error:
                if str(error) != self._unwritten:  # a line for each cause, not for each attempt
                    log.error("the checkpoint cannot be written, next try in 1 s: %s", error)
                self._unwritten = str(error)

    def _confirmed(self) -> int:
        """The offset that replicas have confirmed, for readers of a store without owner. 0 if the broker waits for no
        replicas."""
        limited = self._plane.watermarks.confirm_policy & lib.RMQ_CONFIRM_LIMITED
        return max(self._plane.confirm_offset(), NOTHING_CONFIRMED) if limited else 0

    # -- helper thread -------------------------------------------------------------------------------------

    def _housekeeping_loop(self) -> None:
        """Run the helper thread's loop. If it fails, the worker ends and is replaced, because only a full log would
        show the loss of this thread."""
        try:
            self._housekeeping_round()
        except BaseException:
            with contextlib.suppress(Exception):
                log.critical("the thread that makes and deletes log files has ended by a defect", exc_info=True)
        else:
            return
        os._exit(1)  # as after a kill, at any step of the main thread; the replacement recovers

    def _housekeeping_round(self) -> None:
        clean_due = time.monotonic() + self._clean_every_s
        while not self._closing.is_set():
            self._work.wait(timeout=min(self._clean_every_s, 1.0))
            self._work.clear()
            if self._closing.is_set():
                return
            made = self._make_next_segment()
            self._free_deleted()
            if time.monotonic() >= clean_due and not self._deleted:  # else the disk does not show the last cleaning yet
                clean_due = time.monotonic() + self._clean_every_s
                self._clean()
            if not made:
                self._closing.wait(timeout=SEGMENT_RETRY_MS / 1000)  # the main thread requests the file again

    def _make_next_segment(self) -> bool:
        """Make the next segment. False if a file is missing and cannot be made now."""
        state = self._state()
        if state.next_segment_exists:
            if state.store_fault == lib.RMQ_FAULT_CREATE_FILE:  # a dead flush set the fault and did not clear it
                lib.rmq_flusher_set_fault(self._flusher, lib.RMQ_FAULT_NONE, 0)
            return True
        size = self._store_config.commit_log_file_bytes
        code = lib.rmq_segment_create(os.fsencode(self._root), os.fsencode(self._directory), state.next_segment, size)
        if code == 0:
            if state.store_fault in (lib.RMQ_FAULT_CREATE_FILE, lib.RMQ_FAULT_DISK_FULL):
                lib.rmq_flusher_set_fault(self._flusher, lib.RMQ_FAULT_NONE, 0)
            self._not_made = None
            self._plane.wake(lib.RMQ_ROLE_WRITE)
            return True
        full = -code in (errno.ENOSPC, errno.EDQUOT)
        kind = lib.RMQ_FAULT_DISK_FULL if full else lib.RMQ_FAULT_CREATE_FILE
        if self._not_made != (state.next_segment, code):  # once for each file
            self._not_made = (state.next_segment, code)
            path = self._directory / f"{state.next_segment:020d}"
            log.error("log file %s cannot be made: %s", path, os.strerror(-code))
        # Writes go on in the current file. They are refused when 15/16 of it are full.
        if self._plane.watermarks.append_offset + size // 16 >= state.next_segment:
            lib.rmq_flusher_set_fault(self._flusher, kind, -code)
        return False

    def _safe_offset(self) -> int:
        """End of the log that retention may delete. Bytes from here on are not on disk or not dispatched yet."""
        marks = self._plane.watermarks
        return int(min(marks.flushed_offset, marks.dispatched_offset))

    def _publish_min_offset(self, min_offset: int) -> None:
        lib.rmq_flusher_set_min_offset(self._flusher, min_offset)
        self._plane.wake(lib.RMQ_ROLE_DISPATCH)

    def _free_deleted(self) -> None:
        """Free the blocks of a deleted file. Readers must not do it, because freeing would stop their connections."""
        if self._deleted and time.monotonic() >= self._deleted[0][0]:
            os.close(self._deleted.pop(0)[1])
            if self._deleted:
                self._work.set()  # one file at a time, because the next segment may be needed meanwhile

    def _follow_config(self) -> None:
        """Apply changed properties of retention. Control replaces the file after request 25."""
        try:
            seen = _identity_of(self._config_path)
            if seen == self._config_seen:
                return
            properties = read_run_config(self._config_path).as_properties()
        except (OSError, ValueError) as error:
            log.error("retention keeps its settings, %s cannot be read: %s", self._config_path, error)
            return
        self._config_seen = seen
        self._retention.settings = RetentionSettings.from_properties(properties)

    def _clean(self) -> None:
        self._follow_config()

        def keep_open(descriptor: int) -> None:
            self._deleted.append((time.monotonic() + DEFERRED_CLOSE_S, descriptor))

        try:
            outcome = self._retention.run(time.time(), publish=self._publish_min_offset, keep_open=keep_open)
        except OSError as error:
            log.error("retention failed, next try in %g s: %s", self._clean_every_s, error)
            return
        if outcome.held is not None and outcome.held != self._held:
            log.warning("retention waits: another process reads %s", outcome.held)
        self._held = outcome.held
        for path in outcome.deleted:
            log.info("retention deleted %s (%s)", path, outcome.reason)
        state = self._state()
        if outcome.disk_full and state.store_fault == lib.RMQ_FAULT_NONE:
            lib.rmq_flusher_set_fault(self._flusher, lib.RMQ_FAULT_DISK_FULL, errno.ENOSPC)
        elif not outcome.disk_full and state.store_fault == lib.RMQ_FAULT_DISK_FULL and state.next_segment_exists:
            lib.rmq_flusher_set_fault(self._flusher, lib.RMQ_FAULT_NONE, 0)


def _identity_of(path: Path) -> tuple[int, int]:
    """The identity of a file, which differs from that of its replacement."""
    status = path.stat()
    return status.st_ino, status.st_mtime_ns
