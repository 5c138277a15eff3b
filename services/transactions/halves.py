"""Half messages in the log and in their queue, as the service reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ringmq.ipc.plane import Plane
from ringmq.native import ffi, lib
from ringmq.remoting.names import HALF_TOPIC
from ringmq.remoting.properties import REAL_QID, REAL_TOPIC
from ringmq.services.log_view import LogView
from ringmq.services.topics import Topics
from ringmq.services.transactions import records
from ringmq.services.transactions.half_table import Half
from ringmq.store.consume_queue import first_index
from ringmq.store.queue_reader import DeletedError, QueueReader, QueueReadError, RecordBatch
from ringmq.store.record import Record

BATCH = 256


def first_behind(plane: Plane, reader: QueueReader, queue_slot: int, position: int) -> int:
    """Offset of the first record of a queue that is behind this position of the log, the queue's end if there is
    none."""
    queue = plane.queue(queue_slot)

    def is_behind(offset: int) -> bool:
        try:
            found = reader.units(queue_slot, offset, 1).units
        except DeletedError:
            return False
        return not found or found[0].commit_log_offset > position

    return first_index(int(queue.min_offset), int(queue.max_offset), is_behind)


class HalfReader:
    """The half queue. `next_offset`: the half that arrives next."""

    def __init__(self, plane: Plane, reader: QueueReader, log: LogView, topics: Topics, queue_slot: int) -> None:
        self._plane, self._reader, self._log, self._topics = plane, reader, log, topics
        self._slot = queue_slot
        self._batch = RecordBatch(BATCH)
        self._view = ffi.new("struct rmq_record_view *")
        self.next_offset = 0

    @property
    def end(self) -> int:
        """Half-queue offset behind the last half in the queue."""
        return int(self._plane.queue(self._slot).max_offset)

    @property
    def first(self) -> int:
        """Half-queue offset of the first half that retention has left."""
        return int(self._plane.queue(self._slot).min_offset)

    @property
    def has_more(self) -> bool:
        """True if the queue has halves that did not arrive yet."""
        return self.end > self.next_offset

    def arrived(self, say: Callable[[str], None]) -> Iterator[Half]:
        """The halves of one batch that producers have sent. Copies, which the service made, are left out."""
        try:
            count = self._reader.hold(self._batch, self._slot, self.next_offset)
            for number in range(count):
                at, size = self._batch.records[number].at, self._batch.units[number].size
                if lib.rmq_record_parse(at, size, 0, self._view) == lib.RMQ_RECORD_OK:
                    half = records.sent_half(self._view, at)
                    if half is not None:
                        yield half
            self.next_offset = max(self.next_offset, self._batch.next_offset)
        except DeletedError as error:
            say(f"half messages {self.next_offset} to {error.next_offset - 1} were deleted before")
            self.next_offset = max(self.next_offset, error.next_offset)
        except QueueReadError:  # not confirmed yet, or no file can be mapped now
            pass
        finally:
            self._batch.release()

    def at(self, position: int) -> tuple[memoryview, Record] | None:
        """The half message at this position of the log, with its bytes. None if there is none."""
        data = self._log.record(position)
        record = None if data is None else records.half_at(data, position)
        return None if data is None or record is None else (data, record)

    def is_in_queue(self, record: Record) -> bool:
        """True if the unit of its queue offset leads to this record. No other bytes of the log are a half message."""
        return self.position(record.queue_offset) == record.physical_offset

    def position(self, queue_offset: int) -> int | None:
        """Position in the log of this half. None if retention has taken it."""
        try:
            found = self._reader.units(self._slot, queue_offset, 1).units
        except (QueueReadError, ValueError):
            return None
        return found[0].commit_log_offset if found and found[0].queue_offset == queue_offset else None

    def first_behind(self, queue_slot: int, position: int) -> int:
        """Offset of the first record of another queue that is behind this position of the log."""
        return first_behind(self._plane, self._reader, queue_slot, position)

    def target(self, record: Record) -> tuple[int, int, int] | None:
        """(topic id, queue slot, queue id) where the message goes when it is committed. None if there is no such
        queue."""
        pairs = record.properties
        topic, queue_id = pairs.get(REAL_TOPIC, ""), pairs.get(REAL_QID, "")
        if topic == HALF_TOPIC or not (queue_id.isascii() and queue_id.isdecimal() and len(queue_id) < 10):
            return None
        return self._topics.queue(topic, int(queue_id))
