"""The shell of the worker `timer`: performs what the core decides, saves its progress, sleeps until there is work."""

from __future__ import annotations

from array import array
from collections.abc import Callable

from msgspec.structs import replace

from ringmq.native import lib
from ringmq.services.arrivals import Arrivals
from ringmq.services.kit.clocks import monotonic_ms
from ringmq.services.kit.loop import SLEEP_MAX_MS, Part, sleep
from ringmq.timer.catch_up import CatchUp
from ringmq.timer.core import (
    Close,
    Effect,
    Enqueue,
    Enqueued,
    Event,
    ForgetDelivered,
    Publish,
    Published,
    Refused,
    Stored,
    Tick,
    TimerCore,
    Walk,
    Walked,
)
from ringmq.timer.enqueuer import Enqueuer
from ringmq.timer.master_timers import delete_master_timers
from ringmq.timer.progress import Snapshot
from ringmq.timer.publisher import Publisher
from ringmq.timer.read_time import ReadTime
from ringmq.timer.rebuild_notice import RebuildNotice
from ringmq.timer.recovery import LatestSlots
from ringmq.timer.retention_notice import OldestRecord, RetentionNotice
from ringmq.timer.saver import Saver
from ringmq.timer.statistics import Statistics
from ringmq.timer.walk_pace import PIECE_MAX, piece_of
from ringmq.timer.working_store import WorkingStore

CHECK_MS = 1000
"""Time between two rounds of slow checks."""
RETRY_MS, SETTLE_MS = 100, 2
"""Longest and first pause while the worker waits for a word that rings no bell. Each pause without work doubles it."""
CLOSE_MS = 2000
"""Longest wait at the end, beside a slot's length."""
PIECE_PAUSE_MS = 1


class Delivery(Part):
    """Between the start and the stop of the worker. `delivered`: see Slots.set_delivered. `disk_percent`: see
    RetentionNotice. `saves_at_start`: the progress on disk counts no longer, because it is that of other files, of a
    former master, or of a log that was cut since."""

    def __init__(
        self,
        store: WorkingStore,
        publisher: Publisher,
        delivered: array[int],
        latest: LatestSlots,
        disk_percent: Callable[[], int],
        *,
        saves_at_start: bool,
    ) -> None:
        self._store, self._publisher = store, publisher
        self._plane, self._role, self._queue = store.plane, store.role, store.queue
        self._slots, self._wall_ms = store.slots, store.wall_ms
        recovered, work = store.recovered, store.slots.work
        store.slots.set_delivered(delivered)
        work.known_offset, work.known_ms = recovered.progress.known_offset, recovered.progress.known_ms
        work.known_coarsest_ms = recovered.progress.known_coarsest_ms
        self._queue_end, self._is_rebuilding = recovered.queue_end, store.slots.files.is_rebuilt
        self.core = TimerCore(
            store.settings(), recovered.progress, store.slots, latest.delivered_ms, recovered.queue_end,
            latest.opened_ms, publisher.port.settled_end or 0,
        )  # fmt: skip
        self._statistics = Statistics(store)
        self._enqueuer = Enqueuer(store, publisher.reader)
        self._read_time = ReadTime()
        self._catch_up = CatchUp(store.log_line)
        self._rebuild = RebuildNotice(
            recovered.progress.queue_offset, recovered.queue_end, store.slots.tally, store.log_line,
            is_rebuilt=store.slots.files.is_rebuilt,
        )  # fmt: skip
        self._arrivals = Arrivals(store.plane, store.plane.port_of(store.role))
        self._saver = Saver(store, recovered.progress.marks_from)
        self._saver.also, self._saver.before_drop = self._save_counts, self._count_lost
        self._oldest = OldestRecord(store.slots.files, store.slots.files.scanned_from)
        self._notice = RetentionNotice(store.log_line, disk_percent)
        self._save_at_ms = self._early_save_at_ms = self._check_at_ms = 0
        self._has_more, self.has_worked, self._pause_ms, self._poll_ms = True, True, 0, SETTLE_MS
        if saves_at_start:
            self._saver.save_at_start(self._snapshot(), then=lambda: delete_master_timers(store.root))

    # -- one turn ------------------------------------------------------------------------------------------

    def turn(self, mono_ms: int) -> bool:
        """Take completions, enqueue, publish what is due, save."""
        self.core.settings = self._store.settings()
        self._enqueuer.skips_unknown_errors = self.core.settings.skips_unknown_errors
        self._has_more = self.has_worked = False  # that a slot ends is no work
        if not self._statistics.topics.is_complete:
            self._statistics.topics.count_piece()
            self._has_more = True
        self._arrivals.take()
        collected = self._publisher.collect()
        if collected.stored:
            self._slots.stored(collected.stored, self._wall_ms())
            self._step(Stored(collected.stored, self._publisher.log_offset))
        if collected.has_settled:
            self._slots.refused(self.core.source_ms)
            self._step(Refused())
        self._step(Tick(int(self._plane.watermarks.append_offset)))
        is_paced = self._walk()
        if mono_ms >= self._save_at_ms:
            interval_ms = self.core.settings.flush_interval_ms
            self._save_at_ms, self._early_save_at_ms = mono_ms + interval_ms, mono_ms + interval_ms // 2
            self._saver.turn(mono_ms, self._totals(), self._snapshot)
        if mono_ms >= self._check_at_ms:
            self._check_at_ms = mono_ms + CHECK_MS
            self._publisher.reader.tick()
            self._statistics.write_words(self._publisher.words, mono_ms)
            self._check_retention(mono_ms)
            if self._saver.clean(mono_ms):
                self._store.log_view.refresh()
            self._enqueuer.tick()
            if not self.core.settings.stops_dequeue:
                self._catch_up.note(self.core.progress.open_ms, self._wall_ms(), mono_ms, self._totals()[1])
        self._write_words()
        is_walking = self._slots.walking_ms is not None
        self._pause_ms = 0 if self._has_more or (is_walking and not is_paced) else self._next_pause_ms(is_walking)
        return not self._pause_ms

    def _walk(self) -> bool:
        """Read a piece of a slot. Returns True if the next one has time."""
        slots = self._slots
        slot_ms = slots.walking_ms
        if slot_ms is None:
            return False
        units = piece_of(slot_ms, self._wall_ms(), self.core.settings.precision_ms, slots.count(slot_ms))
        walked = slots.walk(self._publisher.reader, units)
        if walked is not None:
            self._step(Walked(*walked))
        return units < PIECE_MAX

    def _check_retention(self, mono_ms: int) -> None:
        oldest = self._oldest.offset(self.core.progress.open_ms)
        self._publisher.words[lib.RMQ_TIMER_WORD_OLDEST] = 0 if oldest is None else oldest + 1
        log_min = self._store.log_view.bounds().min_offset
        segment_bytes = int(self._plane.header.settings.segment_bytes)
        self._notice.check(
            oldest, first_file_end=log_min - log_min % segment_bytes + segment_bytes,
            clean_percent=self.core.settings.clean_percent, mono_ms=mono_ms,
        )  # fmt: skip

    def _write_words(self) -> None:
        """The words of the role block for the exporter (native/src/plane/metrics_layout.h)."""
        words, tally, flight = self._publisher.words, self._slots.tally, self._slots.flight
        words[lib.RMQ_TIMER_WORD_ENQUEUED] = tally.enqueued
        words[lib.RMQ_TIMER_WORD_DELIVERED] = flight.delivered
        words[lib.RMQ_TIMER_WORD_ROLLED] = flight.rolled
        words[lib.RMQ_TIMER_WORD_DELETED] = tally.deleted
        words[lib.RMQ_TIMER_WORD_UNREADABLE] = tally.damaged + tally.without_time
        words[lib.RMQ_TIMER_WORD_OPEN_MS] = self.core.progress.open_ms
        words[lib.RMQ_TIMER_WORD_NEXT] = self.core.progress.queue_offset

    def sleep_ms(self, now_ms: int) -> int:
        """See Part. An arrival rings the bell."""
        return 0 if self._publisher.port.has_answers or self._arrivals.is_waiting else self._pause_ms

    def _next_pause_ms(self, is_walking: bool) -> int:
        """Time until there is work, if nothing arrives."""
        self._arrivals.want(self._queue.queue_slot)
        now_ms = self._wall_ms()
        next_ms = self.core.next_ms(now_ms, self._publisher.flow.pause_ms(monotonic_ms()))
        pause_ms = min(next_ms - now_ms, PIECE_PAUSE_MS if is_walking else SLEEP_MAX_MS)
        is_settling, has_arrivals = self._publisher.flow.is_settling, self._has_arrivals()
        is_waiting = is_settling or has_arrivals or self.core.waits_for_delete(now_ms)
        if self.has_worked or not is_waiting:
            self._poll_ms = SETTLE_MS
        if is_waiting:
            pause_ms = min(max(1, pause_ms), RETRY_MS if self._enqueuer.is_waiting_for_room else self._poll_ms)
            self._poll_ms = min(RETRY_MS, 2 * self._poll_ms)
        return max(0, pause_ms)

    def _has_arrivals(self) -> bool:
        queue = self._plane.queue(self._queue.queue_slot)
        return int(queue.max_offset) > self.core.progress.queue_offset and not self.core.settings.stops_enqueue

    def _step(self, event: Event) -> None:
        for effect in self.core.step(event, self._wall_ms()):
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Enqueue():
                self._step(self._enqueue(effect))
            case Walk(slot_ms, until_ms, required_ms):
                self._slots.begin_walk(slot_ms, until_ms, required_ms)
            case Publish():
                count = self._publisher.publish(effect, self._wall_ms())
                self._has_more |= count > 0
                self.has_worked = self.has_worked or count > 0
                flight = self._slots.flight
                self._step(Published(count, int(flight.last_delete) if count else 0, int(flight.delete_ms)))
            case Close(slot_ms):
                self._slots.close(slot_ms)
                self._has_more = True
                self._save_at_ms = min(self._save_at_ms, self._early_save_at_ms)  # stock would deliver the slot again
            case ForgetDelivered():
                self._is_rebuilding = False
                self._slots.set_delivered(array("Q"))

    # -- enqueue -------------------------------------------------------------------------------------------

    def _enqueue(self, effect: Enqueue) -> Enqueued:
        work, marks, now_ms = self._slots.work, self._plane.watermarks, self._wall_ms()
        confirmed, dispatched = int(lib.rmq_confirm_offset(marks)), int(marks.dispatched_offset)
        complete_ms = self._read_time.complete_ms(confirmed, dispatched, now_ms)
        work.write_ms, work.open_ms = effect.write_ms, effect.open_ms
        offset = self._enqueuer.enqueue(effect.offset, effect.limit)
        self._rebuild.note(offset)
        self.has_worked = self.has_worked or offset > effect.offset
        self._has_more |= self._enqueuer.has_more
        if self._enqueuer.has_more or self._enqueuer.is_blocked:
            return Enqueued(offset, int(work.read_ms), self._enqueuer.log_offset)
        return Enqueued(offset, complete_ms, dispatched)

    # -- progress ------------------------------------------------------------------------------------------

    def _totals(self) -> tuple[int, int]:
        flight = self._slots.flight
        return int(self._slots.tally.enqueued), int(flight.delivered + flight.rolled)

    def _snapshot(self) -> Snapshot:
        progress = replace(self.core.progress)
        log_offset = max(progress.marks_from, self._publisher.log_offset)
        files, marks = self._slots.files, self._plane.watermarks
        is_all_dispatched = int(marks.dispatched_offset) >= self._publisher.log_offset  # rolled copies have no unit yet
        end = int(self._plane.queue(self._queue.queue_slot).max_offset)
        waits = self._waits()
        is_done = not waits and is_all_dispatched and progress.queue_offset >= max(end, self._queue_end)
        if is_done:  # all that comes is filed by the present window
            files.window_slots = int(files.struct.window_slots)
        return Snapshot(
            progress, log_offset, files.log_end, waits, waits_from=self._oldest.position,
            coarsest_ms=0 if is_done else int(files.struct.coarsest_ms), window_slots=files.window_slots,
            is_rebuilding=self._is_rebuilding,
        )  # fmt: skip

    def _save_counts(self, mono_ms: int) -> Callable[[], None]:
        rows = self._statistics.rows_to_save(mono_ms)
        return lambda: self._statistics.save(rows, mono_ms)

    def _count_lost(self, end: int) -> None:
        """Retention takes the units before a position."""
        following_ms = self.core.progress.open_ms + self.core.settings.precision_ms
        if lost := self._statistics.topics.drop_before(end, following_ms):
            self._store.log_line(
                f"retention has deleted {lost} waiting timer messages: their records in the CommitLog are gone"
            )

    # -- the end -------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """True if no message waits, and all is saved. The next timer message starts the worker again."""
        if self.core.in_flight or not self._saver.is_saved(self._totals()):
            return False
        return not self._waits() and not self._has_arrivals()

    def _waits(self) -> bool:
        return self.core.is_behind or self._store.waits(self.core.progress.open_ms)

    def close(self, *, rests: bool) -> None:
        """Finish the open slot, so that a stock broker does not deliver it again, and save the progress."""
        end_ms = monotonic_ms() + CLOSE_MS + self.core.settings.precision_ms
        open_ms = self.core.progress.open_ms
        may_end = self.core.finish_slot(self._wall_ms())
        if may_end and self._slots.next_used(open_ms, open_ms + self.core.settings.precision_ms) is not None:
            while self.core.progress.open_ms == open_ms and (now_ms := monotonic_ms()) < end_ms:
                if not self.turn(now_ms):
                    sleep(self._plane, self._role, lambda: self.sleep_ms(now_ms))
        while self.core.in_flight and monotonic_ms() < end_ms:
            collected = self._publisher.collect()
            if collected.stored:
                self._slots.stored(collected.stored, self._wall_ms())
                self._step(Stored(collected.stored, self._publisher.log_offset))
            if collected.has_settled:
                break
            self._plane.wait(self._role, 10)
        self._saver.close(self._snapshot())
        self._publisher.words[lib.RMQ_TIMER_WORD_OPEN_MS] = 0
        self._publisher.words[lib.RMQ_TIMER_WORD_OLDEST] = 0
        self._enqueuer.close()
        self._publisher.close()

    def rest(self) -> None:
        """Return the arena's memory to the system. Nothing is in flight."""
        self._plane.free_arena(self._publisher.port.number)
