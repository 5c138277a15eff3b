"""A stream's planning on a catalog that is told what to answer: waiting for brokers, frozen ends, losses."""

import logging
from dataclasses import dataclass, replace

import pytest

from ringmq.spark_bridge import stream_query
from ringmq.spark_bridge.errors import DataLossError, ReadError
from ringmq.spark_bridge.options import ReadOptions, parse_options
from ringmq.spark_bridge.slices import QueueKey
from ringmq.spark_bridge.stream_core import Limits
from ringmq.spark_bridge.stream_query import StreamQuery
from tests.spark_bridge.fake_catalog import FakeCatalog

A, B = QueueKey("T", "b", 0), QueueKey("T", "b", 1)
OPTIONS = parse_options({"store": "/s", "startingOffsets": "earliest"}, streaming=True)
NO_LIMITS = Limits()


@dataclass
class Brokers(FakeCatalog):
    """`away` of the looks from now on fail; `short` of them show queues as empty."""

    away: int = 0
    short: int = 0

    def ends(self) -> dict[QueueKey, int]:
        self.away -= 1
        if self.away >= 0:
            raise ReadError("name server n:9876 cannot be asked")
        self.short -= 1
        return {key: 0 if self.short >= 0 else self.bounds(key)[1] for key in self.queues()}


@pytest.fixture
def catalog() -> Brokers:
    return Brokers({A: (0, 10), B: (0, 20)})


def query(catalog: Brokers, options: ReadOptions = OPTIONS) -> StreamQuery:
    return StreamQuery(options, catalog)


def test_a_new_query_begins_where_its_options_say(catalog: Brokers) -> None:
    assert query(catalog).initial_offsets() == {A: 0, B: 0}
    latest = parse_options({"store": "/s"}, streaming=True)
    assert query(catalog, latest).initial_offsets() == {A: 10, B: 20}


def test_only_assigned_queues_are_followed(catalog: Brokers) -> None:
    assigned = parse_options({"store": "/s", "assign": '{"T": ["b:1"]}', "startingOffsets": "earliest"}, streaming=True)
    stream = query(catalog, assigned)
    assert stream.initial_offsets() == {B: 0}
    assert stream.next_end({B: 0}, NO_LIMITS) == {B: 20}


def test_a_broker_that_cannot_be_asked_is_waited_for(catalog: Brokers, caplog: pytest.LogCaptureFixture) -> None:
    stream = query(catalog)
    place = stream.next_end({A: 0, B: 0}, NO_LIMITS)
    catalog.away = 2
    with caplog.at_level(logging.WARNING, "ringmq.spark_bridge"):
        assert stream.next_end(place, NO_LIMITS) == place
        assert stream.next_end(place, NO_LIMITS) == place
    assert [record.message for record in caplog.records if "waits" in record.message] == [
        "name server n:9876 cannot be asked. The stream waits up to 120 s for it"
    ]
    catalog.known[A] = (0, 15)
    assert stream.next_end(place, NO_LIMITS) == {A: 15, B: 20}


def test_but_not_for_ever(catalog: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_query, "OUTAGE_MAX_S", -1.0)
    catalog.away = 1
    with pytest.raises(ReadError, match="cannot be asked"):
        query(catalog).next_end({A: 0, B: 0}, NO_LIMITS)


def test_queues_that_look_short_for_a_moment_lose_nothing(catalog: Brokers) -> None:
    catalog.short = 3
    assert query(catalog).next_end({A: 10, B: 20}, NO_LIMITS) == {A: 10, B: 20}


@pytest.mark.parametrize("frozen", [False, True])
def test_queues_that_stay_short_were_made_anew(catalog: Brokers, frozen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_query, "SETTLE_S", 0.05)
    stream = query(catalog)
    if frozen:
        stream.freeze()
    end = stream.next_end({A: 50, B: 20}, NO_LIMITS)
    assert end == {A: 10, B: 20}
    with pytest.raises(
        DataLossError, match=r"queue b:0 of topic T ends at offset 10, the query stood at 50.*failOnData"
    ):
        stream.slices({A: 50, B: 20}, end)


def test_a_frozen_log_does_not_grow(catalog: Brokers) -> None:
    stream = query(catalog)
    stream.freeze()
    catalog.known |= {A: (0, 99), QueueKey("New", "b", 0): (0, 5)}
    assert stream.next_end({A: 0, B: 0}, Limits(rows_min=1000)) == {A: 10, B: 20}, "and is not waited for"
    assert stream.log_end().offsets[A] == 99, "what is told of the log's end is its end now"


def test_losses_are_passed_over_with_a_warning(catalog: Brokers, caplog: pytest.LogCaptureFixture) -> None:
    catalog.known[A] = (6, 10)
    stream = query(catalog, replace(OPTIONS, fail_on_data_loss=False))
    with caplog.at_level(logging.WARNING, "ringmq.spark_bridge"):
        slices = stream.slices({A: 0, B: 20}, {A: 10, B: 20})
    assert [(span.begin, span.end) for part in slices for span in part.spans] == [(6, 10)]
    assert "offsets 0 to 5 of queue b:0 of topic T are gone" in caplog.text


def test_many_losses_are_told_in_a_line(catalog: Brokers) -> None:
    start = {QueueKey("Gone", "b", number): 5 for number in range(30)}
    with pytest.raises(DataLossError, match="and 20 queues more") as told:
        query(catalog).slices(start, {})
    assert str(told.value).count("of topic Gone") == stream_query.LOSSES_SHOWN


def test_queues_are_merged_into_tasks(catalog: Brokers) -> None:
    slices = query(catalog).slices({A: 0, B: 0}, {A: 10, B: 20})
    assert len(slices) == 1
    assert slices[0].rows_max == 30
    four = query(catalog, replace(OPTIONS, min_partitions=4)).slices({A: 0, B: 0}, {A: 10, B: 20})
    assert sorted(part.rows_max for part in four) == [6, 8, 8, 8]
