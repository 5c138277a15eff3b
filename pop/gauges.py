"""The gauges of the worker `pop`: words of its role block that the metrics worker reads."""

from __future__ import annotations

from typing import Any

from ringmq.native import lib
from ringmq.pop.backlog import Backlog
from ringmq.pop.desk import Desk
from ringmq.pop.offsets import Offsets
from ringmq.pop.revival_words import Gauge, RevivalWord, SnapshotFault
from ringmq.pop.snapshots import Snapshots

INTERVAL_MS = 250


class Gauges:
    """Writes the words. `words`: of the role block. `entries_max`: entries that the memory holds."""

    def __init__(
        self, words: Any, windows: Any, entries_max: int, desk: Desk, offsets: Offsets, snapshots: Snapshots,
        backlog: Backlog,
    ) -> None:  # fmt: skip
        self._words, self._windows, self._entries_max = words, windows, entries_max
        self._desk, self._offsets, self._snapshots, self._backlog = desk, offsets, snapshots, backlog
        self._reported = 0
        """Reports of consumer offsets that are counted."""
        self._next_ms = 0

    def turn(self, now_ms: int) -> None:
        """Write what is due."""
        self._backlog.turn(now_ms)
        if now_ms >= self._next_ms:
            self._next_ms = now_ms + INTERVAL_MS
            self.tell()

    def sleep_ms(self, now_ms: int) -> int:
        """Time until the next step of a look at the entries. The other gauges ask for no turn."""
        return self._backlog.sleep_ms(now_ms)

    def finish(self) -> None:
        """Write all, at the end of the process. A worker that rests leaves the words as they are."""
        self._backlog.finish()
        self.tell()

    def tell(self) -> None:
        """Write all but the results of looks."""
        counts, words = lib.rmq_pop_counts_of(self._windows), self._words
        words[Gauge.WINDOWS], words[Gauge.WINDOWS_MAX] = counts.windows, self._desk.windows.limit
        words[Gauge.ENTRIES], words[Gauge.ENTRIES_MAX] = counts.entries, self._entries_max
        words[Gauge.OPEN], words[Gauge.RETURNED] = counts.open, counts.returned
        words[Gauge.REVIVING], words[Gauge.REVIVED] = counts.reviving, counts.revived
        words[Gauge.POLLS], words[Gauge.POLLS_MAX] = self._desk.polls_waiting, self._desk.polls_max
        words[RevivalWord.REPORTED] += self._offsets.reported - self._reported
        self._reported = self._offsets.reported
        snapshots = self._snapshots
        no_room = SnapshotFault.NO_ROOM if snapshots.no_room else SnapshotFault.NONE
        words[Gauge.SNAPSHOT_FAULT] = SnapshotFault.FAILED if snapshots.failure else no_room
        words[Gauge.UNSAVED_MS] = snapshots.unsaved_ms
