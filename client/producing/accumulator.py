"""Messages that wait a little for others of their kind, to travel in one request. Waiting is the only IO."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ringmq.client.errors import RingmqError
from ringmq.client.producing.send_result import SendResult
from ringmq.client.runtimes.runtime import Event, Task, create_task, gather, shield, timeout, wait
from ringmq.remoting import properties as names
from ringmq.remoting.message import Message
from ringmq.remoting.message_queue import MessageQueue

BATCH_BYTES_MAX = 256 << 10
BATCH_MESSAGES_MAX = 1000
MESSAGE_OVERHEAD_BYTES = 120  # of a message in a batch: its frame, and the properties that are added
LINGER_MS_MAX = 30_000
_ALONE = frozenset({names.DELAY, names.TRAN_MSG, names.MSG_TYPE, names.CORRELATION_ID}) | names.TIMER_PROPERTIES

SendTogether = Callable[[Sequence[Message], MessageQueue | None], Awaitable[SendResult]]


class _Kind(NamedTuple):
    """The properties that messages of one request share."""

    topic: str
    queue: MessageQueue | None
    wait: str


@dataclass(eq=False, slots=True)
class _PendingBatch:
    """Messages that will leave together."""

    messages: list[Message] = field(default_factory=list)
    size_bytes: int = 0
    is_full: Event = field(default_factory=Event)
    sending: Task[list[SendResult | BaseException]] | None = None


class Accumulator:
    """Collects messages for `linger_ms` or up to `batch_bytes_max`, then sends them by `send`."""

    def __init__(self, linger_ms: int, batch_bytes_max: int, send: SendTogether) -> None:
        if not 1 <= linger_ms <= LINGER_MS_MAX:
            raise ValueError(f"linger_ms must be 0 (off) to {LINGER_MS_MAX}, not {linger_ms}")
        if batch_bytes_max < 1:
            raise ValueError(f"batch_bytes_max must be positive, not {batch_bytes_max}")
        self._linger_s = linger_ms / 1000
        self._batch_bytes_max = batch_bytes_max
        self._send = send
        self._open: dict[_Kind, _PendingBatch] = {}
        self._under_way: set[Task[list[SendResult | BaseException]]] = set()

    def takes(self, message: Message) -> bool:
        """True if the message may travel with others: neither delayed nor transactional, and small enough."""
        return (
            _ALONE.isdisjoint(message.properties)
            and not message.topic.startswith("%RETRY%")
            and _size(message) <= self._batch_bytes_max
        )

    async def send(self, message: Message, queue: MessageQueue | None) -> SendResult:
        """Send with others and return the message's own result or error.

        A caller that stops waiting does not recall it.
        """
        kind = _Kind(message.topic, queue, message.properties.get(names.WAIT, "true"))
        size = _size(message)
        pending = self._open.get(kind)
        if pending is not None and pending.size_bytes + size > self._batch_bytes_max:
            self._close(kind, pending)
            pending = None
        if pending is None:
            pending = self._open[kind] = _PendingBatch()
            pending.sending = create_task(self._send_later(kind, pending))
            self._under_way.add(pending.sending)
            pending.sending.add_done_callback(self._under_way.discard)
        index = len(pending.messages)
        pending.messages.append(message)
        pending.size_bytes += size
        if index + 1 >= BATCH_MESSAGES_MAX or pending.size_bytes >= self._batch_bytes_max:
            self._close(kind, pending)
        assert pending.sending is not None
        outcome = (await shield(pending.sending))[index]
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def flush(self) -> None:
        """Send the collected messages now, and wait for everything in progress."""
        for kind, pending in list(self._open.items()):
            self._close(kind, pending)
        await wait(list(self._under_way))

    def _close(self, kind: _Kind, pending: _PendingBatch) -> None:
        if self._open.get(kind) is pending:
            del self._open[kind]
        pending.is_full.set()

    async def _send_later(self, kind: _Kind, pending: _PendingBatch) -> list[SendResult | BaseException]:
        """Return an outcome for each message."""
        try:
            async with timeout(self._linger_s):
                await pending.is_full.wait()
        except TimeoutError:
            self._close(kind, pending)
        messages = pending.messages
        try:
            together = await self._send(messages, kind.queue)
        except RingmqError:
            raise
        except Exception:  # no request was made of them: what is wrong with one is no fault of the others
            if len(messages) == 1:
                raise
            return await gather(*(self._send([message], kind.queue) for message in messages), return_exceptions=True)
        return [own_result(together, index) for index in range(len(messages))]


def own_result(together: SendResult, index: int) -> SendResult:
    """Return one message's part of a batch's result: its own ids, its own offset."""
    if len(together.message_ids) == 1:
        return together
    ids = together.offset_message_ids
    return replace(
        together,
        queue_offset=together.queue_offset + index,
        message_ids=(together.message_ids[index],),
        offset_message_ids=(ids[index],) if index < len(ids) else (),
    )


def _size(message: Message) -> int:
    names_and_values = sum(len(name) + len(value) + 2 for name, value in message.properties.items())
    return len(message.body) + names_and_values + MESSAGE_OVERHEAD_BYTES
