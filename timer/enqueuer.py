"""TimerEnqueueGet and TimerEnqueuePut: records of the timer topic become units of the log. Masters and slaves do so."""

from __future__ import annotations

import time

from ringmq.native import lib
from ringmq.store.queue_reader import (
    DamagedError,
    DeletedError,
    NotConfirmedError,
    NotMappedError,
    QueueReader,
    RecordBatch,
)
from ringmq.timer.slots import BATCH
from ringmq.timer.working_store import WorkingStore


class Enqueuer:
    """Reads the timer topic's queue through `reader`."""

    def __init__(self, store: WorkingStore, reader: QueueReader) -> None:
        self._slots, self._targets, self._queue = store.slots, store.targets, store.queue
        self._log_line = store.log_line
        self._reader = reader
        # a batch may hold all files that `reader` maps, and then no target in another file could be read
        self._target_reader = QueueReader(store.plane.struct, 2, 1)
        store.slots.work.index.reader = self._target_reader.native
        self._batch = RecordBatch(BATCH)
        self.is_waiting_for_room = False
        self.skips_unknown_errors = False
        """timerSkipUnknownError: a damaged entry of the queue is skipped. Else it and those behind it wait."""
        self.has_more = False
        """True if the last call has ended at its limit, or at that of searches for the targets of deletes."""
        self.is_blocked = False
        """True if the last call has ended at a record whose file cannot be mapped now."""
        self.log_offset = -1
        """Offset of the log behind the last record that was taken."""

    def enqueue(self, offset: int, limit: int) -> int:
        """Append units for the records from a queue offset on, at most `limit`. Returns the offset behind the last
        one."""
        end = offset + limit
        self.has_more = self.is_blocked = False
        self._targets.begin_turn(time.monotonic_ns())
        while offset < end:
            following = self._enqueue_batch(offset, end)
            if following == offset:
                break
            offset = following
        self.has_more |= offset >= end
        return offset

    def tick(self) -> None:
        """Release files that are not read, and log deletes that were not searched for. Called once a second."""
        self._target_reader.tick()
        self._targets.log_passed_over(int(self._slots.tally.not_searched))

    def close(self) -> None:
        """Unmap the files of the store."""
        self._target_reader.close()

    def _enqueue_batch(self, offset: int, end: int) -> int:
        try:
            self._reader.hold(self._batch, self._queue.queue_slot, offset)
            return self._append(offset, end)
        except DeletedError as error:
            if error.next_offset > offset:
                self._log_line(
                    f"retention has deleted {error.next_offset - offset} timer messages before they were in the wheel "
                    f"(offsets {offset} to {error.next_offset - 1})"
                )
            return max(offset, error.next_offset)
        except NotMappedError as error:
            self._log_line(f"waits: {error}")
            self.is_blocked = True
            return offset
        except NotConfirmedError:
            return offset
        except DamagedError as error:
            if self.skips_unknown_errors:
                self._log_line(f"skips a timer message (timerSkipUnknownError): {error}")
                self._slots.tally.damaged += 1
                return offset + 1
            self._log_line(f"waits: {error}; later timer messages wait until the queue is rebuilt")
            return offset
        finally:
            self._batch.release()

    def _append(self, offset: int, end: int) -> int:
        work, count, done = self._slots.work, self._batch.count, 0
        self._targets.begin_batch()
        while count and int(self._batch.units[count - 1].queue_offset) >= end:
            count -= 1
        if count < self._batch.count and not count:
            return offset
        while done < count:
            try:
                self._slots.files.make_room(count - done)
            except OSError as error:
                self._log_line(f"waits: no room for TimerLog: {error}")
                self.is_waiting_for_room = True
                break
            self.is_waiting_for_room = False
            done += self._slots.enqueue(self._batch, done, count - done)
            if work.stop == lib.RMQ_TIMER_STOP_TIME:
                self.has_more = True
                break
            if work.stop == lib.RMQ_TIMER_STOP_INDEX:
                self._targets.list_files(min(work.write_ms, work.open_ms))
        if done:
            last = self._batch.units[done - 1]
            self.log_offset = int(last.commit_log_offset) + int(last.size)
        return int(self._batch.units[done].queue_offset) if done < self._batch.count else self._batch.next_offset
