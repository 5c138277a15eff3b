"""Sends the checks of half messages to their producers, once the copies are in the half queue."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from ringmq.native import lib
from ringmq.remoting.errors import RequestError
from ringmq.services.control_asks import ControlAsks
from ringmq.services.transactions.check_request import check_frame
from ringmq.services.transactions.half_table import Half
from ringmq.services.transactions.halves import HalfReader


class ProducerChecks:
    """Checks whose copies are stored. `words`: the counters of the role."""

    def __init__(
        self, halves: HalfReader, asks: ControlAsks, words: Any, broker_name: Callable[[], str],
        log_line: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._halves, self._asks, self._words = halves, asks, words
        self._broker_name, self._log_line = broker_name, log_line
        self._unasked: deque[Half] = deque()
        """Those whose copies are not in the half queue yet."""
        self._asked = 0

    @property
    def is_waiting(self) -> bool:
        """True if a check waits for its copy."""
        return bool(self._unasked)

    @property
    def in_flight(self) -> int:
        """Checks that wait, or that control has not sent yet."""
        return self._asked + len(self._unasked)

    def add(self, half: Half) -> None:
        """Ask the producer of this half."""
        self._unasked.append(half)

    def turn(self) -> bool:
        """Send the checks whose copies have got into the half queue: the frame shows the copy as it is stored."""
        waiting, self._unasked = self._unasked, deque()
        for half in waiting:
            if half.newest < self._halves.end:
                self._send(half)
            else:
                self._unasked.append(half)
        return len(self._unasked) < len(waiting)

    def _send(self, half: Half) -> None:
        position = self._halves.position(half.newest)
        found = None if position is None else self._halves.at(position)
        if found is None:
            return
        self._asked += 1

        def then(refusal: RequestError | None) -> None:
            self._asked -= 1
            self._words[lib.RMQ_TRANSACTIONS_CHECKED if refusal is None else lib.RMQ_TRANSACTIONS_UNCHECKED] += 1

        try:
            group, frame = check_frame(*found, self._broker_name())
            self._asks.check(group, frame, time.monotonic_ns() // 1_000_000, then)
        except ValueError as error:
            self._asked -= 1
            self._words[lib.RMQ_TRANSACTIONS_UNCHECKED] += 1
            self._log_line(f"the check of half {half.newest} is not sent: {error}")
