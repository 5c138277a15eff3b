"""Where reads begin and end: the rules of Spark's Kafka source on queues with bounds."""

import json
import logging
from typing import Any

import pytest

from ringmq.spark_bridge.errors import DataLossError
from ringmq.spark_bridge.limits import read_spans, starting_offsets
from ringmq.spark_bridge.option_table import OptionError
from ringmq.spark_bridge.options import parse_options
from tests.spark_bridge.fake_catalog import FakeCatalog

ONE = {("Orders", "a", 0): (10, 50), ("Orders", "a", 1): (0, 20), ("Empty", "a", 0): (5, 5)}
TWO = {("Orders", "a", 0): (10, 50), ("Orders", "b", 0): (0, 20)}
Spans = dict[tuple[str, str, int], tuple[int, int]]


def spans(known: Spans, options: dict[str, str]) -> Spans:
    parsed = parse_options({"store": "/store"} | options)
    found = read_spans(FakeCatalog(known, parsed), parsed)
    return {(span.key.topic, span.key.broker, span.key.queue_id): (span.begin, span.end) for span in found}


def orders(first: object, second: object) -> str:
    return json.dumps({"Orders": {"a:0": first, "1": second}})


ORDERS = {"subscribe": "Orders"}
READS: list[tuple[str, dict[str, str], list[tuple[int, int]]]] = [
    ("all", {}, [(10, 50), (0, 20)]),
    ("from offsets", {"startingOffsets": orders(12, -2)}, [(12, 50), (0, 20)]),
    ("to offsets", {"endingOffsets": orders(12, -1)}, [(10, 12), (0, 20)]),
    ("nothing of one queue", {"startingOffsets": orders(50, 0)}, [(0, 20)]),
    ("ends before it starts", {"startingOffsets": orders(30, 0), "endingOffsets": orders(20, 5)}, [(0, 5)]),
    ("since a time", {"startingTimestamp": "1105"}, [(11, 50), (11, 20)]),
    ("to a time", {"endingTimestamp": "1105"}, [(10, 11), (0, 11)]),
    ("to a time that one has not reached", {"endingTimestamp": "1300"}, [(10, 30), (0, 20)]),
    ("since times", {"startingOffsetsByTimestamp": orders(1400, 1000)}, [(40, 50), (0, 20)]),
    ("to times", {"endingOffsetsByTimestamp": orders(1400, 1010)}, [(10, 40), (0, 1)]),
    (
        "from the end where the time is not reached",
        {"startingTimestamp": "1300", "startingOffsetsByTimestampStrategy": "latest"},
        [(30, 50)],
    ),
]


@pytest.mark.parametrize(("options", "expected"), [read[1:] for read in READS], ids=[read[0] for read in READS])
def test_what_a_batch_covers(options: dict[str, str], expected: list[tuple[int, int]]) -> None:
    assert list(spans(ONE, ORDERS | options).values()) == expected


def test_queues_without_rows_are_left_out() -> None:
    assert ("Empty", "a", 0) not in spans(ONE, {})


def test_assigned_queues_alone_are_read() -> None:
    assert spans(ONE, {"assign": '{"Orders": ["a:1"]}'}) == {("Orders", "a", 1): (0, 20)}
    assert spans(TWO, {"assign": '{"Orders": ["b:0"]}'}) == {("Orders", "b", 0): (0, 20)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "Order"}, "subscribe: Order not found .* topics found: none.*includeSystemTopics"),
        ({"assign": '{"Orders": [7]}'}, "assign: a:7 of Orders not found .* topics found: Orders"),
        (ORDERS | {"startingOffsets": '{"Orders": {"0": 12}}'}, "startingOffsets does not name a:1 of Orders"),
        (
            ORDERS | {"endingOffsets": '{"Orders": {"0": 12, "1": 0, "2": 0}}'},
            "endingOffsets: a:2 of Orders not found",
        ),
        (ORDERS | {"startingOffsets": '{"Orders": {"0": 12, "a:0": 12, "1": 0}}'}, "names a queue twice"),
        (ORDERS | {"startingTimestamp": "1300"}, "a:1 of Orders has no message .*Strategy=latest"),
    ],
)
def test_what_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        spans(ONE, options)


def test_a_bare_queue_is_refused_where_several_brokers_are_read() -> None:
    with pytest.raises(OptionError, match=r"queue 0 of Orders may be on any of a, b; accepted: .*broker:queue"):
        spans(TWO, {"startingOffsets": '{"Orders": {"0": 12}}'})
    with pytest.raises(OptionError, match="assign: queue 0 of Orders may be on any of a, b"):
        spans(TWO, {"assign": '{"Orders": [0]}'})
    both = spans(TWO, {"startingOffsets": '{"Orders": {"a:0": 12, "b:0": 3}}'})
    assert list(both.values()) == [(12, 50), (3, 20)]


LOSSES = [
    (
        {"startingOffsets": orders(4, 0)},
        "a:0 of Orders: startingOffsets asks for offset 4, the queue has 10 to 50",
        (10, 50),
    ),
    ({"startingOffsets": orders(60, 0)}, "startingOffsets asks for offset 60, the queue has 10 to 50", None),
    ({"endingOffsets": orders(60, 20)}, "endingOffsets asks for offset 60, the queue has 10 to 50", (10, 50)),
    ({"endingOffsets": orders(3, 20)}, "endingOffsets asks for offset 3, the queue has 10 to 50", None),
]


@pytest.mark.parametrize(("options", "message", "left"), LOSSES)
def test_offsets_out_of_range(
    options: dict[str, str], message: str, left: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(DataLossError, match=message):
        spans(ONE, ORDERS | options)
    with caplog.at_level(logging.WARNING):
        found = spans(ONE, ORDERS | options | {"failOnDataLoss": "false"})
    assert message in caplog.text
    assert found.get(("Orders", "a", 0)) == left
    assert found["Orders", "a", 1] == (0, 20)


def test_where_a_stream_begins() -> None:
    def begin(options: dict[str, str]) -> list[int]:
        parsed = parse_options({"store": "/store"} | ORDERS | options, streaming=True)
        return list(starting_offsets(FakeCatalog(ONE, parsed), parsed).values())

    assert begin({}) == [50, 20]
    assert begin({"startingOffsets": "earliest"}) == [10, 0]
    assert begin({"startingOffsets": orders(-1, 7)}) == [50, 7]
    assert begin({"startingTimestamp": "1150"}) == [15, 15]


def test_one_look_serves_a_plan() -> None:
    catalog = FakeCatalog(ONE)
    read_spans(catalog, parse_options({"store": "/store"}))
    assert catalog.looks == 1
