"""Acknowledgements that travel together. An acknowledgement waits some milliseconds for others of its broker."""

import logging
import time
from collections.abc import Awaitable, Callable, Sequence

from ringmq.client.errors import ConnectError, ReceiptExpiredError, RequestTimeoutError, RingmqError, RouteError
from ringmq.client.popping.popped_message import PoppedMessage
from ringmq.client.runtimes.runtime import Task, create_task, wait
from ringmq.client.runtimes.waiting import Signal

log = logging.getLogger("ringmq.client")

BATCH_MAX = 64
"""So many messages of a broker wait for no others."""
AGAIN_PAUSE_S = 1.0


class AckBatches:
    """Sends acknowledgements by `send`, one batch of a broker at a time.

    Messages whose broker does not answer are acknowledged again until their time is over. `linger_s` 0: none waits.
    """

    def __init__(self, group: str, send: Callable[[Sequence[PoppedMessage]], Awaitable[None]], linger_s: float) -> None:
        self._group = group
        self._send = send
        self._linger_s = linger_s
        self._pending: dict[str, list[PoppedMessage]] = {}  # by broker name
        self._sent: dict[str, list[PoppedMessage]] = {}  # without an answer so far
        self._full: dict[str, Signal] = {}
        self._senders: dict[str, Task[None]] = {}
        self._is_hurried = False

    def add(self, message: PoppedMessage) -> None:
        """Acknowledge a message soon."""
        broker = message.receipt.broker_name
        pending = self._pending.get(broker)
        if pending is None:
            pending = self._pending[broker] = []
            self._full[broker] = Signal()
        pending.append(message)
        if broker not in self._senders:
            self._senders[broker] = create_task(self._send_all(broker), name="ringmq acknowledgements")
        elif len(pending) >= BATCH_MAX:
            self._full[broker].wake()

    async def flush(self, timeout_s: float) -> int:
        """Send all, without lingering from now on. Return the number of messages without an answer after the time."""
        self._is_hurried = True
        for full in self._full.values():
            full.wake()
        deadline = time.monotonic() + timeout_s
        while self._senders and (left_s := deadline - time.monotonic()) > 0:
            await wait(list(self._senders.values()), left_s)
        left = sum(map(len, [*self._pending.values(), *self._sent.values()]))
        for sender in self._senders.values():
            sender.cancel()
        return left

    async def _send_all(self, broker: str) -> None:
        try:
            while pending := self._pending[broker]:
                if self._linger_s and not self._is_hurried and len(pending) < BATCH_MAX:
                    await self._full[broker].wait(self._linger_s)
                batch = self._sent[broker] = self._pending[broker]
                self._pending[broker] = []
                again = await self._send_batch(batch)
                del self._sent[broker]
                if again:
                    self._pending[broker] = again + self._pending[broker]
                    await self._full[broker].wait(AGAIN_PAUSE_S)
        finally:
            self._sent.pop(broker, None)
            del self._senders[broker]

    async def _send_batch(self, batch: list[PoppedMessage]) -> list[PoppedMessage]:
        """Send a batch. Return the messages to be sent again."""
        try:
            await self._send(batch)
        except ReceiptExpiredError as error:
            log.info("group %s: %s", self._group, error)
        except (ConnectError, RequestTimeoutError, RouteError) as error:
            log.warning("group %s: %d acknowledgements have no answer: %s", self._group, len(batch), error)
            return [message for message in batch if message.seconds_left > 0]
        except RingmqError as error:
            log.warning("group %s: %d acknowledgements are refused: %s", self._group, len(batch), error)
        except Exception:  # a hook's fault, or ours: the messages come again
            log.exception("group %s: %d acknowledgements failed", self._group, len(batch))
        return []
