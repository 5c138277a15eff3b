"""Read options: each has its effect; what is missing or impossible is refused by name, with what is accepted."""

import logging
from pathlib import Path
from typing import Any

import pytest

from ringmq.spark_bridge import options as options_module
from ringmq.spark_bridge.offsets_option import (
    EARLIEST,
    LATEST,
    Everywhere,
    QueueName,
    QueueOffsets,
    QueueTimes,
    SinceTime,
)
from ringmq.spark_bridge.option_table import OPTION, OPTIONS, Reads, warn_of_kafka_options
from ringmq.spark_bridge.options import OptionError, ReadOptions, TopicChoice, parse_options

STORE = {"store": "/data/store"}
OFFSETS = '{"Orders": {"broker-a:0": 7, "1": -2}}'
TIMES = '{"Orders": {"broker-a:0": 1700000000000}}'

EFFECTS: list[tuple[str, str, str, Any]] = [  # option, value, field of ReadOptions, what it becomes
    ("store", "/data/other", "store", Path("/data/other")),
    ("bootstrap", "ns1:9876, ns2:9876", "bootstrap", "ns1:9876;ns2:9876"),
    ("subscribe", " Orders , Bills ", "topics", TopicChoice(names=("Orders", "Bills"))),
    ("subscribePattern", "Ord.*", "topics", TopicChoice(pattern="Ord.*")),
    (
        "assign",
        '{"Orders": ["broker-a:0", 1]}',
        "topics",
        TopicChoice(queues=(QueueName("Orders", "broker-a", 0), QueueName("Orders", None, 1))),
    ),
    (
        "startingOffsets",
        OFFSETS,
        "starting",
        QueueOffsets({QueueName("Orders", "broker-a", 0): 7, QueueName("Orders", None, 1): -2}),
    ),
    ("endingOffsets", '{"Orders": {"0": -1}}', "ending", QueueOffsets({QueueName("Orders", None, 0): -1})),
    ("startingTimestamp", "1700000000000", "starting", SinceTime(1_700_000_000_000)),
    ("endingTimestamp", "0", "ending", SinceTime(0)),
    ("startingOffsetsByTimestamp", TIMES, "starting", QueueTimes({QueueName("Orders", "broker-a", 0): 1700000000000})),
    ("endingOffsetsByTimestamp", TIMES, "ending", QueueTimes({QueueName("Orders", "broker-a", 0): 1700000000000})),
    ("startingOffsetsByTimestampStrategy", "LATEST", "late_start", "latest"),
    ("failOnDataLoss", "false", "fail_on_data_loss", False),
    ("minPartitions", "7", "min_partitions", 7),
    ("maxRecordsPerPartition", "1000", "max_records_per_partition", 1000),
    ("includeHeaders", "TRUE", "include_headers", True),
    ("groupIdPrefix", "reports", "group_id_prefix", "reports"),
    ("columns", "offset, topic", "columns", ("offset", "topic")),
    ("verifyCrc", "true", "verify_crc", True),
    ("openMessages", "billing, audit", "open_messages", ("billing", "audit")),
    ("includeSystemTopics", "true", "include_system_topics", True),
    ("transport", "shm", "transport", "shm"),
    ("maxOffsetsPerTrigger", "5", "max_offsets_per_trigger", 5),
    ("minOffsetsPerTrigger", "6", "min_offsets_per_trigger", 6),
    ("maxTriggerDelay", "2 min", "max_trigger_delay_ms", 120_000),
    ("commitGroup", "dashboard", "commit_group", "dashboard"),
]


def test_every_option_of_the_table_is_tried() -> None:
    assert [option.name for option in OPTIONS] == [name for name, *_ in EFFECTS]


@pytest.mark.parametrize(("name", "value", "field", "expected"), EFFECTS, ids=[name for name, *_ in EFFECTS])
@pytest.mark.parametrize("case", [str, str.lower, str.upper])
def test_an_option_has_its_effect_in_any_case(name: str, value: str, field: str, expected: Any, case: Any) -> None:
    streaming = OPTION[name].reads is Reads.STREAM
    others = {"store": {}, "commitGroup": STORE | {"bootstrap": "n:9876"}}.get(name, STORE)
    given = parse_options(others | {case(name): value}, streaming=streaming)
    plain = parse_options(STORE, streaming=streaming)
    assert getattr(given, field) == expected
    assert getattr(plain, field) != expected, "the default has to differ for this to show anything"


def test_defaults_are_those_of_kafkas_source() -> None:
    batch, stream = parse_options(STORE), parse_options(STORE, streaming=True)
    assert batch == ReadOptions(store=Path("/data/store"))
    assert (batch.starting, batch.ending) == (Everywhere(EARLIEST), Everywhere(LATEST))
    assert stream.starting == Everywhere(LATEST)
    assert stream.max_trigger_delay_ms == 900_000


REFUSED: list[tuple[dict[str, str], str]] = [
    ({"stroe": "x"}, "'stroe'"),
    ({"subscribe": "a", "assign": '{"a": [0]}'}, "subscribe and assign exclude"),
    ({"subscribe": "a", "subscribePattern": "b"}, "subscribe and subscribePattern exclude"),
    ({"subscribe": " , "}, "subscribe"),
    ({"subscribePattern": "("}, "subscribePattern.*no regular expression"),
    ({"bootstrap": "somewhere"}, "bootstrap.*host:port"),
    ({"transport": "udp"}, "transport.*auto, shm or tcp"),
    ({"transport": "tcp"}, "transport.*bootstrap"),
    ({"assign": '{"a": 0}'}, "assign.*no list of queues for a"),
    ({"assign": '{"a": [true]}'}, "assign.*True"),
    ({"assign": '{"a": [0, "0"]}'}, "assign.*twice"),
    ({"assign": "a"}, "assign.*no JSON"),
    ({"assign": "{}"}, "assign.*entries"),
    ({"startingOffsets": "latest"}, "startingOffsets='latest'.*earliest"),
    ({"startingOffsets": '{"a": {"0": -1}}'}, "startingOffsets.*has -1 for queue 0 of a"),
    ({"startingOffsets": '{"a": {"0": -3}}'}, "has -3"),
    ({"startingOffsets": '{"a": {"0": 1.5}}'}, "has 1.5"),
    ({"startingOffsets": '{"a": {"0": 9223372036854775808}}'}, "63 bits"),
    ({"startingOffsets": '{"a": {"x": 1}}'}, "'x'.*broker:queue"),
    ({"startingOffsets": '{"a": {":0": 1}}'}, "':0'.*broker:queue"),
    ({"startingOffsets": '{"a": {"0": 1, "0": 2}}'}, "twice"),
    ({"startingOffsets": '{"a": "{}"}'}, "in place of an object"),
    ({"startingOffsets": "first"}, "startingOffsets.*no JSON"),
    ({"endingOffsets": "earliest"}, "endingOffsets='earliest'.*latest"),
    ({"endingOffsets": '{"a": {"0": -2}}'}, "has -2"),
    ({"startingTimestamp": "today"}, "startingTimestamp.*milliseconds"),
    ({"endingTimestamp": "-1"}, "endingTimestamp.*milliseconds"),
    ({"startingOffsetsByTimestamp": '{"a": {"0": -1}}'}, "startingOffsetsByTimestamp.*has -1"),
    ({"startingOffsetsByTimestampStrategy": "earliest"}, "error or latest"),
    ({"failOnDataLoss": "no"}, "failOnDataLoss.*true or false"),
    ({"minPartitions": "0"}, "minPartitions.*from 1 on"),
    ({"maxRecordsPerPartition": "-5"}, "maxRecordsPerPartition.*from 1 on"),
    ({"includeHeaders": "2"}, "includeHeaders.*true or false"),
    ({"groupIdPrefix": "my group"}, "groupIdPrefix.*letters"),
    ({"columns": "offset,body"}, "'body' is not one of"),
    ({"columns": "offset,offset"}, "twice"),
    ({"store": "/a", "path": "/b"}, "store is given twice"),
    ({"openMessages": " , "}, "openMessages.*consumer groups"),
    ({"openMessages": "g", "subscribe": "Orders"}, "subscribe means nothing beside openMessages.*store, columns"),
    ({"openMessages": "g", "columns": "value"}, "'value' is not one of group, topic"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_a_batch_read_refuses(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_options(STORE | options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets.*no end"),
        ({"endingTimestamp": "5"}, "endingTimestamp.*no end"),
        ({"openMessages": "g"}, "openMessages is for batch reads"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay.*ms, s, m, h or d"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger"),
        ({"commitGroup": "a b"}, "commitGroup"),
        ({"commitGroup": "watchers"}, "commitGroup needs option bootstrap"),
    ],
)
def test_a_stream_refuses(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_options(STORE | options, streaming=True)


def test_one_of_store_and_bootstrap_is_needed() -> None:
    with pytest.raises(OptionError, match=r"store.*bootstrap"):
        parse_options({})
    with pytest.raises(OptionError, match=r"openMessages needs option store"):
        parse_options({"openMessages": "g"})


def test_a_stream_may_begin_at_either_end() -> None:
    latest = parse_options(STORE | {"startingOffsets": '{"a": {"0": -1, "1": -2}}'}, streaming=True).starting
    assert latest == QueueOffsets({QueueName("a", None, 0): LATEST, QueueName("a", None, 1): EARLIEST})


def test_times_go_before_offsets_as_in_kafkas_source() -> None:
    every = {"startingTimestamp": "5", "startingOffsetsByTimestamp": TIMES, "startingOffsets": OFFSETS}
    assert parse_options(STORE | every).starting == SinceTime(5)
    del every["startingTimestamp"]
    assert isinstance(parse_options(STORE | every).starting, QueueTimes)


def test_kafkas_address_is_an_alias_and_its_other_options_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    given = {"kafka.bootstrap.servers": "ns:9876", "Kafka.max.poll.records": "5", "kafka.acks": "all"}
    with caplog.at_level(logging.WARNING):
        assert parse_options(given).bootstrap == "ns:9876"
        assert caplog.records == [], "several processes parse the options of one read"
        warn_of_kafka_options({"subscribe": "T", "kafka.bootstrap.servers": "ns:9876"})
        assert caplog.records == []
        warn_of_kafka_options(given)
    assert [record.message for record in caplog.records] == [
        "ignored options of Kafka's client: Kafka.max.poll.records, kafka.acks"
    ]


def test_a_streams_option_in_a_batch_read_is_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options_module, "_warned", set())
    with caplog.at_level(logging.WARNING):
        parse_options(STORE | {"maxOffsetsPerTrigger": "5"})
    assert "maxOffsetsPerTrigger is for streams" in caplog.text


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        (TopicChoice(), {"Orders", "OrdersOld", "Bills"}),
        (TopicChoice(names=("Orders",)), {"Orders"}),
        (TopicChoice(pattern="Orders"), {"Orders"}),
        (TopicChoice(pattern="Orders.*"), {"Orders", "OrdersOld"}),
        (TopicChoice(queues=(QueueName("Bills", None, 0),)), {"Bills"}),
    ],
)
def test_which_topics_are_meant(choice: TopicChoice, wanted: set[str]) -> None:
    assert {topic for topic in ("Orders", "OrdersOld", "Bills") if choice.wants(topic)} == wanted
