"""Message trace of one client: an interceptor makes records, and a sender sends them to a topic.

`TraceInterceptor` does no IO. `TraceSender` has a producer of its own, which is not traced, on the runtime of its
client.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ringmq.client.connections.identity import now_ms
from ringmq.client.errors import RingmqError
from ringmq.client.interceptors import Interceptor, TransactionEnd
from ringmq.client.observing.delivery_key import DeliveryKey, delivery_key
from ringmq.client.observing.trace_buffer import TraceBuffer
from ringmq.client.observing.trace_records import (
    ConsumeBeginRecord,
    ConsumeEndRecord,
    ConsumeOutcome,
    MessageType,
    SentRecord,
    TracedMessage,
    TransactionEndRecord,
)
from ringmq.client.runtimes.runtime import Event, Task, create_task, timeout, wait
from ringmq.remoting import properties as names
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.message import Message, MessageExt

if TYPE_CHECKING:
    from ringmq.client.producing.send_result import SendResult

log = logging.getLogger("ringmq.client")

DEFAULT_REGION = "DefaultRegion"
OPEN_MESSAGES_MAX = 100_000
"""The most delivered messages without acknowledgement. Beyond it the oldest are forgotten."""
LOOK_INTERVAL_S = 0.5
CLOSE_TIMEOUT_S = 5.0
_STOCK_STATES = {"COMMIT": "COMMIT_MESSAGE", "ROLLBACK": "ROLLBACK_MESSAGE"}


@dataclass(slots=True)
class _Sending:
    """The state of a send in progress."""

    group: str
    started_ms: int
    address: str = ""
    region_id: str = DEFAULT_REGION
    traced: bool = False  # the broker has answered and did not switch it off


class TraceInterceptor(Interceptor):
    """Makes a record for every message that is sent, delivered and acknowledged.

    The broker can switch trace off (`traceOn=false`). Failed sends leave no record, as with stock: no broker has
    named its region.
    """

    def __init__(
        self, buffer: TraceBuffer, next_request_id: Callable[[int], str], clock_ms: Callable[[], int] = now_ms
    ) -> None:
        self._buffer = buffer
        self._next_request_id = next_request_id
        self._clock_ms = clock_ms
        self._open: OrderedDict[DeliveryKey, tuple[str, int]] = OrderedDict()

    def before_send(self, group: str, messages: Sequence[Message]) -> _Sending:
        """Note the start time of the send."""
        return _Sending(group, self._clock_ms())

    def on_answer(self, scope: object, address: str, answer: RemotingCommand) -> None:
        """Note the broker's region and its trace switch."""
        assert isinstance(scope, _Sending)
        fields = answer.ext_fields
        scope.address = address
        scope.region_id = fields.get(names.MSG_REGION) or DEFAULT_REGION
        scope.traced = fields.get(names.TRACE_ON) != "false"

    def after_send(
        self, scope: object, messages: Sequence[Message], result: SendResult | None, error: BaseException | None
    ) -> None:
        """Make a record for each stored message."""
        assert isinstance(scope, _Sending)
        if result is None or not scope.traced:
            return
        now = self._clock_ms()
        places = result.offset_message_ids
        for index, (message, message_id) in enumerate(zip(messages, result.message_ids, strict=True)):
            properties = message.properties
            self._buffer.add(
                SentRecord(
                    TracedMessage(message_id, properties.get(names.KEYS)),
                    scope.started_ms,
                    scope.region_id,
                    scope.group,
                    message.topic,
                    properties.get(names.TAGS),
                    scope.address,
                    len(message.body),
                    now - scope.started_ms,
                    _message_type(message),
                    places[index] if index < len(places) else "",
                    result.status.name == "OK",
                ),
                now,
            )

    def after_transaction(self, group: str, message: Message, end: TransactionEnd) -> None:
        """Make a record of the transaction's end."""
        now, properties = self._clock_ms(), message.properties
        record = TransactionEndRecord(
            TracedMessage(end.message_id, properties.get(names.KEYS)),
            now,
            properties.get(names.MSG_REGION) or DEFAULT_REGION,
            group,
            message.topic,
            properties.get(names.TAGS),
            end.address,
            MessageType.TRANSACTION_COMMIT,
            end.transaction_id,
            _STOCK_STATES.get(end.state, end.state),
            end.from_check,
        )
        self._buffer.add(record, now)

    def before_consume(self, group: str, messages: Sequence[MessageExt]) -> None:
        """Make a record for each delivered message, and note its time for the record of its end."""
        now = self._clock_ms()
        request_id = self._next_request_id(now)
        for message in messages:
            if message.properties.get(names.TRACE_ON) == "false":
                continue
            self._open[delivery_key(group, message)] = (request_id, now)
            region_id = message.properties.get(names.MSG_REGION) or DEFAULT_REGION
            begin = ConsumeBeginRecord(_traced(message), now, region_id, group, request_id, message.reconsume_times)
            self._buffer.add(begin, now)
        while len(self._open) > OPEN_MESSAGES_MAX:
            self._open.popitem(last=False)

    def after_consume(self, group: str, messages: Sequence[MessageExt], error: BaseException | None) -> None:
        """Make a record for each finished message."""
        now = self._clock_ms()
        outcome = ConsumeOutcome.SUCCESS if error is None else ConsumeOutcome.EXCEPTION
        for message in messages:
            request_id, started_ms = self._open.pop(delivery_key(group, message), (None, 0))
            if request_id is not None:
                end = ConsumeEndRecord(_traced(message), now, group, request_id, now - started_ms, outcome)
                self._buffer.add(end, now)


class TraceProducer(Protocol):
    """The part of a producer that sends records."""

    def start(self) -> None:
        """Start on the running loop."""

    async def send(self, message: Message, /) -> object:
        """Send one message of records."""

    async def close(self) -> None:
        """Close after the last send."""


class TraceSender:
    """Sends the records of `buffer` by the producer of `make_producer`, from `start` to `close`."""

    def __init__(
        self, buffer: TraceBuffer, make_producer: Callable[[], TraceProducer], clock_ms: Callable[[], int] = now_ms
    ) -> None:
        self._buffer = buffer
        self._make_producer = make_producer
        self._clock_ms = clock_ms
        self._task: Task[None] | None = None
        self._dropped_told = 0

    def start(self) -> None:
        """Start on the client's runtime."""
        self._closing = Event()
        self._producer = self._make_producer()
        self._producer.start()
        self._task = create_task(self._run())

    async def close(self) -> None:
        """Send the remaining records for at most five seconds. The rest counts as lost."""
        if self._task is None:
            return
        task, self._task = self._task, None
        self._closing.set()
        try:
            await wait([task], timeout=CLOSE_TIMEOUT_S)
            if not task.done():
                task.cancel()
                await wait([task])
        finally:
            task.cancel()
            while (message := self._buffer.take(self._clock_ms(), everything=True)) is not None:
                self._buffer.note_lost(message)
            await self._producer.close()

    async def _run(self) -> None:
        while not self._closing.is_set():
            try:
                async with timeout(LOOK_INTERVAL_S):
                    await self._closing.wait()
            except TimeoutError:
                pass
            await self._send_what_is_due(everything=self._closing.is_set())

    async def _send_what_is_due(self, *, everything: bool) -> None:
        while (message := self._buffer.take(self._clock_ms(), everything=everything)) is not None:
            try:
                await self._producer.send(message)
            except (RingmqError, ValueError) as error:
                self._buffer.note_lost(message)
                log.info("%d trace records were not sent: %s", message.body.count(b"\x02"), error)
            except Exception:  # a hook's fault, or ours, must not end the trace silently
                self._buffer.note_lost(message)
                log.exception("%d trace records were not sent", message.body.count(b"\x02"))
        dropped = self._buffer.counts().dropped
        if dropped > self._dropped_told:
            log.warning(
                "message trace is slower than the messages: %d records were dropped", dropped - self._dropped_told
            )
            self._dropped_told = dropped


def _traced(message: MessageExt) -> TracedMessage:
    return TracedMessage(message.msg_id, message.properties.get(names.KEYS))


def _message_type(message: Message) -> MessageType:
    properties = message.properties
    if properties.get(names.TRAN_MSG) == "true":
        return MessageType.TRANSACTION_HALF
    if names.DELAY in properties or not names.TIMER_PROPERTIES.isdisjoint(properties):
        return MessageType.DELAY
    return MessageType.NORMAL
