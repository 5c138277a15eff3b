"""The positions of queues' records in the log of a store on this host, by which the log is cut into ranges.

They come from the units of the ConsumeQueues and, in a store without an owner, from the records behind them.
"""

import bisect
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ringmq.spark_bridge.slices import LogSpan, QueueKey
from ringmq.store.dispatch_backlog import Backlog, BacklogRecord
from ringmq.store.message_store import MessageStore


class RecordPosition(NamedTuple):
    """A record in the log."""

    begin: int
    size: int

    @property
    def end(self) -> int:
        """The commit-log offset behind it."""
        return self.begin + self.size


class LogIndex:
    """One look at the store. The log has nothing below `span.begin`, and nothing from `span.end` on is readable."""

    def __init__(self, store: MessageStore, span: LogSpan, tails: Backlog) -> None:
        self._store = store
        self._tails = tails
        self.span = span
        self.file_starts = tuple(start for start in store.commit_log.files.starts if start < span.end)
        self.file_bytes = store.commit_log.files.file_bytes

    def offsets_at(self, key: QueueKey, borders: Sequence[int]) -> list[int]:
        """Return for ascending commit-log offsets the first offset of the queue whose record begins there or behind."""
        queue, tail = self._store.queue(key.topic, key.queue_id), self.tail(key)
        bounded = [min(border, self.span.end) for border in borders]
        found = queue.offsets_at(bounded) if queue is not None else [0] * len(borders)
        if not tail:
            return found
        places = [record.commit_log_offset for record in tail]
        for number, border in enumerate(bounded):
            if border > places[0]:
                at = bisect.bisect_left(places, border)
                found[number] = tail[at].queue_offset if at < len(tail) else tail[-1].queue_offset + tail[-1].messages
        return found

    def position(self, key: QueueKey, offset: int) -> RecordPosition | None:
        """The record that holds a queue offset, None when there is none."""
        tail = self.tail(key)
        if tail and offset >= tail[0].queue_offset:
            at = bisect.bisect_right(tail, offset, key=lambda record: record.queue_offset) - 1
            return (
                RecordPosition(tail[at].commit_log_offset, tail[at].size)
                if offset - tail[at].queue_offset < tail[at].messages
                else None
            )
        queue = self._store.queue(key.topic, key.queue_id)
        unit = queue.unit(offset) if queue is not None else None
        return None if unit is None else RecordPosition(unit.commit_log_offset, unit.size)

    def tail(self, key: QueueKey) -> list[BacklogRecord]:
        """The queue's records that have no unit, in order."""
        return self._tails.get((key.topic, key.queue_id), [])

    def units_end(self, key: QueueKey, end: int) -> int:
        """Return the offset behind the queue's last unit, at most `end`."""
        tail = self.tail(key)
        return min(end, tail[0].queue_offset) if tail else end

    def border_at(self, keys: Iterable[QueueKey], target: int, limit: int) -> int:
        """Return the first border of a record at or behind `target` that one of the queues knows, `limit` without
        one.
        """
        best = limit
        for key in keys:
            place = self.position(key, self.offsets_at(key, (target,))[0])
            if place is not None and target <= place.begin < best:
                best = place.begin
        return best
