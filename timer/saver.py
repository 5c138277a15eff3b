"""Saves progress, wheel and TimerLog in a thread, and deletes log files that no message needs."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from ringmq.ipc.role_loop import RoleError
from ringmq.store.config_files import ConfigFileError
from ringmq.timer.progress import Snapshot, save
from ringmq.timer.timer_files import TimerFilesFailedError, remove_files
from ringmq.timer.working_store import WorkingStore

SAVE_MS, IDLE_SAVE_MS = 1000, 10_000
"""Time between two checkpoints, and between two while nothing changes."""
AT_END_MS = 1 << 62
"""The clock of the last save: everything is due."""
CLEAN_MS = 30_000
"""Time between two searches for log files that no message needs, as of stock."""


class Saver:
    """`synced_offset`: the log is on disk up to there."""

    def __init__(self, store: WorkingStore, synced_offset: int) -> None:
        self._plane, self._root, self._files, self._view = store.plane, store.root, store.slots.files, store.saver_view
        self._log_line, self._wall_ms = store.log_line, store.wall_ms
        self._thread = ThreadPoolExecutor(1, "timer-saver")
        self._saving: Future[None] | None = None
        self._saved: object = None
        self._saves_again = False
        """True if the thread saves what is on disk already."""
        self._idle_save_at_ms = self._clean_at_ms = 0
        self._synced_position, self._synced_offset = self._files.log_begin, synced_offset
        self.also: Callable[[int], Callable[[], None]] = lambda mono_ms: lambda: None
        """Prepares what the thread does after the files are saved. Gets the monotonic time."""
        self.before_drop: Callable[[int], None] = lambda position: None
        """Called before log files that end at a position are deleted."""

    def is_saved(self, state: object) -> bool:
        """True if this state is on disk."""
        return state == self._saved and (self._saving is None or self._saves_again)

    def turn(self, mono_ms: int, state: object, snapshot: Callable[[], Snapshot]) -> None:
        """Called once a second. `state` changes with each unit and each delivery. Raises TimerFilesFailedError."""
        if self._saving is not None:
            if not self._saving.done():
                return
            self._finish()
        if state != self._saved or mono_ms >= self._idle_save_at_ms:
            self._idle_save_at_ms = mono_ms + IDLE_SAVE_MS
            self._saved, self._saves_again = state, state == self._saved
            self._begin(snapshot(), mono_ms)

    def save_at_start(self, snapshot: Snapshot, then: Callable[[], None] = lambda: None) -> None:
        """Save before the first unit and the first copy, and do `then`. Raises TimerFilesFailedError, RoleError."""
        self._files.check()
        try:
            self._save(snapshot, self._descriptors(), then)
        except (OSError, ConfigFileError) as error:
            raise RoleError(f"timer: progress cannot be saved: {error}") from error

    def close(self, snapshot: Snapshot) -> None:
        """Save for the last time. Raises TimerFilesFailedError."""
        self._finish()
        self._begin(snapshot, AT_END_MS)
        self._finish()
        self._thread.shutdown()

    def clean(self, mono_ms: int) -> bool:
        """Delete log files whose last unit names a record that retention has deleted. False if it is not time yet."""
        if mono_ms < self._clean_at_ms:
            return False
        self._clean_at_ms = mono_ms + CLEAN_MS
        files, log_min = self._files, int(self._plane.watermarks.min_offset)
        while files.file_count > 1:
            unit = files.last_of_file(0)
            if unit is None or unit.commit_log_offset >= log_min:
                break
            end = files.log_begin + files.file_bytes
            self.before_drop(end)
            files.drop_before(end)
        return True

    def _begin(self, snapshot: Snapshot, mono_ms: int) -> None:
        self._files.check()  # the progress counts what was read of them
        self._saving = self._thread.submit(self._save, snapshot, self._descriptors(), self.also(mono_ms))

    def _descriptors(self) -> list[int]:
        return list(self._files.descriptors(self._synced_position))

    def _save(self, snapshot: Snapshot, descriptors: list[int], also: Callable[[], None]) -> None:
        """Units and copies first, because the checkpoint says that they are on disk."""
        try:
            for descriptor in descriptors:
                os.fdatasync(descriptor)
        except OSError as error:
            remove_files(self._root)  # the disk may have any part of them, and a second sync would succeed
            raise TimerFilesFailedError(f"wheel and TimerLog cannot be synced: {error}") from error
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self._view.refresh()
        if int(self._plane.watermarks.flushed_offset) < snapshot.log_offset:
            self._view.sync(self._synced_offset, snapshot.log_offset)
        save(self._root, snapshot, int(self._files.struct.precision_ms), self._view, self._wall_ms())
        self._synced_position, self._synced_offset = snapshot.log_position, snapshot.log_offset
        also()

    def _finish(self) -> None:
        saving, self._saving = self._saving, None
        if saving is None:
            return
        try:
            saving.result()
        except (OSError, ConfigFileError) as error:
            self._log_line(f"progress is not saved, it is tried again: {error}")
