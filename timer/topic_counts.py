"""Messages by real topic: the table of the C core, `timermetrics` as stock writes it, and counters.

The table is in native/src/timer/timer_topics.h. Each message counts from its unit on, until its copy is stored or it is
deleted or skipped. A message that a recall has named counts until its time. A start counts the units of the log in
pieces, so that a large log delays no delivery.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ringmq.native import ffi, lib
from ringmq.native.table_secret import table_secret
from ringmq.remoting.properties import REAL_TOPIC
from ringmq.store.config_files import data_version, persist_text
from ringmq.store.layout import CONFIG, TIMER_COUNTS_FILE, TIMER_TOPICS_FILE
from ringmq.store.markers import replace_unsynced
from ringmq.store.record import Record
from ringmq.timer.timer_files import TimerFiles

PIECE_UNITS = 16_384
"""Units of one piece: a millisecond, and 830 KiB of the log."""
WRITE_MS, TOPIC_MS = 1000, 1
"""Time between two writes of the file: the longer one, TOPIC_MS for each topic. Its text takes that long at 1 %."""
_ROW = np.dtype([
    ("hash", "<i4"), ("record_bytes", "<i4"), ("log_offset", "<i8"), ("messages", "<i8"), ("enqueued", "<u8"),
    ("dequeued", "<u8"), ("delay_seconds", "<u8"), ("delays", "<u8", (lib.RMQ_TIMER_DELAY_BUCKETS,)),
])  # fmt: skip
assert _ROW.itemsize == ffi.sizeof("struct rmq_timer_topic")
Rows = NDArray[np.void]


class TopicCounts:
    """Owns the table. `from_ms`: time of the first slot that is not delivered at the start."""

    def __init__(self, files: TimerFiles, from_ms: int) -> None:
        self._files = files
        self._memory = np.zeros(lib.RMQ_TIMER_TOPICS + 1, _ROW)
        self.struct = ffi.new("struct rmq_timer_topics *", {"secret": table_secret()})
        self.struct.rows = ffi.cast("struct rmq_timer_topic *", ffi.from_buffer(self._memory))
        self._from_ms, self._end = from_ms, files.log_end
        self._position = ffi.new("int64_t *", files.log_begin)

    @property
    def is_complete(self) -> bool:
        """True once the units that the start has found are counted."""
        return int(self._position[0]) >= self._end

    @property
    def messages(self) -> int:
        """Messages that wait, of all topics. Too few until the count is complete."""
        return max(0, int(self.struct.messages))

    def count_piece(self) -> None:
        """Count the next units of the log."""
        if not self.is_complete:
            lib.rmq_timer_topics_count(
                self._files.struct, self.struct, self._position, self._end, self._from_ms, 1, PIECE_UNITS
            )

    def drop_before(self, position: int, from_ms: int) -> int:
        """Take off the units before a position of the log, of slots at `from_ms` or later: they are about to be
        deleted. Returns the number of those that were counted yet."""
        begin = ffi.new("int64_t *", self._files.log_begin)
        end = position if self.is_complete else min(position, int(self._position[0]))
        lost = lib.rmq_timer_topics_count(self._files.struct, self.struct, begin, end, from_ms, -1, 1 << 62)
        self._position[0] = max(int(self._position[0]), min(position, self._end))
        return int(lost)

    def rows(self) -> Rows:
        """A copy of the rows of topics that have had a message since the start."""
        table = self._memory[:-1]
        used: Rows = table[table["record_bytes"] != 0]
        return used


class TopicCountsFile:
    """Writes `config/timermetrics`, and `config/ringmqTimerTopics.json` for the exporter. One thread calls all.

    `record_at` reads a record of the CommitLog by offset and size. Topics whose records are gone are left out.
    """

    def __init__(self, root: Path, record_at: Callable[[int, int], Record | None], wall_ms: Callable[[], int]) -> None:
        self._root, self._record_at, self._wall_ms = root, record_at, wall_ms
        self._names: dict[int, str] = {}
        self._known: dict[str, tuple[int, int]] = {}
        """Topic -> (messages, time of the last change)."""
        self._counter = 0
        self._next_ms = 0
        self._totals = ""

    def is_due(self, mono_ms: int) -> bool:
        """True if the last write is long enough ago."""
        return mono_ms >= self._next_ms

    def write(self, rows: Rows, mono_ms: int) -> None:
        """Replace the files, if a number has changed. Raises OSError."""
        self._next_ms = mono_ms + max(WRITE_MS, TOPIC_MS * len(rows))
        self._write_totals(rows)
        now_ms, known = self._wall_ms(), {}
        for topic_hash, record_bytes, log_offset, messages in rows[
            ["hash", "record_bytes", "log_offset", "messages"]
        ].tolist():
            if name := self._name(topic_hash, log_offset, record_bytes):
                before, changed_ms = self._known.get(name, (-1, now_ms))
                known[name] = (max(0, messages), changed_ms if before == messages else now_ms)
        if known == self._known and self._counter:
            return
        self._known = known
        self._counter += 1
        persist_text(self._root, TIMER_COUNTS_FILE, self._text(now_ms))

    def _write_totals(self, rows: Rows) -> None:
        """For each topic: enqueued, dequeued, seconds of delay, and the delays by bucket, since the worker's start.

        The file need not outlive a power cut, so it is not synced.
        """
        numbers = zip(*(rows[name].tolist() for name in ("enqueued", "dequeued", "delay_seconds")), strict=True)
        records = zip(*(rows[name].tolist() for name in ("hash", "log_offset", "record_bytes")), strict=True)
        table = {
            name: [*counts, *delays]
            for record, counts, delays in zip(records, numbers, rows["delays"].tolist(), strict=True)
            if any(counts) and (name := self._name(*record))
        }
        text = json.dumps(table, separators=(",", ":"))
        if text != self._totals:
            replace_unsynced(self._root / CONFIG / TIMER_TOPICS_FILE, text)
            self._totals = text

    def _text(self, now_ms: int) -> str:
        value = {
            "dataVersion": data_version(self._counter, 0, now_ms),
            "timingCount": {
                name: {"count": messages, "timeStamp": changed_ms}
                for name, (messages, changed_ms) in sorted(self._known.items())
            },
        }
        return json.dumps(value, separators=(",", ":"))

    def _name(self, topic_hash: int, log_offset: int, record_bytes: int) -> str:
        name = self._names.get(topic_hash)
        if name is None:
            record = self._record_at(log_offset, record_bytes)
            name = "" if record is None else record.properties.get(REAL_TOPIC, "")
            self._names[topic_hash] = name
        return name
