"""Queue locks of orderly consumers: the client that may consume a queue of a group now (LOCK_BATCH_MQ,
UNLOCK_BATCH_MQ).

A lock belongs to the client id that its request names. It counts for the connection and the host that renewed it last,
because a request may name any client id.
"""

from __future__ import annotations

from itertools import islice

from msgspec import Struct

from ringmq.broker.requests.request import Connection
from ringmq.broker.tables.shares import Shares
from ringmq.remoting.message_queue import MessageQueue

LOCK_LIVE_MS = 60_000
"""Time from the last renewal of a lock to its end (`rocketmq.broker.rebalance.lockMaxLiveTime`)."""
FORGET_MAX = 4000
"""Expired locks that one call removes, in some 4 ms."""


class _Lock(Struct):
    client_id: str
    connection: Connection
    renewed_ms: int

    def is_free(self, now_ms: int) -> bool:
        return now_ms - self.renewed_ms > LOCK_LIVE_MS


class QueueLocks:
    """Locks by group and queue. The caller enforces the limits of their number."""

    def __init__(self) -> None:
        self._locks: dict[tuple[str, MessageQueue], _Lock] = {}
        """The locks in the order of their last renewal."""
        self._of_group: dict[str, dict[MessageQueue, _Lock]] = {}
        self.shares = Shares()
        """Locks by the connection that renewed them last."""

    def __len__(self) -> int:
        """Number of locks. Expired locks count until they are removed, some seconds later."""
        return len(self._locks)

    def holder(self, group: str, queue: MessageQueue) -> Connection | None:
        """The connection that renewed the queue's lock last, live or expired."""
        lock = self._locks.get((group, queue))
        return None if lock is None else lock.connection

    def is_free(self, group: str, client_id: str, queue: MessageQueue, now_ms: int) -> bool:
        """True if `lock` would succeed."""
        lock = self._locks.get((group, queue))
        return lock is None or lock.is_free(now_ms) or lock.client_id == client_id

    def lock(self, group: str, client_id: str, queue: MessageQueue, connection: Connection, now_ms: int) -> None:
        """Take or renew a lock that is free for the client."""
        self._forget(group, queue)
        lock = _Lock(client_id, connection, now_ms)
        self._locks[group, queue] = lock
        self._of_group.setdefault(group, {})[queue] = lock
        self.shares.add(connection)

    def unlock(self, group: str, client_id: str, queue: MessageQueue) -> None:
        """Release a queue if the client holds it."""
        lock = self._locks.get((group, queue))
        if lock is not None and lock.client_id == client_id:
            self._forget(group, queue)

    def is_any_live(self, group: str, now_ms: int) -> bool:
        """True if any queue of the group is locked."""
        return any(not lock.is_free(now_ms) for lock in self._of_group.get(group, {}).values())

    def expire(self, now_ms: int) -> None:
        """Remove expired locks."""
        oldest = list(islice(self._locks.items(), FORGET_MAX))
        for (group, queue), lock in oldest:
            if not lock.is_free(now_ms):
                return
            self._forget(group, queue)

    def _forget(self, group: str, queue: MessageQueue) -> None:
        lock = self._locks.pop((group, queue), None)
        if lock is None:
            return
        queues = self._of_group[group]
        del queues[queue]
        if not queues:
            del self._of_group[group]
        self.shares.remove(lock.connection)
