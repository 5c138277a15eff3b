"""Locks of an ordered consumer's queues: requests and renewals (41), releases (42). `LockState` decides their times."""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable

from ringmq.client.connections.name_servers import RouteTable
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.client.consuming.queue_locks import LockState
from ringmq.client.errors import BrokerError, RingmqError, RouteError
from ringmq.client.runtimes.runtime import gather
from ringmq.client.runtimes.waiting import Signal
from ringmq.remoting.codes import RequestCode
from ringmq.remoting.errors import BadBody
from ringmq.remoting.heartbeat import LockBatch, decode_locked
from ringmq.remoting.message_queue import MessageQueue

log = logging.getLogger("ringmq.client")

LOCK_TIMEOUT_MS = 1000


class LockRenewer:
    """Renews locks. `on_lost` is called with each queue whose lock another member has, or may have had meanwhile."""

    def __init__(
        self,
        client: RemotingClient,
        routes: RouteTable,
        group: str,
        client_id: str,
        on_lost: Callable[[MessageQueue], None],
    ) -> None:
        self._client = client
        self._routes = routes
        self._group = group
        self._client_id = client_id
        self._on_lost = on_lost
        self._state = LockState()
        self._again = Signal()
        self._granted = Signal()
        self._asking: set[MessageQueue] = set()
        self._asked = Signal()

    def want(self, queue: MessageQueue) -> None:
        """Request the queue's lock, and renew it."""
        self._state.want(queue)
        self._again.wake()

    def held(self, queue: MessageQueue) -> bool:
        """True if messages of the queue may be handled now."""
        return self._state.held(queue, time.monotonic())

    async def wait_held(self, queue: MessageQueue) -> None:
        """Wait for the queue's lock."""
        while not self.held(queue):
            await self._granted.wait()

    async def run(self) -> None:
        """Send requests when they are due, until the owner cancels the task."""
        while True:
            due = self._state.due(time.monotonic())
            if due:
                await gather(*(self._ask(broker, queues) for broker, queues in due.items()))
            else:
                await self._again.wait(self._state.next_due_s(time.monotonic()))

    async def give_back(self, queues: Iterable[MessageQueue]) -> None:
        """Unlock, so that the next member need not wait until the locks expire.

        A renewal in progress finishes first: after the unlock it would lock the queue again.
        """
        brokers: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            self._state.drop(queue)
            brokers[queue.broker_name].append(queue)
        await gather(*(self._unlock(found) for found in brokers.values()))

    async def _ask(self, broker: str, queues: list[MessageQueue]) -> None:
        self._asking.update(queues)
        try:
            await self._ask_broker(broker, queues)
        except Exception:  # a hook's fault, or ours, must not end the renewals silently
            log.exception("asking broker %s for locks of group %s failed; trying again", broker, self._group)
            self._state.unanswered(queues, time.monotonic())
        finally:
            self._asking.difference_update(queues)
            self._asked.wake()

    async def _ask_broker(self, broker: str, queues: list[MessageQueue]) -> None:
        asked_at = time.monotonic()
        body = LockBatch(self._group, self._client_id, queues).encode()
        try:
            address = self._address(queues[0])
            answer = await self._client.call(address, RequestCode.LOCK_BATCH_MQ, body=body, timeout_ms=LOCK_TIMEOUT_MS)
            try:
                granted = decode_locked(answer.body)
            except BadBody as error:
                raise BrokerError(address, answer.code, f"locked queues cannot be decoded: {error}") from error
        except RingmqError as error:
            log.info("locks of group %s at broker %s: %s", self._group, broker, error)
            self._state.unanswered(queues, time.monotonic())
            return
        for queue in self._state.answered(queues, granted, asked_at, time.monotonic()):
            log.warning("group %s: the lock of %s was lost", self._group, queue)
            self._on_lost(queue)
        self._granted.wake()

    async def _unlock(self, queues: list[MessageQueue]) -> None:
        while not self._asking.isdisjoint(queues):
            await self._asked.wait()
        body = LockBatch(self._group, self._client_id, queues).encode()
        try:
            await self._client.call(
                self._address(queues[0]), RequestCode.UNLOCK_BATCH_MQ, body=body, timeout_ms=LOCK_TIMEOUT_MS
            )
        except RingmqError as error:
            log.info("unlocking %d queues of group %s: %s", len(queues), self._group, error)
        except Exception:  # a hook's fault, or ours: the locks expire, and what the owner has to do goes on
            log.exception("unlocking %d queues of group %s failed", len(queues), self._group)

    def _address(self, queue: MessageQueue) -> str:
        route = self._routes.known(queue.topic)
        address = None if route is None else route.master_address(queue.broker_name)
        if address is None:
            raise RouteError(f"no master of broker {queue.broker_name} is registered")
        return address
