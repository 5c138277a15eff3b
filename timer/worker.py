"""Entry point of the worker `timer`: `python -m ringmq.timer.worker NAME SPEC`."""

from __future__ import annotations

import logging
import sys
import time
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ringmq.broker.config.broker_config import BrokerConfig
from ringmq.broker.config.run_config import store_config
from ringmq.broker.requests.turns import Steps, TurnClock
from ringmq.ipc.collector import bound_collections
from ringmq.ipc.exit_status import EXIT_CLEAN, EXIT_RESTED
from ringmq.ipc.plane import Plane
from ringmq.ipc.role_loop import RoleError, run_worker
from ringmq.ipc.tenure import follows_master
from ringmq.ipc.worker import STATE_SERVING, StopFlag, WorkerSpec
from ringmq.native import lib
from ringmq.remoting.names import WHEEL_TIMER_TOPIC
from ringmq.services.config_watcher import ConfigWatcher
from ringmq.services.kit.clocks import wall_ms
from ringmq.services.kit.log_lines import LogLines
from ringmq.services.kit.loop import Part, ServiceLoop
from ringmq.services.kit.side_stop import SideStop
from ringmq.services.log_view import LogView
from ringmq.services.republisher import QueueTarget, find_target
from ringmq.store.config_files import ConfigFileError
from ringmq.store.index_file import IndexStore
from ringmq.store.layout import INDEX, TIMER_TOPIC
from ringmq.store.message_store import MessageStore
from ringmq.store.queue_reader import QueueReader
from ringmq.store.retention import disk_ratios
from ringmq.timer.core import TimerSettings
from ringmq.timer.delivery import Delivery
from ringmq.timer.follower import Follower
from ringmq.timer.master_timers import read_master_timers
from ringmq.timer.progress import Saved, believable, load_saved, of_master
from ringmq.timer.publisher import Publisher
from ringmq.timer.recovery import (
    Recovered,
    find_delivered,
    latest_slots,
    open_files,
    proven,
    record_reader,
    recover_files,
    scan_begin,
)
from ringmq.timer.rolled_copies import RolledCopies
from ringmq.timer.slots import Slots
from ringmq.timer.target_index import TargetIndex
from ringmq.timer.timer_files import TimerFiles, TimerFilesFailedError
from ringmq.timer.working_store import WorkingStore

log = logging.getLogger(__name__)
Found = TypeVar("Found")

REST_AFTER_MS = 30_000
"""Time without waiting messages after which the worker ends."""
SETTLE_MS = 5
SCAN_MS = 50


def timer_settings(config: BrokerConfig) -> TimerSettings:
    """The properties that the core needs."""
    return TimerSettings(
        config.timer_precision_ms, config.timer_roll_window_slot, config.timer_stop_enqueue, config.timer_stop_dequeue,
        config.timer_skip_unknown_error, config.disk_max_used_space_ratio, config.timer_flush_interval_ms,
    )  # fmt: skip


def reserved_slots(config: BrokerConfig) -> int:
    """Slots that a record may wait in the log: retention by age does not come to it within 3/4 of its time."""
    return max(2, config.file_reserved_time * 3_600_000 * 3 // 4 // config.timer_precision_ms)


def roll_slots(config: BrokerConfig) -> int:
    """Slots after which a message is rolled."""
    return min(config.timer_roll_window_slot, reserved_slots(config))


class Opened(Struct, frozen=True):
    """The store and the files of a start."""

    plane: Plane
    role: int
    config: Callable[[], BrokerConfig]
    root: Path
    queue: QueueTarget
    log_view: LogView
    saver_view: LogView
    saved: Saved
    follows: bool
    """True on a slave."""
    was_slave: bool
    """True if the progress is that of a former master."""
    files: TimerFiles
    log_line: Callable[[str], None]

    def settings(self) -> TimerSettings:
        """The current properties."""
        return replace(timer_settings(self.config()), coarsest_ms=int(self.files.struct.coarsest_ms))

    @property
    def has_other_window(self) -> bool:
        """True if the window differs from the saved one, which must be on disk before the first unit."""
        return self.files.window_slots != self.saved.window_slots

    def disk_percent(self) -> int:
        """Use of the disk by which retention decides."""
        return round(100 * max(disk_ratios(store_config(self.config()))))

    def working_store(self, slots: Slots, recovered: Recovered) -> WorkingStore:
        """The store for delivery or follower, with the index in which deletes find the messages that they name."""
        store = store_config(self.config())
        index = IndexStore(store.root / INDEX, store.index_slots, store.index_entries)
        targets = TargetIndex(slots.work.index, index, self.files, recovered.queue_end, self.log_line)
        return WorkingStore(
            self.plane, self.role, self.root, self.queue, self.log_view, self.saver_view, slots, targets, recovered,
            self.settings, self.log_line,
        )  # fmt: skip

    def checked(self) -> Opened:
        """Return it without what the saved progress tells of records that the timer topic does not have."""
        end = int(self.plane.queue(self.queue.queue_slot).max_offset)
        return replace(self, saved=believable(self.saved, end, self.log_line))

    def recover(self, log_end: int) -> Recovered:
        """See recover_files."""
        row = self.plane.queue(self.queue.queue_slot)
        return recover_files(
            self.files, self.saved, record_reader(self.log_view), queue_min=int(row.min_offset),
            queue_max=int(row.max_offset), log_min=self.log_view.bounds().min_offset, log_end=log_end, now_ms=wall_ms(),
        )  # fmt: skip


def open_store(plane: Plane, role: int, config: Callable[[], BrokerConfig], stop: SideStop) -> Opened | None:
    """Open wheel and log, and read the progress, in turns. None if the stop comes first."""
    start, root = config(), Path(config().store_path_root_dir)
    queue = find_target(plane, WHEEL_TIMER_TOPIC)
    if queue is None:
        raise RoleError(f"timer: topic {WHEEL_TIMER_TOPIC} has no queue 0")
    log_view, saver_view = (LogView(plane, MessageStore(store_config(start))) for _ in range(2))
    settings, log_end = timer_settings(start), int(plane.watermarks.append_offset)
    own = load(root, log_view, log_end)
    follows = stop.follows
    saved = own if follows else of_master(own, read_master_timers(root), log_end)
    oldest = oldest_record(log_view, int(plane.queue(queue.queue_slot).min_offset))
    opening = open_files(
        root, saved, precision_ms=settings.precision_ms, window_slots=roll_slots(start),
        file_bytes=start.mapped_file_size_timer_log, log_line=log.warning,
        oldest_record=oldest, is_slave=follows, usual_slots=start.timer_roll_window_slot,
    )  # fmt: skip
    try:
        files = in_turns(opening, stop, plane.role(role))
    except OSError as error:
        raise RoleError(f"timer: wheel and TimerLog cannot be opened: {error}") from error
    if files is None:
        return None
    words = plane.role(role).counters
    words[lib.RMQ_TIMER_WORD_REBUILDS] += files.is_rebuilt
    words[lib.RMQ_TIMER_WORD_MENDED_SLOTS] += files.mended_slots
    own_from = None if follows else int(plane.header.first_append)
    files.struct.coarsest_ms = coarsest_ms(start, saved, oldest, own_from)
    log_line = LogLines(log.warning)
    was_slave = saved is not own
    return Opened(plane, role, config, root, queue, log_view, saver_view, saved, follows, was_slave, files, log_line)


def coarsest_ms(config: BrokerConfig, saved: Saved, oldest: int | None, own_from: int | None) -> int:
    """Return the largest precision that any waiting message was admitted by. This broker has admitted all records
    itself if the oldest one lies behind `own_from`, the log's end at its start. None on a slave."""
    if own_from is not None and oldest is not None and oldest >= own_from:
        return config.timer_precision_ms
    return max(config.timer_precision_ms, saved.coarsest_ms)


def oldest_record(log_view: LogView, queue_min: int) -> int | None:
    """Return the log offset of the oldest record of the timer topic that retention has left, None without one."""
    found = log_view.units(TIMER_TOPIC, 0, queue_min, 1)
    return found[0][0] if found else None


def make_delivery(opened: Opened, stop: SideStop) -> Delivery | None:
    """Recover, in turns. None if the stop comes first."""
    plane, role, queue, log_view = opened.plane, opened.role, opened.queue, opened.log_view
    slots, block = Slots(opened.files), plane.role(role)
    publisher = Publisher(plane, role, slots, queue, opened.log_line)
    while not publisher.is_settled():
        if stop.is_set:
            return None
        block.progress += 1
        plane.wait(role, SETTLE_MS)
    log_end = publisher.port.settled_end or 0
    segment_bytes, step_ms = int(plane.header.settings.segment_bytes), opened.settings().precision_ms
    if opened.saved.is_cut:
        saved = in_turns(proven(log_view, role, opened.saved, log_end, segment_bytes, step_ms), stop, block)
        if saved is None:
            return None
        opened.log_line(f"the log was cut since the progress was saved: delivery goes on at slot {saved.open_ms}")
        opened = replace(opened, saved=saved)
    opened = opened.checked()
    recovered = opened.recover(log_end)
    since = scan_begin(log_view, opened.saved, log_end, segment_bytes, is_rebuilt=recovered.is_rebuilt)
    delivered = in_turns(find_delivered(log_view, role, since, log_end, segment_bytes, step_ms), stop, block)
    if delivered is None:
        return None
    if delivered.offsets:
        recovered.progress.marks_from = since
    latest = latest_slots(log_view, delivered, recovered, wall_ms())
    rolled = in_turns(find_rolled(opened, slots, publisher.reader, recovered, delivered.offsets), stop, block)
    if rolled is None:
        return None
    slots.set_rolled(*rolled)
    store = opened.working_store(slots, recovered)
    saves_at_start = recovered.is_rebuilt or opened.was_slave or opened.saved.is_cut or opened.has_other_window
    return Delivery(store, publisher, delivered.offsets, latest, opened.disk_percent, saves_at_start=saves_at_start)


def find_rolled(
    opened: Opened, slots: Slots, reader: QueueReader, recovered: Recovered, delivered: Iterable[int]
) -> Steps[tuple[array[int], int]]:
    """Find what was rolled of the records that have no unit yet, in steps: see Slots.set_rolled. The timer topic may
    not have the newest copies yet, those of `delivered`."""
    copies = RolledCopies(recovered.progress.queue_offset, delivered)
    sources = yield from copies.read(
        reader, opened.queue.queue_slot, opened.role, slots.work.index.secret, recovered.queue_end,
        lambda: opened.plane.wait(opened.role, SETTLE_MS),
    )  # fmt: skip
    return sources, copies.end


def in_turns(steps: Steps[Found], stop: SideStop, block: Any) -> Found | None:
    """Run the steps, and show the progress in the role's block. None if the stop comes first."""
    clock, found = TurnClock(time.monotonic_ns), None
    while found is None and not stop.is_set:
        block.progress += 1
        found = clock.advance(steps, SCAN_MS)
    return found


def make_follower(opened: Opened) -> Follower:
    """Recover, on a slave. What its master has rolled is told by the master's slots, see Follower."""
    opened = opened.checked()
    recovered, slots = opened.recover(int(opened.plane.watermarks.append_offset)), Slots(opened.files)
    needs_rebuild = opened.saved.needs_rebuild and not recovered.is_rebuilt
    saves_at_start = recovered.is_rebuilt or opened.has_other_window
    store = opened.working_store(slots, recovered)
    return Follower(store, needs_rebuild=needs_rebuild, saves_at_start=saves_at_start)


def load(root: Path, log_view: LogView, log_end: int) -> Saved:
    """The progress on disk. Without a readable one the marks of the whole log count."""
    try:
        return load_saved(root, log_view, log_end, log.warning)
    except ConfigFileError as error:
        log.warning("%s: the marks of the whole log tell what was delivered", error)
        return Saved()


class Window(Part):
    """Ends the process once the log is kept for a shorter time than the window by which messages are rolled."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened

    def turn(self, now_ms: int) -> bool:
        """See Part. Raises RoleError."""
        if reserved_slots(self._opened.config()) < self._opened.files.struct.window_slots:
            raise RoleError("timer: fileReservedTime is shorter now: the next process rolls messages earlier")
        return False


def serve(spec: WorkerSpec, plane: Plane, stop: StopFlag) -> int:
    """Run until SIGTERM, or until no message has waited for a while."""
    try:
        return serve_files(spec, plane, stop)
    except TimerFilesFailedError as error:
        raise RoleError(f"timer: {error}; wheel and TimerLog are rebuilt from the timer topic") from error


def serve_files(spec: WorkerSpec, plane: Plane, stop: StopFlag) -> int:
    """See serve. Raises TimerFilesFailedError."""
    role, config = plane.role(spec.role), ConfigWatcher(Path(spec.config_path))
    role.state = STATE_SERVING  # a start may read hours of log: it shows its progress, and no limit of time ends it
    starting = SideStop(stop, plane.watermarks, follows_master(plane.watermarks))
    opened = open_store(plane, spec.role, config, starting)
    made = None
    if opened is not None:
        made = make_follower(opened) if opened.follows else make_delivery(opened, starting)
    if made is None or opened is None:
        if starting.has_side:
            return EXIT_CLEAN
        plane.deactivate(spec.role)  # control starts the worker of the new side
        return EXIT_RESTED
    bound_collections()
    parts = [Window(opened), made]
    status = ServiceLoop(plane, spec.role, parts, rest_after_ms=REST_AFTER_MS, follows=opened.follows).run(stop)
    opened.files.close()
    return status


if __name__ == "__main__":
    sys.exit(run_worker(sys.argv[1:], serve))
