"""Read facade over a store on disk: queues, log, index, times. Used by control, inspect, verify and Spark.

Every method takes `readable_offset`, the first commit log offset that the caller may not see. With a live owner it is
the confirm offset, without one the end of the log or of the ConsumeQueues. This module writes nothing.
"""

import enum
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from msgspec import Struct

from ringmq.store import layout, markers
from ringmq.store.batch_consume_queue import BatchConsumeQueue, BatchUnit
from ringmq.store.commit_log import CommitLog
from ringmq.store.config import StoreConfig
from ringmq.store.consume_queue import ConsumeQueue, Unit
from ringmq.store.index_file import IndexStore
from ringmq.store.mapped_file import MappedFileCache
from ringmq.store.offset_search import Boundary, offset_by_time
from ringmq.store.queue_ends import read_queue_ends
from ringmq.store.record import Record
from ringmq.store.record_values import is_queue_id, is_topic_name, queue_id_of

AnyQueue = ConsumeQueue | BatchConsumeQueue
AnyUnit = Unit | BatchUnit
UnitFilter = Callable[[AnyUnit], bool]
TIME_MAX_MS = (1 << 63) - 1


class GetStatus(enum.Enum):
    """Outcome of `get_messages`, with the names of RocketMQ's GetMessageStatus."""

    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MATCHED_LOGIC_QUEUE = 7
    NO_MESSAGE_IN_QUEUE = 8


class GetResult(Struct, frozen=True):
    """The result of a read of a queue. `records` are raw record bytes borrowed from the mapped log."""

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    records: tuple[memoryview, ...] = ()
    units: tuple[AnyUnit, ...] = ()


class QueueName(Struct, frozen=True):
    """A queue found on disk."""

    topic: str
    queue_id: int
    is_batch: bool


class MessageStore:
    """Opens files on demand. Safe beside a live owner in another process."""

    def __init__(self, config: StoreConfig, map_capacity: int = 256) -> None:
        self.config = config
        self._root = str(config.root)
        self.cache = MappedFileCache(map_capacity)
        self.commit_log = CommitLog(config, self.cache)
        self.index = IndexStore(config.root / layout.INDEX, config.index_slots, config.index_entries)
        self._queues: dict[tuple[str, int], AnyQueue] = {}

    # ---- queues -------------------------------------------------------------------------------------------

    def queue_names(self, topics: Collection[str] | None = None) -> Iterator[QueueName]:
        """Yield every `topic/queueId` folder of both kinds, or those of some topics. Other folders hold no queue."""
        for folder, is_batch in ((layout.CONSUME_QUEUE, False), (layout.BATCH_CONSUME_QUEUE, True)):
            directory = self.config.root / folder
            names = [topic.name for topic in _sub_directories(directory)] if topics is None else topics
            for topic in names:
                for queue in _sub_directories(directory / topic) if is_topic_name(os.fsencode(topic)) else ():
                    queue_id = queue_id_of(queue.name)
                    if queue_id is not None:
                        yield QueueName(topic, queue_id, is_batch)

    def queue(self, topic: str, queue_id: int) -> AnyQueue | None:
        """Return the reader of a queue, None if it has no folder."""
        known = self._queues.get((topic, queue_id))
        if known is not None:
            return known
        if not is_topic_name(topic.encode("utf-8", "replace")) or not is_queue_id(queue_id):
            return None
        found: AnyQueue
        plain = f"{self._root}/{layout.CONSUME_QUEUE}/{topic}/{queue_id}"
        batch = f"{self._root}/{layout.BATCH_CONSUME_QUEUE}/{topic}/{queue_id}"
        # not pathlib, which is slow for thousands of queues at a start
        if os.path.isdir(plain):  # noqa: PTH112
            found = ConsumeQueue(Path(plain), topic, queue_id, self.config.consume_queue_file_bytes, self.cache)
        elif os.path.isdir(batch):  # noqa: PTH112
            size = self.config.batch_consume_queue_file_bytes
            found = BatchConsumeQueue(Path(batch), topic, queue_id, size, self.cache)
        else:
            return None
        self._queues[(topic, queue_id)] = found
        return found

    def forget_topic(self, topic: str) -> None:
        """Drop cached readers and mappings of a deleted topic: files of the same names may be made again."""
        for key in [key for key in self._queues if key[0] == topic]:
            del self._queues[key]
        for folder in (layout.CONSUME_QUEUE, layout.BATCH_CONSUME_QUEUE):
            self.cache.forget_folder(f"{self._root}/{folder}/{topic}")

    def refresh(self) -> None:
        """Release files that the owner has unlinked or replaced, and find the current begin of the log.

        A process that keeps a store open beside its owner needs this: no event reports the owner's deletions.
        """
        self.commit_log.files.refresh()
        self.cache.forget_gone()
        self.index.forget_gone()

    def max_offset(self, topic: str, queue_id: int, readable_offset: int) -> int:
        """Return the offset behind the last readable message, 0 for an unknown queue."""
        queue = self.queue(topic, queue_id)
        return queue.max_offset(readable_offset) if queue else 0

    def min_offset(self, topic: str, queue_id: int, readable_offset: int) -> int:
        """Return the first offset whose record the log still has, -1 for an unknown queue as RocketMQ answers."""
        queue = self.queue(topic, queue_id)
        if queue is None:
            return -1
        return queue.min_offset(self.commit_log.min_offset, queue.max_offset(readable_offset))

    def queue_end(self) -> int:
        """Return the end of the ConsumeQueues in the log."""
        return self._queue_end_and_border()[0]

    def _queue_end_and_border(self) -> tuple[int, int]:
        """Return the highest end that a queue's last unit names, and the highest whose record is in the log, else -1.

        A damaged unit may name any place.
        """
        named, border, log_end = 0, -1, self.commit_log.files.end_offset
        for name in self.queue_names():
            queue = self.queue(name.topic, name.queue_id)
            if queue is None:
                continue
            next_offset, end = queue.trusted_end()
            named = max(named, end)
            unit = queue.unit(next_offset - 1) if border < end <= log_end else None
            if unit is None or unit.end != end:
                continue
            if self.commit_log.record_at(unit.commit_log_offset, log_end, unit.size) is not None:
                border = end
        return named, border

    def next_border(self, offset: int, readable_offset: int) -> int | None:
        """Return the first record border behind `offset` that a queue's unit names.

        Scans continue there behind damage.
        """
        best: int | None = None
        for name in self.queue_names():
            queue = self.queue(name.topic, name.queue_id)
            if queue is None:
                continue
            end = queue.max_offset(readable_offset)
            unit = queue.unit(queue.min_offset(offset + 1, end))
            if unit is not None and unit.commit_log_offset > offset and unit.end <= readable_offset:
                best = unit.commit_log_offset if best is None else min(best, unit.commit_log_offset)
        return best

    def log_end(self) -> int:
        """Return the end of the log's last whole record, the readable bound of a store without an owner.

        Queues may end earlier: their units are lost, or a killed broker had not made them yet. After a clean stop the
        walk goes on behind damage up to the end that the stop recorded. After a kill the first damaged record behind
        the queues ends the log, as in a start. Raises OSError.
        """
        is_clean = not markers.has_abort(self.config.root)
        stopped = read_queue_ends(self.config.root) if is_clean else None
        named, border = self._queue_end_and_border()
        whole_until = max(named, 0 if stopped is None else stopped.log_end)
        end, at = self.commit_log.walk(self._newest_start() if border < 0 else border, check_crc=not is_clean)
        while at < whole_until:
            behind = self.commit_log.border_behind(at)
            if behind is None:
                break
            end, at = self.commit_log.walk(behind, check_crc=not is_clean)
        return max(end, whole_until)

    def _newest_start(self) -> int:
        """Return the start of the newest log file that begins with a record, else that of the oldest file."""
        log_end = self.commit_log.files.end_offset
        starts = reversed(self.commit_log.files.starts)
        return next(
            (start for start in starts if self.commit_log.record_at(start, log_end)), self.commit_log.min_offset
        )

    def dispatched_end(self) -> int:
        """Return the end of the queues in the log, or of later records with impossible values, which no queue names."""
        end = self.queue_end()
        for offset, size in self.commit_log.places(end, self.commit_log.files.end_offset):
            if not self.commit_log.impossible_field(offset, size):
                break
            end = offset + size
        return end

    def tail_border(self, end_offset: int, bytes_max: int) -> int | None:
        """Return the first record border in the last `bytes_max` bytes in front of `end_offset`, None without one.

        Queues know borders. If none of them has a unit there, the log is searched for a record.
        """
        low = self.commit_log.min_offset
        if end_offset <= low:
            return None
        first = max(low, end_offset - bytes_max)
        if first == low:
            return low
        border = self.next_border(first, end_offset)
        border = self.commit_log.border_behind(first) if border is None else border
        return border if border is not None and border < end_offset else None

    # ---- messages -----------------------------------------------------------------------------------------

    def get_messages(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        readable_offset: int,
        *,
        accepts: UnitFilter | None = None,
        bytes_max: int = 128 << 20,
        scan_max: int = 16000,
    ) -> GetResult:
        """Read up to `count_max` records of a queue (DefaultMessageStore.getMessage, statuses and next offsets).

        `accepts` filters by unit before the log is touched. At least one record is returned even if it exceeds
        `bytes_max`.
        """
        queue = self.queue(topic, queue_id)
        if queue is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        max_offset = queue.max_offset(readable_offset)
        min_offset = queue.min_offset(self.commit_log.min_offset, max_offset)
        if max_offset == 0:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
        if offset < min_offset:
            return GetResult(GetStatus.OFFSET_TOO_SMALL, min_offset, min_offset, max_offset)
        if offset == max_offset:
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, min_offset, max_offset)
        if offset > max_offset:
            return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, max_offset, min_offset, max_offset)
        status, next_offset = GetStatus.OFFSET_FOUND_NULL, offset
        taken: list[tuple[memoryview, AnyUnit]] = []
        total = scanned = 0
        for unit in queue.units(offset, max_offset):
            end = unit.queue_offset + getattr(unit, "batch_size", 1)
            if scanned >= scan_max or len(taken) >= count_max or (taken and total + unit.size > bytes_max):
                break
            scanned += 1
            next_offset = end
            if status is GetStatus.OFFSET_FOUND_NULL:
                status = GetStatus.NO_MATCHED_MESSAGE
            if accepts is not None and not accepts(unit):
                continue
            raw = self.commit_log.raw_at(unit.commit_log_offset, readable_offset, unit.size)
            if raw is None:
                status = GetStatus.MESSAGE_WAS_REMOVING
                continue
            taken.append((raw, unit))
            total += unit.size
        if taken:
            status = GetStatus.FOUND
        elif status is GetStatus.OFFSET_FOUND_NULL:
            next_offset = self._next_file_offset(queue, offset, max_offset)
        records, units = tuple(raw for raw, _ in taken), tuple(unit for _, unit in taken)
        return GetResult(status, next_offset, min_offset, max_offset, records, units)

    @staticmethod
    def _next_file_offset(queue: AnyQueue, offset: int, max_offset: int) -> int:
        """Return the first offset of the next ConsumeQueue file, which is behind a damaged stretch."""
        if isinstance(queue, BatchConsumeQueue):
            return max_offset
        per_file = queue.files.file_bytes // queue.unit_bytes
        return min((offset // per_file + 1) * per_file, max_offset)

    def message_at(self, commit_log_offset: int, readable_offset: int) -> Record | None:
        """Return the record at a commit log offset (view by id), None if no readable one begins there."""
        return self.commit_log.record_at(commit_log_offset, readable_offset)

    def query(
        self,
        topic: str,
        key: str,
        count_max: int,
        readable_offset: int,
        begin_ms: int = 0,
        end_ms: int = TIME_MAX_MS,
    ) -> list[Record]:
        """Return records by key, ascending. Hash collisions are returned too, as RocketMQ's store does."""
        offsets = self.index.query(topic, key, count_max, begin_ms, end_ms)
        found = (self.message_at(offset, readable_offset) for offset in offsets)
        return [record for record in found if record is not None]

    # ---- times --------------------------------------------------------------------------------------------

    def offset_by_time(
        self, topic: str, queue_id: int, time_ms: int, readable_offset: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """Return the queue offset at a store time (see `offset_search`), 0 for an unknown queue."""
        queue = self.queue(topic, queue_id)
        if queue is None:
            return 0
        max_offset = queue.max_offset(readable_offset)
        min_offset = queue.min_offset(self.commit_log.min_offset, max_offset)
        if isinstance(queue, BatchConsumeQueue):
            return self._batch_offset_by_time(queue, min_offset, max_offset, time_ms, readable_offset, boundary)

        def store_time(queue_offset: int) -> int | None:
            unit = queue.unit(queue_offset)
            if unit is None:
                return None
            return self.commit_log.store_time_at(unit.commit_log_offset, readable_offset)

        return offset_by_time(store_time, min_offset, max_offset, time_ms, boundary)

    @staticmethod
    def _batch_offset_by_time(
        queue: BatchConsumeQueue,
        min_offset: int,
        max_offset: int,
        time_ms: int,
        readable_offset: int,
        boundary: Boundary,
    ) -> int:
        """Search by unit and return the offset of its first message.

        Stock's UPPER of a time between two units is not copied: it gives 0 or the right neighbour, depending on the
        end of its binary search.
        """

        def store_time(number: int) -> int | None:
            unit = queue.unit_number(number)
            return unit.store_time_ms if unit and unit.queue_offset >= min_offset else None

        number = offset_by_time(store_time, *queue.numbers(readable_offset), time_ms, boundary)
        unit = queue.unit_number(number)
        return max_offset if unit is None else max(min_offset, min(unit.queue_offset, max_offset))

    def store_time(self, topic: str, queue_id: int, queue_offset: int, readable_offset: int) -> int:
        """Return the store time of one message in ms, -1 for a missing one."""
        queue = self.queue(topic, queue_id)
        unit = queue.unit(queue_offset) if queue else None
        if unit is None or unit.end > readable_offset:
            return -1
        time_ms = self.commit_log.store_time_at(unit.commit_log_offset, readable_offset)
        return -1 if time_ms is None else time_ms

    def earliest_store_time(self, readable_offset: int) -> int:
        """Return the store time of the first record of the log, -1 for an empty log."""
        time_ms = self.commit_log.store_time_at(self.commit_log.min_offset, readable_offset)
        return -1 if time_ms is None else time_ms


def _sub_directories(directory: Path | str) -> list[os.DirEntry[str]]:
    try:
        return sorted((entry for entry in os.scandir(directory) if entry.is_dir()), key=lambda entry: entry.name)
    except FileNotFoundError:
        return []
