"""What a push consumer was given, and the rule for what it fails.

A client may send a message twice that a busy machine has stored too late, so equal attempts of a body count once.
"""

import threading
from collections.abc import Callable

from rocketmq import ConsumeResult, Message, MessageListener

Rule = Callable[[str, int], bool]
"""True if the listener succeeds with a body at an attempt, from 1 on."""


class Deliveries(MessageListener):
    """Counts attempts by body."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._calls: dict[str, int] = {}
        self._attempts: set[tuple[str, int]] = set()
        self._done: dict[str, None] = {}
        self._changed = threading.Condition()

    def consume(self, message: Message) -> ConsumeResult:
        """One attempt. The client repeats orderly messages by itself, with the attempt and the receipt of the first."""
        body, receipt = message.body.decode(), message.receipt_handle
        with self._changed:
            calls = self._calls[receipt] = self._calls.get(receipt, 0) + 1
            attempt = message.delivery_attempt + calls - 1
            self._attempts.add((body, attempt))
            self._changed.notify_all()
        if not self._rule(body, attempt):
            return ConsumeResult.FAILURE
        with self._changed:
            self._done[body] = None
        return ConsumeResult.SUCCESS

    @property
    def total(self) -> int:
        """Attempts of all bodies."""
        return len(self._attempts)

    @property
    def second_attempts(self) -> int:
        """Bodies that were given twice."""
        return sum(attempt == 2 for _, attempt in self._attempts)

    def out_of_order(self) -> int:
        """Bodies that come after a later one of their message group. A body is "GROUP NUMBER"."""
        last: dict[str, int] = {}
        found = 0
        for body in self._done:
            group, number = body.split()
            found += int(number) < last.get(group, -1)
            last[group] = int(number)
        return found

    def wait(self, wanted: int, seconds: float, quiet_seconds: float) -> None:
        """Wait for `wanted` deliveries, then some seconds for more."""
        with self._changed:
            self._changed.wait_for(lambda: self.total >= wanted, seconds)
            self._changed.wait_for(lambda: self.total > wanted, quiet_seconds)
