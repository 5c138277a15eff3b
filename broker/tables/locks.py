"""Queue locks of orderly consumers: who may consume a queue of a group right now (LOCK_BATCH_MQ, UNLOCK_BATCH_MQ)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ringmq.remoting.message_queue import MessageQueue

LOCK_LIVE_MS = 60_000
"""A lock dies this long after its last renewal (`rocketmq.broker.rebalance.lockMaxLiveTime`)."""


@dataclass(slots=True)
class _Lock:
    client_id: str
    renewed_ms: int

    def is_free(self, now_ms: int) -> bool:
        return now_ms - self.renewed_ms > LOCK_LIVE_MS


class QueueLocks:
    """Locks by group and queue."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue], now_ms: int) -> list[MessageQueue]:
        """Take or renew; the queues that the client holds now, in the order asked."""
        locks = self._groups.setdefault(group, {})
        held: list[MessageQueue] = []
        for queue in queues:
            lock = locks.get(queue)
            if lock is None or lock.is_free(now_ms) or lock.client_id == client_id:
                locks[queue] = _Lock(client_id, now_ms)
                held.append(queue)
        return held

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Give back what the client holds; locks of others stay."""
        locks = self._groups.get(group, {})
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]

    def is_any_live(self, group: str, now_ms: int) -> bool:
        """Whether any queue of the group is locked."""
        return any(not lock.is_free(now_ms) for lock in self._groups.get(group, {}).values())

    def expire(self, now_ms: int) -> None:
        """Forget dead locks."""
        for group in list(self._groups):
            locks = self._groups[group]
            for queue in [queue for queue, lock in locks.items() if lock.is_free(now_ms)]:
                del locks[queue]
            if not locks:
                del self._groups[group]
