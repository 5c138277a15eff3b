"""Entries of queues whose records have come before the settings of their topics, made before write counts offsets.

The search is in C (native/src/write/missing_queue.c). It reads the part of the log that dispatch has not reached.
"""

from __future__ import annotations

import os

from ringmq.broker.tables.deletions import Deletions
from ringmq.broker.tables.publication import PlaneTables
from ringmq.ipc.plane import Plane
from ringmq.native import ffi, lib

TURN_BYTES = 32 << 20
"""Log that a turn reads, some 10 ms."""


class MissingQueues:
    """The search. `begin`, then `are_made` until it is true."""

    def __init__(self, plane: Plane, tables: PlaneTables, deletions: Deletions) -> None:
        self._plane, self._tables, self._deletions = plane, tables, deletions
        self._at = ffi.new("struct rmq_missing_queue *")
        self._is_over = False

    def begin(self) -> None:
        """Search the log from the start. No role may append until it is over."""
        marks = self._plane.watermarks
        self._at.offset, self._is_over = max(int(marks.dispatched_offset), int(marks.min_offset)), False

    def are_made(self) -> bool:
        """Go on with the search. True if all records have a queue, and write may open the log. Raises OSError, and
        PlaneFullError if there is no room for a queue."""
        if self._is_over:
            return True
        end, at = int(self._plane.watermarks.append_offset), self._at
        until = min(end, int(at.offset) + TURN_BYTES)
        while at.offset < until:
            found = int(lib.rmq_missing_queue_find(self._plane.struct, at, end, until - at.offset))
            if found < 0:
                raise OSError(-found, f"the log cannot be read at {at.offset}: {os.strerror(-found)}")
            if found:
                self._make(end)
        self._is_over = at.offset >= end
        if self._is_over:
            lib.rmq_journal_let_open(self._plane.struct)
        return self._is_over

    def _make(self, end: int) -> None:
        topic = bytes(ffi.buffer(self._at.topic, self._at.topic_length)).decode(errors="replace")
        # A topic that is being deleted needs no old records: its folder is removed, and a new topic begins at 0.
        replay_from = end if topic in self._deletions else None
        batch = bool(self._at.is_batch)
        self._tables.publish_queue(topic, int(self._at.queue_id), batch=batch, replay_from=replay_from)
