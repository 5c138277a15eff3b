"""OpenTelemetry spans of a client's sends and receives (extra `otel`: opentelemetry-api, nothing else).

Spans follow the semantic conventions for messaging:

* `send <topic>` (producer);
* `receive <topic>` (client, linked to the sends of the messages);
* `process <topic>` (consumer, a child of the send, from delivery to acknowledgement).

The context travels in the messages' properties, by the propagator in use (`traceparent`, `tracestate`, `baggage`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING

from ringmq.client.extras import not_installed

try:
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
    from opentelemetry.util.types import AttributeValue
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(not_installed(__name__, error.name, "otel"), name=error.name) from None

from ringmq.client.errors import BrokerError, SendError
from ringmq.client.interceptors import Interceptor
from ringmq.client.observing.delivery_key import DeliveryKey, delivery_key
from ringmq.remoting import properties as names
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.message import Message, MessageExt

if TYPE_CHECKING:
    from ringmq.client.producing.send_result import SendResult

SYSTEM = "rocketmq"
OPEN_SPANS_MAX = 100_000
"""The most open spans of messages without acknowledgement. Beyond it the oldest are ended."""


class OpenTelemetryInterceptor(Interceptor):
    """Makes the spans. `namespace` is shown as `messaging.rocketmq.namespace`. Several clients may share it."""

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        propagator: TextMapPropagator | None = None,
        *,
        namespace: str = "",
    ) -> None:
        self._tracer = trace.get_tracer("ringmq.client", version("ringmq"), tracer_provider)
        self._propagator = propagator or propagate.get_global_textmap()
        self._namespace = namespace
        self._open: OrderedDict[DeliveryKey, Span] = OrderedDict()

    @contextmanager
    def processing(self, message: MessageExt, group: str) -> Iterator[Span]:
        """Make the message's `process` span the current one, so that spans of the application become its children."""
        span = self._open.get(delivery_key(group, message), trace.INVALID_SPAN)
        with trace.use_span(span, end_on_exit=False):
            yield span

    # ---- Interceptor ----

    def before_send(self, group: str, messages: Sequence[Message]) -> Span:
        """Begin the span, and put its context into the messages."""
        attributes = self._attributes("send", messages)
        span = self._tracer.start_span(f"send {_topic(messages)}", kind=SpanKind.PRODUCER, attributes=attributes)
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, trace.set_span_in_context(span))
        for message in messages:
            message.properties.update((name, value) for name, value in carrier.items() if value)
        return span

    def on_answer(self, scope: object, address: str, answer: RemotingCommand) -> None:
        """Set the span's server: the broker that answered last."""
        assert isinstance(scope, Span)
        host, _, port = address.rpartition(":")
        scope.set_attribute("server.address", host)
        scope.set_attribute("server.port", int(port))

    def after_send(
        self, scope: object, messages: Sequence[Message], result: SendResult | None, error: BaseException | None
    ) -> None:
        """End the span."""
        assert isinstance(scope, Span)
        if result is not None:
            if len(result.message_ids) == 1:
                scope.set_attribute("messaging.message.id", result.message_id)
            scope.set_attribute("messaging.destination.partition.id", str(result.queue.queue_id))
        if error is not None:
            _note_error(scope, error)
        scope.end()

    def before_consume(self, group: str, messages: Sequence[MessageExt]) -> None:
        """Make a `receive` span for all messages, and a lasting `process` span for each."""
        sent = [self._propagator.extract(message.properties, Context()) for message in messages]
        links = [
            Link(context)
            for context in (trace.get_current_span(one).get_span_context() for one in sent)
            if context.is_valid
        ]
        attributes = self._attributes("receive", messages) | {"messaging.consumer.group.name": group}
        name = f"receive {_topic(messages)}"
        self._tracer.start_span(name, kind=SpanKind.CLIENT, attributes=attributes, links=links).end()
        for message, parent in zip(messages, sent, strict=True):
            own = self._attributes("process", (message,)) | {
                "messaging.consumer.group.name": group,
                "messaging.message.id": message.msg_id,
                "messaging.destination.partition.id": str(message.queue_id),
            }
            span = self._tracer.start_span(
                f"process {message.topic}", parent or None, kind=SpanKind.CONSUMER, attributes=own
            )
            before = self._open.pop(delivery_key(group, message), None)
            if before is not None:  # handed out again without an acknowledgement
                before.end()
            self._open[delivery_key(group, message)] = span
        while len(self._open) > OPEN_SPANS_MAX:
            self._open.popitem(last=False)[1].end()

    def after_consume(self, group: str, messages: Sequence[MessageExt], error: BaseException | None) -> None:
        """End the messages' `process` spans."""
        for message in messages:
            span = self._open.pop(delivery_key(group, message), None)
            if span is not None:
                if error is not None:
                    _note_error(span, error)
                span.end()

    # ---- inside ----

    def _attributes(self, operation: str, messages: Sequence[Message]) -> dict[str, AttributeValue]:
        attributes: dict[str, AttributeValue] = {
            "messaging.system": SYSTEM,
            "messaging.operation.name": operation,
            "messaging.operation.type": operation,
            "messaging.destination.name": _topic(messages),
        }
        if self._namespace:
            attributes["messaging.rocketmq.namespace"] = self._namespace
        if len(messages) != 1:
            return attributes | {"messaging.batch.message_count": len(messages)}
        (message,) = messages
        attributes["messaging.message.body.size"] = len(message.body)
        attributes["messaging.rocketmq.message.type"] = _message_type(message)
        if message.tags:
            attributes["messaging.rocketmq.message.tag"] = message.tags
        if message.keys:
            attributes["messaging.rocketmq.message.keys"] = message.keys
        delay_level = message.properties.get(names.DELAY, "")
        if delay_level.isdecimal():
            attributes["messaging.rocketmq.message.delay_time_level"] = int(delay_level)
        return attributes


def _topic(messages: Sequence[Message]) -> str:
    return messages[0].topic if messages else ""


def _note_error(span: Span, error: BaseException) -> None:
    cause = error.cause if isinstance(error, SendError) else error
    kind = str(cause.code) if isinstance(cause, BrokerError) else type(cause).__qualname__
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, str(error)))


def _message_type(message: Message) -> str:
    properties = message.properties
    if properties.get(names.TRAN_MSG) == "true":
        return "transaction"
    if names.DELAY in properties or not names.TIMER_PROPERTIES.isdisjoint(properties):
        return "delay"
    return "fifo" if names.SHARDING_KEY in properties else "normal"
