"""The observers of one client, by its settings: interceptors in their order, and the sender of its message trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from ringmq.client.connections.identity import new_key_generator
from ringmq.client.interceptors import Interceptor
from ringmq.client.observing.message_trace import TraceInterceptor, TraceProducer, TraceSender
from ringmq.client.observing.trace_buffer import TraceBuffer

if TYPE_CHECKING:
    from ringmq.client.observing.metrics import Backlog
    from ringmq.client.settings import ConnectionSettings

TRACE_GROUP_PREFIX = "_INNER_TRACE_PRODUCER-"  # as stock's, so that operators know it
GROUP_CHARS = 100


class MakesProducer(Protocol):
    """The class `Producer`. It has observers itself, so its module is not imported here."""

    def __call__(self, namesrv: Sequence[str], group: str, *, settings: ConnectionSettings) -> TraceProducer:
        """Return a producer that is not started."""


class Observers:
    """`interceptors` are the metrics', the application's, and message trace's. Empty if no setting enables one."""

    def __init__(
        self, settings: ConnectionSettings, namesrv: Sequence[str], group: str, producer: MakesProducer
    ) -> None:
        self.metrics = settings.metrics
        first = () if settings.metrics is None else (settings.metrics,)
        last: tuple[Interceptor, ...] = ()
        self._trace_sender: TraceSender | None = None
        self._backlog: Backlog | None = None  # the metrics know it for as long as we hold it
        if settings.trace is not None:
            buffer = TraceBuffer(settings.trace, self._count_records)
            last = (TraceInterceptor(buffer, new_key_generator().next_key),)

            def make_producer() -> TraceProducer:
                quiet = replace(settings, trace=None, metrics=None, interceptors=(), namespace="")
                return producer(namesrv, (TRACE_GROUP_PREFIX + group)[:GROUP_CHARS], settings=quiet)

            self._trace_sender = TraceSender(buffer, make_producer)
        self.interceptors: tuple[Interceptor, ...] = (*first, *settings.interceptors, *last)

    def start(self) -> None:
        """Start with the client, on its runtime."""
        if self._trace_sender is not None:
            self._trace_sender.start()

    async def close(self) -> None:
        """Close after the client's last event."""
        self._backlog = None
        if self._trace_sender is not None:
            await self._trace_sender.close()

    def watch_inbox(self, group: str, measure: Callable[[], tuple[int, int]]) -> None:
        """Show the (messages, bytes) of an inbox until the client is forgotten."""
        if self.metrics is not None:
            self._backlog = self.metrics.watch_inbox(group, measure)

    def count_reply(self, outcome: str) -> None:
        """Count a reply that a broker has pushed."""
        if self.metrics is not None:
            self.metrics.count("ringmq_client_replies_total", outcome)

    def _count_records(self, outcome: str, count: int) -> None:
        if self.metrics is not None:
            self.metrics.count("ringmq_client_trace_records_total", outcome, by=count)
