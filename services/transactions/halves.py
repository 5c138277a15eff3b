"""Half messages in the log and in their queue, as the service reads them."""

from __future__ import annotations

from collections.abc import Callable

from ringmq.ipc.plane import Plane
from ringmq.remoting.names import HALF_TOPIC
from ringmq.remoting.properties import REAL_QID, REAL_TOPIC
from ringmq.services.log_view import LogView
from ringmq.services.topics import Topics
from ringmq.services.transactions import records
from ringmq.services.transactions.half_table import HalfTable
from ringmq.store.consume_queue import first_index
from ringmq.store.queue_reader import DamagedError, DeletedError, QueueReader, QueueReadError, RecordBatch
from ringmq.store.record import Record

BATCH = 256


def first_behind(plane: Plane, reader: QueueReader, queue_slot: int, position: int) -> int:
    """Offset of the first record of a queue that is behind this position of the log, the queue's end if there is
    none. A damaged unit may make it smaller, never larger."""
    queue = plane.queue(queue_slot)

    def is_behind(offset: int) -> bool:
        try:
            found = reader.units(queue_slot, offset, 1).units
        except DeletedError:
            return False
        except DamagedError:
            return True
        return not found or found[0].commit_log_offset > position

    return first_index(int(queue.min_offset), int(queue.max_offset), is_behind)


class HalfReader:
    """The half queue. `next_offset`: the half that arrives next."""

    def __init__(self, plane: Plane, reader: QueueReader, log: LogView, topics: Topics, queue_slot: int) -> None:
        self._plane, self._reader, self._log, self._topics = plane, reader, log, topics
        self._slot = queue_slot
        self._batch = RecordBatch(BATCH)
        self.next_offset = 0
        self.damaged: int | None = None
        """The first half-queue offset whose unit was damaged when its half arrived."""

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

    def arrive(self, table: HalfTable, log_line: Callable[[str], None]) -> None:
        """Add the halves of one batch that producers have sent. Copies, which the service made, are left out."""
        try:
            table.arrive(self._batch, self._reader.hold(self._batch, self._slot, self.next_offset))
            self.next_offset = max(self.next_offset, self._batch.next_offset)
        except DeletedError as error:
            log_line(f"half messages {self.next_offset} to {error.next_offset - 1} were deleted before")
            self.next_offset = max(self.next_offset, error.next_offset)
        except DamagedError as error:
            log_line(f"half message {self.next_offset} is left out until the queue is rebuilt: {error}")
            self.damaged = self.next_offset if self.damaged is None else self.damaged
            self.next_offset += 1
        except QueueReadError:  # not confirmed yet, or no file can be mapped now
            pass
        finally:
            self._batch.release()

    def at(self, position: int) -> tuple[memoryview, Record] | None:
        """The half message at this position of the log, with its bytes. None if there is none."""
        data = self._log.record(position)
        record = None if data is None else records.half_at(data, position)
        return None if data is None or record is None else (data, record)

    def is_damaged(self, position: int) -> bool:
        """True if the place that a unit names is readable. Its half is damaged if `at` finds none there."""
        bounds = self._log.bounds()
        is_readable = bounds.min_offset <= position < bounds.confirm_offset
        return is_readable and self._log.file(position) is not None

    def named(self, position: int) -> Record | None:
        """The half message at a position that a client has named. None if there is none.

        The unit of its queue offset leads to it. No other bytes of the log are a half message.
        """
        data = self._log.record(position)
        record = None if data is None else records.half_at(data, position, with_body=False)
        if data is None or record is None or self.position(record.queue_offset) != position:
            return None
        return records.half_at(data, position)

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
