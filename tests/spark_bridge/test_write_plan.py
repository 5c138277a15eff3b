"""What a write refuses before any task starts: options, columns, brokers."""

import logging
from typing import Any

import pytest

from ringmq.client import MessageQueue
from ringmq.client.connections.routes import TopicRoute
from ringmq.client.producing.staged_writes import StagingArea
from ringmq.spark_bridge.sink import plan as write_plan
from ringmq.spark_bridge.sink.columns import check_write_schema
from ringmq.spark_bridge.sink.errors import SchemaError, WriteError
from ringmq.spark_bridge.sink.options import OptionError, WriteOptions, parse_write_options
from ringmq.spark_bridge.sink.plan import plan_batch_write, plan_stream_write

HERE = {"bootstrap": "h:1"}
VALUE = [("value", "binary")]
PLACE = StagingArea("a", "staged", 4, 1 << 20, 4 << 20, 100)


def route(*brokers: str) -> TopicRoute:
    queues = tuple(MessageQueue("T", broker, number) for broker in brokers for number in range(2))
    return TopicRoute("T", queues, queues, {broker: {0: f"{broker}:1"} for broker in brokers})


def test_options_in_any_case_and_kafkas_alias() -> None:
    options = parse_write_options({"KAFKA.bootstrap.servers": "h:1,h:2", "TOPIC": "t", "checkpointLocation": "/c"})
    assert (options.bootstrap, options.topic, options.delivery) == ("h:1;h:2", "t", "auto")


def test_other_options_of_kafkas_client_are_ignored() -> None:
    assert parse_write_options({**HERE, "kafka.acks": "all"}) == parse_write_options(HERE)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, ("bootstrap", "host:port")),
        ({**HERE, "tpoic": "t"}, ("tpoic", "topic")),
        ({**HERE, "delivery": "maybe"}, ("delivery", "'maybe'", "at-least-once")),
        ({**HERE, "chunkBytes": "12"}, ("chunkBytes", "'12'", "4096")),
        ({**HERE, "chunkBytes": "x"}, ("chunkBytes", "'x'")),
        ({**HERE, "sendTimeoutMs": "0"}, ("sendTimeoutMs", "'0'")),
        ({**HERE, "commitTimeoutMs": "-1"}, ("commitTimeoutMs", "'-1'")),
    ],
)
def test_wrong_options_are_named_with_their_form(given: dict[str, str], words: tuple[str, ...]) -> None:
    with pytest.raises(OptionError) as caught:
        parse_write_options(given)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
    ("fields", "topic", "words"),
    [
        ([("key", "string")], "t", ("value", "missing")),
        ([("value", "int")], "t", ("value", "int", "string or binary")),
        ([*VALUE, ("offset", "bigint")], "t", ("offset", "known are")),
        ([*VALUE, ("headers", "map<string,string>")], "t", ("headers", "array<struct<")),
        (VALUE, None, ("topic",)),
        ([*VALUE, ("partition", "int"), ("shardingKey", "string")], "t", ("partition", "shardingKey")),
    ],
)
def test_wrong_columns_are_named(fields: list[tuple[str, str]], topic: str | None, words: tuple[str, ...]) -> None:
    with pytest.raises(SchemaError) as caught:
        check_write_schema(fields, topic)
    assert all(word in str(caught.value) for word in words)


def plan(
    options: dict[str, Any], brokers: tuple[str, ...] = ("a",), place: StagingArea | None = PLACE, **more: Any
) -> Any:
    fields = more.get("fields", VALUE)
    return plan_stream_write(
        WriteOptions("h:1", **{"topic": "T", **options}), fields, lambda _: route(*brokers), lambda _: place
    )


def test_a_stream_is_staged_where_the_broker_can() -> None:
    made = plan({})
    assert made.staging is PLACE and made.broker == "a" and made.chunk_bytes == 1 << 20


def test_a_stream_on_several_brokers_needs_one_to_decide() -> None:
    with pytest.raises(WriteError, match="option broker"):
        plan({}, ("a", "b"))
    assert plan({"broker": "b"}, ("a", "b")).staging is PLACE
    with pytest.raises(WriteError, match="'c'"):
        plan({"broker": "c"}, ("a", "b"))
    assert plan({"delivery": "at-least-once"}, ("a", "b")).staging is None


def test_a_broker_that_cannot_is_told_of_or_refused(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_plan, "_told", set())
    with caplog.at_level(logging.WARNING):
        assert plan({}, place=None).staging is None
    assert "at least once" in caplog.text
    with pytest.raises(WriteError, match="exactly-once"):
        plan({"delivery": "exactly-once"}, place=None)


def test_delays_are_refused_where_they_are_not_served() -> None:
    with pytest.raises(SchemaError, match="column delayLevel: broker a does not serve"):
        plan({}, fields=[*VALUE, ("delayLevel", "int")])
    assert plan({}, place=None, fields=[*VALUE, ("delayLevel", "int")]).staging is None


def test_a_batch_write_promises_no_more_than_it_keeps() -> None:
    with pytest.raises(WriteError, match="exactly-once is for streams"):
        plan_batch_write(WriteOptions("h:1", "T", delivery="exactly-once"), VALUE, overwrite=False)
    with pytest.raises(WriteError, match="append"):
        plan_batch_write(WriteOptions("h:1", "T"), VALUE, overwrite=True)
