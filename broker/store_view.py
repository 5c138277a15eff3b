"""The store as control reads it: `ringmq.store.MessageStore` up to the live confirm offset.

No path returns records at or above the confirm offset. Each call reads the offset again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ringmq.broker.tables.protocols import BatchPull, KeyQuery, LogState, Wants
from ringmq.remoting.names import STAGED_TOPICS
from ringmq.store import layout
from ringmq.store.markers import sync_directory
from ringmq.store.message_store import MessageStore
from ringmq.store.offset_search import Boundary
from ringmq.store.record import parse_record
from ringmq.store.retention import used_ratio
from ringmq.store.tail_checksums import window_crc

BATCH_PULL_BYTES_MAX = 4 << 20
VIEW_BYTES_MAX = 16 << 20
"""The largest frame, in which every stored message has come."""


class StoreView:
    """The `StoreProtocol` over a store whose owner is this broker. `plane` is a `ringmq.ipc.plane.Plane`."""

    def __init__(self, plane: Any, store: MessageStore) -> None:
        self._plane = plane
        self._store = store

    def view(self, commit_log_offset: int) -> bytes | None:
        """See StoreProtocol."""
        if commit_log_offset < 0:
            return None
        raw = self._store.commit_log.raw_at(commit_log_offset, self._plane.confirm_offset())
        if raw is None or len(raw) > VIEW_BYTES_MAX:
            return None
        # A client names any offset. Its message may hold the begin of a record that it has made up around messages of
        # others. The checksum of the body shows that.
        _, record = parse_record(raw)
        if record is None or record.physical_offset != commit_log_offset or record.topic in STAGED_TOPICS:
            return None
        return bytes(raw)

    def raw_record(self, commit_log_offset: int) -> memoryview | None:
        """See StoreProtocol."""
        return self._store.commit_log.raw_at(commit_log_offset, self._plane.confirm_offset())

    def log_file(self, commit_log_offset: int) -> tuple[int, Any] | None:
        """See StoreProtocol."""
        return self._store.commit_log.files.find(commit_log_offset)

    def log_bytes(self, offset: int, length: int) -> bytes:
        """See StoreProtocol."""
        rest = self._store.commit_log.files.rest(offset, offset + length)
        return b"" if rest is None else bytes(rest)

    def log_crc(self, offset: int, length: int) -> int | None:
        """See StoreProtocol."""
        return window_crc(self._store.commit_log, offset, length)

    def query_by_key(self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int) -> KeyQuery:
        """See StoreProtocol."""
        confirm_offset = self._plane.confirm_offset()
        offsets = self._store.index.query(topic, key, max_num, begin_ms, end_ms)
        found = (self.view(offset) for offset in offsets if offset < confirm_offset)
        time_ms, offset = self._store.index.last_update()
        return KeyQuery([raw for raw in found if raw is not None], time_ms, min(offset, confirm_offset))

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, upper: bool) -> int:
        """See StoreProtocol."""
        boundary = Boundary.UPPER if upper else Boundary.LOWER
        return self._store.offset_by_time(topic, queue_id, timestamp_ms, self._plane.confirm_offset(), boundary)

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """See StoreProtocol."""
        if queue_offset < 0:
            return -1
        return self._store.store_time(topic, queue_id, queue_offset, self._plane.confirm_offset())

    def batch_pull(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_num: int,
        tag_codes: list[int],
        wants: Wants | None = None,
    ) -> BatchPull:
        """See StoreProtocol."""
        wanted = frozenset(tag_codes)
        found = self._store.get_messages(
            topic,
            queue_id,
            queue_offset,
            max_num,
            self._plane.confirm_offset(),
            accepts=(lambda unit: unit.tags_code in wanted) if wanted else None,
            bytes_max=BATCH_PULL_BYTES_MAX,
        )
        records = [bytes(record) for record in found.records]
        status = found.status.name
        if wants is not None and records:
            records = [raw for raw in records if (record := parse_record(raw)[1]) and wants(record.properties)]
            status = status if records else "NO_MATCHED_MESSAGE"
        body = b"".join(records)
        return BatchPull(status, found.next_offset, max(0, found.min_offset), found.max_offset, body)

    def queue_units(self, topic: str, queue_id: int, queue_offset: int, count: int) -> list[tuple[int, int, int]]:
        """See StoreProtocol."""
        queue = self._store.queue(topic, queue_id)
        if queue is None:
            return []
        confirm_offset = self._plane.confirm_offset()
        units = (queue.unit(offset) for offset in range(queue_offset, queue_offset + count))
        return [
            (unit.commit_log_offset, unit.size, unit.tags_code) for unit in units if unit and unit.end <= confirm_offset
        ]

    def topics_on_disk(self) -> set[str]:
        """See StoreProtocol."""
        return {name.topic for name in self._store.queue_names()}

    def delete_topic(self, topic: str) -> None:
        """See StoreProtocol."""
        import shutil  # imports the compressors of archives

        self._store.forget_topic(topic)
        if "/" in topic or topic in ("", ".", ".."):
            return
        for folder in (layout.CONSUME_QUEUE, layout.BATCH_CONSUME_QUEUE):
            path = self._store.config.root / folder / topic
            if path.is_dir():
                shutil.rmtree(path)
                sync_directory(path.parent)  # else a reboot may bring the old units back

    def refresh(self) -> None:
        """See StoreProtocol."""
        self._store.refresh()

    def log_state(self) -> LogState:
        """See StoreProtocol."""
        marks = self._plane.watermarks
        path = Path(self._store.config.commit_log_directories[0])
        disk = os.statvfs(path)
        return LogState(
            min_offset=int(marks.min_offset),
            append_offset=int(marks.append_offset),
            flushed_offset=int(marks.flushed_offset),
            dispatched_offset=int(marks.dispatched_offset),
            confirm_offset=self._plane.confirm_offset(),
            commit_log_path=str(path),
            disk_total_bytes=disk.f_blocks * disk.f_frsize,
            disk_free_bytes=disk.f_bfree * disk.f_frsize,
            disk_ratio=used_ratio(path),
        )

    def earliest_store_time(self) -> int:
        """See StoreProtocol."""
        return self._store.earliest_store_time(self._plane.confirm_offset())
