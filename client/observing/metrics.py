"""Counts and latencies of a program's clients: `ConnectionSettings(metrics=ClientMetrics())`.

Counting is a few additions under a lock. Text is made on request (`snapshot`, or a scrape by
`ringmq.client.observing.prometheus`). One `ClientMetrics` may serve any number of clients of a process.
"""

from __future__ import annotations

import bisect
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringmq.client.errors import BrokerError, ConnectError, RequestTimeoutError, SendError
from ringmq.client.interceptors import Interceptor
from ringmq.client.observing.delivery_key import DeliveryKey, delivery_key
from ringmq.remoting.codes import ResponseCode
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.message import Message, MessageExt

if TYPE_CHECKING:
    from ringmq.client.producing.send_result import SendResult

TOPICS_MAX = 200
OTHER_TOPICS = "(other)"
"""Stands for all topics beyond the first `TOPICS_MAX`, so that the number of series stays bounded."""
BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
OPEN_MESSAGES_MAX = 100_000

COUNTERS = {
    "ringmq_client_sends_total": ("topic", "outcome"),
    "ringmq_client_sent_messages_total": ("topic",),
    "ringmq_client_sent_bytes_total": ("topic",),
    "ringmq_client_send_retries_total": ("topic",),
    "ringmq_client_pulls_total": ("topic", "outcome"),
    "ringmq_client_pulled_bytes_total": ("topic",),
    "ringmq_client_consumed_messages_total": ("topic", "group", "outcome"),
    "ringmq_client_replies_total": ("outcome",),
    "ringmq_client_trace_records_total": ("outcome",),
}
"""Counter -> its labels."""
HISTOGRAMS = {
    "ringmq_client_send_seconds": ("topic",),
    "ringmq_client_consume_seconds": ("topic", "group"),
}
GAUGES = {
    "ringmq_client_inbox_messages": ("group",),
    "ringmq_client_inbox_bytes": ("group",),
}
HELP = {
    "ringmq_client_sends_total": "Sends (a batch is one) by how they ended: ok, not_safe (stored, but disk or replicas "
    "were not waited for), oneway, refused, timeout, connection, failed.",
    "ringmq_client_sent_messages_total": "Messages that were stored.",
    "ringmq_client_sent_bytes_total": "Their bodies, before compression.",
    "ringmq_client_send_retries_total": "Attempts beyond the first of each send that a broker answered.",
    "ringmq_client_pulls_total": "Answered pulls and pops: found, empty (nothing new), moved (the offset is not "
    "there), busy, refused.",
    "ringmq_client_pulled_bytes_total": "Stored messages that pulls and pops brought, as they came.",
    "ringmq_client_consumed_messages_total": "Messages that the application is done with: ok, or failed (they will "
    "come again).",
    "ringmq_client_replies_total": "Replies that brokers pushed: taken, late (dropped, because no request waited), "
    "failed (not decoded).",
    "ringmq_client_trace_records_total": "Message trace records: recorded, dropped (no room), lost (not sent).",
    "ringmq_client_send_seconds": "From the call of a send to its result, over all attempts.",
    "ringmq_client_consume_seconds": "From handing a message out to its acknowledgement.",
    "ringmq_client_inbox_messages": "Messages that were pulled and not yet taken by the application.",
    "ringmq_client_inbox_bytes": "Their bodies.",
}

_PULL_OUTCOMES: dict[int, str] = {
    ResponseCode.SUCCESS: "found",
    ResponseCode.PULL_NOT_FOUND: "empty",
    ResponseCode.PULL_RETRY_IMMEDIATELY: "empty",
    ResponseCode.PULL_OFFSET_MOVED: "moved",
    ResponseCode.SYSTEM_BUSY: "busy",
    ResponseCode.FLOW_CONTROL: "busy",
    ResponseCode.POLLING_TIMEOUT: "empty",
    ResponseCode.POLLING_FULL: "busy",
}

Labels = tuple[str, ...]


@dataclass(slots=True)
class Histogram:
    """Observations by upper bound in seconds. The last of `counts` is for values above all of `BUCKETS_S`."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    sum_s: float = 0.0

    def observe(self, seconds: float) -> None:
        """Count one observation."""
        self.counts[bisect.bisect_left(BUCKETS_S, seconds)] += 1
        self.sum_s += seconds


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """All series at one time: name -> label values in the order of `COUNTERS`, `HISTOGRAMS`, `GAUGES` -> value."""

    counters: dict[str, dict[Labels, int]]
    histograms: dict[str, dict[Labels, Histogram]]
    gauges: dict[str, dict[Labels, int]]

    def counter(self, name: str, *labels: str) -> int:
        """Return a counter's value, 0 for one without counts."""
        return self.counters[name].get(labels, 0)


class Backlog:
    """The (messages, bytes) of a consumer's inbox, measured for each snapshot."""

    def __init__(self, measure: Callable[[], tuple[int, int]]) -> None:
        self.measure = measure


class _Sending:
    __slots__ = ("answers", "started")

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.answers = 0


class ClientMetrics(Interceptor):
    """Counts the work of its clients. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[str, dict[Labels, int]] = {name: {} for name in COUNTERS}
        self._histograms: dict[str, dict[Labels, Histogram]] = {name: {} for name in HISTOGRAMS}
        self._backlogs: weakref.WeakKeyDictionary[Backlog, str] = weakref.WeakKeyDictionary()
        self._topics: set[str] = set()
        self._open: OrderedDict[DeliveryKey, float] = OrderedDict()

    def snapshot(self) -> MetricsSnapshot:
        """Return a copy of all current series."""
        with self._lock:
            counters = {name: dict(series) for name, series in self._counters.items()}
            histograms = {
                name: {labels: Histogram(list(one.counts), one.sum_s) for labels, one in series.items()}
                for name, series in self._histograms.items()
            }
            backlogs = list(self._backlogs.items())
        gauges: dict[str, dict[Labels, int]] = {name: {} for name in GAUGES}
        for backlog, group in backlogs:
            for name, value in zip(GAUGES, backlog.measure(), strict=True):
                gauges[name][(group,)] = gauges[name].get((group,), 0) + value
        return MetricsSnapshot(counters, histograms, gauges)

    def count(self, name: str, *labels: str, by: int = 1) -> None:
        """Add to a counter."""
        with self._lock:
            self._add(name, labels, by)

    def watch_inbox(self, group: str, measure: Callable[[], tuple[int, int]]) -> Backlog:
        """Show an inbox's (messages, bytes) as long as the returned object lives."""
        backlog = Backlog(measure)
        with self._lock:
            self._backlogs[backlog] = group
        return backlog

    def count_pull(self, topic: str, code: int, body_bytes: int) -> None:
        """Count the answer to a pull or a pop by `code`, and the bytes of its body."""
        with self._lock:
            topic = self._bounded(topic)
            self._add("ringmq_client_pulls_total", (topic, _PULL_OUTCOMES.get(code, "refused")))
            if body_bytes:
                self._add("ringmq_client_pulled_bytes_total", (topic,), body_bytes)

    # ---- Interceptor ----

    def before_send(self, group: str, messages: Sequence[Message]) -> _Sending:
        """Note the start time."""
        return _Sending()

    def on_answer(self, scope: object, address: str, answer: RemotingCommand) -> None:
        """Count the answers of one send."""
        assert isinstance(scope, _Sending)
        scope.answers += 1

    def after_send(
        self, scope: object, messages: Sequence[Message], result: SendResult | None, error: BaseException | None
    ) -> None:
        """Count the send."""
        assert isinstance(scope, _Sending)
        seconds = time.perf_counter() - scope.started
        if result is not None:
            outcome = "ok" if result.status.name == "OK" else "not_safe"
        else:
            outcome = "oneway" if error is None else _outcome_of(error)
        topic = messages[0].topic if messages else ""
        with self._lock:
            topic = self._bounded(topic)
            self._add("ringmq_client_sends_total", (topic, outcome))
            if result is not None:
                self._add("ringmq_client_sent_messages_total", (topic,), len(messages))
                self._add("ringmq_client_sent_bytes_total", (topic,), sum([len(m.body) for m in messages]))
            if scope.answers > 1:
                self._add("ringmq_client_send_retries_total", (topic,), scope.answers - 1)
            self._observe("ringmq_client_send_seconds", (topic,), seconds)

    def before_consume(self, group: str, messages: Sequence[MessageExt]) -> None:
        """Note the time of delivery."""
        now = time.perf_counter()
        with self._lock:
            for message in messages:
                self._open[delivery_key(group, message)] = now
            while len(self._open) > OPEN_MESSAGES_MAX:
                self._open.popitem(last=False)

    def after_consume(self, group: str, messages: Sequence[MessageExt], error: BaseException | None) -> None:
        """Count the messages."""
        now = time.perf_counter()
        outcome = "ok" if error is None else "failed"
        with self._lock:
            for message in messages:
                topic = self._bounded(message.topic)
                self._add("ringmq_client_consumed_messages_total", (topic, group, outcome))
                started = self._open.pop(delivery_key(group, message), None)
                if started is not None:
                    self._observe("ringmq_client_consume_seconds", (topic, group), now - started)

    # ---- inside, under the lock ----

    def _add(self, name: str, labels: Labels, by: int = 1) -> None:
        series = self._counters[name]
        series[labels] = series.get(labels, 0) + by

    def _observe(self, name: str, labels: Labels, seconds: float) -> None:
        series = self._histograms[name]
        histogram = series.get(labels)
        if histogram is None:
            histogram = series[labels] = Histogram()
        histogram.observe(seconds)

    def _bounded(self, topic: str) -> str:
        if topic not in self._topics:
            if len(self._topics) >= TOPICS_MAX:
                return OTHER_TOPICS
            self._topics.add(topic)
        return topic


def _outcome_of(error: BaseException) -> str:
    cause = error.cause if isinstance(error, SendError) else error
    if isinstance(cause, BrokerError):
        return "refused"
    if isinstance(cause, RequestTimeoutError):
        return "timeout"
    return "connection" if isinstance(cause, ConnectError) else "failed"
