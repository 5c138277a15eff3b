"""Deliveries of popped messages to a handler: from the inbox, to an acknowledgement, a pause or the dead letters.

`pop_failure` decides about a failed message.
"""

import logging
import time
from dataclasses import dataclass

from ringmq.client.consuming.consume_retry import TryHere
from ringmq.client.consuming.handler_runner import HandlerRules
from ringmq.client.errors import RingmqError
from ringmq.client.popping.held_messages import HeldMessages
from ringmq.client.popping.pop_failure import ComeAgain, after_pop_failure, check_times
from ringmq.client.popping.pop_inbox import PopDelivery
from ringmq.remoting.names import dlq_topic

log = logging.getLogger("ringmq.client")


@dataclass(frozen=True, slots=True)
class PopDeliveries:
    """See `handler_runner.Deliveries`."""

    group: str
    rules: HandlerRules
    held: HeldMessages

    @property
    def closed(self) -> bool:
        """True if the inbox is closed."""
        return self.held.inbox.closed

    async def wait(self) -> None:
        """Wait until there may be a message, or a call of `wake`."""
        await self.held.inbox.wait()

    def wake(self) -> None:
        """End all waits."""
        self.held.inbox.wake()

    def claim(self) -> PopDelivery | None:
        """Return a message to handle, None if there is none now."""
        return self.held.claim()

    def unpack(self, delivery: PopDelivery) -> None:
        """Raise for a message that came too often. Bodies are decompressed already."""
        check_times(delivery.message, self.rules.retry, ordered=self.rules.ordered)

    def returned(self, delivery: PopDelivery) -> None:
        """Record that the handler has ended, with any outcome."""
        self.held.inbox.note_end(time.monotonic())

    def is_settled(self, delivery: PopDelivery) -> bool:
        """True if the application has settled the message while it handled it."""
        return delivery.is_told

    def done(self, delivery: PopDelivery) -> None:
        """Acknowledge the message, unless it has ended otherwise."""
        self.held.ack(delivery)
        self.held.inbox.free(delivery)

    def put_back(self, delivery: PopDelivery) -> None:
        """Offer the message again, before others of its queue."""
        self.held.put_back(delivery)

    async def failed(self, delivery: PopDelivery, error: BaseException) -> float | None:
        """Let the message come again, or reject it. Return a pause in s if it is to be tried again here."""
        if self.held.find(delivery.message) is None:  # lost
            self.held.inbox.free(delivery)
            return None
        verdict = after_pop_failure(delivery.message, error, self.rules.retry, ordered=self.rules.ordered)
        if isinstance(verdict, TryHere):
            delivery.message.reconsume_times += 1
            return verdict.pause_s
        if isinstance(verdict, ComeAgain):
            await self.held.come_again(delivery, verdict.delay_ms)
        elif not await self._reject(delivery):
            pause_ms = self.rules.retry.local_pause_s(delivery.message.reconsume_times + 1) * 1000
            await self.held.come_again(delivery, round(pause_ms))
        self.held.inbox.free(delivery)
        return None

    async def _reject(self, delivery: PopDelivery) -> bool:
        """Store the message among the dead letters. False if that has failed."""
        try:
            is_stored = await self.held.reject(delivery)
        except RingmqError as error:
            log.warning("group %s: dead letter %s is not stored: %s", self.group, delivery.message.msg_id, error)
            return False
        except Exception:  # a hook's fault, or ours, must end neither this worker nor the message's turn
            log.exception("group %s: dead letter %s is not stored", self.group, delivery.message.msg_id)
            return False
        if is_stored:
            log.warning("group %s: message %s is in %s now", self.group, delivery.message.msg_id, dlq_topic(self.group))
        return True
