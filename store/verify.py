"""Whole-store check on demand: every record, every unit, every index entry up to a readable offset.

Log: missing files, lengths, magic, body CRC, position, and a warning for properties strings that no encoder writes.
Queues: each record has its unit and each unit its record. Index: each key of each record has its entry, entries name
nothing else, chains are sound. The C core derives tags codes and key hashes. With `cross_check` a second, independent
implementation (`kernels`, which needs numba) derives them again. Reads only. A start of the broker does not import
this module, which loads numpy.
"""

import itertools
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from ringmq.native import ffi, lib
from ringmq.native.table_secret import table_secret
from ringmq.store import layout, markers
from ringmq.store import record as records
from ringmq.store.batch_consume_queue import BatchConsumeQueue
from ringmq.store.checkpoint import read_checkpoint
from ringmq.store.config_files import ConfigFileError
from ringmq.store.consume_queue import ConsumeQueue
from ringmq.store.delay_levels import native_delay_levels
from ringmq.store.log_loss import find_loss
from ringmq.store.mapped_file import StoreLoadError
from ringmq.store.message_store import MessageStore
from ringmq.store.queue_ends import read_queue_ends, read_rebuild
from ringmq.store.record_values import FIELDS, NotIndexed
from ringmq.store.recovery_damage import existing_topics
from ringmq.store.topic_start_offsets import read_start_offsets
from ringmq.store.verify_index import IndexChecker

Progress = Callable[[str, int, int], None]
FINDINGS_MAX = 1000
ROWS_MAX = 1 << 18
HASHES_MAX = 1 << 20
OFFSET_MAX = (1 << 63) - 1
ROW = np.dtype(
    [("position", "i8"), ("queue_offset", "i8"), ("tags_code", "i8"), ("store_time_ms", "i8"), ("size", "i4"),
     ("queue", "i4"), ("sys_flag", "i4"), ("properties", "i4"), ("count", "i4"), ("keys", "i4"),
     ("impossible", "i4"), ("reserved", "i4")]
)  # fmt: skip
UNIT = np.dtype([("position", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
assert ROW.itemsize == ffi.sizeof("struct rmq_log_row")

ERROR = "error"
WARNING = "warning"
_PROPERTIES = {-1: "hold a NUL byte", -2: "lack the final 0x02", -3: "hold a pair without 0x01"}


class Finding(Struct, frozen=True):
    """One fault and its place."""

    severity: str
    place: str
    text: str


class VerifyReport(Struct):
    """The checked items and the faults. At most FINDINGS_MAX findings are stored, all are counted."""

    readable_offset: int
    min_offset: int
    records: int = 0
    blanks: int = 0
    units: int = 0
    queues: int = 0
    index_files: int = 0
    index_entries: int = 0
    errors: int = 0
    warnings: int = 0
    deleted_records: int = 0
    """Records of deleted topics, which no queue has any more."""
    undispatched: int = 0
    """Records that queues and index lack, because the next start makes their entries."""
    not_indexed: NotIndexed | None = None
    """Records with impossible values."""
    cross_checked: bool = False
    findings: list[Finding] = field(default_factory=list)
    bad_units: dict[tuple[str, int], int] = field(default_factory=dict)
    """The first queue offset of each queue whose unit is missing, or is not that of its record."""
    is_index_bad: bool = False
    bad_records: dict[int, str] = field(default_factory=dict)
    """Commit log offset -> reason of records that are damaged."""

    def add(self, severity: str, place: str, text: str) -> None:
        """Count a finding, and store it up to FINDINGS_MAX."""
        if severity == ERROR:
            self.errors += 1
        else:
            self.warnings += 1
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(Finding(severity, place, text))


def verify(
    store: MessageStore,
    readable_offset: int,
    *,
    progress: Progress | None = None,
    cross_check: bool = False,
    check_index: bool = True,
    is_closed: bool = False,
) -> VerifyReport:
    """Check everything below `readable_offset`. Damage is reported, never raised. Raises OSError.

    Without numba the cross-check is left out, and `VerifyReport.cross_checked` is False. `is_closed`: no process owns
    the store. So the marks of its last stop say which records lack entries rightly, and which log files were there.
    """
    report = VerifyReport(readable_offset, store.commit_log.min_offset)
    queued_until = _queued_until(store, readable_offset) if is_closed else readable_offset
    _name_missing_files(store, report, is_closed)
    run = _Run(store, report, progress or (lambda stage, done, total: None), cross_check, queued_until)
    before = report.errors
    if check_index and store.config.message_index:
        try:
            run.index = IndexChecker(store, report)
        except StoreLoadError as error:
            report.add(ERROR, "index", str(error))
        report.is_index_bad = report.errors > before
    for start in store.commit_log.files.starts:
        if start < readable_offset:
            run.check_file(start)
    run.finish()
    return report


def _queued_until(store: MessageStore, log_end: int) -> int:
    """Return the log offset from which a start makes entries of queues and index, `log_end` without one.

    A broker that waits for replicas stops cleanly with records that they have not confirmed, which no queue has yet.
    """
    root, ends = store.config.root, [log_end]
    rebuild, confirmed = read_rebuild(root), read_checkpoint(root).confirm_offset
    if rebuild is not None:
        ends.append(rebuild)
    if markers.has_abort(root):
        ends.append(store.dispatched_end())
    elif confirmed > 0:
        ends.append(max(confirmed, store.dispatched_end()))
    return min(ends)


def _name_missing_files(store: MessageStore, report: VerifyReport, is_closed: bool) -> None:
    """Report gaps between log files, and files that are missing since the last clean stop."""
    files, root = store.commit_log.files, store.config.root
    starts, size = files.starts[:-1] if files.is_newest_empty() else list(files.starts), files.file_bytes
    stopped = read_queue_ends(root) if is_closed and not markers.has_abort(root) else None
    # if the log is longer, another broker has gone on since, and may have deleted old files
    if stopped is not None and stopped.log_end > stopped.log_min and report.readable_offset <= stopped.log_end:
        starts += [stopped.log_min // size * size - size, (stopped.log_end - 1) // size * size + size]
    for before, after in itertools.pairwise(sorted(set(starts))):
        if after > before + size:
            first, last = layout.file_name(before + size), layout.file_name(after - size)
            text = f"file {first} is missing" if first == last else f"files {first} to {last} are missing"
            report.add(ERROR, f"commit log {before + size}", text)
    if is_closed and not report.errors:
        for fault in find_loss(store).faults:
            report.add(ERROR, "commit log", fault)


class _Run:
    def __init__(
        self, store: MessageStore, report: VerifyReport, progress: Progress, cross_check: bool, queued_until: int
    ) -> None:
        self.store = store
        self.report = report
        self.queued_until = queued_until
        """Records that end behind this offset are not compared with queues and index."""
        self.progress = progress
        self.index: IndexChecker | None = None
        self.kernel = _kernel() if cross_check and can_cross_check() else None
        report.cross_checked = self.kernel is not None
        self.names = [(name.topic, name.queue_id) for name in store.queue_names()]
        self.cursors: dict[tuple[str, int], int] = {}
        self.table = ffi.gc(lib.rmq_queue_table_new(table_secret()), lib.rmq_queue_table_free)
        for topic, queue_id in self.names:
            queue = store.queue(topic, queue_id)
            row = self._row(topic, queue_id)
            row.is_batch = int(isinstance(queue, BatchConsumeQueue))
            if isinstance(queue, ConsumeQueue):
                end = queue.max_offset(queued_until)
                self.cursors[(topic, queue_id)] = queue.min_offset(report.min_offset, end)
        self.topics = existing_topics(store.config.root, None)
        self.start_offsets = _start_offsets(store.config.root)
        self.levels = native_delay_levels(store.config.delay_levels_ms)
        report.queues = len(self.names)

    def _row(self, topic: str, queue_id: int) -> Any:
        name = topic.encode()
        return lib.rmq_queue_table_row(self.table, name, len(name), queue_id)

    # ---- log ----------------------------------------------------------------------------------------------

    def check_file(self, start: int) -> None:
        """Check one log file against its queues and index."""
        found = self.store.commit_log.files.find(start)
        if found is None:
            return  # deleted by retention meanwhile
        mapped = found[1]
        end = min(len(mapped), self.report.readable_offset - start)
        rows, hashes = self._scan_file(start, mapped, end)
        self.report.records += len(rows)
        self._warn_of_properties(rows)
        rows = self._leave_out_impossible(rows)
        self._cross_check(start, mapped, rows, hashes)
        rows, hashes = self._leave_out_undispatched(rows, hashes)
        until = min(start + end, self.queued_until)
        self._check_queues(rows, until)
        if self.index is not None:
            before = self.report.errors
            self.index.check_file(start, until, rows, hashes, self.report.bad_records)
            self.report.is_index_bad |= self.report.errors > before
        self.progress("log", start + end - self.report.min_offset, self.report.readable_offset - self.report.min_offset)

    def _scan_file(self, start: int, mapped: Any, end: int) -> tuple[Any, Any]:
        all_rows, all_hashes = [], []
        data, at = ffi.from_buffer(mapped), 0
        next_at, reason, hashes_count = ffi.new("uint64_t *"), ffi.new("int *"), ffi.new("size_t *")
        while True:
            rows, hashes = np.empty(ROWS_MAX, ROW), np.empty(HASHES_MAX, np.int32)
            count = lib.rmq_log_table(
                data, at, end, start, self.table, self.levels,
                ffi.cast("struct rmq_log_row *", ffi.from_buffer(rows)), ROWS_MAX,
                ffi.cast("int32_t *", ffi.from_buffer(hashes)), HASHES_MAX, hashes_count, next_at, reason,
            )  # fmt: skip
            if count < 0:
                raise MemoryError("no memory for the table of queues")
            all_rows.append(rows[:count].copy())
            all_hashes.append(hashes[: hashes_count[0]].copy())
            at = next_at[0]
            if reason[0] == records.FULL:
                continue
            following = self._after_stop(start, at, end, reason[0])
            if following is None:
                return np.concatenate(all_rows), np.concatenate(all_hashes)
            at = following

    def _after_stop(self, start: int, at: int, end: int, reason: int) -> int | None:
        """Report the end of a scan. Return the position in the file to continue at, None at its end."""
        if reason == records.END:
            return None
        if reason == records.BLANK:
            self.report.blanks += 1
            return None
        offset = start + at
        text = records.REASONS.get(reason, f"scan result {reason}")
        record = self.store.commit_log.record_at(offset, start + end)
        if record is not None:  # only its body is damaged
            text += f", {record.topic}/{record.queue_id} offset {record.queue_offset}"
        self.report.bad_records[offset] = text
        self.report.add(ERROR, f"commit log {offset}", text)
        border = self.store.commit_log.next_record(offset)
        return None if border is None or border >= start + end else border - start

    def _bad_unit(self, queue: ConsumeQueue | BatchConsumeQueue, queue_offset: int, place: str, text: str) -> None:
        key = (queue.topic, queue.queue_id)
        self.report.bad_units[key] = min(queue_offset, self.report.bad_units.get(key, queue_offset))
        self.report.add(ERROR, place, text)

    def _warn_of_properties(self, rows: Any) -> None:
        for row in rows[rows["properties"] != 0][:FINDINGS_MAX]:
            text = f"the properties {_PROPERTIES[int(row['properties'])]}"
            self.report.add(WARNING, f"commit log {row['position']}", text)

    def _leave_out_impossible(self, rows: Any) -> Any:
        """Report the records that neither queues nor index have. Return the other rows."""
        wrong = rows[rows["impossible"] != 0]
        if len(wrong):
            before = self.report.not_indexed or NotIndexed(0, int(wrong["position"][0]), int(wrong["impossible"][0]))
            self.report.not_indexed = replace(before, count=before.count + len(wrong))
        for row in wrong:
            text = f"not indexed, impossible {FIELDS[int(row['impossible'])]}"
            self.report.add(WARNING, f"commit log {row['position']}", text)
        return rows[rows["impossible"] == 0]

    def _leave_out_undispatched(self, rows: Any, hashes: Any) -> tuple[Any, Any]:
        """Count the records whose entries the next start makes. Return the other rows and their hashes."""
        limit = min(self.queued_until, OFFSET_MAX)
        dispatched = int(np.sum(rows["position"] + rows["size"] <= limit))  # rows ascend
        self.report.undispatched += len(rows) - dispatched
        return rows[:dispatched], hashes[: int(np.sum(rows["keys"][:dispatched]))]

    def _cross_check(self, start: int, mapped: Any, rows: Any, hashes: Any) -> None:
        if self.kernel is None or not len(rows):
            return
        data = np.frombuffer(mapped, np.uint8)
        tags_codes, counts, again = self.kernel(data, rows["position"] - start, len(hashes) + 1)
        schedule = self._queue_numbers(layout.SCHEDULE_TOPIC)
        differs = (tags_codes != rows["tags_code"]) & ~np.isin(rows["queue"], schedule)
        differs |= counts != rows["keys"]
        for row in rows[differs]:
            self.report.add(ERROR, f"commit log {row['position']}", "C core and kernel derive different tags or keys")
        if not differs.any() and not np.array_equal(again, hashes):
            self.report.add(ERROR, f"commit log file {start}", "C core and kernel derive different key hashes")

    def _queue_numbers(self, topic: str) -> list[int]:
        name = topic.encode()
        found = []
        for i in range(lib.rmq_queue_table_size(self.table)):
            row = lib.rmq_queue_table_at(self.table, i)
            if row.topic_length == len(name) and ffi.buffer(row.topic, len(name))[:] == name:
                found.append(i)
        return found

    # ---- queues -------------------------------------------------------------------------------------------

    def _check_queues(self, rows: Any, file_end: int) -> None:
        transaction = rows["sys_flag"] & layout.TRANSACTION_MASK
        queued = rows[(transaction != layout.TRANSACTION_PREPARED) & (transaction != layout.TRANSACTION_ROLLBACK)]
        queued = queued[np.argsort(queued["queue"], kind="stable")]
        numbers, firsts = np.unique(queued["queue"], return_index=True)
        parts = dict(zip(numbers.tolist(), np.split(queued, firsts[1:]), strict=False)) if len(queued) else {}
        for number in range(lib.rmq_queue_table_size(self.table)):
            row = lib.rmq_queue_table_at(self.table, number)
            topic = bytes(ffi.buffer(row.topic, row.topic_length)).decode("utf-8", "replace")
            part = parts.get(number, queued[:0])
            earlier = int(np.sum(part["position"] < self.start_offsets.get(topic, 0)))
            part, self.report.deleted_records = part[earlier:], self.report.deleted_records + earlier
            queue = self.store.queue(topic, row.queue_id)
            if queue is None:
                if self.topics is not None and topic not in self.topics:
                    self.report.deleted_records += len(part)
                elif len(part):
                    self.report.add(WARNING, f"{topic}/{row.queue_id}", f"{len(part)} records, but no queue folder")
            elif isinstance(queue, BatchConsumeQueue):
                self._check_batch_units(queue, part)
            else:
                self._check_units(queue, part, file_end)

    def _check_units(self, queue: ConsumeQueue, part: Any, file_end: int) -> None:
        """Compare the queue's units for this log file with the records of the log."""
        place = f"{queue.topic}/{queue.queue_id}"
        cursor = self.cursors.setdefault((queue.topic, queue.queue_id), queue.files.min_offset // queue.unit_bytes)
        units = unit_array(queue, cursor, len(part))
        more = unit_array(queue, cursor + len(units), 1)
        same = len(units) == len(part) and np.array_equal(part["queue_offset"], np.arange(cursor, cursor + len(part)))
        same = same and all(np.array_equal(part[name], units[name]) for name in ("position", "size", "tags_code"))
        if same and not (len(more) and more["position"][0] < file_end):
            self.cursors[(queue.topic, queue.queue_id)] = cursor + len(part)
            self.report.units += len(part)
            return
        self._explain(place, queue, part, file_end)

    def _explain(self, place: str, queue: ConsumeQueue, part: Any, file_end: int) -> None:
        """Find the differences record by record and unit by unit."""
        key = (queue.topic, queue.queue_id)
        by_position = {int(row["position"]): row for row in part}
        end = queue.max_offset(self.queued_until)
        cursor = self.cursors[key]
        for unit in queue.units(cursor, end):
            if unit.commit_log_offset >= file_end:
                break
            cursor = unit.queue_offset + 1
            self.report.units += 1
            where = f"{place} unit {unit.queue_offset}"
            row = None if unit.is_filler else by_position.pop(unit.commit_log_offset, None)
            text = ""
            if row is None:
                if not unit.is_filler and unit.commit_log_offset not in self.report.bad_records:
                    text = f"names offset {unit.commit_log_offset}, where no record of it is"
            elif int(row["queue_offset"]) != unit.queue_offset:
                text = f"its record says queue offset {row['queue_offset']}"
            elif int(row["size"]) != unit.size:
                text = f"size {unit.size}, the record has {row['size']}"
            elif int(row["tags_code"]) != unit.tags_code:
                text = f"tags code {unit.tags_code}, the record asks for {row['tags_code']}"
            if text:
                self._bad_unit(queue, unit.queue_offset, where, text)
        self.cursors[key] = cursor
        for position, row in sorted(by_position.items()):
            other = queue.unit(int(row["queue_offset"]))
            where = f"commit log {position}"
            if other is not None and other.commit_log_offset > position:
                text = f"queue offset {row['queue_offset']} of {place} belongs to a later record (topic made again?)"
                self.report.add(WARNING, where, text)
            else:
                text = f"queue offset {row['queue_offset']} of {place} has no unit for it"
                self._bad_unit(queue, int(row["queue_offset"]), where, text)

    def _check_batch_units(self, queue: BatchConsumeQueue, part: Any) -> None:
        for row in part:
            unit = queue.unit(int(row["queue_offset"]))
            wanted = (int(row["queue_offset"]), int(row["position"]), int(row["size"]), int(row["tags_code"]),
                      int(row["store_time_ms"]), int(row["count"]))  # fmt: skip
            self.report.units += 1
            if unit is None or tuple(unit) != wanted:
                place = f"{queue.topic}/{queue.queue_id} offset {row['queue_offset']}"
                text = f"batch unit {unit}, the record asks for {wanted}"
                self._bad_unit(queue, int(row["queue_offset"]), place, text)

    def finish(self) -> None:
        """Report the findings that need the whole store: units and entries behind the log."""
        for (topic, queue_id), cursor in self.cursors.items():
            queue = self.store.queue(topic, queue_id)
            end = queue.max_offset(self.queued_until) if queue else 0
            if cursor < end:
                assert queue is not None
                text = f"units {cursor} to {end - 1} name no record of the log"
                self._bad_unit(queue, cursor, f"{topic}/{queue_id}", text)
        if self.index is not None:
            before = self.report.errors
            self.index.finish()
            self.report.is_index_bad |= self.report.errors > before


def _start_offsets(root: Path) -> dict[str, int]:
    try:
        return read_start_offsets(root)
    except ConfigFileError:
        return {}


def unit_array(queue: ConsumeQueue, from_offset: int, count: int) -> Any:
    """Return up to `count` units as an array, up to the first unwritten one."""
    parts, at, end = [], from_offset, from_offset + count
    while at < end:
        rest = queue.files.rest(at * queue.unit_bytes, end * queue.unit_bytes)
        if rest is None or len(rest) < queue.unit_bytes:
            break
        units = np.frombuffer(rest[: len(rest) // queue.unit_bytes * queue.unit_bytes], UNIT)
        valid = (units["size"] > 0) & (units["position"] >= 0)
        if not valid.all():
            parts.append(units[: int(np.argmin(valid))])
            break
        parts.append(units)
        at += len(units)
    return np.concatenate(parts) if parts else np.empty(0, UNIT)


def can_cross_check() -> bool:
    """True if numba, of the extra `kernels`, is installed."""
    return find_spec("numba") is not None


def _kernel() -> Any:
    from ringmq.store.kernels.dispatch_fields import compiled, dispatch_fields

    compiled()
    return dispatch_fields
