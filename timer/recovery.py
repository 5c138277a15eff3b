"""The start of the worker: wheel and log as the last process has left them, or rebuilt from the timer topic.

TimerMessageStore.recover has the rules for wheel and log. The files are rebuilt if they are missing, if the wheel has
another precision, if the log is not as it was written, or if a slave that becomes master has filed messages otherwise
than its master: the records of the timer topic have all that they had. A wheel that differs from a sound log is written
again.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ringmq.broker.requests.turns import Steps
from ringmq.ipc.ports import parts_of_mark
from ringmq.native import ffi, lib
from ringmq.remoting.properties import REAL_TOPIC
from ringmq.remoting.subscription import java_string_hash
from ringmq.services.log_view import LogView
from ringmq.services.mark_scan import scan_marks
from ringmq.store.layout import TIMER_TOPIC, TIMER_WHEEL_FILE
from ringmq.store.record import Record, parse_record
from ringmq.store.record_numbers import LONG_MAX
from ringmq.timer.core import Progress
from ringmq.timer.progress import Saved
from ringmq.timer.survey import read_from_ms
from ringmq.timer.timer_checkpoint import TimerCheckpoint
from ringmq.timer.timer_files import TimerFiles, UnfitFilesError, remove_files
from ringmq.timer.timer_log import UNIT_BYTES
from ringmq.timer.timer_scan import ScanRange

SCAN_STEP_BYTES = 4 << 20
OLDER_MS = 60_000
"""Clocks of a group's brokers differ by less."""


class Recovered(Struct, frozen=True):
    """Wheel and log that are ready, and the progress to go on from."""

    files: TimerFiles
    progress: Progress
    queue_end: int
    """End of the timer topic."""
    is_rebuilt: bool
    """True if no unit of the log has a record. The progress must be on disk before the next one: the saved queue offset
    is that of other files."""
    opened_ms: int
    """Time of the latest slot that was open when a message came too late for its own. -1 without one."""
    late_ms: int
    """Time of the latest slot that was due when a message came into it. -1 without one."""


def open_files(
    root: Path, saved: Saved, *, precision_ms: int, window_slots: int, file_bytes: int, log_line: Callable[[str], None],
    oldest_record: int | None = None, is_slave: bool = False, usual_slots: int = 0,
) -> Steps[TimerFiles]:  # fmt: skip
    """Open wheel and log, and read the log, in steps. Files that cannot be used are deleted, and new ones are made.

    `oldest_record`: CommitLog offset of the oldest record of the timer topic, None without one. `usual_slots`: the
    window by which units were filed if `saved` does not tell. Any other window than the saved one rebuilds: units of
    several windows have none that a promotion or a later start could compare. Raises OSError and TimerFilesFailedError.
    """
    files = None
    try:
        files = TimerFiles(root, precision_ms, window_slots, file_bytes)
        found = saved.precision_ms or int(lib.rmq_timer_wheel_precision(files.struct)) or precision_ms
        if found != precision_ms and not files.is_new:
            raise UnfitFilesError(f"the wheel has a precision of {found} ms, timerPrecisionMs is {precision_ms}")
        if saved.needs_rebuild and not is_slave and files.file_count:
            raise UnfitFilesError("the former master may have rolled messages at other times")
        filed = saved.window_slots
        if files.file_count and (window_slots != filed if filed else window_slots < usual_slots):
            before = filed or usual_slots
            raise UnfitFilesError(f"the roll window is {window_slots} slots, units were filed by one of {before}")
        if files.is_new and files.file_count:
            raise UnfitFilesError(f"{root / TIMER_WHEEL_FILE} is missing")
        if files.files_end < saved.flushed_position:
            raise UnfitFilesError(f"TimerLog was on disk up to {saved.flushed_position}, but ends at {files.files_end}")
        if fault := (yield from files.scan(saved.scan_range, oldest_record)):
            log_line(f"{fault}: they are written again")
        files.note_window(saved.window_slots)
        return files
    except UnfitFilesError as error:
        if files is not None:
            files.close()
        log_line(f"{error}: wheel and log are rebuilt from the timer topic")
        remove_files(root)
        files = TimerFiles(root, precision_ms, window_slots, file_bytes)
        files.is_rebuilt = True
        yield from files.scan(ScanRange(), None)
        files.note_window(saved.window_slots)
        return files


def recover_files(
    files: TimerFiles, saved: Saved, record_at: Callable[[int, int], Record | None], *, queue_min: int, queue_max: int,
    log_min: int, log_end: int, now_ms: int,
) -> Recovered:  # fmt: skip
    """Find the end of the log, mend slots, and find the record behind the newest unit.

    `saved` is believable. `record_at` reads a record of the CommitLog, which has [`log_min`, `log_end`), by offset and
    size. Raises TimerFilesFailedError.
    """
    step_ms = int(files.struct.precision_ms)
    newest = _cut(files, saved, record_at, log_min, log_end)
    late_from = max(files.log_begin, saved.flushed_position - files.file_bytes)
    latest = ffi.new("int64_t[2]")
    lib.rmq_timer_latest(files.struct, late_from - late_from % files.file_bytes, latest, latest + 1)
    files.check()
    open_ms = saved.open_ms  # however old: no slot is written before those that wait are read
    if not open_ms:
        oldest_ms = int(lib.rmq_timer_next_used(files.struct, step_ms, now_ms))  # unused places have time 0
        first_ms = read_from_ms(TimerCheckpoint(), now_ms, step_ms) if queue_max > queue_min else now_ms
        open_ms = first_ms if oldest_ms < 0 else oldest_ms
    following = 0 if newest is None else max(newest.queue_offset + 1, saved.queue_offset)
    queue_offset = min(max(following, queue_min), queue_max)
    progress = Progress(
        open_ms - open_ms % step_ms, queue_offset, log_end, saved.known_offset, saved.known_ms, saved.known_coarsest_ms
    )
    return Recovered(files, progress, queue_max, newest is None, *latest)


def _cut(
    files: TimerFiles, saved: Saved, record_at: Callable[[int, int], Record | None], log_min: int, log_end: int
) -> Record | None:  # fmt: skip
    """Take units without a record off the end of the log: a power cut may have taken their records. Returns the record
    of the newest unit, None if the log has no unit, or retention has taken the records of all."""
    unit, newest, has_cut = _before(files, files.log_end), None, False
    while unit is not None:
        newest = _whole(unit, record_at)
        before = _before(files, int(unit.position))
        if newest is not None or _is_gone(unit, before, log_min):
            break
        if not unit.is_sealed and unit.position < saved.flushed_position and unit.commit_log_offset < log_end:
            raise files.failed(int(unit.position))
        has_cut = True
        files.drop_last(unit)
        unit = before
    if has_cut:
        files.mend_wheel()
    return newest


def _is_gone(unit: Any, before: Any | None, log_min: int) -> bool:
    """True if retention has taken the record of a unit. Units are in the order of their records, so that of the unit
    `before` is gone, too, unless the disk has changed the offset."""
    if unit.commit_log_offset >= log_min:
        return False
    return bool(unit.is_sealed) or before is None or before.commit_log_offset < log_min


def _before(files: TimerFiles, position: int) -> Any | None:
    """Return the unit before a position."""
    if position == files.log_begin:
        return None
    if position % files.file_bytes:
        return files.unit(position - UNIT_BYTES)
    return files.last_of_file((position - files.log_begin) // files.file_bytes - 1)


def _whole(unit: object, record_at: Callable[[int, int], Record | None]) -> Record | None:
    """Returns the record that the unit names, None if the log does not have it."""
    record = record_at(unit.commit_log_offset, unit.size)  # type: ignore[attr-defined]
    if record is None or record.topic != TIMER_TOPIC:
        return None
    topic = record.properties.get(REAL_TOPIC, "")
    return record if (java_string_hash(topic) if topic else 0) == unit.topic_hash else None  # type: ignore[attr-defined]


def record_reader(log: LogView) -> Callable[[int, int], Record | None]:
    """Return a reader of records by offset and size."""

    def read(offset: int, size: int) -> Record | None:
        data = log.record(offset)
        return parse_record(data)[1] if data is not None and len(data) == size else None

    return read


class Delivered(Struct, frozen=True):
    """Messages whose copies are in a part of the log."""

    offsets: array[int]
    """Queue offsets in the timer topic, ascending."""
    newest: int
    """That of the newest copy, -1 without one."""
    latest_ms: int
    """Time of the latest slot that a delivered message has asked for, 0 without one."""
    rolled_ms: int
    """A time not before the latest slot of which a message was rolled, 0 without one."""


def find_delivered(
    log: LogView, role: int, since: int, log_end: int, segment_bytes: int, step_ms: int
) -> Steps[Delivered]:  # fmt: skip
    """Find the messages whose copies lie in [since, log_end), in steps. `step_ms` is the precision."""
    found: set[int] = set()
    newest, latest = -1, ffi.new("int64_t[2]")

    def note_slots(*place: Any) -> None:
        lib.rmq_timer_latest_copies(role, *place, step_ms, latest)

    steps = {"segment_bytes": segment_bytes, "step_bytes": SCAN_STEP_BYTES}
    for marks in scan_marks(log, role, since, log_end, note_slots, **steps):
        found.update(parts_of_mark(mark)[2] for mark, _ in marks)
        newest = parts_of_mark(marks[-1][0])[2] if marks else newest
        yield
    return Delivered(array("Q", sorted(found)), newest, int(latest[0]), int(latest[1]))


def proven(
    log: LogView, role: int, saved: Saved, log_end: int, segment_bytes: int, step_ms: int
) -> Steps[Saved]:  # fmt: skip
    """Return the progress that the log proves, in steps: slots before the latest delivered one are delivered."""
    end, log_min = log_end, log.bounds().min_offset
    while end > log_min:
        begin = max(log_min, (end - 1) // segment_bytes * segment_bytes)
        found = yield from find_delivered(log, role, begin, end, segment_bytes, step_ms)
        if found.latest_ms:
            return replace(saved, open_ms=min(saved.open_ms, found.latest_ms))
        end = begin
    return replace(saved, open_ms=0)


class LatestSlots(Struct, frozen=True):
    """See TimerCore. The clock may have been set back since."""

    opened_ms: int
    delivered_ms: int


def latest_slots(log: LogView, delivered: Delivered, recovered: Recovered, now_ms: int) -> LatestSlots:
    """Find the latest slots by late messages, by delivered ones, and by the newest copy.

    Slots are delivered in order. The unit of a copy's source has the slot that was open, also of a late message or a
    rolled one. Without the unit, the copy of a rolled message was not stored before its slot. An earlier precision may
    have been coarser.
    """
    step_ms = int(recovered.files.struct.coarsest_ms)
    opened_ms = max(recovered.opened_ms, delivered.latest_ms or -1)
    if delivered.offsets and (units := log.units(TIMER_TOPIC, 0, delivered.newest, 1)):
        unit = recovered.files.unit_of(units[0][0])
        opened_ms = max(opened_ms, -1 if unit is None else int(unit.slot_ms))
    latest_ms = max(now_ms, recovered.progress.open_ms, recovered.late_ms, opened_ms, delivered.rolled_ms)
    return LatestSlots(opened_ms, latest_ms + step_ms)


def scan_begin(log: LogView, saved: Saved, log_end: int, segment_bytes: int, *, is_rebuilt: bool = False) -> int:
    """Return the log offset from which on copies of the open slot may lie.

    Without a checkpoint that is true of this log, it is the begin of a file whose first record is older than the slot.
    If also no unit is left (`is_rebuilt`), records of all earlier slots come again, and their copies tell.
    """
    if saved.needs_all_marks or (saved.is_cut and is_rebuilt):
        return log.bounds().min_offset
    if saved.marks_from is not None:
        return saved.marks_from
    log_min = log.bounds().min_offset
    begin = max(log_min, (log_end - 1) // segment_bytes * segment_bytes)
    while begin > log_min and _store_ms(log, begin) >= saved.open_ms - OLDER_MS:
        begin = max(log_min, begin - segment_bytes)
    return begin


def _store_ms(log: LogView, offset: int) -> int:
    data = log.record(offset)
    record = None if data is None else parse_record(data)[1]
    return LONG_MAX if record is None else record.store_time_ms
