"""A slave's check of the bodies that it has received, beside the stream.

A check in front of each append would cost the stream a fifth of its speed. So the check follows the log's end in steps:
small ones while the stream runs, large ones while it rests.
"""

import logging
from typing import Any

from ringmq.native import lib
from ringmq.store.bad_bodies import BodyCheck, bad_body_line
from ringmq.store.commit_log import CommitLog
from ringmq.store.config import StoreConfig
from ringmq.store.mapped_file import MappedFileCache

log = logging.getLogger(__name__)

EVERY_MS = 100
BUSY_BYTES = 1 << 20
REST_BYTES = 8 << 20
"""Of one step: 0.2 ms of a running stream, 2 ms of a resting one."""
NAMED_MAX = 100
"""Records with a line of their own in a run of the worker. The counter has all."""


class ReceivedBodies:
    """Counts and names received records whose body has a wrong CRC. `role` is that of the worker."""

    def __init__(self, config: StoreConfig, role: Any, append_offset: int) -> None:
        self._log = CommitLog(config, MappedFileCache(2))
        self._role = role
        self._check = BodyCheck(append_offset)
        self._end = append_offset
        self._due_ms = 0
        self._named = 0

    def step(self, append_offset: int, now_ms: int) -> None:
        """Check some bytes in front of `append_offset`, if it is time."""
        if now_ms < self._due_ms or self._check.position == append_offset == self._end:
            return
        self._due_ms = now_ms + EVERY_MS
        bytes_max = REST_BYTES if append_offset == self._end else BUSY_BYTES
        self._end = append_offset
        for offset in self._check.step(self._log, append_offset, bytes_max):
            self._role.counters[lib.RMQ_RECEIVE_BAD_BODIES] += 1
            self._named += 1
            if self._named <= NAMED_MAX:
                log.warning("%s", bad_body_line(self._log, offset))
            if self._named == NAMED_MAX:
                log.warning("more records with bad bodies are counted and not named: ringmq_bad_bodies_total")
