"""The popped messages of one consumer, from the pop to their end: renewed while they are kept, then settled."""

import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence, Set
from typing import Protocol

from ringmq.client.errors import ReceiptExpiredError, RingmqError
from ringmq.client.popping.ack_batches import AckBatches
from ringmq.client.popping.lease import Lease, LeaseRules, Step, Use
from ringmq.client.popping.lease_table import LeaseTable
from ringmq.client.popping.pop_inbox import PopDelivery, PopInbox
from ringmq.client.popping.popped_message import PoppedMessage
from ringmq.client.runtimes.runtime import Task, create_task, wait
from ringmq.client.runtimes.waiting import Signal

log = logging.getLogger("ringmq.client")


class Settles(Protocol):
    """The requests of `Settling` that end or renew messages."""

    def ack(self, messages: Sequence[PoppedMessage], /) -> Awaitable[None]:
        """Acknowledge messages."""

    def change_invisible(self, message: PoppedMessage, invisible_ms: int, /) -> Awaitable[None]:
        """Let the message come again after a time."""

    def reject(self, message: PoppedMessage, /) -> Awaitable[None]:
        """Make the message a dead letter."""

    def begin_give_back(self, messages: Sequence[PoppedMessage], /) -> None:
        """Let messages come again at once."""


class HeldMessages:
    """Holds messages for handlers, in `inbox`. `on_lost` is called with a message that was lost while it was handled.

    Each message ends once: by an acknowledgement, a pause, the dead letters, a return, or because its time is over.
    """

    def __init__(self, group: str, settling: Settles, rules: LeaseRules, linger_s: float, *, ordered: bool) -> None:
        self.inbox = PopInbox(ordered=ordered)
        self.acks = AckBatches(group, settling.ack, linger_s)
        self.on_lost: Callable[[PopDelivery, ReceiptExpiredError], None] = lambda delivery, error: None
        self._group = group
        self._settling = settling
        self._rules = rules
        self._ordered = ordered
        self._leases: LeaseTable[PopDelivery] = LeaseTable(rules)
        self._by_message: dict[int, PopDelivery] = {}  # id of the message
        self._renewals: set[Task[None]] = set()
        self._sooner = Signal()

    def take(self, messages: list[PoppedMessage]) -> None:
        """Hold the messages of one pop, for handlers."""
        if self.inbox.closed:
            self._settling.begin_give_back(messages)
            return
        deliveries = [PopDelivery(message, Lease(self._rules, message.expires_at)) for message in messages]
        for delivery in deliveries:
            self._leases.add(delivery)
            self._by_message[id(delivery.message)] = delivery
            if self._ordered:
                delivery.lease.keep()
        self.inbox.put(deliveries)

    def claim(self) -> PopDelivery | None:
        """Return a message to handle, None if there is none now."""
        while (delivery := self.inbox.claim()) is not None:
            if delivery.message.seconds_left > 0:
                delivery.lease.keep()
                return delivery
            delivery.lease.lose()
            self._forget_lost(delivery)
            self._log_lost(ReceiptExpiredError([delivery.message]))
            self.inbox.free(delivery)
        return None

    def find(self, message: PoppedMessage) -> PopDelivery | None:
        """Return the held message. None: it has ended, or is another consumer's."""
        return self._by_message.get(id(message))

    def put_back(self, delivery: PopDelivery) -> None:
        """Let a claimed message wait for a handler again, unless it has ended. A closing consumer gives it back."""
        if self.inbox.closed:
            self.give_back([delivery])
        elif self.find(delivery.message) is not None:
            if not self._ordered:
                delivery.lease.release()
            self.inbox.put_back(delivery)
        else:
            self.inbox.free(delivery)  # or an ordered queue would wait for its end for ever

    # ---- ends ----

    def ack(self, delivery: PopDelivery) -> bool:
        """Acknowledge a message. False if it has ended otherwise."""
        if not self._settle(delivery):
            return False
        if delivery.renewal is None:
            self.acks.add(delivery.message)
        else:
            self._when_renewed(delivery, self.acks.add)
        return True

    async def come_again(self, delivery: PopDelivery, delay_ms: int) -> bool:
        """Let the group have the message after a pause. False if it has ended otherwise.

        Without an answer of the broker the message comes again at its time.
        """
        if not self._settle(delivery):
            return False
        self._give_back_behind(delivery)
        await self._renewed(delivery)
        try:
            await self._settling.change_invisible(delivery.message, delay_ms)
        except RingmqError as error:
            log.warning(
                "group %s: message %s comes again when its time is over, not in %d ms: %s",
                self._group, delivery.message.msg_id, delay_ms, error,
            )  # fmt: skip
        except Exception:  # a hook's fault, or ours, must not end the worker of the handler
            log.exception(
                "group %s: message %s comes again when its time is over", self._group, delivery.message.msg_id
            )
        else:
            log.info("group %s: message %s comes again in %d ms", self._group, delivery.message.msg_id, delay_ms)
        return True

    async def reject(self, delivery: PopDelivery) -> bool:
        """Store the message among the dead letters. False if it has ended otherwise.

        Raises `RingmqError` if the broker does not answer or refuses, or the error of a hook. Then the message is held
        as before for its handler. Without one it comes again when its time is over.
        """
        if not self._settle(delivery):
            return False
        await self._renewed(delivery)
        try:
            await self._settling.reject(delivery.message)
        except Exception:
            if delivery.is_free:
                self._give_back_behind(delivery)
            else:
                self._hold_again(delivery)
            raise
        return True

    def give_back(self, deliveries: Iterable[PopDelivery]) -> None:
        """Let the group have messages at once that no handler has finished."""
        ended = [delivery for delivery in deliveries if self._settle(delivery)]
        if free := [delivery.message for delivery in ended if delivery.renewal is None]:
            self._settling.begin_give_back(free)
        for delivery in ended:
            self._when_renewed(delivery, lambda message: self._settling.begin_give_back([message]))

    def give_back_waiting(self) -> None:
        """Give back the messages that no handler has begun."""
        self.give_back(self.inbox.take_all())

    def give_back_all(self) -> int:
        """Give back all that is left when the consumer closes. Return the number."""
        left = list(self._leases)
        self.give_back(left)
        return len(left)

    def repair(self, claimed: Set[PopDelivery]) -> None:
        """Give back messages that neither wait nor are `claimed`: an interrupt has stopped the call that took them."""
        waiting = self.inbox.repair(claimed)
        for stray in [delivery for delivery in self._leases if delivery not in waiting and delivery not in claimed]:
            self._give_back_behind(stray)
            self.give_back([stray])

    # ---- time ----

    async def watch(self) -> None:
        """Renew, return and lose messages when they are due, until the owner cancels the task."""
        while True:
            try:
                self.look(time.monotonic())
            except Exception:  # a fault of ours must not end the renewals silently
                log.exception("group %s: a look at the held messages failed; the next one follows", self._group)
            await self._sooner.wait(self._leases.pause_s(time.monotonic()))

    def look(self, now: float) -> None:
        """Do what is due."""
        for delivery, step in self._leases.due(now):
            if step is Step.RENEW:
                renewal = delivery.renewal = create_task(self._renew(delivery), name="ringmq renewal")
                self._renewals.add(renewal)
                renewal.add_done_callback(self._renewals.discard)
            elif step is Step.GIVE_BACK:
                self.inbox.take_out(delivery)
                self._by_message.pop(id(delivery.message), None)
                self._settling.begin_give_back([delivery.message])
            else:
                self._lose(delivery, None)

    async def end_renewals(self, timeout_s: float) -> None:
        """Wait for renewals that are under way, no longer than `timeout_s`."""
        await wait(list(self._renewals), timeout_s)

    # ---- inside ----

    async def _renew(self, delivery: PopDelivery) -> None:
        lease, message = delivery.lease, delivery.message
        try:
            await self._settling.change_invisible(message, round(self._rules.invisible_s * 1000))
        except ReceiptExpiredError as error:
            if lease.refused():
                self._lose(delivery, error)
        except RingmqError as error:
            log.info("group %s: message %s is not renewed yet: %s", self._group, message.msg_id, error)
            lease.unanswered(time.monotonic())
        except Exception:  # a hook's fault, or ours: the message has some time left
            log.exception("group %s: message %s is not renewed yet", self._group, message.msg_id)
            lease.unanswered(time.monotonic())
        else:
            lease.renewed(message.expires_at)
            if self.find(message) is not None:
                self._leases.add(delivery)
            elif lease.use is Use.LOST:  # its time was over before the answer, and its handler is told
                self._settling.begin_give_back([message])
        finally:
            delivery.renewal = None
            self._sooner.wake()

    def _when_renewed(self, delivery: PopDelivery, act: Callable[[PoppedMessage], None]) -> None:
        """Call `act` after a renewal that is under way: it changes the receipt."""
        if delivery.renewal is not None:
            delivery.renewal.add_done_callback(lambda _: act(delivery.message))

    async def _renewed(self, delivery: PopDelivery) -> None:
        if delivery.renewal is not None:
            await wait([delivery.renewal])

    def _settle(self, delivery: PopDelivery) -> bool:
        if not delivery.lease.settle():
            return False
        self._leases.remove(delivery)
        self._by_message.pop(id(delivery.message), None)
        return True

    def _hold_again(self, delivery: PopDelivery) -> None:
        delivery.lease.reopen()
        self._by_message[id(delivery.message)] = delivery
        self._leases.add_sooner(delivery)
        self._sooner.wake()

    def _lose(self, delivery: PopDelivery, error: ReceiptExpiredError | None) -> None:
        waited = self.inbox.take_out(delivery)
        self._forget_lost(delivery)
        lost = error or ReceiptExpiredError([delivery.message])
        if waited:
            self._log_lost(lost)
        else:
            self.on_lost(delivery, lost)

    def _forget_lost(self, delivery: PopDelivery) -> None:
        self._leases.remove(delivery)
        self._by_message.pop(id(delivery.message), None)
        self._give_back_behind(delivery)

    def _log_lost(self, lost: ReceiptExpiredError) -> None:
        """Log the loss of a message that no handler has begun."""
        log.warning("group %s: %s", self._group, lost)

    def _give_back_behind(self, delivery: PopDelivery) -> None:
        """Keep the order: the messages behind one that comes again come behind it again."""
        self.give_back(self.inbox.take_behind(delivery))
