"""The locks of an ordered group's member, decided without IO.

Rules of RocketMQ's orderly consumers (`RebalanceImpl.lockAll`, `ProcessQueue.isLockExpired`): a broker locks a queue
for one client id for 60 s. The client renews every 20 s and considers its lock valid for 30 s.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from ringmq.client.retry import backoff_ms
from ringmq.remoting.message_queue import MessageQueue

RENEW_INTERVAL_S = 20.0
LOCK_VALID_S = 30.0
FIRST_RETRY_MS = 100  # a member that has to give a queue away unlocks it soon
RETRY_MS_MAX = 3000


@dataclass(slots=True)
class _Lock:
    held_until: float = 0.0
    due: float = 0.0
    refusals: int = 0


class LockState:
    """The wanted locks. Times in seconds of one clock."""

    def __init__(self) -> None:
        self._locks: dict[MessageQueue, _Lock] = {}

    def want(self, queue: MessageQueue) -> None:
        """Request the lock of an assigned queue."""
        self._locks.setdefault(queue, _Lock())

    def drop(self, queue: MessageQueue) -> None:
        """Drop the lock of a queue that is given up."""
        self._locks.pop(queue, None)

    def wanted(self) -> list[MessageQueue]:
        """Return the queues whose locks are wanted."""
        return list(self._locks)

    def held(self, queue: MessageQueue, now: float) -> bool:
        """True if messages of the queue may be handled."""
        lock = self._locks.get(queue)
        return lock is not None and now < lock.held_until

    def due(self, now: float) -> dict[str, list[MessageQueue]]:
        """Return the queues to lock now, by broker."""
        brokers: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue, lock in self._locks.items():
            if lock.due <= now:
                brokers[queue.broker_name].append(queue)
        return brokers

    def next_due_s(self, now: float) -> float:
        """Return the time until the next request is due."""
        return max(0.0, min((lock.due for lock in self._locks.values()), default=now + RENEW_INTERVAL_S) - now)

    def answered(
        self, asked: Iterable[MessageQueue], granted: Iterable[MessageQueue], asked_at: float, now: float
    ) -> list[MessageQueue]:
        """Apply a broker's answer to a request sent at `asked_at`. Return the lost queues.

        Another member has their lock now, or may have had it since it expired here.
        """
        ours = set(granted)
        lost: list[MessageQueue] = []
        for queue in asked:
            lock = self._locks.get(queue)
            if lock is None:
                continue
            if queue in ours:
                if 0.0 < lock.held_until <= now:
                    lost.append(queue)  # it had expired: another member may have had it meanwhile
                lock.held_until, lock.due, lock.refusals = asked_at + LOCK_VALID_S, now + RENEW_INTERVAL_S, 0
            else:
                if lock.held_until > now:
                    lost.append(queue)
                lock.held_until = 0.0
                self._again(lock, now)
        return lost

    def unanswered(self, asked: Iterable[MessageQueue], now: float) -> None:
        """Record that the broker did not answer: locks stay valid until they expire."""
        for queue in asked:
            if (lock := self._locks.get(queue)) is not None:
                self._again(lock, now)

    def _again(self, lock: _Lock, now: float) -> None:
        lock.refusals += 1
        lock.due = now + backoff_ms(lock.refusals, 0.0, FIRST_RETRY_MS, RETRY_MS_MAX) / 1000
