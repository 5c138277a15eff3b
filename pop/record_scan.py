"""Finds the records by which RocketMQ keeps open messages: those that its revive service has not handled yet.

They lie in the revive queues behind the offset of the revive group, which is that of the last handled record, and in
the timer topic until their time. A killed broker leaves the last ones in no queue.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ringmq.fastjson.files import read_head
from ringmq.pop.revive_records import CHECK_POINT, TAGS, is_revive_topic
from ringmq.remoting import properties
from ringmq.store import layout
from ringmq.store.consume_queue import UNIT_BYTES, ConsumeQueue, Unit
from ringmq.store.message_store import MessageStore
from ringmq.store.record import Record, java_hash
from ringmq.store.record_numbers import decimal

EVERYTHING = 1 << 62
_TIMER_CHECK = struct.Struct(">q")
"""The first number of the timer's checkpoint: the time up to which its messages are delivered."""
_CODES = tuple(java_hash(tag).to_bytes(8, "big", signed=True) for tag in TAGS)
_CODE_AT = UNIT_BYTES - 8
_REAL_TOPIC = f"{properties.REAL_TOPIC}\x01".encode()


class Found(NamedTuple):
    """A record. `revive_queue`: the one in which it lies, or will."""

    tag: str
    body: bytes
    revive_queue: int


class RecordScan:
    """Reads a store at a start. `handled`: the offset of the last handled record of a topic and queue, -1 = none."""

    def __init__(self, store: MessageStore, handled: Callable[[str, int], int]) -> None:
        self._store, self._handled = store, handled

    def records(self, dispatched: int, log_end: int, delay_max_ms: int) -> Iterator[Found]:
        """All of them. Records of the log from `dispatched` on are in no queue. `delay_max_ms`: the longest time that
        a record may wait in the timer. Raises OSError."""
        root = self._store.config.root
        read_ms = timer_read_ms(root)
        for topic in revive_topics(root):
            yield from self._revived(topic)
        yield from self.timed(read_ms, delay_max_ms)
        if dispatched < log_end:
            for _, record in self._store.commit_log.scan(dispatched, log_end):
                if is_revive_topic(record.topic):
                    yield _found(record, record.queue_id)
                elif record.topic == layout.TIMER_TOPIC and (found := _waiting(record, read_ms)) is not None:
                    yield found

    def written_check_points(self, since: int, dispatched: int, log_end: int) -> Iterator[Found]:
        """Check points that were written at or behind `since` of the log. Those that the timer has delivered there are
        older. Raises OSError."""
        for topic in revive_topics(self._store.config.root):
            for name in self._store.queue_names([topic]):
                queue = self._store.queue(topic, name.queue_id)
                if not isinstance(queue, ConsumeQueue):
                    continue
                for unit in queue.units(*self._bounds(queue, queue.offsets_at([since])[0])):
                    record = self._store.commit_log.record_at(unit.commit_log_offset, EVERYTHING, unit.size)
                    if record is not None and _is_written_check_point(record):
                        yield _found(record, name.queue_id)
        yield from (found for found in self.timed(0, 0, since) if found.tag == CHECK_POINT)
        if dispatched < log_end:
            for _, record in self._store.commit_log.scan(max(since, dispatched), log_end):
                if _is_written_check_point(record):
                    yield _found(record, record.queue_id)

    def _revived(self, topic: str) -> Iterator[Found]:
        for name in self._store.queue_names([topic]):
            queue = self._store.queue(topic, name.queue_id)
            if not isinstance(queue, ConsumeQueue):
                continue
            first, end = self._bounds(queue, self._handled(topic, name.queue_id) + 1)
            for unit in queue.units(first, end):
                record = self._store.commit_log.record_at(unit.commit_log_offset, EVERYTHING, unit.size)
                if record is not None:
                    yield _found(record, name.queue_id)

    def timed(
        self, read_ms: int, delay_max_ms: int, since: int = 0, look: Callable[[], None] = lambda: None
    ) -> Iterator[Found]:  # fmt: skip
        """Those that wait in the timer until `read_ms` or later, from `since` of the log on. The newest come first.
        Behind the first one that is too old to wait, older files of the queue have none. `look` is called for each file
        and each record that is read, and may raise to end the scan."""
        for found in self.timed_steps(read_ms, delay_max_ms, since):
            look()
            if found is not None:
                yield found

    def timed_steps(self, read_ms: int, delay_max_ms: int, since: int) -> Iterator[Found | None]:
        """The same, with None for each file, which takes some ms, and for each record that does not wait."""
        queue = self._store.queue(layout.TIMER_TOPIC, 0)
        if not isinstance(queue, ConsumeQueue):
            return
        first, end = self._bounds(queue, queue.offsets_at([since])[0])
        for start in reversed(queue.files.starts):
            yield None
            is_old = False
            begin = max(start, first * UNIT_BYTES)
            rest = queue.files.rest(begin, end * UNIT_BYTES)
            for unit in () if rest is None else tagged_units(rest, begin // UNIT_BYTES):
                record = self._store.commit_log.record_at(unit.commit_log_offset, EVERYTHING, unit.size)
                if record is not None:
                    is_old |= record.store_time_ms + delay_max_ms < read_ms
                yield None if record is None else _waiting(record, read_ms)
            if is_old:
                return

    def _bounds(self, queue: ConsumeQueue, first: int) -> tuple[int, int]:
        """Queue offsets [from, to) at or behind `first`. All of them if it lies beyond the end: then it is true of
        another log."""
        end = queue.max_offset(EVERYTHING)
        low = queue.min_offset(self._store.commit_log.min_offset, end)
        return min(end, max(first if first <= end else 0, low)), end


def revive_topics(root: Path) -> list[str]:
    """Revive topics with queues on disk, of any cluster."""
    try:
        entries = list(os.scandir(root / layout.CONSUME_QUEUE))
    except FileNotFoundError:
        return []
    return sorted(entry.name for entry in entries if is_revive_topic(entry.name) and entry.is_dir())


def timer_read_ms(root: Path) -> int:
    """The time up to which timers are delivered, 0 if it is unknown. Raises OSError."""
    try:
        data = read_head(root / layout.CONFIG / "timercheck", _TIMER_CHECK.size)
    except FileNotFoundError:
        return 0
    return int(_TIMER_CHECK.unpack(data)[0]) if len(data) == _TIMER_CHECK.size else 0


def tagged_units(data: memoryview, first: int) -> Iterator[Unit]:
    """Units whose records may have a tag of POP: a search for bytes, because millions of others may wait. `first`:
    queue offset of the first unit of `data`."""
    raw = bytes(data)
    for code in _CODES:
        at = raw.find(code)
        while at >= 0:
            begin = at - _CODE_AT
            if begin >= 0 and not begin % UNIT_BYTES:
                position, size, tags_code = layout.CONSUME_QUEUE_UNIT.unpack_from(raw, begin)
                if position >= 0 and size > 0:
                    yield Unit(first + begin // UNIT_BYTES, position, size, tags_code)
            at = raw.find(code, at + 1)


def _waiting(record: Record, read_ms: int) -> Found | None:
    """A record of the timer topic, if it is POP's and waits."""
    if _REAL_TOPIC not in record.properties_raw:
        return None
    pairs = record.properties
    out_ms = decimal(pairs.get(properties.TIMER_OUT_MS, ""))
    if out_ms is None or out_ms < read_ms or properties.TIMER_DEL_UNIQKEY in pairs:
        return None
    revive_queue = decimal(pairs.get(properties.REAL_QID, ""))
    if not is_revive_topic(pairs.get(properties.REAL_TOPIC, "")) or revive_queue is None:
        return None
    return _found(record, revive_queue)


def _is_written_check_point(record: Record) -> bool:
    if record.properties.get(properties.TAGS) != CHECK_POINT:
        return False
    if record.topic == layout.TIMER_TOPIC:
        return _waiting(record, 0) is not None
    return is_revive_topic(record.topic) and properties.TIMER_OUT_MS not in record.properties


def _found(record: Record, revive_queue: int) -> Found:
    return Found(record.properties.get(properties.TAGS, ""), record.body, revive_queue)
