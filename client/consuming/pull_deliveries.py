"""Deliveries of a pull consumer to its handler: from the inbox, to an acknowledgement, a retry or a send-back.

`consume_retry` decides about a failed message. This module sends it back, or asks for another try in this client.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ringmq.client.connections.name_servers import RouteTable
from ringmq.client.connections.remoting_client import RemotingClient
from ringmq.client.consuming.consume_retry import SendBack, TryHere, after_failure
from ringmq.client.consuming.handler_runner import HandlerRules
from ringmq.client.consuming.inbox import Delivery, Inbox
from ringmq.client.consuming.lock_renewal import LockRenewer
from ringmq.client.consuming.send_backs import send_back
from ringmq.client.errors import BrokerError, RingmqError
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.message_queue import MessageQueue

log = logging.getLogger("ringmq.client")

UNSUPPORTED_FOR_S = 60.0  # a broker that does not know send-back is not asked again so soon


@dataclass(slots=True)
class PullDeliveries:
    """See `handler_runner.Deliveries`. `ack` returns True if the message was open.

    `lose_lock` is called with a queue whose lock has expired.
    """

    group: str
    rules: HandlerRules
    client: RemotingClient
    routes: RouteTable
    inbox: Inbox
    locks: LockRenewer | None
    ack: Callable[[Delivery], bool]
    lose_lock: Callable[[MessageQueue], None]
    _unsupported: dict[str, float] = field(default_factory=dict)  # broker name -> when to ask it again

    @property
    def closed(self) -> bool:
        """True if the inbox is closed."""
        return self.inbox.closed

    async def wait(self) -> None:
        """Wait until there may be a message, or a call of `wake`."""
        await self.inbox.wait()

    def wake(self) -> None:
        """End all waits."""
        self.inbox.wake()

    def claim(self) -> Delivery | None:
        """Return a message of a queue whose lock is held, None if there is none now."""
        while (delivery := self.inbox.claim()) is not None:
            if self.locks is None or self.locks.held(delivery.queue):
                return delivery
            self.inbox.returned(delivery)
            self.lose_lock(delivery.queue)
        return None

    def unpack(self, delivery: Delivery) -> None:
        """Decompress the body."""
        delivery.unpack()

    def returned(self, delivery: Delivery) -> None:
        """Record that the handler has ended, with any outcome."""
        self.inbox.returned(delivery)

    def is_settled(self, delivery: Delivery) -> bool:
        """False: an acknowledgement counts once."""
        return False

    def done(self, delivery: Delivery) -> None:
        """Acknowledge the message."""
        self.ack(delivery)
        self.inbox.release(delivery)

    def put_back(self, delivery: Delivery) -> None:
        """Offer the message again, before others of its queue."""
        self.inbox.put_back(delivery)

    async def failed(self, delivery: Delivery, error: BaseException) -> float | None:
        """Send the message back or drop it. Return a pause in s if it is to be tried again here."""
        message, rules = delivery.message, self.rules
        verdict = after_failure(
            message,
            error,
            rules.retry,
            ordered=rules.ordered,
            broadcast=rules.broadcast,
            assigned=rules.assigned,
        )
        if delivery.stale:
            return None
        if isinstance(verdict, SendBack) and not await self._send_back(delivery, verdict.delay_level):
            verdict = TryHere(rules.retry.local_pause_s(message.reconsume_times + 1))
        if not isinstance(verdict, TryHere):
            self.done(delivery)
            return None
        delivery.pack()
        delivery.message.reconsume_times += 1
        return verdict.pause_s

    async def _send_back(self, delivery: Delivery, delay_level: int) -> bool:
        """Send the message back to its broker, which delivers it again. False if the broker refuses it."""
        message, broker = delivery.message, delivery.message.broker_name
        if self._unsupported.get(broker, 0.0) > time.monotonic():
            return False
        try:
            await send_back(self.client, self.routes, self.group, message, delay_level, self.rules.retry)
        except RingmqError as error:
            if isinstance(error, BrokerError) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                self._unsupported[broker] = time.monotonic() + UNSUPPORTED_FOR_S
            log.warning("group %s: message %s is tried again here: %s", self.group, message.msg_id, error)
            return False
        except Exception:  # a hook's fault, or ours, must end neither this worker nor the message's turn
            log.exception("group %s: message %s is tried again here", self.group, message.msg_id)
            return False
        return True
