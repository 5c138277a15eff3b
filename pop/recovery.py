"""A start of the worker finds the copies that a dead process has stored: their marks in the log name window and offset.

The windows may not serve before: an acknowledgement of a message whose copy they do not know would not withdraw the
copy.
"""

from __future__ import annotations

import time
from typing import Any

from ringmq.broker.requests.turns import Steps, TurnClock
from ringmq.ipc.plane import Plane
from ringmq.ipc.ports import Port, parts_of_mark
from ringmq.native import lib
from ringmq.services.log_view import LogView
from ringmq.services.mark_scan import scan_marks

STEP_BYTES = 1 << 20
TURN_MS = 20
LOOK_MS = 2
"""Time between two looks whether write has finished the requests of the dead process."""


class Recovery:
    """Reads the log from `log_offset` on, in turns. `claim` of the port must come before."""

    def __init__(self, plane: Plane, port: Port, windows: Any, log: LogView, log_offset: int) -> None:
        self._plane, self._port, self._windows, self._log = plane, port, windows, log
        self._from = log_offset
        self._steps: Steps[int] | None = None
        self._clock = TurnClock(time.monotonic_ns)
        self.copies: int | None = None
        """Copies that were found. None: it is not done yet."""
        self.end = 0
        """End of the log that was read. The windows wait until it is flushed, for all copies together."""

    @property
    def is_done(self) -> bool:
        """True if the windows know every copy in the log."""
        return self.copies is not None

    def turn(self) -> bool:
        """Go on. True if more may follow at once."""
        if self._steps is None:
            end = self._port.settled_end if self._port.answered else None
            if end is None:
                return False
            self.end = end
            self._steps = self._scan(end)
        self.copies = self._clock.advance(self._steps, TURN_MS)
        return True

    def _scan(self, end: int) -> Steps[int]:
        found = 0
        segment_bytes = int(self._plane.header.settings.segment_bytes)
        marks = scan_marks(
            self._log, lib.RMQ_ROLE_POP, min(self._from, end), end, segment_bytes=segment_bytes, step_bytes=STEP_BYTES
        )
        for step in marks:
            for mark, _ in step:
                _, window, offset = parts_of_mark(mark)
                lib.rmq_pop_copied(self._windows, window, offset, end)
                found += 1
            yield
        return found
