"""Notifications to members of groups that others join or leave (NOTIFY_CONSUMER_IDS_CHANGED, 40), within a budget.

If all N members of a group left one by one, each change would cost up to N notifications. While the budget is used up,
changes of a group share one notification to each member. A late notification does little harm, because clients ask for
members every 20 s.
"""

from __future__ import annotations

from collections.abc import Iterator

from ringmq.broker.requests.request import Connection
from ringmq.broker.tables.consumers import ConsumerTable

PER_MS = 4
AT_ONCE = 1024
A_TURN = 128
"""Notifications of one turn, some 2 ms of control."""
PAUSE_MS = 10


class Notifications:
    """Notifies members within the budget: AT_ONCE notifications, and PER_MS more each millisecond."""

    def __init__(self, consumers: ConsumerTable) -> None:
        self._consumers = consumers
        self._left = AT_ONCE
        self._refilled_ms = 0
        self._waiting: dict[str, None] = {}
        self._group: str | None = None
        self._members: Iterator[Connection] = iter(())
        """Members of `_group` that are not notified yet."""

    @property
    def is_waiting(self) -> bool:
        """True if some member is to be notified later."""
        return self._group is not None or bool(self._waiting)

    def may_notify(self, group: str, now_ms: int) -> bool:
        """True if the budget covers all members of a group now; it is charged. Otherwise the group waits."""
        self._refill(now_ms)
        online = self._consumers.get(group)
        members = 0 if online is None or online.is_broadcasting else len(online.members)
        if members > self._left or group == self._group or group in self._waiting:
            self._waiting[group] = None
            return False
        self._left -= members
        return True

    def turn(self, now_ms: int) -> None:
        """Notify some of the waiting members."""
        self._refill(now_ms)
        end = self._left - min(self._left, A_TURN)
        while self._left > end and self.is_waiting:
            group = self._begin() if self._group is None else self._group
            connection = next(self._members, None)
            if connection is None:
                self._group = None
            else:
                self._left -= 1
                self._consumers.notify(group, connection)

    def _begin(self) -> str:
        self._group = group = next(iter(self._waiting))
        del self._waiting[group]
        online = self._consumers.get(group)
        self._members = iter([] if online is None or online.is_broadcasting else list(online.members))
        return group

    def _refill(self, now_ms: int) -> None:
        passed_ms = max(0, now_ms - self._refilled_ms)
        self._left = min(AT_ONCE, self._left + PER_MS * passed_ms)
        self._refilled_ms = now_ms
