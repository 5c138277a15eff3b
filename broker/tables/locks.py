"""Queue locks of orderly consumers: who may consume a queue of a group right now (LOCK_BATCH_MQ, UNLOCK_BATCH_MQ)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from ringmq.remoting.message_queue import MessageQueue

LOCK_LIVE_MS = 60_000
"""A lock dies this long after its last renewal (`rocketmq.broker.rebalance.lockMaxLiveTime`)."""
FORGET_MAX = 4000
"""Dead locks that one look forgets: some 4 ms."""


@dataclass(slots=True)
class _Lock:
    client_id: str
    renewed_ms: int

    def is_free(self, now_ms: int) -> bool:
        return now_ms - self.renewed_ms > LOCK_LIVE_MS


class QueueLocks:
    """Locks by group and queue. The caller keeps the numbers of locks within their limits."""

    def __init__(self) -> None:
        self._locks: dict[tuple[str, MessageQueue], _Lock] = {}
        """The one that was renewed last is last."""
        self._of_group: dict[str, dict[MessageQueue, _Lock]] = {}
        self._of_client: dict[str, int] = {}

    def __len__(self) -> int:
        """Locks that are kept; dead ones are forgotten some seconds after their death."""
        return len(self._locks)

    def count_of(self, client_id: str) -> int:
        """Locks that the client holds."""
        return self._of_client.get(client_id, 0)

    def is_free(self, group: str, client_id: str, queue: MessageQueue, now_ms: int) -> bool:
        """True if `lock` would succeed."""
        lock = self._locks.get((group, queue))
        return lock is None or lock.is_free(now_ms) or lock.client_id == client_id

    def is_new(self, group: str, client_id: str, queue: MessageQueue) -> bool:
        """True if the client would hold one lock more."""
        lock = self._locks.get((group, queue))
        return lock is None or lock.client_id != client_id

    def lock(self, group: str, client_id: str, queue: MessageQueue, now_ms: int) -> bool:
        """Take or renew; whether the client holds the queue now."""
        if not self.is_free(group, client_id, queue, now_ms):
            return False
        self._forget(group, queue)
        lock = _Lock(client_id, now_ms)
        self._locks[group, queue] = lock
        self._of_group.setdefault(group, {})[queue] = lock
        self._of_client[client_id] = self.count_of(client_id) + 1
        return True

    def unlock(self, group: str, client_id: str, queue: MessageQueue) -> None:
        """Give back a queue if the client holds it."""
        if not self.is_new(group, client_id, queue):
            self._forget(group, queue)

    def is_any_live(self, group: str, now_ms: int) -> bool:
        """Whether any queue of the group is locked."""
        return any(not lock.is_free(now_ms) for lock in self._of_group.get(group, {}).values())

    def expire(self, now_ms: int) -> None:
        """Forget dead locks."""
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
        left = self._of_client[lock.client_id] - 1
        if left:
            self._of_client[lock.client_id] = left
        else:
            del self._of_client[lock.client_id]
