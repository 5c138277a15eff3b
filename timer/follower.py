"""A slave's wheel and TimerLog: they follow the master's progress, and nothing is delivered.

Control copies the progress (request 60) into `ringmqMasterTimers.json`. Records before its queue offset get units, but
not those of slots that the master has delivered. So a promotion goes on with the files as they are, unless the master
files messages otherwise: by another window of rolls, another precision, or as a stock broker by the time of its write.
Then a slot that the master has delivered may hold messages that it has not, and a promotion rebuilds the files. Of the
messages no memory is used but the mapped files.
"""

from __future__ import annotations

import os

from ringmq.native import lib
from ringmq.services.arrivals import Arrivals
from ringmq.services.kit.loop import SLEEP_MAX_MS, Part
from ringmq.store.layout import CONFIG
from ringmq.store.queue_reader import QueueReader
from ringmq.timer.core import ENQUEUE_MAX, Progress
from ringmq.timer.enqueuer import Enqueuer
from ringmq.timer.master_timers import FILE, MasterTimers, read_master_timers
from ringmq.timer.progress import Snapshot, known_coarsest_ms
from ringmq.timer.rebuild_notice import RebuildNotice
from ringmq.timer.retention_notice import OldestRecord
from ringmq.timer.saver import SAVE_MS, Saver
from ringmq.timer.timer_checkpoint import Filing
from ringmq.timer.timer_wheel import PRECISIONS_MS, SLOTS
from ringmq.timer.working_store import WorkingStore


class Follower(Part):
    """Between the start and the stop of a slave's worker. `needs_rebuild`: see Saved. `saves_at_start`: what is on disk
    about the files is not true of their next unit."""

    def __init__(self, store: WorkingStore, *, needs_rebuild: bool, saves_at_start: bool) -> None:
        self._store, self._slots = store, store.slots
        self._plane, self._role, self._queue = store.plane, store.role, store.queue
        self._reader = QueueReader(store.plane.struct, 8, 4)
        self._enqueuer = Enqueuer(store, self._reader)
        self._arrivals = Arrivals(store.plane, store.plane.port_of(store.role))
        self._saver = Saver(store, synced_offset=0)
        self._offset = store.recovered.progress.queue_offset
        self._oldest = OldestRecord(store.slots.files, store.slots.files.scanned_from)
        self._must_save, self._needs_rebuild = saves_at_start, needs_rebuild
        self._rebuild = RebuildNotice(
            self._offset, store.recovered.queue_end, store.slots.tally, store.log_line,
            is_rebuilt=store.slots.files.is_rebuilt,
        )  # fmt: skip
        self._timers: MasterTimers | None = None
        self._seen: tuple[int, int] | None = None
        self._save_at_ms = 0

    def turn(self, mono_ms: int) -> bool:
        """Append units as far as the master is, and save."""
        self._arrivals.take()
        self._look_at_master()
        before, offset = self._offset, self._enqueue()
        self._offset, self.has_worked = offset, offset > before
        self._rebuild.note(offset)
        if mono_ms >= self._save_at_ms:
            self._save_at_ms = mono_ms + SAVE_MS
            self._reader.tick()
            if self._timers is not None:
                self._saver.turn(mono_ms, self._state(), self._snapshot)
            if self._saver.clean(mono_ms):
                self._store.log_view.refresh()
            self._enqueuer.tick()
        words = self._plane.role(self._role).counters
        words[lib.RMQ_TIMER_WORD_ENQUEUED] = self._slots.tally.enqueued
        words[lib.RMQ_TIMER_WORD_NEXT] = offset
        if offset > before:
            return True
        self._arrivals.want(self._queue.queue_slot)
        return False

    def sleep_ms(self, now_ms: int) -> int:
        """See Part. An arrival rings the bell."""
        return 0 if self._arrivals.is_waiting else SLEEP_MAX_MS

    def _look_at_master(self) -> None:
        try:
            status = os.stat(self._store.root / CONFIG / FILE)  # noqa: PTH116 (each turn)
            if (status.st_ino, status.st_mtime_ns) != self._seen:
                before, self._timers = self._timers, read_master_timers(self._store.root) or self._timers
                files = self._store.slots.files
                has_units = files.log_end > files.log_begin
                if before is not None and self._timers is not None:  # a new master may deliver an earlier slot again
                    self._needs_rebuild |= has_units and self._timers.open_ms < before.open_ms
                self._seen = status.st_ino, status.st_mtime_ns
        except OSError:
            pass  # there is none yet

    def _enqueue(self) -> int:
        settings, timers, now_ms = self._store.settings(), self._timers, self._store.wall_ms()
        if timers is None or settings.stops_enqueue:
            return self._offset
        limit = min(ENQUEUE_MAX, timers.known_offset - self._offset)
        if limit <= 0 or now_ms - timers.open_ms > SLOTS // 2 * settings.precision_ms:
            return self._offset  # a slot of the next round would take the place of one that waits
        self._compare(timers)
        if self._must_save:
            self._saver.save_at_start(self._snapshot())
            self._must_save = False
        work = self._slots.work
        work.known_offset, work.known_ms = timers.known_offset, timers.open_ms
        work.known_coarsest_ms = known_coarsest_ms(timers)
        work.rolls_by_write = timers.marks_from is None
        work.open_ms = timers.open_ms - timers.open_ms % settings.precision_ms
        work.write_ms = now_ms - now_ms % settings.precision_ms
        self._enqueuer.skips_unknown_errors = settings.skips_unknown_errors
        return self._enqueuer.enqueue(self._offset, limit)

    def _compare(self, timers: MasterTimers) -> None:
        """Note if the master files messages otherwise. A slave without a unit takes over the master's largest step."""
        files = self._store.slots.files
        coarsest_ms = PRECISIONS_MS[-1] if timers.filing is None else timers.filing.coarsest_ms
        if files.log_end == files.log_begin:
            files.struct.coarsest_ms = max(int(files.struct.precision_ms), coarsest_ms)
        steps_ms = int(files.struct.precision_ms), int(files.struct.coarsest_ms), known_coarsest_ms(timers)
        own = Filing.of([files.window_slots, *steps_ms])
        self._needs_rebuild |= own is None or not own.agrees(timers.filing)

    # -- progress ------------------------------------------------------------------------------------------

    def _state(self) -> tuple[int, MasterTimers | None]:
        return int(self._slots.tally.enqueued), self._timers

    def _snapshot(self) -> Snapshot:
        timers = self._timers
        assert timers is not None
        open_ms = timers.open_ms - timers.open_ms % int(self._slots.files.struct.precision_ms)
        progress = Progress(
            open_ms, self._offset, timers.marks_from or 0, timers.known_offset, timers.open_ms,
            known_coarsest_ms(timers),
        )  # fmt: skip
        files = self._slots.files
        self._oldest.offset(open_ms)
        return Snapshot(
            progress, timers.log_offset, files.log_end, self._needs_rebuild or self._waits(), self._oldest.position,
            coarsest_ms=int(files.struct.coarsest_ms), window_slots=files.window_slots,
            needs_rebuild=self._needs_rebuild, master=timers,
        )  # fmt: skip

    def _waits(self) -> bool:
        if self._timers is None:
            return True
        return self._store.waits(self._timers.open_ms - self._timers.open_ms % self._store.settings().precision_ms)

    # -- the end -------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """True if no message waits, and all is saved. The next timer message starts the worker again."""
        if self._waits() or not self._saver.is_saved(self._state()):
            return False
        return int(self._plane.queue(self._queue.queue_slot).max_offset) <= self._offset

    def close(self, *, rests: bool) -> None:
        """Save the progress, and unmap the files of the store."""
        if self._timers is not None:
            self._saver.close(self._snapshot())
        self._enqueuer.close()
        self._reader.close()
