"""Delivers the messages of all delay levels. One turn takes completions and publishes what is due.

The order within a level always holds: a message that cannot go now keeps those behind it waiting.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from ringmq.broker.requests.turns import Steps
from ringmq.ipc.plane import Plane
from ringmq.native import ffi, lib
from ringmq.remoting import names
from ringmq.remoting.config_beans import TopicConfig
from ringmq.remoting.errors import RequestError
from ringmq.services.arrivals import Arrivals
from ringmq.services.control_asks import ControlAsks
from ringmq.services.delay.levels import known_slots, queue_ends
from ringmq.services.delay.progress import Progress, following_marks, load_progress, may_have_waiting, save_progress
from ringmq.services.delay.schedule import RETRY_MS, Level, Schedule
from ringmq.services.kit.clocks import monotonic_ms, wall_ms
from ringmq.services.kit.log_lines import LogLines
from ringmq.services.kit.loop import Part
from ringmq.services.log_view import LogView
from ringmq.services.missing_targets import MissingTarget
from ringmq.services.republisher import Republisher
from ringmq.store.config_files import ConfigFileError, save_damaged_copy
from ringmq.store.layout import CONFIG, DELAY_OFFSETS_FILE
from ringmq.store.queue_reader import QueueReader
from ringmq.store.record_copy import Cause

SAVE_MS = 1000
CLOSE_MS = 2000
"""Longest wait for completions at the end."""
NAMED_MAX = 5
"""Entries of delayOffset.json that a line names."""
NOT_SAVED = "progress is not saved"


class Delivery(Part):
    """The shell of the worker `delay` between its start and its stop."""

    def __init__(
        self,
        plane: Plane,
        role: int,
        levels: list[Level],
        root: Path,
        log_view: LogView,
        topics: ControlAsks,
        log_line: Callable[[str], None],
        wall_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self._plane, self._role, self._root, self._log_view = plane, role, root, log_view
        self._topics, self._log_line, self._wall_ms = topics, LogLines(log_line), wall_ms
        self._schedule = Schedule(levels)
        self._arrivals = Arrivals(plane, plane.port_of(role))
        self._republisher = Republisher(plane, role, self._recover, self._log_line, lanes=len(levels))
        self._found: Progress | None = None
        self._scanned_end = 0
        """End of the log in which `_recover` has looked for copies."""
        self._next_due = ffi.new("int64_t *")
        self._creating: set[str] = set()
        self._refused: set[str] = set()
        self._half_id = plane.topic_find(names.HALF_TOPIC)
        self._last_wall_ms = 0
        self._saved: Progress | None = None
        self._unsaved: Progress | None = None
        self._save_at_ms = 0
        self._pause_ms = 0

    # -- one turn ------------------------------------------------------------------------------------------

    def turn(self, mono_ms: int) -> bool:
        """Take completions, publish what is due, save."""
        now_ms, self.has_worked = self._wall_ms(), False
        self._topics.turn(mono_ms)
        if now_ms < self._last_wall_ms:
            self._schedule.clock_moved_back()
        self._last_wall_ms = now_ms
        self._schedule.arrived(self._arrivals.take())
        may_publish = self._republisher.collect() and self._has_checkpoint(now_ms)
        if may_publish:
            for number in self._schedule.due(now_ms):
                self._deliver(number, now_ms)
                if not self._republisher.collect():
                    break
        if mono_ms >= self._save_at_ms:
            self._save_at_ms = mono_ms + SAVE_MS
            self._save(now_ms)
            self._poll_ends()
        self._pause_ms = self._schedule.sleep_ms(self._wall_ms()) if may_publish else RETRY_MS
        return not self._pause_ms

    def sleep_ms(self, now_ms: int) -> int:
        """See Part. The next delayed message rings the bell."""
        return 0 if self._arrivals.is_waiting or self._republisher.port.has_answers else self._pause_ms

    def rest(self) -> None:
        """Return the arena's memory to the system. Nothing is in flight."""
        self._plane.free_arena(self._republisher.port.number)

    @property
    def is_idle(self) -> bool:
        """True if every queue has ended, nothing is in flight, and the progress is saved."""
        if self._saved is None or self._unsaved is not None or self._topics.is_waiting or self._arrivals.is_waiting:
            return False
        if any(level.look_ms is not None for level in self._schedule.levels):
            return False
        port, progress = self._republisher.port, self._republisher.progress
        offsets = tuple(map(progress, range(len(self._schedule.levels))))
        if not port.answered or port.has_answers or offsets != self._saved.offsets[: len(offsets)]:
            return False
        return not any(map(self._has_more, range(len(self._schedule.levels))))

    def _deliver(self, number: int, now_ms: int) -> None:
        level, republisher = self._schedule.levels[number], self._republisher
        count = republisher.read(level.queue_slot, number)
        if not count:
            self._rest(number, now_ms)
            return
        batch = republisher.batch
        due = lib.rmq_due_units(batch.units, batch.records, count, now_ms, level.delay_ms, self._next_due)
        level.look_ms = int(self._next_due[0]) if due < count else 0
        due = self._with_targets(due, now_ms) if due else 0
        before = republisher.next_offset(number)
        if due:
            republisher.publish_aimed(due, number)
        has_moved = republisher.next_offset(number) > before
        self.has_worked = self.has_worked or has_moved
        if not has_moved and level.look_ms <= now_ms:
            level.look_ms = now_ms + RETRY_MS  # the ring is full, or a topic is being made

    def _rest(self, number: int, now_ms: int) -> None:
        """Wait for an arrival if the queue has ended, else for a little while."""
        level = self._schedule.levels[number]
        self._arrivals.want(level.queue_slot)
        level.look_ms = now_ms + RETRY_MS if self._has_more(number) else None

    def _poll_ends(self) -> None:
        """Find arrivals that a dispatch has died over before it reported them."""
        for number, level in enumerate(self._schedule.levels):
            if level.look_ms is None and self._has_more(number):
                level.look_ms = 0

    def _has_more(self, number: int) -> bool:
        slot = self._schedule.levels[number].queue_slot
        return int(self._plane.queue(slot).max_offset) > self._republisher.next_offset(number)

    # -- targets -------------------------------------------------------------------------------------------

    def _with_targets(self, due: int, now_ms: int) -> int:
        """The number of due records that may be published or passed over now."""
        excluded = lib.RMQ_NONE if self._half_id is None else self._half_id
        for missing in self._republisher.aim_each(due, excluded):
            if self._is_being_made(missing):
                return missing.number
            self._log_line(f"skips messages {missing}")
        return due

    def _is_being_made(self, missing: MissingTarget) -> bool:
        """Retry topics and dead letter topics are made again, so no retried message is lost with them."""
        topic = missing.topic
        if missing.cause is not Cause.NO_TOPIC or topic in self._refused:
            return False
        if not (names.is_retry_topic(topic) or names.is_dlq_topic(topic)):
            return False
        if self._plane.topic_find(topic) is not None:
            return True  # control has made it since these records were aimed
        if topic not in self._creating:
            self._creating.add(topic)

            def then(refusal: RequestError | None) -> None:
                self._creating.discard(topic)
                if refusal is not None and refusal.code == 1:
                    self._refused.add(topic)
                    self._log_line(f"cannot make topic {topic}: {refusal}")

            self._topics.create([TopicConfig(topic, 1, 1)], monotonic_ms(), then)
        return True

    # -- progress ------------------------------------------------------------------------------------------

    def _recover(self, reader: QueueReader, lane: int) -> Steps[int]:
        """The plane is new: files and the marks in the log say where to go on."""
        log_end = self._republisher.port.settled_end or 0
        if self._found is None:
            on_disk = min(log_end, int(self._plane.watermarks.flushed_offset))
            saved = loaded = self._load(log_end)
            if self._may_have_waiting(saved):
                segment_bytes = int(self._plane.header.settings.segment_bytes)
                saved = yield from following_marks(self._log_view, self._role, saved, log_end, segment_bytes)
            # copies behind the checkpoint may not be on disk yet: it is saved once they are
            self._found = replace(saved, log_offset=on_disk if saved is loaded else log_end)
            self._scanned_end = log_end
        queue = self._plane.queue(self._schedule.levels[lane].queue_slot)
        offset = min(self._found.offsets[lane], int(queue.max_offset))
        if self._found.has_checkpoint:
            return offset  # if retention has passed it, `read` counts the messages that are lost
        return max(int(queue.min_offset), offset)

    def _may_have_waiting(self, saved: Progress) -> bool:
        """False if the log need not be scanned. Levels that messageDelayLevel has lost count, too: their copies behind
        the checkpoint have to get into the next one."""
        return may_have_waiting(self._plane, known_slots(self._plane), saved)

    def _load(self, log_end: int) -> Progress:
        levels = len(self._schedule.levels)
        left_out: list[str] = []
        try:
            ends = queue_ends(self._plane, known_slots(self._plane))
            found = load_progress(self._root, levels, self._log_view, log_end, left_out.append, ends)
        except ConfigFileError as error:
            self._log_line(f"{error}: the marks of the whole log tell what was delivered")
            return Progress(0, (0,) * levels, has_checkpoint=False)
        if left_out:
            kept = save_damaged_copy(self._root, DELAY_OFFSETS_FILE)
            path = self._root / CONFIG / DELAY_OFFSETS_FILE
            more = f"; {len(left_out) - NAMED_MAX} more" if len(left_out) > NAMED_MAX else ""
            self._log_line(f"{path}: {'; '.join(left_out[:NAMED_MAX])}{more}. The damaged file is kept as {kept}")
        return found

    def _snapshot(self, flushed_offset: int) -> Progress | None:
        """None while it is unknown. `flushed_offset`: end of the log that is on disk, or that will be at a stop."""
        self._republisher.count_passed()
        offsets = tuple(self._republisher.progress(lane) for lane in range(len(self._schedule.levels)))
        if any(offset < 0 for offset in offsets):
            return None
        found = self._of_files()
        scanned = self._scanned_end if self._scanned_end <= flushed_offset else 0
        log_offset = max(found.log_offset, scanned, self._republisher.log_offset)
        return Progress(log_offset, offsets + found.offsets[len(offsets) :])

    def _save(self, now_ms: int) -> None:
        """Save the newest progress whose copies are on disk, once a second while it changes."""
        flushed_offset = int(self._plane.watermarks.flushed_offset)
        self._unsaved = self._unsaved or self._snapshot(flushed_offset)
        if self._unsaved is None or flushed_offset < self._unsaved.log_offset:
            return
        progress, self._unsaved = self._unsaved, None
        if progress != self._saved:
            self._write(progress, now_ms)

    def _of_files(self) -> Progress:
        """The progress of the files. In a new plane, `_recover` has found it."""
        if self._found is None:
            self._found = self._load(int(self._plane.watermarks.append_offset))
        return self._found

    def _has_checkpoint(self, now_ms: int) -> bool:
        """True once there is one of this log: the first copy makes delayOffset.json alone too old to go by."""
        if self._saved is None and not self._of_files().has_checkpoint:
            self._save(now_ms)
            return self._saved is not None
        return True

    def _write(self, progress: Progress, now_ms: int) -> None:
        try:
            save_progress(self._root, progress, self._log_view, now_ms)
            self._saved = progress
            self._log_line.forget(NOT_SAVED)
        except (OSError, ConfigFileError) as error:
            self._log_line(f"{NOT_SAVED}, it is tried again: {error}")

    def close(self, *, rests: bool) -> None:
        """Wait for the completions of what was submitted, and save the progress."""
        end = time.monotonic_ns() + CLOSE_MS * 1_000_000
        while time.monotonic_ns() < end and not self._republisher.port.answered:
            self._republisher.wait(RETRY_MS)
        self._republisher.collect()
        progress = self._snapshot(int(self._plane.watermarks.append_offset))
        if progress is not None and progress != self._saved:
            self._write(progress, self._wall_ms())
        self._republisher.close()
