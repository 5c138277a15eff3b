"""Metrics, their Prometheus form, and OpenTelemetry spans, over the fake cluster and both transports' code."""

from collections.abc import AsyncIterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from prometheus_client import CollectorRegistry, generate_latest

from ringmq.client import (
    ClientMetrics,
    ConnectionSettings,
    ConsumeFrom,
    Consumer,
    Message,
    Producer,
    SendError,
    TraceSettings,
    compose_message,
)
from ringmq.client.observing import message_trace, prometheus
from ringmq.client.observing.metrics import OTHER_TOPICS, TOPICS_MAX
from ringmq.client.observing.otel import OpenTelemetryInterceptor
from ringmq.client.retry import RetryPolicy
from ringmq.remoting.command import RemotingCommand
from ringmq.remoting.heartbeat import HeartbeatData
from tests.client.fake_broker import FakeCluster, refuse


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(topics={"T": 2, "RMQ_SYS_TRACE_TOPIC": 1, "ns%T": 2}) as running:
        yield running


async def drain(cluster: FakeCluster, settings: ConnectionSettings, count: int) -> list[Message]:
    """Read and acknowledge `count` messages of topic T."""
    messages: list[Message] = []
    async with Consumer(
        "T", cluster.namesrv, "g", auto_ack=False, consume_from=ConsumeFrom.FIRST, settings=settings
    ) as consumer:
        while len(messages) < count:
            taken = await consumer.poll(1, timeout_ms=60_000)
            assert taken
            consumer.ack(taken)
            messages += taken
    return messages


# ---- metrics ----


async def test_sends_and_receipts_are_counted(cluster: FakeCluster) -> None:
    metrics = ClientMetrics()
    settings = ConnectionSettings(metrics=metrics)
    async with Producer(cluster.namesrv, settings=settings, retry=RetryPolicy(attempts=2)) as producer:
        await producer.send_oneway(Message("T", b"1"))
        await producer.send(Message("T", b"12345"))
        await producer.send_batch([Message("T", b"12"), Message("T", b"34")])
        cluster.rules.append(lambda broker, request: refuse(request, 2, "busy") if request.code == 310 else None)
        with pytest.raises(SendError):
            await producer.send(Message("T", b"x"))
        cluster.rules.clear()
    await drain(cluster, settings, 4)
    now = metrics.snapshot()
    sends = {outcome: now.counter("ringmq_client_sends_total", "T", outcome) for outcome in ("ok", "oneway", "refused")}
    assert sends == {"ok": 2, "oneway": 1, "refused": 1}
    assert now.counter("ringmq_client_sent_messages_total", "T") == 3
    assert now.counter("ringmq_client_sent_bytes_total", "T") == 9
    assert now.counter("ringmq_client_send_retries_total", "T") == 1
    assert now.counter("ringmq_client_consumed_messages_total", "T", "g", "ok") == 4
    assert now.counter("ringmq_client_pulls_total", "T", "found") >= 1
    assert now.counter("ringmq_client_pulled_bytes_total", "T") > 300
    assert sum(now.histograms["ringmq_client_send_seconds"]["T",].counts) == 4
    assert sum(now.histograms["ringmq_client_consume_seconds"]["T", "g"].counts) == 4


def test_the_number_of_topics_is_bounded() -> None:
    metrics = ClientMetrics()
    for number in range(TOPICS_MAX + 50):
        metrics.count_pull(f"T{number}", 0, 1)
    pulls = metrics.snapshot().counters["ringmq_client_pulls_total"]
    assert len(pulls) == TOPICS_MAX + 1
    assert pulls[OTHER_TOPICS, "found"] == 50


async def test_trace_records_are_counted_and_written(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are written at the close, so that the buffer has room for two of them."""
    monkeypatch.setattr(message_trace, "LOOK_INTERVAL_S", 600.0)
    metrics = ClientMetrics()
    settings = ConnectionSettings(metrics=metrics, trace=TraceSettings(buffer_records_max=2))
    async with Producer(cluster.namesrv, settings=settings) as producer:
        await producer.send_all([Message("T", b"x") for _ in range(5)])
    (trace_message,) = cluster.broker.queues["RMQ_SYS_TRACE_TOPIC", 0]
    assert trace_message.body.count(b"\x02") == 2
    now = metrics.snapshot()
    assert now.counter("ringmq_client_trace_records_total", "recorded") == 2
    assert now.counter("ringmq_client_trace_records_total", "dropped") == 3
    assert now.counter("ringmq_client_sends_total", "RMQ_SYS_TRACE_TOPIC", "ok") == 0, "trace does not watch itself"


async def test_a_trace_topic_that_takes_nothing_holds_up_nobody(cluster: FakeCluster) -> None:
    metrics = ClientMetrics()
    settings = ConnectionSettings(metrics=metrics, trace=TraceSettings(batch_records=1))
    cluster.rules.append(
        lambda broker, request: (
            refuse(request, 13, "no")
            if request.code == 310 and request.ext_fields["b"] == "RMQ_SYS_TRACE_TOPIC"
            else None
        )
    )
    async with Producer(cluster.namesrv, settings=settings) as producer:
        await producer.send(Message("T", b"x"))
    assert metrics.snapshot().counter("ringmq_client_trace_records_total", "lost") == 1


async def test_a_hook_that_fails_once_does_not_end_the_trace(cluster: FakeCluster) -> None:
    failed: list[str] = []

    def hook(address: str, request: RemotingCommand) -> None:
        if request.code == 310 and request.ext_fields["b"] == "RMQ_SYS_TRACE_TOPIC" and not failed:
            failed.append(address)
            raise LookupError("no secret now")

    metrics = ClientMetrics()
    settings = ConnectionSettings(metrics=metrics, trace=TraceSettings(batch_records=1), before_request=(hook,))
    async with Producer(cluster.namesrv, settings=settings) as producer:
        await producer.send_all([Message("T", b"x") for _ in range(3)])
    assert len(cluster.broker.queues["RMQ_SYS_TRACE_TOPIC", 0]) == 2
    assert metrics.snapshot().counter("ringmq_client_trace_records_total", "lost") == 1


async def test_prometheus_reads_what_is_counted(cluster: FakeCluster) -> None:
    metrics, registry = ClientMetrics(), CollectorRegistry()
    collector = prometheus.register(metrics, registry)
    async with Producer(cluster.namesrv, settings=ConnectionSettings(metrics=metrics)) as producer:
        await producer.send(Message("T", b"x"))
    text = generate_latest(registry).decode()
    assert 'ringmq_client_sends_total{outcome="ok",topic="T"} 1.0' in text
    assert 'ringmq_client_send_seconds_bucket{le="+Inf",topic="T"} 1.0' in text
    assert 'ringmq_client_send_seconds_count{topic="T"} 1.0' in text
    assert "# TYPE ringmq_client_inbox_messages gauge" in text
    registry.unregister(collector)
    assert "ringmq" not in generate_latest(registry).decode()
    assert prometheus.process_metrics() is prometheus.process_metrics()


# ---- spans ----


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def telemetry(spans: InMemorySpanExporter) -> OpenTelemetryInterceptor:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return OpenTelemetryInterceptor(provider, TraceContextTextMapPropagator(), namespace="ns")


def named(spans: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in spans.get_finished_spans()}


async def test_a_message_is_one_trace_from_send_to_process(
    cluster: FakeCluster, spans: InMemorySpanExporter, telemetry: OpenTelemetryInterceptor
) -> None:
    settings = ConnectionSettings(interceptors=(telemetry,))
    async with Producer(cluster.namesrv, settings=settings) as producer:
        result = await producer.send(compose_message("T", b"12345", tags="t", keys=["k1", "k2"]))
    (message,) = await drain(cluster, settings, 1)
    found = named(spans)
    sent, received, processed = found["send T"], found["receive T"], found["process T"]
    assert (sent.kind, received.kind, processed.kind) == (SpanKind.PRODUCER, SpanKind.CLIENT, SpanKind.CONSUMER)
    assert sent.context is not None
    assert processed.parent is not None
    assert processed.parent.span_id == sent.context.span_id
    assert [link.context.span_id for link in received.links] == [sent.context.span_id]
    assert format(sent.context.trace_id, "032x") in message.properties["traceparent"]
    assert sent.attributes is not None
    host, port = cluster.broker.address.split(":")
    assert dict(sent.attributes) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "T",
        "messaging.destination.partition.id": str(result.queue.queue_id),
        "messaging.message.id": result.message_id,
        "messaging.message.body.size": 5,
        "messaging.rocketmq.message.keys": ("k1", "k2"),
        "messaging.rocketmq.message.tag": "t",
        "messaging.rocketmq.message.type": "normal",
        "messaging.rocketmq.namespace": "ns",
        "server.address": host,
        "server.port": int(port),
    }
    assert processed.attributes is not None
    assert processed.attributes["messaging.consumer.group.name"] == "g"
    assert processed.attributes["messaging.message.id"] == result.message_id


async def test_a_batch_is_one_span(
    cluster: FakeCluster, spans: InMemorySpanExporter, telemetry: OpenTelemetryInterceptor
) -> None:
    async with Producer(cluster.namesrv, settings=ConnectionSettings(interceptors=(telemetry,))) as producer:
        messages = [Message("T", b"x") for _ in range(3)]
        await producer.send_batch(messages)
    (span,) = spans.get_finished_spans()
    assert span.attributes is not None
    assert span.attributes["messaging.batch.message_count"] == 3
    assert len({m.properties["traceparent"] for m in messages}) == 1


async def test_a_failed_send_is_an_error(
    cluster: FakeCluster, spans: InMemorySpanExporter, telemetry: OpenTelemetryInterceptor
) -> None:
    cluster.rules.append(lambda broker, request: refuse(request, 13, "too big") if request.code == 310 else None)
    async with Producer(cluster.namesrv, settings=ConnectionSettings(interceptors=(telemetry,))) as producer:
        with pytest.raises(SendError):
            await producer.send(Message("T", b"x"))
    (span,) = spans.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"] == "13"


async def test_processing_makes_the_span_current(
    cluster: FakeCluster, spans: InMemorySpanExporter, telemetry: OpenTelemetryInterceptor
) -> None:
    settings = ConnectionSettings(interceptors=(telemetry,))
    async with Producer(cluster.namesrv) as producer:
        await producer.send(Message("T", b"x"))
    async with Consumer("T", cluster.namesrv, "g", consume_from=ConsumeFrom.FIRST, settings=settings) as consumer:
        (message,) = await consumer.poll(1, timeout_ms=60_000)
        with telemetry.processing(message, "g") as span:
            assert trace.get_current_span() is span
            assert span.is_recording()
        assert not trace.get_current_span().is_recording()
        consumer.ack(message)
        assert not span.is_recording()


# ---- namespaces ----


async def test_names_get_the_namespace_on_the_wire_alone(cluster: FakeCluster) -> None:
    metrics = ClientMetrics()
    settings = ConnectionSettings(namespace="ns", metrics=metrics)
    async with Producer(cluster.namesrv, "p", settings=settings) as producer:
        result = await producer.send(Message("T", b"x"))
        assert result.queue.topic == "T"
        assert {queue.topic for queue in await producer.queues("T")} == {"T"}
    messages = await drain(cluster, settings, 1)
    assert messages[0].topic == "T"
    kept = {topic for (topic, _), stored in cluster.broker.queues.items() if stored}
    assert kept == {"ns%T"}
    asked = cluster.broker.requests + cluster.name_server.requests
    names = {r.ext_fields.get("topic") or r.ext_fields.get("b") for r in asked}
    assert names - {None} <= {"ns%T", "%RETRY%ns%g", "TBW102"}
    fields = [(field, value) for r in asked for field, value in r.ext_fields.items()]
    assert {value for field, value in fields if field in ("consumerGroup", "producerGroup")} == {"ns%g", "ns%p"}
    heartbeats = [HeartbeatData.decode(r.body) for r in cluster.broker.asked(34)]
    assert {group for beat in heartbeats for group in beat.producer_groups} == {"ns%p"}
    assert {consumer.group_name for beat in heartbeats for consumer in beat.consumers} == {"ns%g"}
    assert metrics.snapshot().counter("ringmq_client_consumed_messages_total", "T", "g", "ok") == 1
    assert metrics.snapshot().counter("ringmq_client_pulls_total", "T", "found") == 1
