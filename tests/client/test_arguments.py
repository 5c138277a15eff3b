"""Wrong arguments are refused when the object is made: later they would fail in a task that tries without end."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ringmq.client import (
    BodyRules,
    ConnectionSettings,
    ConsumeFrom,
    Consumer,
    ConsumeRetry,
    Credentials,
    Producer,
    PullOptions,
    RetryPolicy,
    Sql92,
    TlsSettings,
    TraceSettings,
    TransactionProducer,
    allocate_averagely,
    blocking,
)
from ringmq.client.cluster import Cluster
from ringmq.client.interceptors import Interceptor
from tests.client.consuming import consumer_of
from tests.client.fake_broker import FakeCluster

NOWHERE = "127.0.0.1:1"
Make = Callable[..., Any]


def consumer(topics: Any = "T", namesrv: Any = NOWHERE, group: Any = "g", **options: Any) -> None:
    Consumer(topics, namesrv, group, **options)
    blocking.Consumer(topics, namesrv, group, **options)


def producer(namesrv: Any = NOWHERE, group: Any = "g", **options: Any) -> None:
    Producer(namesrv, group, **options)
    blocking.Producer(namesrv, group, **options)


def cluster_of(namesrv: Any = NOWHERE, **options: Any) -> None:
    Cluster(namesrv, **options)
    blocking.Cluster(namesrv, **options)


def transactions(**options: Any) -> None:
    TransactionProducer(NOWHERE, "g", **options)


WRONG: list[tuple[Make, str, Any]] = [
    # consumers
    (consumer, "consume_from", "first"),
    (consumer, "consume_from", None),
    (consumer, "timestamp_ms", "yesterday"),
    (consumer, "timestamp_ms", 1.5),
    (consumer, "timestamp_ms", -1),
    (consumer, "timestamp_ms", 1 << 63),
    (consumer, "auto_ack", "no"),
    (consumer, "ordered", 1),
    (consumer, "broadcast", "false"),
    (consumer, "options", {"batch_count": 1}),
    (consumer, "settings", {"namespace": "n"}),
    (consumer, "allocate", "averagely"),
    (consumer, "allocate", None),
    (consumer, "on_assigned", "print"),
    (consumer, "on_revoked", []),
    (consumer, "drain_timeout_ms", None),
    (consumer, "drain_timeout_ms", -1),
    (partial(consumer, broadcast=True), "offset_file", 5),
    (partial(consumer, broadcast=True), "offset_file", ""),
    (consumer, "group", None),
    (consumer, "group", 5),
    (consumer, "namesrv", None),
    (consumer, "namesrv", b"127.0.0.1:9876"),
    (consumer, "namesrv", [9876]),
    # producers and questions
    (producer, "namesrv", 9876),
    (producer, "group", b"g"),
    (producer, "retry", 3),
    (producer, "body_rules", {"compression": None}),
    (producer, "settings", "namespace"),
    (producer, "in_flight_max", 1.5),
    (producer, "in_flight_max", 0),
    (producer, "in_flight_bytes_max", "64m"),
    (producer, "linger_ms", "5"),
    (producer, "linger_ms", 0.5),
    (producer, "linger_ms", True),
    (producer, "batch_bytes_max", 0),
    (producer, "batch_bytes_max", None),
    (transactions, "check", "check"),
    (cluster_of, "timeout_ms", "5000"),
    (cluster_of, "timeout_ms", 0),
    (cluster_of, "settings", {}),
    # settings
    (PullOptions, "batch_count", "32"),
    (PullOptions, "batch_count", 1 << 31),
    (PullOptions, "suspend_ms", 0.5),
    (PullOptions, "inbox_max", 1e9),
    (PullOptions, "check_crc", "no"),
    (RetryPolicy, "attempts", 1.5),
    (RetryPolicy, "budget_ms", "3000"),
    (RetryPolicy, "budget_ms", 1 << 31),
    (RetryPolicy, "retry_codes", 17),
    (RetryPolicy, "retry_codes", "17"),
    (RetryPolicy, "avoid_slow_brokers", "no"),
    (RetryPolicy, "another_broker_when_not_store_ok", None),
    (ConsumeRetry, "max_reconsume_times", "16"),
    (ConsumeRetry, "max_reconsume_times", 1 << 31),
    (ConsumeRetry, "delay_level", "3"),
    (ConsumeRetry, "suspend_ms", 0.5),
    (ConsumeRetry, "local_max_ms", None),
    (BodyRules, "compression", "zlib"),
    (BodyRules, "compression_level", "5"),
    (BodyRules, "compress_over_bytes", None),
    (BodyRules, "body_bytes_max", 0),
    (TraceSettings, "topic", 5),
    (TraceSettings, "batch_records", "20"),
    (TraceSettings, "flush_interval_ms", 0.5),
    (ConnectionSettings, "tls", True),
    (ConnectionSettings, "credentials", ("shop", "s3cret")),
    (ConnectionSettings, "trace", True),
    (ConnectionSettings, "metrics", True),
    (ConnectionSettings, "namespace", None),
    (ConnectionSettings, "before_request", print),
    (ConnectionSettings, "before_request", (None,)),
    (ConnectionSettings, "interceptors", Interceptor()),
    (ConnectionSettings, "interceptors", (Interceptor,)),
    (TlsSettings, "ca_file", True),
    (TlsSettings, "key_file", ""),
    (TlsSettings, "server_name", 5),
    (TlsSettings, "key_password", b"s3cret"),
    (TlsSettings, "insecure_skip_verification", "no"),
    (partial(Credentials, secret_key="s"), "access_key", 5),
    (partial(Credentials, "shop"), "secret_key", b"s3cret"),
]


@pytest.mark.parametrize(("make", "name", "value"), WRONG)
def test_a_wrong_argument_is_named(make: Make, name: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{name} ") as caught:
        make(**{name: value})
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("topics", [5, b"T", [None], {"T": None}, {"T": b"a"}, {"T": Sql92(None)}, {5: "*"}])  # type: ignore[arg-type]
def test_wrong_topics_are_named(topics: Any) -> None:
    with pytest.raises(TypeError, match="topic"):
        consumer(topics)
    with pytest.raises(ValueError, match="at least one topic"):
        consumer(iter(()))


async def test_a_consumer_with_a_wrong_start_says_so_before_it_starts() -> None:
    async with FakeCluster(topics={"T": 1}) as cluster, asyncio.timeout(60):
        with pytest.raises(TypeError, match="consume_from must be of type ConsumeFrom, not 'first'"):
            async with Consumer("T", cluster.namesrv, "g", consume_from="first"):  # type: ignore[arg-type]
                raise AssertionError("it has started")


@pytest.mark.parametrize(
    "wrong", [{"concurrency": "8"}, {"concurrency": 1 << 31}, {"timeout_ms": 0.5}, {"retry": 3}, {"handler": None}]
)
async def test_a_run_with_wrong_arguments_takes_no_message(wrong: dict[str, Any]) -> None:
    """Each message would fail on a handler that cannot be called, and end among the dead letters."""
    async with FakeCluster(topics={"T": 1}) as cluster, consumer_of(cluster) as consumer:
        with pytest.raises((TypeError, ValueError), match=next(iter(wrong))):
            await asyncio.wait_for(consumer.run(**{"handler": print, **wrong}), 60)


def test_right_arguments_are_taken(tmp_path: Path) -> None:
    retry = ConsumeRetry(max_reconsume_times=0, local_first_ms=1, suspend_ms=(1 << 31) - 1)
    assert retry.max_reconsume_times == 0
    settings = ConnectionSettings(before_request=[lambda address, request: None], interceptors=[Interceptor()])  # type: ignore[arg-type]
    for file in ("offsets.json", tmp_path / "offsets.json", None):
        consumer(broadcast=True, offset_file=file, settings=settings, drain_timeout_ms=0, timestamp_ms=0)
    consumer(None, [NOWHERE], consume_from=ConsumeFrom.TIMESTAMP, timestamp_ms=1 << 62, allocate=allocate_averagely)
    Consumer(iter(["T", "U"]), NOWHERE, "g")
    consumer(("T", "U"), (NOWHERE,), options=PullOptions(1, 1, 1, 1, 1 << 40, 1 << 40, 1 << 40, 1 << 40))
    producer(retry=RetryPolicy(retry_codes=frozenset()), body_rules=BodyRules(compression=None, compress_over_bytes=0))
